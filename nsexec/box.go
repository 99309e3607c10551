package nsexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/wire"
)

// Exit is how a box ended.
type Exit struct {
	Reported  bool            // init told how the workload ended; false: the box was killed
	Status    unix.WaitStatus // of the workload's main process, valid if Reported
	CPUUsec   int64           // reaped children of init, microseconds
	MaxRSS    int64           // largest reaped process, bytes
	ExecErr   *StepError      // the program could not be executed
	SetupErr  *StepError      // a step after "ready" failed otherwise
	InitState unix.WaitStatus // how pid 1 itself ended
}

// Release says "go": from here on the workload runs. Wait must follow.
func (b *Box) Release() error {
	if err := b.golink.Send([]byte{b.spec.Command.goByte()}); err != nil {
		return fmt.Errorf("the child no longer waits: %w", err)
	}
	go b.watch()
	return nil
}

// watch reads both sockets to their end; the workload's exec closes its one,
// init's report and the end of the box the other.
func (b *Box) watch() {
	var e Exit
	// Pid 1 reaped means that all has been said, whoever may still hold a copy of
	// the box's ends.
	state := make(chan unix.WaitStatus, 1)
	go func() {
		ws := <-b.reaped
		b.control.HangUp()
		b.golink.HangUp()
		state <- ws
	}()
	golink := make(chan *StepError, 1)
	go func() { golink <- b.lastWord() }()
	buf := make([]byte, wire.MaxMessage)
	for {
		p, err := b.control.Recv(buf, nil)
		if err != nil {
			break
		}
		if p.PID == b.InitPID && len(p.Data) == 25 && p.Data[0] == msgExit && !e.Reported {
			e.Reported = true
			e.Status = unix.WaitStatus(binary.NativeEndian.Uint64(p.Data[1:]))
			e.CPUUsec = int64(binary.NativeEndian.Uint64(p.Data[9:]))
			e.MaxRSS = int64(binary.NativeEndian.Uint64(p.Data[17:])) * 1024
		}
	}
	e.InitState = <-state
	if se := <-golink; se != nil {
		if se.Step == execStep {
			e.ExecErr = se
		} else {
			e.SetupErr = se
		}
	}
	b.release()
	b.done <- e
}

// lastWord is what the child says between go and its exec, which closes its
// socket: nothing, or why there was none. Whatever it sends, it has not begun.
func (b *Box) lastWord() *StepError {
	buf := make([]byte, wire.MaxMessage)
	p, err := b.golink.Recv(buf, nil)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if err = b.failure(p.Data); err == nil {
			err = fmt.Errorf("a message of %d bytes that is no failure", len(p.Data))
		}
	}
	var step *StepError
	if !errors.As(err, &step) {
		step = &StepError{Stage: "child", Step: execStep + " or before", Why: err.Error()}
	}
	return step
}

// Done delivers the Exit once, after pid 1 is reaped and so no process of the
// box is left.
func (b *Box) Done() <-chan Exit { return b.done }

// Kill ends every process of the box. It may be called at any time and more than once.
func (b *Box) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pidfd < 0 {
		return nil
	}
	err := unix.PidfdSendSignal(b.pidfd, unix.SIGKILL, nil, 0)
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// ErrStays says that a box was killed and did not end within abortPatience.
var ErrStays = errors.New("the box was killed and did not end")

// abortPatience is far above what the kernel needs to end one or two sleeping
// processes; what outlasts it hangs in the kernel, which no kill ends.
const abortPatience = 10 * time.Second

// Abort ends a box that was not released and waits until it is gone. After
// ErrStays it still holds what it held, and lets go of it once it does end.
func (b *Box) Abort() error {
	b.Kill()
	b.restoreDumpable()
	b.closeStreams()
	select {
	case <-b.reaped:
		b.release()
		return nil
	case <-time.After(b.patience):
		go func() { <-b.reaped; b.release() }()
		return ErrStays
	}
}

// closeStreams closes the launcher's ends of the workload's streams.
func (b *Box) closeStreams() {
	if b.Stdout != nil {
		b.Stdout.Close()
	}
	if b.Stderr != nil {
		b.Stderr.Close()
	}
	if b.Stdin != nil {
		b.Stdin.Close()
	}
	if b.Terminal != nil {
		b.Terminal.Close()
	}
	if b.Held >= 0 {
		unix.Close(b.Held)
		b.Held = -1
	}
	closeAll(b.Listeners)
	b.Listeners = nil
}

func (b *Box) closeLinks() {
	b.control.Close()
	b.golink.Close()
}

// release lets go of what is the launcher's own; the streams stay with the caller.
func (b *Box) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closeLinks()
	if b.pidfd >= 0 {
		unix.Close(b.pidfd)
		b.pidfd = -1
	}
}

// SetRlimit changes a limit of the waiting child from outside, prlimit(2). It
// is for limits that the set-up itself could not live under.
func (b *Box) SetRlimit(resource int, soft, hard uint64) error {
	return unix.Prlimit(b.ChildPID, resource, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}
