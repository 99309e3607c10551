package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

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
