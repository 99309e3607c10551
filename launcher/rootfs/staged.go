package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// VerifyStaged reads the copy at dst again and compares it with what Stage
// returned: the same files, nothing more, the same bytes, still no links.
func VerifyStaged(ctx context.Context, dst string, want []Staged) error {
	root, err := os.OpenRoot(dst)
	if err != nil {
		return altered(dst, "cannot be opened", err)
	}
	defer root.Close()
	left := make(map[string]Staged, len(want))
	for _, s := range want {
		left[s.Name] = s
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || d.IsDir() {
			return err
		}
		s, ok := left[name]
		if !ok || !d.Type().IsRegular() {
			return altered(name, "was not there when the inputs were copied", nil)
		}
		delete(left, name)
		return sameContent(root, s)
	})
	switch {
	case reason.Of(err) != nil || errors.Is(err, context.Cause(ctx)) && err != nil:
		return err
	case err != nil:
		return altered(dst, "cannot be read", err)
	}
	for name := range left {
		return altered(name, "is no longer there", nil)
	}
	return nil
}

func sameContent(root *os.Root, s Staged) error {
	f, err := root.OpenFile(s.Name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return altered(s.Name, "cannot be opened", err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, s.Bytes+1))
	if err != nil {
		return altered(s.Name, "cannot be read", err)
	}
	if n != s.Bytes || hex.EncodeToString(h.Sum(nil)) != s.SHA256 {
		return altered(s.Name, "has other content than what was hashed", nil)
	}
	return nil
}

func altered(name, why string, err error) error {
	return reason.Wrap(reason.InputStagedAltered, "staged input "+quote(name), why,
		"do not trust this run's result; find out what writes to nsbox's state directory", err)
}

// RemoveStaged removes dst and everything below it, relative to open directories
// and without following any link. A dst that is already gone is no error; one
// that is not a directory is left alone.
func RemoveStaged(dst string) error {
	parent, err := os.OpenRoot(filepath.Dir(dst))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return stagingFailed(dst, err)
	}
	defer parent.Close()
	base := filepath.Base(dst)
	fi, err := parent.Lstat(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !fi.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = parent.RemoveAll(base)
	}
	if err != nil {
		return reason.Wrap(reason.InputStagingFailed, quote(dst), "the private copy of the inputs cannot be removed",
			"remove it by hand", err)
	}
	return nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// retry repeats f while a signal interrupts it.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
