// Package outslot says what a provisioned slot of /out is, and reads one.
//
// A slot is a tmpfs of its own that root mounted once, before any box: bounded in
// bytes and inodes, its root directory owned by the host id of one slot's
// workload and closed to everybody else. It belongs to no process, so it outlives
// the box, the launcher and the session. Three names make it up:
//
//	DIR/N        the mount point; the mount's source is "nsbox-out"
//	DIR/N.slot   root's record: in which boot it mounted which device there
//	DIR/N.lock   held by the launcher whose attempt has the slot, and naming the
//	             attempt whose content it is
//
// A launcher finds slots in its mount table by that source, and its own among
// them by their owner; nothing has to be configured twice. What the record says
// is compared with what the kernel shows: a tmpfs that root did not put there in
// this boot has an unknown lifetime, and is not used.
package outslot

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Source is the mount source of every slot, mountinfo's last field but one.
const Source = "nsbox-out"

// Mode is the mode of an unused slot's root.
const Mode = 0o700

// Flags are what a slot's mount must show.
func Flags() []string { return []string{"rw", "nosuid", "nodev", "noexec"} }

// Mount is one slot as the mount table shows it.
type Mount struct {
	Path    string `json:"path"`
	Options string `json:"options"` // of the mount
	Super   string `json:"super"`   // of the file system: size=, nr_inodes=
	Dev     string `json:"dev"`     // major:minor
}

// Is reports whether a line of the mount table is a slot's.
func Is(m *mountinfo.Info) bool { return m.FSType == "tmpfs" && m.Source == Source && m.Root == "/" }

// Of picks the slots; of two mounts on one path the later is the one that is seen.
func Of(mounts []*mountinfo.Info) []Mount {
	var out []Mount
	for _, m := range mounts {
		out = slices.DeleteFunc(out, func(o Mount) bool { return o.Path == m.Mountpoint })
		if Is(m) {
			out = append(out, Mount{Path: m.Mountpoint, Options: m.Options, Super: m.VFSOptions, Dev: dev(m.Major, m.Minor)})
		}
	}
	return out
}

// Mounts reads this process's mount table.
func Mounts() ([]Mount, error) {
	all, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !Is(m), false })
	return Of(all), err
}

func dev(major, minor int) string { return fmt.Sprintf("%d:%d", major, minor) }

// Dev writes a device as mountinfo does.
func Dev(st uint64) string { return dev(int(unix.Major(st)), int(unix.Minor(st))) }

// RecordPath and LockPath are the two files beside a slot.
func RecordPath(slot string) string { return slot + ".slot" }
func LockPath(slot string) string   { return slot + ".lock" }

// Record is root's word about a slot.
type Record struct{ Boot, Dev string }

// ReadRecord reads it; an error if anybody but root could have written it.
func ReadRecord(slot string) (Record, error) {
	var r Record
	path := RecordPath(slot)
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return r, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0 {
		return r, fmt.Errorf("%s is not a file that root alone may write (uid %d, mode %04o)", path, st.Uid, st.Mode&0o7777)
	}
	text, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return r, err
	}
	if n, err := fmt.Sscanf(string(text), "boot %s dev %s", &r.Boot, &r.Dev); err != nil || n != 2 {
		return Record{}, fmt.Errorf("%s does not say in which boot which device was mounted", path)
	}
	return r, nil
}

// String is the record as the line in its file.
func (r Record) String() string { return "boot " + r.Boot + " dev " + r.Dev }

// Seen is what the kernel shows of a slot's root at this moment.
type Seen struct {
	TmpFS         bool
	Bytes, Inodes int64 // bounds
	Used          int64 // inodes in use besides the root
	Blocks        int64 // pages in use
	UID, GID      int64 // as this process's user namespace numbers them
	Mode          uint32
	Dev           string
	Attributes    []string // extended ones of the root, but for the kernel's own labels
}

// Look reads the slot at path without opening it: its owner has it to himself.
func Look(path string) (Seen, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return Seen{}, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	s, err := LookAt(fd)
	if err != nil {
		return s, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	// A descriptor of this kind takes no flistxattr; the path is root's.
	names := make([]byte, 4096)
	switch n, err := unix.Llistxattr(path, names); {
	case err == nil:
		for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
			if name != "" && !strings.HasPrefix(name, "security.") {
				s.Attributes = append(s.Attributes, name)
			}
		}
	case err == unix.ERANGE:
		s.Attributes = append(s.Attributes, "more than can be listed")
	case err != unix.EOPNOTSUPP:
		return s, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	return s, nil
}

// LookAt is Look by an open descriptor, without the attributes.
func LookAt(fd int) (Seen, error) {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Seen{}, err
	}
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return Seen{}, err
	}
	return Seen{TmpFS: fs.Type == unix.TMPFS_MAGIC, Bytes: int64(fs.Blocks) * fs.Bsize, Inodes: int64(fs.Files), Used: int64(fs.Files-fs.Ffree) - 1,
		Blocks: int64(fs.Blocks - fs.Bfree), UID: int64(st.Uid), GID: int64(st.Gid), Mode: st.Mode & 0o7777, Dev: Dev(st.Dev)}, nil
}

// Left says what is left in a slot that should be unused, or "".
func (s Seen) Left() string {
	switch {
	case s.Used != 0 || s.Blocks != 0:
		return fmt.Sprintf("%d entries and %d pages", s.Used, s.Blocks)
	case s.Mode != Mode:
		return fmt.Sprintf("mode %04o", s.Mode)
	case len(s.Attributes) > 0:
		return "attributes " + strings.Join(s.Attributes, " ")
	}
	return ""
}

// Want is what a policy asks of a slot.
type Want struct {
	Bytes, Inodes int64
	UID, GID      int64 // the workload's host ids
}

// Differs says in what a slot is not as asked, or "".
func (m Mount) Differs(s Seen, w Want) string {
	have := strings.Split(m.Options, ",")
	for _, f := range Flags() {
		if !slices.Contains(have, f) {
			return "is not mounted " + f
		}
	}
	page := int64(os.Getpagesize())
	switch bytes := (w.Bytes + page - 1) / page * page; {
	case !s.TmpFS:
		return "is no tmpfs"
	case s.Dev != m.Dev:
		return "has device " + s.Dev + ", and the mount table says " + m.Dev
	case s.Bytes != bytes:
		return "holds " + strconv.FormatInt(s.Bytes, 10) + " bytes, and " + strconv.FormatInt(bytes, 10) + " are asked for"
	case s.Inodes != w.Inodes:
		return "holds " + strconv.FormatInt(s.Inodes, 10) + " inodes, and " + strconv.FormatInt(w.Inodes, 10) + " are asked for"
	case s.UID != w.UID || s.GID != w.GID:
		return fmt.Sprintf("belongs to %d:%d, and this box's program is %d:%d", s.UID, s.GID, w.UID, w.GID)
	}
	return ""
}

// Lifetime says why nothing shows that the slot outlives its users, or "".
func (m Mount) Lifetime(r Record, boot string) string {
	switch {
	case boot == "" || r.Boot != boot:
		return "root's record is of another boot"
	case r.Dev != m.Dev:
		return "root's record is of device " + r.Dev + ", and " + m.Dev + " is mounted there"
	}
	return ""
}
