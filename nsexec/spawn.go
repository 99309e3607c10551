package nsexec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/wire"
)

// StepError says which step of the set-up failed and with what raw result of
// the kernel: a negative errno, or a value the step's rule does not allow.
type StepError struct {
	Stage  string
	Step   string
	Why    string // the step's own reason
	Result int64
}

// Errno is the kernel's error, or 0 where the result was no error.
func (e *StepError) Errno() unix.Errno {
	if e.Result < 0 && e.Result > -4096 {
		return unix.Errno(-e.Result)
	}
	return 0
}

func (e *StepError) Error() string {
	if no := e.Errno(); no != 0 {
		return fmt.Sprintf("%s: %s: %s", e.Stage, e.Step, no.Error())
	}
	return fmt.Sprintf("%s: %s: unexpected result %d", e.Stage, e.Step, e.Result)
}

func (e *StepError) Unwrap() error {
	if no := e.Errno(); no != 0 {
		return no
	}
	return nil
}

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
	InitPID  int // pid 1 of the box, as the launcher sees it
	ChildPID int // the workload's process
	Stdout   *os.File
	Stderr   *os.File
	Stdin    *os.File // nil unless Spec.Stdin
	Held     int      // descriptor of Spec.Hold, or -1; the caller closes it
	Report   *Report
	Init     InitReport
	Phases   map[string]time.Duration // clone, maps, setup, init

	spec    *Spec
	steps   []Step
	fields  []field
	control *wire.Conn
	golink  *wire.Conn
	mu      sync.Mutex // guards pidfd against a Kill that comes late
	pidfd   int
	mapped  chan struct{} // closed when nobody uses pid 1's number any more
	reaped  chan unix.WaitStatus
	done    chan Exit
}

// InitReport is what pid 1 read about itself after its exec.
type InitReport struct {
	Caps        [5]uint64 // effective, permitted, inheritable, bounding, ambient
	Environment int       // number of variables
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
	b := &Box{spec: spec, Held: -1, pidfd: -1, Phases: map[string]time.Duration{}, mapped: make(chan struct{}), reaped: make(chan unix.WaitStatus, 1), done: make(chan Exit, 1)}
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
			}
		case <-ready:
		}
	}()
	if err := b.handshake(); err != nil {
		b.Abort()
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

// handshake writes the id maps and hears from set-up, child and init, in that
// order of trust: each message must come from the process it speaks for.
func (b *Box) handshake() error {
	t := time.Now()
	err := writeMaps(b.InitPID, b.spec.Identity)
	close(b.mapped)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.control.Send([]byte{'M'}); err != nil {
		return b.firstFailure(err)
	}
	b.Phases["maps"], t = time.Since(t), time.Now()
	buf := make([]byte, wire.MaxMessage)
	var p wire.Packet
	p, err = b.golink.Recv(buf, b.streamCount)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.failure(p.Data); err != nil {
		return err
	}
	if p.Data[0] != msgStreams {
		closeAll(p.FDs)
		return fmt.Errorf("unexpected message %q during set-up", p.Data[0])
	}
	b.ChildPID = p.PID
	b.takeStreams(p.FDs)
	p, err = b.golink.Recv(buf, nil)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.failure(p.Data); err != nil {
		return err
	}
	if p.PID != b.ChildPID || p.PID == b.InitPID {
		return fmt.Errorf("report from pid %d, want the child's, %d", p.PID, b.ChildPID)
	}
	if b.Report, err = parseReport(p.Data, b.fields); err != nil {
		return err
	}
	b.Phases["setup"], t = time.Since(t), time.Now()
	p, err = b.control.Recv(buf, nil)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.failure(p.Data); err != nil {
		return err
	}
	if len(p.Data) != 1+8*6 || p.Data[0] != msgUp || p.PID != b.InitPID {
		return fmt.Errorf("init did not come up: message %q of %d bytes from pid %d", p.Data[0], len(p.Data), p.PID)
	}
	for i := range b.Init.Caps {
		b.Init.Caps[i] = binary.NativeEndian.Uint64(p.Data[1+8*i:])
	}
	b.Init.Environment = int(binary.NativeEndian.Uint64(p.Data[41:]))
	b.Phases["init"] = time.Since(t)
	b.restoreDumpable()
	return nil
}

// restoreDumpable undoes what setresuid in the shared memory did: an undumpable
// launcher could not write the next box's id maps, nor be inspected.
func (b *Box) restoreDumpable() {
	if b.spec.SharedVM {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
}

// streamCount is how many descriptors a message must carry.
func (b *Box) streamCount(data []byte) int {
	if len(data) != 1 || data[0] != msgStreams {
		return 0
	}
	n := 2
	if b.spec.Stdin {
		n++
	}
	if b.spec.Hold != "" {
		n++
	}
	return n
}

func (b *Box) takeStreams(fds []int) {
	for _, fd := range fds {
		// Our ends only: the workload's ends are other open file descriptions.
		unix.SetNonblock(fd, true)
	}
	b.Stdout = os.NewFile(uintptr(fds[0]), "workload stdout")
	b.Stderr = os.NewFile(uintptr(fds[1]), "workload stderr")
	rest := fds[2:]
	if b.spec.Stdin {
		b.Stdin, rest = os.NewFile(uintptr(rest[0]), "workload stdin"), rest[1:]
	}
	if b.spec.Hold != "" {
		b.Held = rest[0]
	}
}

// failure turns the interpreter's sixteen bytes into a StepError.
func (b *Box) failure(msg []byte) error {
	if len(msg) != 16 {
		return nil
	}
	step := int(binary.NativeEndian.Uint64(msg) >> 32)
	if step >= len(b.steps) {
		return fmt.Errorf("the box reports a failure of step %d of %d", step, len(b.steps))
	}
	s := b.steps[step]
	return &StepError{Stage: s.Stage, Step: s.Name, Why: s.Why, Result: int64(binary.NativeEndian.Uint64(msg[8:]))}
}

// firstFailure ends the box and looks on both sockets for the cause of err: the
// first failing step is the cause, whatever followed from it.
func (b *Box) firstFailure(err error) error {
	gone := errors.Is(err, io.EOF) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
	var m *MapError
	if !gone && !errors.As(err, &m) {
		return err
	}
	b.Kill()
	buf := make([]byte, wire.MaxMessage)
	for _, c := range []*wire.Conn{b.control, b.golink} {
		for {
			p, err := c.Recv(buf, b.streamCount)
			if err != nil {
				break
			}
			closeAll(p.FDs)
			if f := b.failure(p.Data); f != nil {
				return f
			}
		}
	}
	if gone {
		return ErrGone
	}
	return err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// MapError says that the id maps could not be written.
type MapError struct {
	Path string // the map file or the helper
	Text string // the helper's own words, at most 4 KiB
	Err  error
}

func (e *MapError) Error() string {
	if e.Text != "" {
		return fmt.Sprintf("%s: %v: %s", e.Path, e.Err, e.Text)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

func (e *MapError) Unwrap() error { return e.Err }

// writeMaps writes both maps, by the helpers in parallel where there are any:
// one helper costs as much as half a box.
func writeMaps(pid int, id Identity) error {
	gid := make(chan error, 1)
	one := func(helper, file string, m []MapEntry) error {
		if helper == "" {
			return writeMap(fmt.Sprintf("/proc/%d/%s", pid, file), m)
		}
		return runHelper(helper, pid, m)
	}
	if id.GIDHelper == "" {
		gid <- one("", "gid_map", id.GIDs)
	} else {
		go func() { gid <- one(id.GIDHelper, "gid_map", id.GIDs) }()
	}
	err := one(id.UIDHelper, "uid_map", id.UIDs)
	return errors.Join(err, <-gid)
}

func writeMap(path string, m []MapEntry) error {
	var text strings.Builder
	for _, e := range m {
		fmt.Fprintf(&text, "%d %d %d\n", e.Inside, e.Host, e.Count)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(text.String())) // the kernel takes a map in one write only
		unix.Close(fd)
	}
	if err != nil {
		return &MapError{Path: path, Err: err}
	}
	return nil
}

// runHelper runs newuidmap or newgidmap with an empty environment and keeps at
// most 4 KiB of what it says.
func runHelper(helper string, pid int, m []MapEntry) error {
	argv := []string{helper, strconv.Itoa(pid)}
	for _, e := range m {
		argv = append(argv, strconv.Itoa(e.Inside), strconv.Itoa(e.Host), strconv.Itoa(e.Count))
	}
	r, w, err := os.Pipe()
	if err != nil {
		return &MapError{Path: helper, Err: err}
	}
	defer r.Close()
	p, err := syscall.ForkExec(helper, argv, &syscall.ProcAttr{Env: []string{}, Files: []uintptr{0, w.Fd(), w.Fd()}})
	w.Close()
	if err != nil {
		return &MapError{Path: helper, Err: err}
	}
	text, _ := io.ReadAll(io.LimitReader(r, 4096))
	go io.Copy(io.Discard, r)
	ws := waitPID(p)
	if !ws.Exited() || ws.ExitStatus() != 0 {
		return &MapError{Path: helper, Text: string(bytes.TrimSpace(text)), Err: fmt.Errorf("exit status %d", ws.ExitStatus())}
	}
	return nil
}
