package cgroupv2

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openFile opens one file of a group directory by its descriptor. name is a
// constant of this package, so it cannot lead elsewhere; O_NOFOLLOW says so.
func openFile(dir *os.File, name string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fd), name), nil
	}
}

func readSmall(dir *os.File, name string) (string, error) {
	f, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return reread(f)
}

// reread reads a kept file from its start in one call; the kernel renders the
// whole of a small cgroup file into one read.
func reread(f *os.File) (string, error) {
	var buf [1024]byte
	for {
		n, err := unix.Pread(int(f.Fd()), buf[:], 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		return string(buf[:n]), nil
	}
}

// readAll reads a file that may be long, such as cgroup.procs.
func readAll(dir *os.File, name string) (string, error) {
	f, err := openFile(dir, name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// writeSmall writes one value. A short write cannot happen on cgroupfs.
func writeSmall(dir *os.File, name, value string) error {
	f, err := openFile(dir, name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = unix.Write(int(f.Fd()), []byte(value))
	return err
}

func controllers(dir *os.File) []string {
	text, err := readSmall(dir, "cgroup.controllers")
	if err != nil {
		return nil
	}
	return strings.Fields(text)
}

// subdirs lists the child groups. A listing that fails is empty: every caller
// goes on to an rmdir, which tells the truth.
func subdirs(dir *os.File) []string {
	d, err := openFile(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer d.Close()
	entries, err := d.ReadDir(-1)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

var errNoField = errors.New("field not found")

// flatKeyed returns one non-negative value of a "key value" file.
func flatKeyed(text, key string) (int64, error) {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || k != key {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 63)
		return int64(n), err
	}
	return 0, errNoField
}
