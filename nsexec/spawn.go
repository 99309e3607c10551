package nsexec

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/wire"
)

// ErrGone says that the box ended during set-up without naming a step: it was killed.
var ErrGone = errors.New("the box ended during set-up")

// Files are the launcher's descriptors that a box needs.
type Files struct {
	Self   int    // nsbox's own executable, O_PATH
	Cgroup int    // directory that pid 1 is born in, or -1
	Work   int    // directory that the workload is born in, or -1
	Pass   []Pass // handed to the program
}

// Namespaces the box is made of; the cgroup namespace is unshared by pid 1.
const cloneFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |

	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_PIDFD | unix.CLONE_CLEAR_SIGHAND

// Box is one sandbox from its birth to its end.
type Box struct {
	InitPID   int // pid 1 of the box, as the launcher sees it
	ChildPID  int // the workload's process
	Stdout    *os.File
	Stderr    *os.File
	Stdin     *os.File // nil unless Spec.Stdin
	Terminal  *os.File // the master, instead of the three streams, if Spec.Terminal
	Held      int      // descriptor of Spec.Hold, or -1; the caller closes it
	Listeners []int    // listening sockets in the order of Spec.Listen; the caller closes them
	Report    *Report
	Init      InitReport
	Phases    map[string]time.Duration // clone, maps, setup, init

	Pass []Pass // what the program was handed, by the launcher's number

	spec     *Spec
	steps    []Step
	fields   []field
	control  *wire.Conn
	golink   *wire.Conn
	patience time.Duration // of Abort
	mu       sync.Mutex    // guards pidfd against a Kill that comes late
	pidfd    int
	mapped   chan struct{} // closed when nobody uses pid 1's number any more
	reaped   chan unix.WaitStatus
	done     chan Exit
}

// InitReport is what pid 1 read about itself after its exec.
type InitReport struct {
	Caps        [5]uint64 // effective, permitted, inheritable, bounding, ambient
	Environment int       // number of variables
	DeathSignal int64     // that the launcher's end sends it, read before the exec
	Core        [2]uint64 // RLIMIT_CORE, soft and hard
	Streams     [3]uint64 // device numbers behind 0 to 2, all ones if one is no device
	Descriptors uint64    // bit n: descriptor n is open
}

// Spawn makes a box and returns when its child waits for "go", or with the
// first failing step. A fired stop kills the box at any time during set-up.
func Spawn(spec *Spec, files Files, stop <-chan struct{}) (*Box, error) {
	return spawnAltered(spec, files, stop, nil)
}

// spawnAltered is Spawn with a change to the program between compile and link:
// how the tests break one step of a real box.
func spawnAltered(spec *Spec, files Files, stop <-chan struct{}, alter func(*Program)) (*Box, error) {
	start := time.Now()
	b := &Box{spec: spec, patience: abortPatience, Pass: files.Pass, Held: -1, pidfd: -1, Phases: map[string]time.Duration{}, mapped: make(chan struct{}), reaped: make(chan unix.WaitStatus, 1), done: make(chan Exit, 1)}
	control, controlPeer, err := wire.Pair(highFD)
	if err != nil {
		return nil, err
	}
	b.control = control
	golink, goPeer, err := wire.Pair(highFD)
	if err != nil {
		control.Close()
		unix.Close(controlPeer)
		return nil, err
	}
	b.golink = golink
	lifted := []int{controlPeer, goPeer}
	defer func() {
		for _, fd := range lifted {
			unix.Close(fd)
		}
	}()
	f := fds{control: controlPeer, golink: goPeer}
	lift := func(fd int) int {
		if err != nil {
			return -1
		}
		var n int
		if n, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, highFD); err == nil {
			lifted = append(lifted, n)
		}
		return n
	}
	f.self, f.work = lift(files.Self), -1
	if files.Work >= 0 {
		f.work = lift(files.Work)
	}
	for _, p := range files.Pass {
		f.pass = append(f.pass, Pass{lift(p.From), p.To})
	}
	if err != nil {
		b.closeLinks()
		return nil, fmt.Errorf("descriptors for the box: %w", err)
	}
	prog, fields, err := compile(spec, f)
	if err == nil {
		if alter != nil {
			alter(prog)
		}
		b.steps, b.fields = prog.Steps, fields
		err = b.clone(prog, files.Cgroup)
	}
	if err != nil {
		b.closeLinks()
		return nil, err
	}
	for _, fd := range lifted { // ours must go, or the box's end would never be seen
		unix.Close(fd)
	}
	lifted = nil
	b.Phases["clone"] = time.Since(start)

	ready := make(chan struct{})
	defer close(ready)
	go func() {
		select {
		case <-stop:
			select {
			case <-ready: // both at once: the box is up, and no longer ours to kill
			default:
				b.Kill()
				b.endRecv(ready)
			}
		case <-ready:
		}
	}()
	if err := b.handshake(stop); err != nil {
		if stays := b.Abort(); stays != nil {
			err = errors.Join(err, stays)
		}
		return nil, err
	}
	return b, nil
}

// clone starts pid 1 from a thread that stays locked until pid 1 is reaped:
// the death signal fires when the creating thread ends.
func (b *Box) clone(prog *Program, cgroup int) error {
	im, err := prog.link()
	if err != nil {
		return err
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := ordinary(); err != nil {
			im.free()
			started <- fmt.Errorf("the box's scheduling: %w", err)
			return
		}
		args := cloneArgs{flags: cloneFlags, exitSignal: uint64(unix.SIGCHLD), pidfd: uint64(im.pidfd())}
		if b.spec.SharedVM {
			args.flags |= unix.CLONE_VM
		}
		if cgroup >= 0 {
			args.flags |= unix.CLONE_INTO_CGROUP
			args.cgroup = uint64(cgroup)
		}
		all, old := ^uint64(0), uint64(0)
		r := spawn(&args, cloneArgsSize, im.base(), fdControlEarly(prog), &all, &old)
		if e := int64(r); e < 0 {
			im.free()
			started <- &StepError{Stage: "launcher", Step: "clone", Why: "new user, mount, pid, net, ipc and uts namespaces", Result: e}
			return
		}
		b.InitPID, b.pidfd = int(r), im.readPIDFD()
		started <- nil
		<-b.mapped // until then the number must stay pid 1's, even if it has died
		ws := waitPID(int(r))
		im.free()
		b.reaped <- ws
	}()
	return <-started
}

// fdControlEarly is the control socket's number before the program has moved it:
// the first steps must be able to report too.
func fdControlEarly(p *Program) uintptr {
	for _, s := range p.Steps {
		if s.Name == "take-control" {
			return s.Args[0].imm
		}
	}
	return 2
}

// waitPID reaps pid 1, which is our child and not yet reaped: its number cannot be reused.
func waitPID(pid int) unix.WaitStatus {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		if err != unix.EINTR {
			return ws
		}
	}
}
