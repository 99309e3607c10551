package launcher

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// confined opens a name directly below an open directory: never through a link,
// never on another mount.
func confined(dirfd int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dirfd, name, &unix.OpenHow{
			Flags:   flags | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// maxTreeDepth is above what staging makes; deeper means that somebody else wrote here.
const maxTreeDepth = 128

// removeTree removes name below the open directory and all that is in it. What
// lies on another mount, or belongs to another user, is an error and stays, as
// does everything above it. Today nothing of nsbox's on disk belongs to a
// subordinate id: /scratch and /out are memory and end with the box. Once stores
// or slots exist on disk, what is found here under such an id is for a stage
// with the same id map to remove, not for this code.
func removeTree(dirfd int, name string) error {
	return removeBelowDir(dirfd, name, name, maxTreeDepth)
}

func removeBelowDir(dirfd int, name, shown string, depth int) error {
	err := unix.Unlinkat(dirfd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return &os.PathError{Op: "remove", Path: shown, Err: err}
	}
	if depth == 0 {
		return fmt.Errorf("%s is nested too deeply to be nsbox's", shown)
	}
	fd, err := confined(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EXDEV {
		return fmt.Errorf("%s is a mount, and nothing is removed across one", shown)
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: shown, Err: err}
	}
	dir := os.NewFile(uintptr(fd), shown)
	defer dir.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: shown, Err: err}
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, not to the operator", shown, st.Uid)
	}
	// Staged directories are r-x for everybody but their owner is us.
	if err := unix.Fchmod(fd, 0o700); err != nil {
		return &os.PathError{Op: "chmod", Path: shown, Err: err}
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, removeBelowDir(fd, n, shown+"/"+n, depth-1))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "rmdir", Path: shown, Err: err}
	}
	return nil
}

// removeIn is removeTree for a path whose parent is nsbox's own directory.
func removeIn(parent, name string) error {
	d, err := os.OpenFile(parent, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return removeTree(int(d.Fd()), name)
}
