package exporter

import (
	"fmt"

	"golang.org/x/sys/unix"

	"nsbox/exporter/raw"
)

// identity is what must stay equal from the survey to the recheck. Access time
// is left out: reading changes it. The times are ns since 1970.
type identity struct {
	Dev     uint64 `json:"dev"`
	Ino     uint64 `json:"ino"`
	Nlink   uint64 `json:"nlink"`
	Mode    uint32 `json:"mode"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Size    int64  `json:"size"`
	MtimeNS int64  `json:"mtime_ns"`
	CtimeNS int64  `json:"ctime_ns"`
}

func identityOf(st *unix.Stat_t) identity {
	return identity{
		Dev: st.Dev, Ino: st.Ino, Nlink: st.Nlink, Mode: st.Mode, UID: st.Uid, GID: st.Gid,
		Size: st.Size, MtimeNS: st.Mtim.Nano(), CtimeNS: st.Ctim.Nano(),
	}
}

func statFD(fd int) (identity, error) {
	var st unix.Stat_t
	err := retry(func() error { return raw.Fstat(fd, &st) })
	return identityOf(&st), err
}

func statName(dir int, name string) (identity, error) {
	var st unix.Stat_t
	err := retry(func() error { return raw.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return identityOf(&st), err
}

// difference names the first fields that differ, or returns "".
func (a identity) difference(b identity) string {
	switch {
	case a.Dev != b.Dev || a.Ino != b.Ino:
		return fmt.Sprintf("inode %d:%d became %d:%d", a.Dev, a.Ino, b.Dev, b.Ino)
	case a.Size != b.Size:
		return fmt.Sprintf("size %d became %d", a.Size, b.Size)
	case a.Nlink != b.Nlink:
		return fmt.Sprintf("link count %d became %d", a.Nlink, b.Nlink)
	case a.Mode != b.Mode || a.UID != b.UID || a.GID != b.GID:
		return "mode or owner changed"
	case a.MtimeNS != b.MtimeNS || a.CtimeNS != b.CtimeNS:
		return "modification or change time moved"
	}
	return ""
}

// typeCode returns the code of an entry that is no regular file, or "".
func (a identity) typeCode() string {
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return ""
	case unix.S_IFLNK:
		return codeSymlink
	case unix.S_IFDIR:
		return codeDirectory
	case unix.S_IFIFO:
		return codeFIFO
	case unix.S_IFSOCK:
		return codeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return codeDevice
	}
	return codeUnknownType
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
