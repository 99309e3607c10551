package tool

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/nsexec"
	"nsbox/tests/harness"
)

// What all boxes of a machine share, one of them must not take whole: terminals
// come from one number for all instances of devpts.
func TestTerminalsAreBounded(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(everyday("/usr/bin/python3", "-c", `
import errno, os
held = []
try:
    while True: held.append(os.open("/dev/ptmx", os.O_RDWR))
except OSError as e: print(len(held), errno.errorcode[e.errno])`)).WantOK()
		if got, want := string(run.Stdout), nsexec.Terminals+" ENOSPC\n"; got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	})
}

// A read-only mount does not keep a program from writing to a FIFO: Landlock does.
// The reader on the host is held open without one, so that nothing waits.
func TestFIFOCannotBeWritten(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		tree := filepath.Dir(s.File("fifo/hello", "there"))
		path := filepath.Join(tree, "fifo")
		if err := unix.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // past the umask
			t.Fatal(err)
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		code := `
import errno, os, sys
for flags in os.O_WRONLY | os.O_NONBLOCK, os.O_RDWR:
    try: os.write(os.open(sys.argv[1], flags), b"here"); print("written")
    except OSError as e: print(errno.errorcode[e.errno])`
		j := everyday("/usr/bin/python3", "-c", code, "/live/fifo")
		j.Flags = []string{"--ro", tree + ":/live"}
		run := s.Run(j).WantOK()
		if got := string(run.Stdout); got != "EACCES\nEACCES\n" {
			t.Errorf("printed %q", got)
		}
		got := make([]byte, 64)
		if n, err := unix.Read(fd, got); n > 0 || err != nil {
			t.Errorf("the reader got %q: %v", got[:max(n, 0)], err)
		}
		s.OnHost(harness.Job{Argv: []string{"/usr/bin/python3", "-c", code, path}}) // the control: the same caller
		if n, _ := unix.Read(fd, got); string(got[:max(n, 0)]) != "herehere" {
			t.Errorf("control: on the host %q came through", got[:max(n, 0)])
		}
	})
}
