package unpack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nsbox/launcher/unpack/request"
)

// fault is a refusal of the input, not a failure of the machine.
type fault struct{ code, what string }

func (f *fault) Error() string { return f.code + ": " + f.what }

func refuse(code, what string) error { return &fault{code, what} }

// Run is the stage. The exit status is 0 if a report was printed.
func Run() int {
	var req request.Request
	rep := request.Report{Counts: map[string]int{}}
	err := errors.New("want one argument: this program is started by nsbox, not by hand")
	if len(os.Args) == 2 {
		err = json.Unmarshal([]byte(os.Args[1]), &req)
	}
	if err == nil {
		switch req.Op {
		case request.OpUnpack:
			err = image(request.ImageDir, request.StoreDir, req.Digest, req.Bounds, &rep)
		case request.OpWheels:
			err = wheels(request.WheelsDir, req.Bounds, &rep)
		default:
			err = fmt.Errorf("no operation %q", req.Op)
		}
	}
	rep.OK = err == nil
	if f := (*fault)(nil); errors.As(err, &f) {
		rep.Code, rep.What = f.code, cut(f.what)
	} else if err != nil {
		rep.Code, rep.What = "failed", cut(err.Error())
	}
	line, err := json.Marshal(rep)
	if err != nil {
		return 1
	}
	for line = append(line, '\n'); len(line) > 0; {
		n, err := unix.Write(1, line)
		if err != nil && err != unix.EINTR {
			return 1
		}
		line = line[max(n, 0):]
	}
	return 0
}

func cut(s string) string {
	if len(s) > 512 {
		return s[:512] + "…"
	}
	return s
}
