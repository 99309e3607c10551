package nsexec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// MapError says that the id maps could not be written.
type MapError struct {
	Path string // the map file or the helper
	Text string // the helper's own words, at most 4 KiB
	Err  error
}

func (e *MapError) Error() string {
	if e.Text != "" {
		return fmt.Sprintf("%s: %v: %s", e.Path, e.Err, e.Text)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

func (e *MapError) Unwrap() error { return e.Err }

// writeMaps writes both maps, by the helpers in parallel where there are any:
// one helper costs as much as half a box. A fired stop ends the helpers.
func writeMaps(pid int, id Identity, stop <-chan struct{}) error {
	if id.Nested {
		if err := denySetgroups(pid); err != nil {
			return err
		}
	}
	gid := make(chan error, 1)
	one := func(helper, file string, m []MapEntry) error {
		if helper == "" {
			return writeMap(fmt.Sprintf("/proc/%d/%s", pid, file), m)
		}
		return runHelper(helper, pid, m, stop)
	}
	if id.GIDHelper == "" {
		gid <- one("", "gid_map", id.GIDs)
	} else {
		go func() { gid <- one(id.GIDHelper, "gid_map", id.GIDs) }()
	}
	err := one(id.UIDHelper, "uid_map", id.UIDs)
	return errors.Join(err, <-gid)
}

func writeMap(path string, m []MapEntry) error {
	var text strings.Builder
	for _, e := range m {
		fmt.Fprintf(&text, "%d %d %d\n", e.Inside, e.Host, e.Count)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(text.String())) // the kernel takes a map in one write only
		unix.Close(fd)
	}
	if err != nil {
		return &MapError{Path: path, Err: err}
	}
	return nil
}

// runHelper runs newuidmap or newgidmap with an empty environment, without the
// caller's standard input, and keeps at most 4 KiB of what it says. It looks users up, which may mean a network, so
// it must be possible to stop it: its real uid is ours, setuid or not.
func runHelper(helper string, pid int, m []MapEntry, stop <-chan struct{}) error {
	argv := []string{helper, strconv.Itoa(pid)}
	for _, e := range m {
		argv = append(argv, strconv.Itoa(e.Inside), strconv.Itoa(e.Host), strconv.Itoa(e.Count))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return &MapError{Path: helper, Err: err}
	}
	defer r.Close()
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		w.Close()
		return &MapError{Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	pidfd := -1
	p, err := syscall.ForkExec(helper, argv, &syscall.ProcAttr{Env: []string{}, Files: []uintptr{uintptr(null), w.Fd(), w.Fd()}, Sys: &syscall.SysProcAttr{PidFD: &pidfd}})
	w.Close()
	if err != nil {
		return &MapError{Path: helper, Err: err}
	}
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-stop:
			unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
			r.Close() // whoever else has the pipe
		case <-ended:
		}
	}()
	defer func() {
		close(ended)
		<-watched
		unix.Close(pidfd)
	}()
	text, _ := io.ReadAll(io.LimitReader(r, 4096))
	go io.Copy(io.Discard, r)
	ws := waitPID(p)
	if !ws.Exited() || ws.ExitStatus() != 0 {
		return &MapError{Path: helper, Text: string(bytes.TrimSpace(text)), Err: fmt.Errorf("exit status %d", ws.ExitStatus())}
	}
	return nil
}
