package nsexec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// field is one raw answer of the kernel within the child's report. The program
// cannot compute, so it ships buffers and the launcher reads them.
type field struct {
	name     string
	off, len int
}

// reportTag is the first byte of a child's report; a failure message is sixteen
// bytes and never starts like it.
const reportTag = 'R'

// reportSize is a report's length in bytes: room for every field, sent whole.
const reportSize = 4096

// readBack asks the kernel what the child now is. All slots of the report stand
// in one piece of memory, sent with one write.
func (c *compiler) readBack() {
	size := 16
	place := func(name string, n int) Ref {
		f := field{name, size, n}
		c.fields = append(c.fields, f)
		size += (n + 7) &^ 7
		return Ref{c.report, f.off}
	}
	c.report = c.prog.slot("report", reportSize)
	c.report.Init[0] = reportTag

	r := place("resuid", 12)
	c.add("read-uids", "shown to the launcher", unix.SYS_GETRESUID, addr(r), addr(Ref{r.Slot, r.Off + 4}), addr(Ref{r.Slot, r.Off + 8}))
	r = place("resgid", 12)
	c.add("read-gids", "shown to the launcher", unix.SYS_GETRESGID, addr(r), addr(Ref{r.Slot, r.Off + 4}), addr(Ref{r.Slot, r.Off + 8}))
	c.add("read-groups", "shown to the launcher", unix.SYS_GETGROUPS, imm(0), imm(0)).into(place("groups", 8))
	header := place("capheader", 8)
	copy(c.report.Init[header.Off:], capHeader())
	c.add("read-capabilities", "shown to the launcher", unix.SYS_CAPGET, addr(header), addr(place("caps", 24)))
	c.add("read-session", "shown to the launcher", unix.SYS_GETSID, imm(0)).into(place("sid", 8))
	c.add("read-keyring", "shown to the launcher; an own keyring has an own serial", unix.SYS_KEYCTL, imm(unix.KEYCTL_GET_KEYRING_ID), neg(-3), imm(0)).into(place("keyring", 8)).anyResult()
	if c.spec.Terminal != nil {
		c.readTerminal(place)
	}
	c.add("read-directory", "shown to the launcher", unix.SYS_GETCWD, addr(place("cwd", 256)), imm(256))
	c.add("go-closes-on-exec", "else the workload would hold the launcher's socket", unix.SYS_FCNTL, imm(fdChildGo), imm(unix.F_GETFD), imm(0)).exactly(unix.FD_CLOEXEC)
	c.add("self-closes-on-exec", "else the workload would hold nsbox's own image", unix.SYS_FCNTL, imm(fdChildSelf), imm(unix.F_GETFD), imm(0)).exactly(unix.FD_CLOEXEC)
	c.add("read-names", "shown to the launcher: host and domain name", unix.SYS_UNAME, addr(place("uname", utsFields*utsField)))
	if c.hasProc() {
		for _, l := range inotifyLimits() {
			file := c.word("read " + l.name)
			c.add("open-own-"+l.name, "shown to the launcher: the limit as it holds inside", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/sys/user/"+l.name), imm(unix.O_RDONLY|unix.O_CLOEXEC)).into(file)
			c.add("read-own-"+l.name, "shown to the launcher", unix.SYS_READ, load(file), addr(place(l.name, 24)), imm(23))
			c.add("close-own-"+l.name, "the listing below must not show it", unix.SYS_CLOSE, load(file))
		}
		file := c.word("cgroup-file")
		c.add("open-cgroup", "shown to the launcher: the view from inside", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/self/cgroup"), imm(unix.O_RDONLY|unix.O_CLOEXEC)).into(file)
		c.add("read-cgroup", "a hierarchy whose line does not end in the root would show the host's tree", unix.SYS_READ, load(file), addr(place("cgroup", 1024)), imm(1023))
		c.add("close-cgroup", "the listing below must not show it", unix.SYS_CLOSE, load(file))
		dir := c.word("fd-dir")
		c.add("open-descriptors", "shown to the launcher", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/self/fd"), imm(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)).into(dir)
		c.add("read-descriptors", "shown to the launcher; nothing else may be open", unix.SYS_GETDENTS64, load(dir), addr(place("fds", 1024)), imm(1024)).into(place("fdslen", 8))
		c.add("close-descriptors", "the listing itself is one more descriptor", unix.SYS_CLOSE, load(dir))
	}
}

// struct new_utsname is six strings of 65 bytes, uname(2): system, node,
// release, version, machine, domain.
const (
	utsField  = 65
	utsFields = 6
)

// Report is what the confined child says the kernel says about it.
type Report struct {
	UIDs, GIDs  [3]uint32 // real, effective, saved
	Groups      int       // number of supplementary groups
	Caps        [3]uint64 // effective, permitted, inheritable
	Session     int
	Keyring     int64 // serial of the session keyring, or -errno
	Terminal    int   // session of the terminal at descriptor 0; 0 where the box has none
	Dir         string
	Hostname    string
	Domainname  string
	Inotify     [2]string // user.max_inotify_instances and _watches inside; empty where the box has no /proc
	Cgroup      string    // /proc/self/cgroup as the child sees it; empty where the box has no /proc
	Descriptors []int     // open at the time, without the listing's own; nil where the box has no /proc
}

func parseReport(msg []byte, fields []field) (*Report, error) {
	if len(msg) != reportSize || msg[0] != reportTag {
		return nil, fmt.Errorf("the child's report has %d bytes and does not start as one", len(msg))
	}
	at := func(name string) []byte {
		for _, f := range fields {
			if f.name == name && f.off+f.len <= len(msg) {
				return msg[f.off : f.off+f.len]
			}
		}
		return nil
	}
	u32 := func(b []byte, i int) uint32 { return binary.NativeEndian.Uint32(b[4*i:]) }
	r := &Report{}
	for _, need := range []string{"resuid", "resgid", "groups", "caps", "sid", "keyring", "cwd", "uname"} {
		if at(need) == nil {
			return nil, fmt.Errorf("the child's report lacks %s", need)
		}
	}
	if (at("fds") == nil) != (at("fdslen") == nil) {
		return nil, fmt.Errorf("the child's descriptor listing has no length")
	}
	for i := range 3 {
		r.UIDs[i], r.GIDs[i] = u32(at("resuid"), i), u32(at("resgid"), i)
		r.Caps[i] = uint64(u32(at("caps"), i)) | uint64(u32(at("caps"), i+3))<<32
	}
	r.Groups = int(binary.NativeEndian.Uint64(at("groups")))
	r.Session = int(binary.NativeEndian.Uint64(at("sid")))
	r.Keyring = int64(binary.NativeEndian.Uint64(at("keyring")))
	r.Dir = cString(at("cwd"))
	if t := at("terminal"); t != nil {
		r.Terminal = int(u32(t, 0))
	}
	r.Hostname = cString(at("uname")[1*utsField : 2*utsField])
	r.Domainname = cString(at("uname")[5*utsField:])
	for i, l := range inotifyLimits() {
		r.Inotify[i] = strings.TrimSuffix(cString(at(l.name)), "\n")
	}
	if c := at("cgroup"); c != nil {
		r.Cgroup = cString(c)
	}
	if d := at("fds"); d != nil {
		n := int(binary.NativeEndian.Uint64(at("fdslen")))
		if n < 0 || n > len(d) {
			return nil, fmt.Errorf("the child's descriptor listing has %d bytes", n)
		}
		list, err := parseDents(d[:n])
		if err != nil {
			return nil, err
		}
		r.Descriptors = list
	}
	return r, nil
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// parseDents reads struct linux_dirent64 entries whose names are descriptor
// numbers, dropping the listing's own (the lowest free number when it was
// opened, so the one that is neither handed in nor private: left to the caller
// by returning all but "." and "..").
func parseDents(b []byte) ([]int, error) {
	out := []int{}
	for len(b) > 0 {
		n := 0
		if len(b) >= 19 {
			n = int(binary.NativeEndian.Uint16(b[16:]))
		}
		if n < 19 || n > len(b) {
			return nil, fmt.Errorf("malformed directory entry")
		}
		name := b[19:n]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		b = b[n:]
		if string(name) == "." || string(name) == ".." {
			continue
		}
		if len(name) == 0 {
			return nil, fmt.Errorf("a descriptor without a name")
		}
		v := 0
		for _, ch := range name {
			if ch < '0' || ch > '9' || v > 1<<20 {
				return nil, fmt.Errorf("descriptor name %q", name)
			}
			v = v*10 + int(ch-'0')
		}
		out = append(out, v)
	}
	slices.Sort(out)
	return out, nil
}
