package launcher

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// deliverSeveral publishes accepted files, which stand in copied in the same
// order, as one new directory of dir that has the attempt's id as its name. The
// directory is filled under a temporary name and published by one rename: whoever
// looks sees all files or none, also if nsbox is killed at any moment. Publishing
// them one by one could be finished or undone later, but until then a part of
// them would stand there. The id as name makes room for every attempt, and
// whether the program left one file or more does not change where they are.
func deliverSeveral(copied []string, files []ArtifactFile, dir string) (path string, err error) {
	attempt := filepath.Dir(copied[0])
	name := filepath.Base(attempt)
	temp := ".nsbox-" + name
	return publish(dir, name, "the accepted copies are in "+attempt, func(d int) (err error) {
		if err := unix.Mkdirat(d, temp, 0o755); err == unix.EEXIST {
			return fmt.Errorf("%w: %w", errTempTaken, err)
		} else if err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, removeTree(d, temp))
			}
		}()
		t, err := confined(d, temp, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(t)
		for i, f := range files {
			if err := copyInto(t, f.Name, copied[i], f.SHA256); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
		}
		if err := unix.Fsync(t); err != nil {
			return err
		}
		err = unix.Renameat2(d, temp, d, name, unix.RENAME_NOREPLACE)
		if err == unix.EINVAL || err == unix.ENOSYS {
			// A file system without that flag: rename(2) of a directory replaces nothing
			// but an empty one.
			err = unix.Renameat(d, temp, d, name)
		}
		if err == unix.ENOTEMPTY || err == unix.ENOTDIR {
			err = unix.EEXIST
		}
		return err
	})
}
