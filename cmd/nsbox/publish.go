package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// publish writes data to path so that a reader sees the old file or the whole
// new one, with mode 0644 less the umask. id names the error.
func publish(id reason.ID, path string, data []byte) error {
	if err := publishable(id, path); err != nil {
		return err
	}
	// The default temporary directory may be another filesystem; rename needs the same one.
	err := renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return reason.Wrap(id, path, "cannot be written", "name a file in a directory you may write to", err)
	}
	return nil
}

// publishable finds out before a run what publish would find after it.
func publishable(id reason.ID, path string) error {
	parent := filepath.Dir(path)
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		return reason.New(id, path, parent+" is not an existing directory", "create it: mkdir -p "+parent)
	}
	if err := unix.Access(parent, unix.W_OK|unix.X_OK); err != nil {
		return reason.Wrap(id, path, "cannot be written: "+parent+" is not writable for you", "name a file in a directory you may write to", err)
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return reason.Wrap(id, path, "cannot be looked at", "name a file in a directory you may write to", err)
	case !info.Mode().IsRegular():
		return reason.New(id, path, fmt.Sprintf("exists and is not a regular file (%s)", info.Mode().Type()), "name another file")
	}
	return nil
}
