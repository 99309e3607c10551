package nsexec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
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

// poison fills what the kernel has not answered: no answer is never a good one.
const poison = 0xa5

// polled is how many descriptors are asked about where no /proc lists them all.
const polled = 128

// placeTried is place for the results of a Tried with n forbidden acts.
func (c *compiler) placeTried(name string, n int) (control Ref, forbidden []Ref) {
	r := c.place(name, 8+8*n)
	for i := range n {
		forbidden = append(forbidden, Ref{r.Slot, r.Off + 8 + 8*i})
	}
	return r, forbidden
}

// startReport makes the one piece of memory that is sent with one write.
func (c *compiler) startReport() {
	c.report = c.prog.slot("report", reportSize)
	c.report.Init[0] = reportTag
	c.reported = 16
}

// place takes n bytes of the report.
func (c *compiler) place(name string, n int) Ref {
	f := field{name, c.reported, n}
	c.fields = append(c.fields, f)
	c.reported += (n + 7) &^ 7
	for i := f.off; i < min(c.reported, reportSize); i++ {
		c.report.Init[i] = poison
	}
	return c.report.at(f.off)
}

// placeText is place for what read(2) fills, of which only the bytes that came
// are the answer; a NUL ends it.
func (c *compiler) placeText(name string, n int) Ref {
	r := c.place(name, n)
	clear(c.report.Init[min(r.Off+1, reportSize):min(c.reported, reportSize)])
	return r
}

// readSetUp asks what the set-up itself is, before the fork: the child sends it.
func (c *compiler) readSetUp() {
	c.add("read-set-up-capabilities", "shown to the launcher: no more than the steps name", unix.SYS_CAPGET, bytesArg(capHeader()), addr(c.place("setupcaps", 24)))
	c.add("read-death-signal", "shown to the launcher", unix.SYS_PRCTL, imm(unix.PR_GET_PDEATHSIG), addr(c.place("deathsignal", 8)))
	c.add("read-old-number", "shown to the launcher: a number that it handed in is closed", unix.SYS_FCNTL, imm(uintptr(c.fds.control)), imm(unix.F_GETFD), imm(0)).into(c.place("oldnumber", 8)).anyResult()
}

// readBack asks the kernel what the child now is.
func (c *compiler) readBack() {
	place := c.place
	r := place("resuid", 12)
	c.add("read-uids", "shown to the launcher", unix.SYS_GETRESUID, addr(r), addr(Ref{r.Slot, r.Off + 4}), addr(Ref{r.Slot, r.Off + 8}))
	r = place("resgid", 12)
	c.add("read-gids", "shown to the launcher", unix.SYS_GETRESGID, addr(r), addr(Ref{r.Slot, r.Off + 4}), addr(Ref{r.Slot, r.Off + 8}))
	c.add("read-groups", "shown to the launcher", unix.SYS_GETGROUPS, imm(0), imm(0)).into(place("groups", 8))
	c.add("read-capabilities", "shown to the launcher", unix.SYS_CAPGET, bytesArg(capHeader()), addr(place("caps", 24)))
	c.add("read-session", "shown to the launcher", unix.SYS_GETSID, imm(0)).into(place("sid", 8))
	c.add("read-keyring", "shown to the launcher; an own keyring has an own serial", unix.SYS_KEYCTL, imm(unix.KEYCTL_GET_KEYRING_ID), neg(-3), imm(0)).into(place("keyring", 8)).anyResult()
	c.add("read-personality", "shown to the launcher", unix.SYS_PERSONALITY, imm(0xffffffff)).into(place("personality", 8))
	c.add("read-policy", "shown to the launcher: nothing of the box runs in real time", unix.SYS_SCHED_GETSCHEDULER, imm(0)).into(place("policy", 8))
	c.add("read-nice", "shown to the launcher", unix.SYS_GETPRIORITY, imm(0), imm(0)).into(place("nice", 8))
	if c.spec.Terminal != nil {
		c.readTerminal(place)
	}
	c.add("read-directory", "shown to the launcher", unix.SYS_GETCWD, addr(place("cwd", 256)), imm(256))
	c.add("go-closes-on-exec", "else the workload would hold the launcher's socket", unix.SYS_FCNTL, imm(fdChildGo), imm(unix.F_GETFD), imm(0)).into(place("gocloses", 8)).anyResult()
	if c.spec.Command.Self {
		c.add("self-closes-on-exec", "else the workload would hold nsbox's own image", unix.SYS_FCNTL, imm(fdChildSelf), imm(unix.F_GETFD), imm(0)).into(place("selfcloses", 8)).anyResult()
	}
	for _, n := range c.given() {
		c.add(fmt.Sprintf("read-descriptor-%d", n), "shown to the launcher, which has the other end or the same file", unix.SYS_FSTAT, imm(uintptr(n)), addr(place(statField(n), statSize))).anyResult()
	}
	c.add("read-names", "shown to the launcher: host and domain name", unix.SYS_UNAME, addr(place("uname", utsFields*utsField)))
	if c.hasProc() {
		for _, l := range inotifyLimits() {
			file := c.word("read " + l.name)
			c.add("open-own-"+l.name, "shown to the launcher: the limit as it holds inside", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/sys/user/"+l.name), imm(unix.O_RDONLY|unix.O_CLOEXEC)).into(file)
			c.add("read-own-"+l.name, "shown to the launcher", unix.SYS_READ, load(file), addr(c.placeText(l.name, 24)), imm(23))
			c.add("close-own-"+l.name, "the listing below must not show it", unix.SYS_CLOSE, load(file))
		}
		file := c.word("cgroup-file")
		c.add("open-cgroup", "shown to the launcher: the view from inside", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/self/cgroup"), imm(unix.O_RDONLY|unix.O_CLOEXEC)).into(file)
		c.add("read-cgroup", "a hierarchy whose line does not end in the root would show the host's tree", unix.SYS_READ, load(file), addr(c.placeText("cgroup", 512)), imm(511))
		c.add("close-cgroup", "the listing below must not show it", unix.SYS_CLOSE, load(file))
		dir := c.word("fd-dir")
		c.add("open-descriptors", "shown to the launcher", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/self/fd"), imm(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)).into(dir)
		c.add("read-descriptors", "shown to the launcher; nothing else may be open", unix.SYS_GETDENTS64, load(dir), addr(place("fds", 1024)), imm(1024)).into(place("fdslen", 8))
		return
	}
	list := place("polled", 8*polled)
	for n := range polled { // struct pollfd: descriptor, events asked for, events
		binary.NativeEndian.PutUint32(c.report.Init[list.Off+8*n:], uint32(n))
		binary.NativeEndian.PutUint16(c.report.Init[list.Off+8*n+4:], 0)
	}
	c.add("read-descriptors", "shown to the launcher; without a /proc that lists them, each is asked for", unix.SYS_POLL, addr(list), imm(polled), imm(0)).into(place("answered", 8))
}

// given are the descriptors of the program that the launcher knows from its side.
func (c *compiler) given() []int {
	out := []int{0, 1, 2}
	for _, p := range c.fds.pass {
		out = append(out, p.To)
	}
	return out
}

func statField(n int) string { return fmt.Sprintf("stat-%d", n) }

// statSize is that of struct stat on amd64, stat(2).
const statSize = 144

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
	Personality int64 // personality(2); 0 is plain
	Policy      int64 // sched_getscheduler(2)
	Nice        int64 // -20 to 19
	Keyring     int64 // serial of the session keyring, or -errno
	Terminal    int   // session of the terminal at descriptor 0; 0 where the box has none
	Dir         string
	Hostname    string
	Domainname  string
	Inotify     [2]string // user.max_inotify_instances and _watches inside; empty where the box has no /proc
	Cgroup      string    // /proc/self/cgroup as the child sees it; empty where the box has no /proc
	Descriptors []int     // open at the time, with the listing's own; nil where nobody answered

	SetUpCaps   [3]uint64      // of the set-up before its fork
	DeathSignal int64          // of the set-up before its fork
	OldNumber   int64          // raw answer about a number of the launcher's in the set-up
	CloseOnExec []int64        // raw flags of the private descriptors
	Files       map[int]FileID // behind the program's descriptors that the launcher knows
	Names       []int64        // raw results of opening Spec.Open, in its order

	// What was tried; nil where the program does not hold the attempt.
	Landlock *Tried // an open that Landlock lets through, and one that only it forbids
	Connect  *Tried // a connect to a listed port that nobody listens on, and to one not listed
	Datagram *Tried // a stream socket and a datagram socket, under the filter

	// SocketFile is a socket that leads nowhere, a datagram socket that may hold a
	// path, and a way for a stream to one, under the filter.
	SocketFile *Tried

	NestedUserNS int64 // unshare of a user namespace, before the filter
	Filter       int64 // seccomp(2) itself
	Filtered     int64 // unshare of nothing, after it
}

// Tried are the kernel's raw answers to a permitted act, and to forbidden ones of
// its kind.
type Tried struct {
	Control   int64
	Forbidden []int64
}

// FileID is what fstat(2) says of a descriptor.
type FileID struct {
	Dev, Ino, Rdev uint64
	Type           uint32 // S_IFMT of the mode
}

func parseFile(b []byte) FileID {
	w := binary.NativeEndian
	return FileID{Dev: w.Uint64(b), Ino: w.Uint64(b[8:]), Type: w.Uint32(b[24:]) & unix.S_IFMT, Rdev: w.Uint64(b[40:])}
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
	for _, need := range []string{"resuid", "resgid", "groups", "caps", "sid", "keyring", "personality", "policy", "nice", "cwd", "uname", "setupcaps", "deathsignal", "oldnumber", "gocloses", "nested", "filter", "filtered"} {
		if at(need) == nil {
			return nil, fmt.Errorf("the child's report lacks %s", need)
		}
	}
	if (at("fds") == nil) != (at("fdslen") == nil) {
		return nil, fmt.Errorf("the child's descriptor listing has no length")
	}
	word := func(name string) int64 { return int64(binary.NativeEndian.Uint64(at(name))) }
	maybe := func(name string) *int64 {
		if at(name) == nil {
			return nil
		}
		v := word(name)
		return &v
	}
	for i := range 3 {
		r.UIDs[i], r.GIDs[i] = u32(at("resuid"), i), u32(at("resgid"), i)
		r.Caps[i] = uint64(u32(at("caps"), i)) | uint64(u32(at("caps"), i+3))<<32
		r.SetUpCaps[i] = uint64(u32(at("setupcaps"), i)) | uint64(u32(at("setupcaps"), i+3))<<32
	}
	r.DeathSignal, r.OldNumber = int64(u32(at("deathsignal"), 0)), word("oldnumber")
	r.NestedUserNS, r.Filter, r.Filtered = word("nested"), word("filter"), word("filtered")
	for name, to := range map[string]**Tried{"landlock": &r.Landlock, "connect": &r.Connect, "datagram": &r.Datagram, "socketfile": &r.SocketFile} {
		b := at(name)
		if b == nil {
			continue
		}
		*to = &Tried{Control: word(name)}
		for b = b[8:]; len(b) > 0; b = b[8:] {
			(*to).Forbidden = append((*to).Forbidden, int64(binary.NativeEndian.Uint64(b)))
		}
	}
	for _, name := range []string{"gocloses", "selfcloses"} {
		if v := maybe(name); v != nil {
			r.CloseOnExec = append(r.CloseOnExec, *v)
		}
	}
	r.Files = map[int]FileID{}
	for _, f := range fields {
		what, number, _ := strings.Cut(f.name, "-")
		n, err := strconv.Atoi(number)
		switch {
		case err != nil:
		case what == "stat":
			r.Files[n] = parseFile(at(f.name))
		case what == "name":
			r.Names = append(r.Names, word(f.name))
		}
	}
	r.Groups = int(binary.NativeEndian.Uint64(at("groups")))
	r.Session = int(binary.NativeEndian.Uint64(at("sid")))
	r.Keyring = int64(binary.NativeEndian.Uint64(at("keyring")))
	r.Personality, r.Policy = word("personality"), word("policy")
	r.Nice = 20 - word("nice") // the call answers 1 to 40
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
	if n := maybe("answered"); n != nil && *n >= 0 && *n <= polled {
		r.Descriptors = []int{}
		for fd, b := 0, at("polled"); len(b) >= 8; fd, b = fd+1, b[8:] {
			if binary.NativeEndian.Uint16(b[6:])&unix.POLLNVAL == 0 {
				r.Descriptors = append(r.Descriptors, fd)
			}
		}
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
