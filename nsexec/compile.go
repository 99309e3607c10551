package nsexec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Descriptor numbers inside the set-up. The launcher hands in numbers of
// highFD and above only, so that moving them here can never overwrite one.
const (
	fdControl   = 3  // pid 1 <-> launcher
	fdSelf      = 4  // nsbox's own executable, O_PATH
	fdGo        = 5  // child <-> launcher
	fdFirst     = 6  // the work leaf of the job cgroup if there is one, then what is passed; the rest is closed
	fdLift      = 40 // 40..59: passed and opened descriptors on their way to their numbers
	fdChildGo   = 60 // where the child keeps the go socket, and nsbox's executable if that is what it execs
	fdChildSelf = 61
	highFD      = 64
	// Out of the reach of what is opened at the lowest free number: at most 9
	// handed in, 18 names, and the ends of pipes.
	fdOuter = 64 // stdout, stderr, stdin outer ends, held directory: 64..67
	fdInner = 68 // stdin, stdout, stderr inner ends: 68..70
)

// NoDomain is what the box has for an NIS domain name: the kernel's own word for none.
const NoDomain = "(none)"

// What a box may have of inotify; the kernel's defaults for a whole user are 128
// and some 100,000.
const (
	InotifyInstances = "8"
	InotifyWatches   = "1024"
)

// inotifyLimits are the files below /proc/sys/user, each with its value.
func inotifyLimits() []struct{ name, value string } {
	return []struct{ name, value string }{{"max_inotify_instances", InotifyInstances}, {"max_inotify_watches", InotifyWatches}}
}

// PrivateDescriptors is the lowest number of what the waiting child keeps for
// itself, close-on-exec; all below is the program's.
const PrivateDescriptors = fdChildGo

// fds are the launcher's descriptor numbers, each at least highFD.
type fds struct {
	control, golink, self int
	work                  int // -1: no job cgroup
	pass                  []Pass
}

// Pass is one descriptor handed into the box: From is the launcher's number,
// To the number the program sees.
type Pass struct{ From, To int }

// compiler turns a Spec into steps; its methods are grouped by what they build.
type compiler struct {
	spec                  *Spec
	fds                   fds
	prog                  *Program
	stage                 string
	buf                   *Slot
	trees                 map[int]Ref // node index -> descriptor of its detached mount
	masks                 []Ref
	report                *Slot
	reported              int // bytes of it that are taken
	relayRead, relayWrite Ref // pipe from pid 1 to the child
	innerRead, innerWrite Ref // pipe from the child to pid 1, in a nested box
	fields                []field
	caps                  uint64
	capStep               int
}

// compile is pure: the same Spec and descriptor numbers give the same Program.
func compile(s *Spec, f fds) (*Program, []field, error) {
	if err := s.Validate(); err != nil {
		return nil, nil, err
	}
	if len(f.pass) > maxPass || len(f.pass)+len(s.Open) > fdChildGo-fdLift {
		return nil, nil, fmt.Errorf("%d descriptors to pass and %d names to open; at most %d and %d in all", len(f.pass), len(s.Open), maxPass, fdChildGo-fdLift)
	}
	if err := f.validate(s); err != nil {
		return nil, nil, err
	}
	c := &compiler{spec: s, fds: f, prog: &Program{}, trees: map[int]Ref{}}
	c.buf = c.prog.slot("scratch", 64)
	c.startReport()
	c.stage = "setup"
	c.entry()
	if s.Identity.Nested {
		c.waitForMaps()
	}
	c.fork()
	c.sources()
	c.identity()
	c.network()
	c.root()
	c.enter()
	c.stage = "init"
	c.becomeInit()
	c.stage = "child"
	c.child()
	c.scopeCaps()
	if c.reported > reportSize {
		return nil, nil, fmt.Errorf("the child's report would have %d bytes; %d fit", c.reported, reportSize)
	}
	return c.prog, c.fields, nil
}

// add appends one step and returns it for the few that need more than the defaults.
func (c *compiler) add(name, why string, nr uintptr, args ...Arg) *Step {
	c.prog.Steps = append(c.prog.Steps, Step{Name: name, Why: why, Nr: nr, Args: args, Cap: noCap, Stage: c.stage})
	return &c.prog.Steps[len(c.prog.Steps)-1]
}

// need records the capability a step uses; the set-up keeps the union and nothing else.
func (c *compiler) need(s *Step, cap int) *Step {
	s.Cap = cap
	c.caps |= 1 << cap
	return s
}

// become records what taking an id needs, which is nothing where there is only one.
func (c *compiler) become(s *Step, cap int) {
	if !c.spec.Identity.Nested {
		c.need(s, cap)
	}
}

func (s *Step) exactly(v int64) *Step       { s.Rule, s.Want = Exactly, v; return s }
func (s *Step) fails(e unix.Errno) *Step    { s.Rule, s.Want = Exactly, -int64(e); return s }
func (s *Step) tolerate(e unix.Errno) *Step { s.Rule, s.Want = Tolerate, -int64(e); return s }
func (s *Step) anyResult() *Step            { s.Rule = Any; return s }
func (s *Step) into(r Ref) *Step            { s.Out = &r; return s }

func (c *compiler) word(name string) Ref { return c.prog.slot(name, 8).at(0) }

const atFDCWD = unix.AT_FDCWD

// entry makes the new process independent of what the launcher had open.
func (c *compiler) entry() {
	c.add("scope-capabilities", "the set-up holds only what its own steps name", unix.SYS_CAPSET)
	c.capStep = len(c.prog.Steps) - 1
	c.add("die-with-launcher", "the launcher's end must end the box even before init is up", unix.SYS_PRCTL, imm(unix.PR_SET_PDEATHSIG), imm(9))
	if len(c.spec.Root) > 1 {
		c.add("umask-open", "the caller's umask must not hide the root's directories from the workload", unix.SYS_UMASK, imm(0))
	}
	c.add("plain-personality", "the caller's may switch off address randomization", unix.SYS_PERSONALITY, imm(0))
	null := c.word("null")
	c.add("open-null", "descriptors 0 to 2 must be taken before anything else is opened", unix.SYS_OPENAT, neg(atFDCWD), str("/dev/null"), imm(unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY)).into(null)
	for n := 0; n <= 2; n++ {
		c.add(fmt.Sprintf("null-to-%d", n), "no stream of the caller's reaches the box", unix.SYS_DUP3, load(null), imm(uintptr(n)), imm(0))
	}
	c.moveFD("control", c.fds.control, fdControl)
	c.reportOn("report-on-control", "its old number is closed below", fdControl)
	c.moveFD("self", c.fds.self, fdSelf)
	c.moveFD("go", c.fds.golink, fdGo)
	if c.fds.work >= 0 {
		c.moveFD("work-cgroup", c.fds.work, fdFirst)
	}
	for i, p := range c.fds.pass {
		c.moveFD(fmt.Sprintf("pass-%d", i), p.From, c.firstPass()+i)
	}
	c.add("close-the-rest", "above all the launcher's socket end, or its death would never be seen as EOF", unix.SYS_CLOSE_RANGE, imm(uintptr(c.firstPass()+len(c.fds.pass))), imm(^uintptr(0)>>32), imm(0))
	c.readSetUp()
}

// firstPass is the set-up's number of the first passed descriptor.
func (c *compiler) firstPass() int {
	if c.fds.work >= 0 {
		return fdFirst + 1
	}
	return fdFirst
}

// reportOn switches the descriptor on which the interpreter reports a failure.
func (c *compiler) reportOn(name, why string, fd uintptr) {
	c.add(name, why, pseudoReport, imm(fd))
}

func (c *compiler) moveFD(name string, from, to int) {
	c.add("take-"+name, "known numbers let the program be written before it runs", unix.SYS_DUP3, imm(uintptr(from)), imm(uintptr(to)), imm(unix.O_CLOEXEC))
}

// sources opens every bind source while the kernel uid is still the operator's,
// in this mount namespace: later the path may be unreadable, and a tree opened
// by the launcher would belong to another mount namespace (EINVAL).
func (c *compiler) sources() {
	if !slices.ContainsFunc(c.spec.Root, func(n Node) bool { return n.Kind == Proc || n.Source != "" && n.Kind != Symlink }) {
		return // nothing is taken from the host, and what is mounted on its slaves is private
	}
	c.need(c.add("private-mounts", "a shared mount would carry our changes back to the host", unix.SYS_MOUNT, imm(0), str("/"), imm(0), imm(unix.MS_REC|unix.MS_PRIVATE), imm(0)), unix.CAP_SYS_ADMIN)
	for i, n := range c.spec.Root {
		switch n.Kind {
		case BindDir, BindFile, Device, Storage:
			c.trees[i] = c.openTree(n.Path, n.Source, n.attrs(), n.Kind == BindDir)
		}
	}
	if !c.hasProc() {
		return
	}
	for _, m := range c.spec.MaskProc {
		c.masks = append(c.masks, c.openTree(m, "/dev/null", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, false))
	}
}

func (c *compiler) hasProc() bool {
	for _, n := range c.spec.Root {
		if n.Kind == Proc {
			return true
		}
	}
	return false
}

// attrs are flags to add; flags the source already has are never cleared, so
// locked ones cannot be tripped over.
func (n Node) attrs() uint64 {
	if n.Kind == Storage {
		return unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC
	}
	a := uint64(unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID)
	if n.Kind == Device {
		return a | unix.MOUNT_ATTR_NOEXEC
	}
	a |= unix.MOUNT_ATTR_NODEV
	if n.NoExec {
		a |= unix.MOUNT_ATTR_NOEXEC
	}
	return a
}

func (c *compiler) openTree(at, source string, attrs uint64, recursive bool) Ref {
	fd := c.word("tree " + at)
	flags := uintptr(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	set := uintptr(unix.AT_EMPTY_PATH)
	if recursive {
		// Not recursive over a submount would be EINVAL; the attributes follow into each.
		flags |= unix.AT_RECURSIVE
		set |= unix.AT_RECURSIVE
	}
	c.need(c.add("open:"+at, "the source is pinned before its path can change", unix.SYS_OPEN_TREE, neg(atFDCWD), str(source), imm(flags)).into(fd), unix.CAP_SYS_ADMIN)
	attr := make([]byte, 32) // struct mount_attr: set, clear, propagation, userns_fd
	binary.NativeEndian.PutUint64(attr, attrs)
	c.need(c.add("restrict:"+at, "a bind keeps its source's flags unless told otherwise", unix.SYS_MOUNT_SETATTR, load(fd), str(""), imm(set), bytesArg(attr), imm(32)), unix.CAP_SYS_ADMIN)
	return fd
}

// waitForMaps waits until the launcher has written the id maps.
func (c *compiler) waitForMaps() {
	c.add("wait-for-maps", "without the id maps no id is valid here; EOF means that the launcher is gone", unix.SYS_READ, imm(fdControl), addr(c.buf.at(0)), imm(1)).exactly(1)
}

// identity becomes the 0 of the box, and limits what its user namespace may have.
func (c *compiler) identity() {
	if !c.spec.Identity.Nested {
		c.waitForMaps()
		c.need(c.add("init-no-groups", "pid 1 would keep the operator's supplementary groups", unix.SYS_SETGROUPS, imm(0), imm(0)), unix.CAP_SETGID)
	}
	c.become(c.add("become-gid-0", "what the set-up creates belongs to init's group of the box", unix.SYS_SETRESGID, imm(0), imm(0), imm(0)), unix.CAP_SETGID)
	c.become(c.add("become-uid-0", "from here on the kernel no longer sees the operator", unix.SYS_SETRESUID, imm(0), imm(0), imm(0)), unix.CAP_SETUID)
	c.add("die-with-launcher-again", "a change of uid clears the death signal", unix.SYS_PRCTL, imm(unix.PR_SET_PDEATHSIG), imm(9))
	c.need(c.add("hostname", "the host's name is nobody's business inside", unix.SYS_SETHOSTNAME, str(c.spec.Hostname), imm(uintptr(len(c.spec.Hostname)))), unix.CAP_SYS_ADMIN)
	c.need(c.add("domainname", "the NIS domain is the host's as well", unix.SYS_SETDOMAINNAME, str(NoDomain), imm(uintptr(len(NoDomain)))), unix.CAP_SYS_ADMIN)
	c.cgroupNamespace("init-")
	c.namespaceLimits("")
}

// namespaceLimits bounds the user namespace of the process.
func (c *compiler) namespaceLimits(prefix string) {
	fd := c.word(prefix + "max-user-namespaces")
	c.need(c.add(prefix+"open-userns-limit", "only the old /proc has the file, so it comes before the pivot", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/sys/user/max_user_namespaces"), imm(unix.O_WRONLY|unix.O_CLOEXEC), imm(0)).into(fd), unix.CAP_SYS_RESOURCE)
	c.add(prefix+"no-nested-userns", "a nested user namespace would give the workload capabilities and so kernel surface", unix.SYS_WRITE, load(fd), str("0"), imm(1)).exactly(1)
	if !c.hasProc() {
		return // one of nsbox's own stages, whose filter knows no inotify; it could not be read back either
	}
	// Both count against the operator's own limits too: a box must not be able to use those up.
	for _, l := range inotifyLimits() {
		fd := c.word(prefix + l.name)
		c.need(c.add(prefix+"open-"+l.name, "per user namespace, like the limit above", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/sys/user/"+l.name), imm(unix.O_WRONLY|unix.O_CLOEXEC), imm(0)).into(fd), unix.CAP_SYS_RESOURCE)
		c.add(prefix+"limit-"+l.name, "the operator's editors would find none left, and event queues are kernel memory", unix.SYS_WRITE, load(fd), str(l.value), imm(uintptr(len(l.value)))).exactly(int64(len(l.value)))
	}
}

// cgroupNamespace makes the process's own cgroup the root of what it sees. At
// clone it would have been the launcher's.
func (c *compiler) cgroupNamespace(prefix string) {
	c.need(c.add(prefix+"cgroup-namespace", "the host's cgroup tree is out of sight", unix.SYS_UNSHARE, imm(unix.CLONE_NEWCGROUP)), unix.CAP_SYS_ADMIN)
}

// scopeCaps fills the first step once all others have named their capability.
func (c *compiler) scopeCaps() {
	c.prog.Steps[c.capStep].Args = []Arg{bytesArg(capHeader()), bytesArg(capData(c.caps))}
}

func capHeader() []byte {
	h := make([]byte, 8)
	binary.NativeEndian.PutUint32(h, unix.LINUX_CAPABILITY_VERSION_3)
	return h
}

// capData is two struct __user_cap_data; version 3 reads both.
func capData(set uint64) []byte {
	d := make([]byte, 24)
	for i := 0; i < 2; i++ {
		w := uint32(set >> (32 * i))
		binary.NativeEndian.PutUint32(d[12*i:], w)   // effective
		binary.NativeEndian.PutUint32(d[12*i+4:], w) // permitted
	}
	return d
}
