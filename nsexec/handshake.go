package nsexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
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

// handshake writes the id maps and hears from set-up, child and init, in that
// order of trust: each message must come from the process it speaks for.
func (b *Box) handshake(stop <-chan struct{}) error {
	t := time.Now()
	err := writeMaps(b.InitPID, b.spec.Identity, stop)
	close(b.mapped)
	if err != nil {
		select {
		case <-stop: // what a killed helper says is no cause
			return ErrGone
		default:
		}
		return b.firstFailure(err)
	}
	if err := b.control.Send([]byte{'M'}); err != nil {
		return b.firstFailure(err)
	}
	b.Phases["maps"], t = time.Since(t), time.Now()
	buf := make([]byte, wire.MaxMessage)
	var p wire.Packet
	if len(b.spec.Listen) > 0 {
		if err := b.takeListeners(buf); err != nil {
			return err
		}
	}
	p, err = b.golink.Recv(buf, b.descriptorCount)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.failure(p.Data); err != nil {
		return err
	}
	if len(p.Data) != 1 || p.Data[0] != msgStreams {
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
	if len(p.Data) != 1+8*upWords || p.Data[0] != msgUp || p.PID != b.InitPID {
		return fmt.Errorf("init did not come up: message %q of %d bytes from pid %d", p.Data[0], len(p.Data), p.PID)
	}
	b.Init = parseInit(p.Data[1:])
	b.Phases["init"] = time.Since(t)
	b.restoreDumpable()
	return nil
}

func parseInit(words []byte) InitReport {
	at := func(i int) uint64 { return binary.NativeEndian.Uint64(words[8*i:]) }
	return InitReport{Caps: [5]uint64{at(0), at(1), at(2), at(3), at(4)}, Environment: int(at(5)), DeathSignal: int64(at(6)),
		Core: [2]uint64{at(7), at(8)}, Streams: [3]uint64{at(9), at(10), at(11)}, Descriptors: at(12)}
}

// restoreDumpable undoes what setresuid in the shared memory did: an undumpable
// launcher could not write the next box's id maps, nor be inspected.
func (b *Box) restoreDumpable() {
	if b.spec.SharedVM {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
}

// takeListeners receives what the set-up listens on, before it builds the root.
func (b *Box) takeListeners(buf []byte) error {
	p, err := b.control.Recv(buf, b.descriptorCount)
	if err != nil {
		return b.firstFailure(err)
	}
	if err := b.failure(p.Data); err != nil {
		return err
	}
	if len(p.Data) != 1 || p.Data[0] != msgListeners || p.PID != b.InitPID {
		closeAll(p.FDs)
		return fmt.Errorf("unexpected message %q of pid %d in place of the listening sockets", p.Data[0], p.PID)
	}
	b.Listeners = p.FDs
	return nil
}

// descriptorCount is how many descriptors a message must carry.
func (b *Box) descriptorCount(data []byte) int {
	if len(data) == 1 && data[0] == msgListeners {
		return len(b.spec.Listen)
	}
	if len(data) != 1 || data[0] != msgStreams {
		return 0
	}
	n := 2
	if b.spec.Terminal != nil {
		n = 1
	} else if b.spec.Stdin {
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
	var rest []int
	if b.spec.Terminal != nil {
		b.Terminal, rest = os.NewFile(uintptr(fds[0]), "workload terminal"), fds[1:]
	} else {
		b.Stdout = os.NewFile(uintptr(fds[0]), "workload stdout")
		b.Stderr = os.NewFile(uintptr(fds[1]), "workload stderr")
		rest = fds[2:]
	}
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
		return &StepError{Stage: "box", Step: fmt.Sprintf("%d of %d", step, len(b.steps)), Why: "the program ends with an exec, not here", Result: int64(binary.NativeEndian.Uint64(msg[8:]))}
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
	read := make(chan struct{})
	defer close(read)
	go b.endRecv(read)
	buf := make([]byte, wire.MaxMessage)
	for _, c := range []*wire.Conn{b.control, b.golink} {
		for {
			p, err := c.Recv(buf, b.descriptorCount)
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

// endRecv gives a killed box its time and then stops waiting for its end of the
// sockets: somebody may hold a copy. done says that nobody waits any more.
func (b *Box) endRecv(done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-time.After(b.patience):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd >= 0 { // else the sockets are closed, and their numbers may be somebody else's
		b.control.HangUp()
		b.golink.HangUp()
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
