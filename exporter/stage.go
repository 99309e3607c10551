package exporter

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"nsbox/exporter/raw"
)

// The set-up's slots. More staging files and the allowed names stand where the
// request says.
const (
	reportFD    = 1
	directoryFD = 3
	stagingFD   = 4
)

// Run is the stage. It returns the exit status: 0 if an examination took place
// and its report was written, 1 if not; in the second case a report, if there is
// one, says why.
func Run() int {
	report := fromArgs(os.Args)
	line, err := report.encode()
	if err != nil || len(line) > MaxReport || writeAll(reportFD, line) != nil {
		return 1
	}
	for _, code := range report.Codes() {
		if code == codeBadRequest || code == codeInternal {
			return 1
		}
	}
	return 0
}

func fromArgs(argv []string) Report {
	req, err := decodeRequest(argv)
	if err != nil {
		r := Report{Verdict: Rejected}
		r.add(codeBadRequest, "", err.Error())
		return r
	}
	missing(directoryFD, req.Names)
	return Examine(directoryFD, req)
}

// missing marks the names that the set-up could not open: it leaves their numbers
// closed, since argv is fixed before it runs. Such a number may be in use by now
// for something of the Go runtime's own, but all that is close-on-exec, and what
// was handed in came over an exec. Why the set-up failed is not known here;
// whether the name is there at all is.
func missing(dir int, names []Handle) {
	for i := range names {
		if names[i].FD < 0 {
			continue
		}
		flags, err := raw.Fcntl(names[i].FD, unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			continue
		}
		names[i].FD, names[i].Errno = -1, int(unix.EACCES)
		if _, err := statName(dir, names[i].Name); err == unix.ENOENT {
			names[i].Errno = int(unix.ENOENT)
		}
	}
}

func decodeRequest(argv []string) (Request, error) {
	var req Request
	if len(argv) != 2 {
		return req, errors.New("want one argument: this program is started by nsbox, not by hand")
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(argv[1])))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		return req, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return req, errors.New("text after the request")
	}
	return req, req.Validate()
}

func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		n := 0
		err := retry(func() (e error) { n, e = raw.Write(fd, data); return e })
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
