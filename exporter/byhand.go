package exporter

import (
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Check examines path by hand with the same checks, and copies nothing. A
// directory is examined like a sealed /out whose entries have to belong to its
// owner. Of a file only the file is examined, whoever owns it, under the name it
// has or the one in as, if that is not empty. path's own last part is not
// followed if it is a link. The error says why nothing could be examined.
func Check(path, as string, b Bounds) (Report, error) {
	if err := b.Validate(); err != nil {
		return Report{}, err
	}
	if as != "" && !plainName(as) {
		return Report{}, fmt.Errorf("%q is not a file name", as)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Report{}, err
	}
	defer unix.Close(fd)
	id, err := statFD(fd)
	if err != nil {
		return Report{}, err
	}
	if id.typeCode() == codeDirectory {
		return checkDirectory(path, id, b)
	}
	name := as
	if name == "" {
		name = filepath.Base(path)
	}
	e := &examination{dir: -1, req: Request{Bounds: b, OwnerUID: id.UID, OwnerGID: id.GID}, root: id}
	return e.run(func() []surveyed {
		e.report.Entries = 1
		h := &Handle{Name: name, FD: -1}
		if id.typeCode() == "" {
			*h = reopen(fd, name)
			defer func() { e.opened = append(e.opened, h.FD) }()
		}
		allowed := h
		if !slices.Contains(b.AllowedNames, name) {
			allowed = nil
		}
		e.entry(name, id, allowed)
		return []surveyed{{*h, id}}
	}, standardChecks), nil
}

func checkDirectory(path string, id identity, b Bounds) (Report, error) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Report{}, err
	}
	defer unix.Close(dir)
	e := &examination{dir: dir, req: Request{Bounds: b, OwnerUID: id.UID, OwnerGID: id.GID}}
	if e.root, err = statFD(dir); err != nil {
		return Report{}, err
	}
	return e.run(func() []surveyed {
		for _, name := range b.AllowedNames {
			h := openByHand(dir, name)
			e.req.Names, e.opened = append(e.req.Names, h), append(e.opened, h.FD)
		}
		return e.survey()
	}, standardChecks), nil
}

// openByHand opens a name for reading if it leads to a regular file. Opening a
// device or a pipe can have effects, so what it is comes first, and the same
// inode is opened then.
func openByHand(dir int, name string) Handle {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return failed(name, err)
	}
	defer unix.Close(fd)
	if id, err := statFD(fd); err != nil || id.typeCode() != "" {
		return failed(name, unix.EINVAL) // the survey says what it is
	}
	return reopen(fd, name)
}

func reopen(fd int, name string) Handle {
	opened, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(name, err)
	}
	return Handle{Name: name, FD: opened}
}

func failed(name string, err error) Handle {
	no, ok := err.(unix.Errno)
	if !ok {
		no = unix.EIO
	}
	return Handle{Name: name, FD: -1, Errno: int(no)}
}
