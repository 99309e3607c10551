package rootfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// maxCacheFile bounds what is read of one entry; a Python closure takes 8 KiB.
const maxCacheFile = 1 << 20

// Cached is Root.Cached for the host itself.
func Cached(dir, cmd string, searchPath []string) (*Closure, bool, error) {
	return Root{}.Cached(dir, cmd, searchPath)
}

// Cached returns the closure of cmd from dir if one is kept there and Check
// finds every file unchanged, and whether it was. Otherwise it resolves and
// keeps the result. dir is created 0700 if need be and must belong to the caller
// and be open to nobody else: an entry decides what is bound into the box. An
// entry that cannot be read, parsed or kept costs time only.
func (r Root) Cached(dir, cmd string, searchPath []string) (*Closure, bool, error) {
	if searchPath == nil {
		searchPath = DefaultSearchPath()
	}
	command, err := place{dir: r.Dir}.lookup(cmd, searchPath)
	if err != nil {
		return nil, false, err
	}
	if err := privateDir(dir); err != nil {
		return nil, false, err
	}
	file := filepath.Join(dir, r.key(command, searchPath)+".closure")
	if c := readCached(file); c != nil && c.Command == command && c.Check() == nil {
		return c, true, nil
	}
	c, err := r.resolve(command, searchPath)
	if err != nil {
		return nil, false, err
	}
	keep(file, c)
	return c, false, nil
}

// key names an entry. The search path takes part because a "#!" line with env
// looks there too.
func (r Root) key(command string, searchPath []string) string {
	parts := append([]string{command}, searchPath...)
	if r != (Root{}) {
		parts = append(parts, "", r.Dir, r.Prepared, r.PreparedFor, r.Pin, strconv.FormatBool(r.Whole), strconv.FormatBool(r.Packages))
	}
	return digestOf([]byte(strings.Join(parts, "\x00")))[:32]
}

func privateDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return reason.Wrap(reason.RootfsCacheNotPrivate, dir, "cannot be created", "check the state directory", err)
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return reason.Wrap(reason.RootfsCacheNotPrivate, dir, "cannot be looked at", "check the state directory", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() || fi.Mode().Perm()&0o077 != 0 || int(st.Uid) != os.Geteuid() {
		return reason.New(reason.RootfsCacheNotPrivate, dir, "is not a directory of mode 0700 that belongs to the caller",
			"remove it, or chmod 700 it after looking at what it holds")
	}
	return nil
}

// readCached returns nil for anything but an intact entry of the caller's own.
func readCached(file string) *Closure {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() ||
		st.Mode&0o077 != 0 || st.Size > maxCacheFile {
		return nil
	}
	b := make([]byte, st.Size)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil
	}
	c, err := decodeClosure(b)
	if err != nil {
		return nil
	}
	return c
}

// keep writes the entry beside and renames it. There is no fsync and no unique
// name on purpose: the checksum turns a torn or interleaved entry into a miss,
// and a killed run leaves no file that the next would not overwrite.
func keep(file string, c *Closure) {
	for _, f := range c.Files {
		// Too young to tell a later change from; once older, it must still be the same.
		if age := time.Since(time.Unix(0, f.CTimeNS)); age >= 0 && age < tick {
			time.Sleep(tick)
			if c.Check() != nil {
				return
			}
			break
		}
	}
	tmp := file + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	_, err = f.Write(seal(encodeClosure(c)))
	if err = errors.Join(err, f.Close()); err != nil {
		return
	}
	_ = os.Rename(tmp, file) // a failure leaves the old entry, which Check judges next time
}
