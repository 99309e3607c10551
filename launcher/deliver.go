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

	"nsbox/launcher/policy"
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

// deliveredNames are those under which a run may publish: several files go into
// a directory that has the attempt's own name.
func deliveredNames(p *policy.Policy) []string {
	if ExportBounds(p).Slots() > 1 {
		return nil
	}
	return p.ArtifactExport.AllowedNames
}

// deliver publishes the verified copy as dir/name: whole or not at all, never
// over something that is there, and only if its bytes still have digest.
func deliver(copied, dir, name, digest string) (path string, err error) {
	// The attempt's id alone: with a long name in it, it would be too long itself.
	temp := ".nsbox-" + filepath.Base(filepath.Dir(copied))
	return publish(dir, name, "the accepted copy is "+copied, func(d int) error {
		if err := copyInto(d, temp, copied, digest); err != nil {
			return err
		}
		err := unix.Renameat2(d, temp, d, name, unix.RENAME_NOREPLACE)
		if err == unix.EINVAL || err == unix.ENOSYS {
			// A file system without that flag: a hard link never replaces either.
			if err = unix.Linkat(d, temp, d, name, 0); err == nil {
				return unix.Unlinkat(d, temp, 0)
			}
		}
		if err != nil {
			_ = unix.Unlinkat(d, temp, 0)
		}
		return err
	})
}

// publish opens the delivery directory, has do put name there with one system
// call that decides, and makes that durable. do removes what it leaves undone;
// kept says where the bytes are if it fails.
func publish(dir, name, kept string, do func(d int) error) (path string, err error) {
	path = filepath.Join(dir, name)
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		defer d.Close()
		err = do(int(d.Fd()))
	}
	if errors.Is(err, unix.EEXIST) && !errors.Is(err, errTempTaken) {
		return "", reason.New(reason.DeliverExists, path, "appeared while the program ran, and nsbox never overwrites", kept)
	}
	if err != nil {
		return "", reason.Wrap(reason.DeliverFailed, path, "could not be published", kept, err)
	}
	if syncErr := d.Sync(); syncErr != nil {
		// The name is there, whole: only a power cut could take it back.
		return path, reason.Wrap(reason.DeliverFailed, path, "is published, but its directory could not be made durable", "check the disk", syncErr)
	}
	return path, nil
}

var errTempTaken = errors.New("the temporary name is taken")

// copyInto copies the launcher's own file to a new name below d, flushed, if its
// bytes have digest; otherwise nothing is left under the name.
func copyInto(d int, name, copied, digest string) (err error) {
	src, err := os.OpenFile(copied, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	fd, err := unix.Openat(d, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err == unix.EEXIST {
		return fmt.Errorf("%w: %w", errTempTaken, err)
	}
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	defer func() {
		dst.Close()
		if err != nil {
			_ = unix.Unlinkat(d, name, 0)
		}
	}()
	h := sha256.New()
	if _, err = io.Copy(dst, io.TeeReader(src, h)); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(h.Sum(nil)); got != digest {
		return fmt.Errorf("the copy has digest %s, the accepted one had %s", got, digest)
	}
	return dst.Sync()
}
