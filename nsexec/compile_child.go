package nsexec

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// fork makes the workload's process early, while the kernel uid is still the
// operator's: only then may the child be born in another cgroup of the operator's
// than pid 1. Moving it there later would cost an RCU grace period, some 15 ms.
// It then waits until pid 1 has built the tree; pivot_root moves its root as well.
func (c *compiler) fork() {
	for n := 0; n <= c.spec.CapLast; n++ {
		c.need(c.add("bound-"+strconv.Itoa(n), "no exec may bring a capability back; dropped once, before the fork, for both", unix.SYS_PRCTL, imm(unix.PR_CAPBSET_DROP), imm(uintptr(n))), unix.CAP_SETPCAP)
	}
	relay := c.prog.slot("relay", 16)
	c.relayRead, c.relayWrite = relay.at(0), relay.at(4)
	c.add("relay", "pid 1 tells the child directly when the tree is ready", unix.SYS_PIPE2, addr(c.relayRead), imm(unix.O_CLOEXEC))
	c.innerPipe()
	args := make([]byte, cloneArgsSize)
	var flags uint64
	if c.spec.SharedVM {
		flags |= unix.CLONE_VM
	}
	if c.fds.work >= 0 {
		flags |= unix.CLONE_INTO_CGROUP
		binary.NativeEndian.PutUint64(args[80:], fdFirst)
	}
	if c.spec.Identity.Nested {
		flags |= unix.CLONE_NEWUSER
	}
	binary.NativeEndian.PutUint64(args, flags)
	binary.NativeEndian.PutUint64(args[32:], uint64(unix.SIGCHLD))
	s := c.add("fork", "the workload is pid 2, so that pid 1 can outlive and reap it", unix.SYS_CLONE3, bytesArg(args), imm(cloneArgsSize))
	s.Rule, s.To = Branch, "report-on-go"
}

// becomeInit ends pid 1's set-up: nothing privileged is left when it execs.
func (c *compiler) becomeInit() {
	c.noCapabilities("init-")
	c.add("init-core", "init's memory is nobody's to dump", unix.SYS_PRLIMIT64, imm(0), imm(unix.RLIMIT_CORE), bytesArg(make([]byte, 16)), imm(0))
	c.add("init-keep-control", "descriptor 3 is the stage's one door; all others close on exec", unix.SYS_FCNTL, imm(fdControl), imm(unix.F_SETFD), imm(0))
	c.unmask("init-")
	// Init is told what the kernel answers as an argument: only this thread can ask.
	signal := c.prog.slot("init death signal", 8)
	signal.Init[0] = poison
	c.add("read-init-death-signal", "shown to the launcher by init, which gets it as its argument", unix.SYS_PRCTL, imm(unix.PR_GET_PDEATHSIG), addr(signal.at(0)))
	c.filter("init-", c.spec.InitFilter)
	argv := vec([]string{StageInit, ""})
	argv.relocs[1].arg = addr(signal.at(0))
	c.add("init-exec", "exec is the barrier: the launcher's memory image ends here", unix.SYS_EXECVEAT, imm(fdSelf), str(""), argv, vec(StageEnv()), imm(unix.AT_EMPTY_PATH))
}

// StageEnv keeps the Go runtime of a stage small; it holds nothing of the caller's.
func StageEnv() []string { return []string{"GOMAXPROCS=1", "GOGC=off"} }

// noCapabilities needs no step for the ambient set: the clone into a new user
// namespace emptied it, and capset(2) keeps it within the permitted one.
func (c *compiler) noCapabilities(prefix string) {
	c.add(prefix+"no-capabilities", "effective, permitted and inheritable become empty, and with them ambient", unix.SYS_CAPSET, bytesArg(capHeader()), bytesArg(capData(0)))
	c.add(prefix+"no-new-privs", "no exec can gain; an unprivileged filter and Landlock need it", unix.SYS_PRCTL, imm(unix.PR_SET_NO_NEW_PRIVS), imm(1), imm(0), imm(0), imm(0))
}

func (c *compiler) unmask(prefix string) {
	c.add(prefix+"empty-signal-mask", "a blocked signal would be inherited over exec", unix.SYS_RT_SIGPROCMASK, imm(2), bytesArg(make([]byte, 8)), imm(0), imm(8))
}

func (c *compiler) filter(prefix string, f []byte) *Step {
	prog := Arg{kind: argBlob, data: make([]byte, 16), relocs: []reloc{{8, bytesArg(f)}}} // struct sock_fprog
	binary.NativeEndian.PutUint16(prog.data, uint16(len(f)/8))
	return c.add(prefix+"seccomp", "last, so that the filter need not permit what the set-up does", unix.SYS_SECCOMP, imm(unix.SECCOMP_SET_MODE_FILTER), imm(0), prog)
}

// child is everything between fork and the workload's first instruction.
func (c *compiler) child() {
	c.reportOn("report-on-go", "two readers of one socket would steal each other's messages", fdGo)
	c.add("own-keyring", "the caller's session keyring would be inherited", unix.SYS_KEYCTL, imm(unix.KEYCTL_JOIN_SESSION_KEYRING), imm(0)).tolerate(unix.ENOSYS)
	c.add("own-session", "no controlling terminal, no signals to the caller's group; its number is that of pid 2, by which init knows the workload", unix.SYS_SETSID).exactly(2)
	// CLONE_CLEAR_SIGHAND resets handlers, but what the caller ignores (nohup, make)
	// stays ignored over clone and exec.
	plain := c.prog.slot("default signal action", 32).at(0)
	for n := 1; n <= 64; n++ {
		if n != int(unix.SIGKILL) && n != int(unix.SIGSTOP) {
			c.add(fmt.Sprintf("default-signal-%d", n), "a signal that the caller ignores would be ignored by the workload too", unix.SYS_RT_SIGACTION, imm(uintptr(n)), addr(plain), imm(0), imm(8))
		}
	}
	c.innerNamespace()
	if c.hasProc() { // nothing else would show the child's own
		c.cgroupNamespace("")
	}
	c.add("wait-for-tree", "nothing of the host may be opened; if pid 1 ends instead, the kernel ends the child with it", unix.SYS_READ, load(c.relayRead), addr(c.buf.at(16)), imm(1)).exactly(1)
	c.openForChild()
	c.childIdentity()
	c.streams()
	c.handOut()
	c.childDescriptors()
	c.rlimits(func(resource int) bool { return resource != unix.RLIMIT_NOFILE })
	if c.spec.Affinity >= 0 {
		mask := make([]byte, 128)
		mask[c.spec.Affinity/8] |= 1 << (c.spec.Affinity % 8)
		c.add("one-cpu", "stands in for the cpu rate where no controller is delegated", unix.SYS_SCHED_SETAFFINITY, imm(0), imm(128), bytesArg(mask))
	}
	c.add("umask", "files are not writable by others unless the program says so", unix.SYS_UMASK, imm(uintptr(c.spec.Umask)))
	c.add("working-directory", "entered with the workload's own rights", unix.SYS_CHDIR, str(c.spec.Command.Dir))
	probe := c.landlock()
	c.closeRest()
	c.unmask("")
	c.readBack()
	probe()
	c.probeConnect()
	c.add("probe-nested-userns", "the limit on user namespaces must hold without the filter's help", unix.SYS_UNSHARE, imm(unix.CLONE_NEWUSER)).into(c.place("nested", 8)).anyResult()
	// Last, since Landlock's rules and the probes need descriptors that the program may not have.
	c.rlimits(func(resource int) bool { return resource == unix.RLIMIT_NOFILE })
	c.filter("", c.spec.Filter).into(c.place("filter", 8))
	c.add("probe-seccomp", "unshare of nothing succeeds unless the filter is in force", unix.SYS_UNSHARE, imm(0)).into(c.place("filtered", 8)).anyResult()
	c.probeSockets()
	c.add("ready", "the launcher compares all this with the plan before it says go", unix.SYS_WRITE, imm(fdChildGo), addr(c.report.at(0)), imm(uintptr(len(c.report.Init)))).exactly(int64(len(c.report.Init)))
	c.add("wait-for-go", "EOF means that the launcher is gone or has refused", unix.SYS_READ, imm(fdChildGo), addr(c.buf.at(8)), imm(1)).exactly(1)
	c.exec()
}

// goByte is what "go" says: the byte without which the exec below has no program.
func (c Command) goByte() byte {
	if c.Self {
		return unix.AT_EMPTY_PATH >> 8
	}
	return c.Path[0]
}

// exec runs what "go" completes: the first byte of the path, or the flag by which
// an empty path means the descriptor. Whoever comes here without it gets ENOENT.
func (c *compiler) exec() {
	wait := &c.prog.Steps[len(c.prog.Steps)-1]
	if c.spec.Command.Self {
		flags := c.prog.slot("exec flags", 8)
		wait.Args[1] = addr(flags.at(1))
		c.add(execStep, "nsbox's own stage begins", unix.SYS_EXECVEAT, imm(fdChildSelf), str(""), vec(c.spec.Command.Argv), vec(c.spec.Command.Env), load(flags.at(0)))
		return
	}
	program := c.prog.slot("program", len(c.spec.Command.Path)+1)
	copy(program.Init[1:], c.spec.Command.Path[1:])
	wait.Args[1] = addr(program.at(0))
	c.add(execStep, "the workload's first instruction", unix.SYS_EXECVE, addr(program.at(0)), vec(c.spec.Command.Argv), vec(c.spec.Command.Env))
}

func (c *compiler) rlimits(which func(resource int) bool) {
	for _, l := range c.spec.Rlimits {
		if !which(l.Resource) {
			continue
		}
		v := make([]byte, 16)
		binary.NativeEndian.PutUint64(v, l.Soft)
		binary.NativeEndian.PutUint64(v[8:], l.Hard)
		c.add("rlimit-"+l.Name, "a per-process limit of the policy", unix.SYS_PRLIMIT64, imm(0), imm(uintptr(l.Resource)), bytesArg(v), imm(0))
	}
}

// execStep is the one step whose failure is the program's, not ours.
const execStep = "exec-workload"

// openForChild opens what the program itself would have no right to open: the
// exporter's view of a sealed directory.
func (c *compiler) openForChild() {
	if c.spec.Listable >= 0 {
		c.need(c.add("seal-mode", "the exporter may list the sealed root and nobody may add to it", unix.SYS_FCHMOD, imm(uintptr(c.passed(c.spec.Listable))), imm(0o555)), unix.CAP_FOWNER)
	}
	for i, o := range c.spec.Open {
		// struct open_how: flags, mode, resolve
		how := make([]byte, 24)
		binary.NativeEndian.PutUint64(how, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
		binary.NativeEndian.PutUint64(how[16:], unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS|unix.RESOLVE_NO_XDEV)
		c.need(c.add(fmt.Sprintf("open-name-%d", i), "opened once, here, with the right to read a file its owner closed to others", unix.SYS_OPENAT2, imm(uintptr(c.passed(o.Dir))), str(o.Name), bytesArg(how), imm(24)).into(c.openSlot(i)).anyResult(), unix.CAP_DAC_READ_SEARCH)
	}
}

// openSlot holds what came of opening a name, within the report.
func (c *compiler) openSlot(i int) Ref {
	name := fmt.Sprintf("name-%d", i)
	for _, f := range c.fields {
		if f.name == name {
			return c.report.at(f.off)
		}
	}
	return c.place(name, 8)
}

// passed is the set-up's number of the descriptor that the program will see as to.
func (c *compiler) passed(to int) int {
	for i, p := range c.fds.pass {
		if p.To == to {
			return c.firstPass() + i
		}
	}
	return -1
}

// childIdentity ends every privilege of the child.
func (c *compiler) childIdentity() {
	if !c.spec.Identity.Nested {
		c.need(c.add("no-groups", "a supplementary group of the operator's would open the host's files", unix.SYS_SETGROUPS, imm(0), imm(0)), unix.CAP_SETGID)
	}
	id := imm(uintptr(c.spec.GID))
	c.become(c.add("workload-gid", "the workload's own group", unix.SYS_SETRESGID, id, id, id), unix.CAP_SETGID)
	id = imm(uintptr(c.spec.UID))
	c.become(c.add("workload-uid", "the workload's own uid; from here on the kernel no longer sees the operator", unix.SYS_SETRESUID, id, id, id), unix.CAP_SETUID)
	c.noCapabilities("")
}

// streams makes the workload's pipes with the workload's own id, or the program
// could not open /dev/stdout again.
func (c *compiler) streams() {
	type pipe struct {
		name         string
		outer, inner int  // descriptor numbers
		readOutside  bool // the launcher reads
	}
	pipes := []pipe{{"stdout", fdOuter, fdInner + 1, true}, {"stderr", fdOuter + 1, fdInner + 2, true}}
	if c.spec.Terminal != nil {
		c.terminal()
		pipes = nil
	} else if c.spec.Stdin {
		pipes = append(pipes, pipe{"stdin", fdOuter + 2, fdInner, false})
	}
	for _, p := range pipes {
		ends := c.prog.slot("pipe "+p.name, 16)
		r, w := ends.at(0), ends.at(4)
		outer, inner := r, w
		if !p.readOutside {
			outer, inner = w, r
		}
		c.add("pipe:"+p.name, "made inside, so that its owner is the workload", unix.SYS_PIPE2, addr(r), imm(unix.O_CLOEXEC))
		c.add("outer:"+p.name, "the launcher's end gets its known number", unix.SYS_DUP3, load(outer), imm(uintptr(p.outer)), imm(unix.O_CLOEXEC))
		c.add("inner:"+p.name, "the workload's end gets its known number", unix.SYS_DUP3, load(inner), imm(uintptr(p.inner)), imm(unix.O_CLOEXEC))
	}
	if c.spec.Hold != "" {
		fd := c.word("held")
		c.add("open-held", "an open descriptor keeps the storage alive after the box is gone", unix.SYS_OPENAT, neg(atFDCWD), str(c.spec.Hold), imm(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW)).into(fd)
		c.add("held-number", "handed out under its known number", unix.SYS_DUP3, load(fd), imm(fdOuter+3), imm(unix.O_CLOEXEC))
	}
}

// handOut sends the outer ends to the launcher, before anything hostile exists.
func (c *compiler) handOut() {
	out := []uint32{fdOuter, fdOuter + 1}
	if c.spec.Terminal != nil {
		out = out[:1]
	} else if c.spec.Stdin {
		out = append(out, fdOuter+2)
	}
	if c.spec.Hold != "" {
		out = append(out, fdOuter+3)
	}
	ctl := make([]byte, unix.CmsgSpace(4*len(out)))
	binary.NativeEndian.PutUint64(ctl, uint64(unix.CmsgLen(4*len(out))))
	binary.NativeEndian.PutUint32(ctl[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(ctl[12:], unix.SCM_RIGHTS)
	for i, fd := range out {
		binary.NativeEndian.PutUint32(ctl[16+4*i:], fd)
	}
	iov := Arg{kind: argBlob, data: make([]byte, 16), relocs: []reloc{{0, bytesArg([]byte{msgStreams})}}}
	binary.NativeEndian.PutUint64(iov.data[8:], 1)
	msg := Arg{kind: argBlob, data: make([]byte, 56), relocs: []reloc{{16, iov}, {32, bytesArg(ctl)}}}
	binary.NativeEndian.PutUint64(msg.data[24:], 1)
	binary.NativeEndian.PutUint64(msg.data[40:], uint64(len(ctl)))
	c.add("hand-out", "the launcher gets the outer ends before the workload exists", unix.SYS_SENDMSG, imm(fdGo), msg, imm(unix.MSG_NOSIGNAL)).exactly(1)
}

// childDescriptors gives the workload its streams and what it is handed, and
// keeps two private numbers, both close-on-exec.
func (c *compiler) childDescriptors() {
	c.add("keep-go", "out of the way of what the program is handed", unix.SYS_DUP3, imm(fdGo), imm(fdChildGo), imm(unix.O_CLOEXEC))
	c.reportOn("report-on-kept-go", "its old number is about to be used", fdChildGo)
	if c.spec.Command.Self {
		c.add("keep-self", "needed by the exec of a stage", unix.SYS_DUP3, imm(fdSelf), imm(fdChildSelf), imm(unix.O_CLOEXEC))
	}
	if c.spec.Stdin || c.spec.Terminal != nil {
		c.add("stdin", "made inside, never the caller's own descriptor", unix.SYS_DUP3, imm(fdInner), imm(0), imm(0))
	}
	c.add("stdout", "counted and capped by the launcher", unix.SYS_DUP3, imm(fdInner+1), imm(1), imm(0))
	c.add("stderr", "counted and capped by the launcher", unix.SYS_DUP3, imm(fdInner+2), imm(2), imm(0))
	// Moved up first: a target number may be one that is still to be read.
	for i := range c.fds.pass {
		c.add(fmt.Sprintf("lift-pass-%d", i), "targets and sources share the low numbers", unix.SYS_DUP3, imm(uintptr(c.firstPass()+i)), imm(uintptr(fdLift+i)), imm(unix.O_CLOEXEC))
	}
	for i := range c.spec.Open {
		c.add(fmt.Sprintf("lift-open-%d", i), "a name that could not be opened leaves its number closed", unix.SYS_DUP3, load(c.openSlot(i)), imm(uintptr(fdLift+len(c.fds.pass)+i)), imm(unix.O_CLOEXEC)).anyResult()
	}
	for i, p := range c.fds.pass {
		c.add(fmt.Sprintf("give-pass-%d", i), "handed to the program by number", unix.SYS_DUP3, imm(uintptr(fdLift+i)), imm(uintptr(p.To)), imm(0))
	}
}

// closeRest leaves 0 to 2, what is handed in, and the two private numbers.
func (c *compiler) closeRest() {
	first := 3
	for _, p := range c.fds.pass {
		first = max(first, p.To+1)
	}
	if len(c.spec.Open) == 0 {
		c.add("close-low", "no directory, socket or ruleset may be left to the program", unix.SYS_CLOSE_RANGE, imm(uintptr(first)), imm(fdChildGo-1), imm(0))
	} else {
		// The names' numbers lie here too: one that could not be opened stays closed.
		c.add("close-low", "no directory, socket or ruleset may be left to the program, nor stand for a name", unix.SYS_CLOSE_RANGE, imm(uintptr(first)), imm(fdLift-1), imm(0))
		for i, o := range c.spec.Open {
			c.add(fmt.Sprintf("give-open-%d", i), "handed to the program by number, where it could be opened", unix.SYS_DUP3, imm(uintptr(fdLift+len(c.fds.pass)+i)), imm(uintptr(o.To)), imm(0)).anyResult()
		}
		c.add("close-lifted", "each has its number now", unix.SYS_CLOSE_RANGE, imm(fdLift), imm(fdChildGo-1), imm(0))
	}
	above := uintptr(fdChildGo + 1) // a source may have taken the number that only a stage's box keeps
	if c.spec.Command.Self {
		above = fdChildSelf + 1
	}
	c.add("close-high", "the same above the private numbers", unix.SYS_CLOSE_RANGE, imm(above), imm(^uintptr(0)>>32), imm(0))
}
