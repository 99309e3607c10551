package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// deliverable refuses a delivery directory before anything is started: a
// result that can go nowhere is not worth a run.
func deliverable(dir string, names []string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return reason.Wrap(reason.DeliverDir, dir, "cannot take the artifact", "mkdir -p "+dir, err)
	case !st.IsDir():
		return reason.New(reason.DeliverDir, dir, "is not a directory", "name a directory with --deliver")
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return reason.Wrap(reason.DeliverDir, dir, "is not writable for you", "name another directory with --deliver", err)
	}
	for _, n := range names {
		if _, err := os.Lstat(filepath.Join(dir, n)); err == nil {
			return reason.New(reason.DeliverExists, filepath.Join(dir, n), "is already there, and nsbox never overwrites", "move it away, or name another directory with --deliver")
		}
	}
	return nil
}

// deliver publishes the verified copy as dir/name: whole or not at all, never
// over something that is there, and only if its bytes still have digest.
func deliver(copied, dir, name, digest string) (path string, err error) {
	path = filepath.Join(dir, name)
	fail := func(err error) (string, error) {
		return "", reason.Wrap(reason.DeliverFailed, path, "could not be published", "the accepted copy is "+copied, err)
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fail(err)
	}
	defer d.Close()
	src, err := os.OpenFile(copied, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fail(err)
	}
	defer src.Close()
	// The attempt's id alone: with a long name in it, it would be too long itself.
	temp := ".nsbox-" + filepath.Base(filepath.Dir(copied))
	fd, err := unix.Openat(int(d.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fail(err)
	}
	dst := os.NewFile(uintptr(fd), temp)
	defer func() {
		dst.Close()
		if err != nil {
			unix.Unlinkat(int(d.Fd()), temp, 0)
		}
	}()
	h := sha256.New()
	if _, err = io.Copy(dst, io.TeeReader(src, h)); err != nil {
		return fail(err)
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != digest {
		err = fmt.Errorf("the copy has digest %s, the accepted one had %s", got, digest)
		return fail(err)
	}
	if err = dst.Sync(); err != nil {
		return fail(err)
	}
	err = unix.Renameat2(int(d.Fd()), temp, int(d.Fd()), name, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		// A file system without that flag: a hard link never replaces either.
		if err = unix.Linkat(int(d.Fd()), temp, int(d.Fd()), name, 0); err == nil {
			err = unix.Unlinkat(int(d.Fd()), temp, 0)
		}
	}
	if errors.Is(err, unix.EEXIST) {
		return "", reason.New(reason.DeliverExists, path, "appeared while the program ran, and nsbox never overwrites", "the accepted copy is "+copied)
	}
	if err != nil {
		return fail(err)
	}
	if syncErr := d.Sync(); syncErr != nil {
		// The file is there, under its name, whole: only a power cut could take it back.
		return path, reason.Wrap(reason.DeliverFailed, path, "is published, but its directory could not be made durable", "check the disk", syncErr)
	}
	return path, nil
}
