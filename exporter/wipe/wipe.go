// Package wipe empties a provisioned slot of /out, as a program of a box of its
// own: the box has the id map of the box that filled the slot, an empty root with
// the slot mounted in it, no network and no capability. The stage runs under the
// workload's own id, so it may remove all that the workload made, and nothing
// else, whatever the names it meets say.
//
// The slot's content is hostile: names that are no text, links that lead out,
// directories nobody may enter, trees deeper than any path or stack allows.
// Names are therefore used once, relative to an open directory, and never
// printed; links are unlinked and not followed; and the depth of the tree costs
// neither descriptors nor stack, because a directory that is not empty is moved
// up to the top and taken apart there.
//
// A wipe that was cut off is begun again from the start: every step leaves a
// tree that a new run empties. Whether the slot is empty is not the stage's word:
// the launcher asks the kernel.
package wipe

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// StageName is argv[0] of the stage; At is where its box has the slot.
const (
	StageName = "nsbox-wipe"
	At        = "/out"
)

// Mode is the slot's root's before and after, and what a directory gets to be
// taken apart.
const Mode = 0o700

// Run is the stage. Status 0: all was removed; 1: something was not. It is
// process 2 of its box; a person who types its name is not.
func Run() int {
	if os.Getpid() != 2 {
		os.Stderr.WriteString("nsbox: nsbox-wipe is a stage of nsbox, not a command\n")
		return 125
	}
	if err := Empty(At); err != nil {
		os.Stderr.WriteString("nsbox-wipe: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// Empty removes everything below dir and what was hung on dir itself: extended
// attributes, access lists, another mode.
func Empty(dir string) error {
	// Its owner may have closed it to himself.
	if err := retry(func() error { return unix.Fchmodat(unix.AT_FDCWD, dir, Mode, 0) }); err != nil {
		return failed("chmod the slot", err)
	}
	top, err := open(unix.AT_FDCWD, dir)
	if err != nil {
		return failed("open the slot", err)
	}
	defer unix.Close(top)
	w := wiper{top: top, buf: make([]byte, 32<<10)}
	if err := w.each(top, w.atTop); err != nil {
		return err
	}
	return bare(top)
}

// wiper takes a tree apart. next numbers the names under which directories are
// moved to the top.
type wiper struct {
	top  int
	next uint64
	buf  []byte
}

// each calls remove for every name in the directory until there is none. Names
// are read in batches from the start again, since removing shifts what follows.
func (w *wiper) each(dir int, remove func(dir int, name string) error) error {
	for {
		names, err := w.batch(dir)
		if err != nil || len(names) == 0 {
			return err
		}
		var first error
		done := 0
		for _, name := range names {
			if err := remove(dir, name); err == nil {
				done++
			} else if first == nil {
				first = err
			}
		}
		if done == 0 {
			return first
		}
	}
}

// batch is some of the directory's names, none at its end.
func (w *wiper) batch(dir int) ([]string, error) {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return nil, failed("rewind", err)
	}
	var names []string
	for {
		n := 0
		if err := retry(func() (e error) { n, e = unix.Getdents(dir, w.buf); return e }); err != nil {
			return nil, failed("list", err)
		}
		if n == 0 {
			return nil, nil
		}
		// "." and ".." may be all there is in the first part.
		if _, _, names = unix.ParseDirent(w.buf[:n], -1, nil); len(names) > 0 {
			return names, nil
		}
	}
}

// atTop removes one entry of the top. A directory's own entries are removed, or
// moved to the top where they are directories with something in them.
func (w *wiper) atTop(top int, name string) error {
	isDir, err := unlink(top, name)
	if err != nil || !isDir {
		return err
	}
	fd, err := open(top, name)
	if err != nil {
		return failed("open", err)
	}
	err = w.each(fd, w.below)
	unix.Close(fd)
	if err != nil {
		return err
	}
	return failed("rmdir", unix.Unlinkat(top, name, unix.AT_REMOVEDIR))
}

func (w *wiper) below(dir int, name string) error {
	isDir, err := unlink(dir, name)
	if err != nil || !isDir {
		return err
	}
	for {
		w.next++
		err := unix.Renameat2(dir, name, w.top, "."+strconv.FormatUint(w.next, 10), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST && err != unix.EINTR {
			return failed("move up", err)
		}
	}
}

// unlink removes name unless it is a directory with something in it; such a one
// is opened to its owner first. Nobody else has these ids while the stage runs,
// so what a name is cannot change between two calls.
func unlink(dir int, name string) (isDir bool, err error) {
	err = retry(func() error { return unix.Unlinkat(dir, name, 0) })
	if err != unix.EISDIR {
		return false, failed("unlink", err)
	}
	if err := retry(func() error { return unix.Fchmodat(dir, name, Mode, 0) }); err != nil {
		return true, failed("chmod", err)
	}
	switch err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err {
	case nil:
		return false, nil
	case unix.ENOTEMPTY, unix.EEXIST:
		return true, nil
	default:
		return false, failed("rmdir", err)
	}
}

// bare takes away what is hung on the open directory.
func bare(dir int) error {
	size, err := unix.Flistxattr(dir, nil)
	if err == unix.EOPNOTSUPP || err == nil && size == 0 {
		return nil
	}
	if err != nil {
		return failed("list attributes", err)
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(dir, list); err != nil {
		return failed("list attributes", err)
	}
	for _, name := range strings.Split(strings.TrimSuffix(string(list[:size]), "\x00"), "\x00") {
		// A security label is the kernel's own and not the owner's to set.
		if err := unix.Fremovexattr(dir, name); err != nil && !strings.HasPrefix(name, "security.") {
			return failed("remove an attribute", err)
		}
	}
	return nil
}

func open(dir int, name string) (fd int, err error) {
	err = retry(func() (e error) {
		fd, e = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return e
	})
	return fd, err
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// failed names the call and never the file.
func failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return &os.SyscallError{Syscall: what, Err: err}
}
