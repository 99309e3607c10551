package probe

import (
	"encoding/binary"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	capSetgid uint = 6
	capSetuid uint = 7
)

// helperDirs are the only places that are looked at. $PATH belongs to the
// caller's environment, and /usr/local is writable by a group on some systems.
var helperDirs = []string{"/usr/bin", "/bin"}

// helperFile is what the kernel says about a candidate.
type helperFile struct {
	mode   uint32 // st_mode
	uid    uint32
	nosuid bool   // its mount ignores setuid bits and file capabilities
	caps   []byte // security.capability, or nil
}

// findHelper returns the first helper of that name that is there. One that is
// there but unfit is an answer: the next directory is not tried, so that a
// broken installation is seen.
func findHelper(name string, need uint) Helper {
	for _, dir := range helperDirs {
		p := dir + "/" + name
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err == unix.ENOENT {
			continue
		} else if err != nil {
			return Helper{Path: p, Why: err.Error()}
		}
		f := helperFile{mode: st.Mode, uid: st.Uid}
		var fs unix.Statfs_t
		if err := unix.Statfs(p, &fs); err != nil {
			return Helper{Path: p, Why: err.Error()}
		}
		f.nosuid = fs.Flags&unix.ST_NOSUID != 0
		var buf [64]byte
		if n, err := unix.Lgetxattr(p, "security.capability", buf[:]); err == nil {
			f.caps = buf[:n]
		}
		why := judgeHelper(f, need)
		return Helper{Path: p, OK: why == "", Why: why}
	}
	return Helper{Path: helperDirs[0] + "/" + name, Why: "not installed"}
}

// judgeHelper says why the file must not or cannot be used to gain capability
// number need, or "".
func judgeHelper(f helperFile, need uint) string {
	switch {
	case f.mode&unix.S_IFMT != unix.S_IFREG:
		return "not a regular file"
	case f.uid != 0:
		return "owned by uid " + strconv.FormatUint(uint64(f.uid), 10) + ", not by root"
	case f.mode&0o022 != 0:
		return "writable by group or others"
	case f.mode&0o001 == 0:
		return "not executable by everybody"
	case f.nosuid:
		return "on a file system mounted nosuid"
	case f.mode&unix.S_ISUID == 0 && !grants(f.caps, need):
		return "has neither the setuid bit nor the file capability"
	}
	return ""
}

// grants reports whether the file capability makes capability number need
// permitted and effective at exec. The layout is vfs_cap_data of
// linux/capability.h, revisions 2 and 3, little-endian on every architecture.
func grants(xattr []byte, need uint) bool {
	if len(xattr) < 4 {
		return false
	}
	magic := binary.LittleEndian.Uint32(xattr)
	const effective = 1
	switch {
	case magic&effective == 0:
		return false
	case magic>>24 == 2 && len(xattr) == 20:
	case magic>>24 == 3 && len(xattr) == 24:
		if binary.LittleEndian.Uint32(xattr[20:]) != 0 {
			return false // valid only in a namespace whose root is another id
		}
	default:
		return false
	}
	return binary.LittleEndian.Uint32(xattr[4:])>>need&1 == 1
}
