package launcher

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// overflowID owns what belongs to nobody of this user namespace, such as the
// host's directories in a container: no one in it can be that user.
const overflowID = 65534

// heldByNobodyElse refuses a directory that somebody else can rename away, and
// another one put there, because a directory above it, made or not, is theirs. Root may do so
// anyway; and a group is the operator's own business, since on many systems
// everybody has one for himself.
func heldByNobodyElse(dir string, euid int) error {
	above := filepath.Dir(dir)
	for missing(above) {
		above = filepath.Dir(above)
	}
	real, err := filepath.EvalSymlinks(above)
	if err != nil {
		return stateError(dir, err)
	}
	for ; ; real = filepath.Dir(real) {
		var st unix.Stat_t
		if err := unix.Lstat(real, &st); err != nil {
			return stateError(real, err)
		}
		if why := replaceable(&st, euid); why != "" {
			return reason.New(reason.StateDir, dir, real+" "+why+", who could put another directory in its place", "name a state directory below directories of your own with --state-dir")
		}
		if real == "/" {
			return nil
		}
	}
}

// replaceable says who but root and the caller may rename what lies in a directory.
func replaceable(st *unix.Stat_t, euid int) string {
	switch {
	case st.Uid != 0 && int(st.Uid) != euid && st.Uid != overflowID:
		return fmt.Sprintf("belongs to uid %d", st.Uid)
	case st.Mode&unix.S_IWOTH != 0 && st.Mode&unix.S_ISVTX == 0:
		return fmt.Sprintf("is open to everybody (mode %04o)", st.Mode&0o7777)
	}
	return ""
}
