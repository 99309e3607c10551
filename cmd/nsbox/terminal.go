package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// terminal is the operator's own while a box with a terminal runs: raw, so that
// every key reaches the box's line discipline and none means anything here. It
// is given back as it was on every way out. A process of its own, the guard, does
// that where nsbox cannot: after kill -9.
type terminal struct {
	fd          int
	saved, raw  unix.Termios
	guard       *exec.Cmd
	tellGuard   *os.File
	stopReading *os.File // closed: input ends, so that nothing typed later is taken
	stopped     *os.File
	resized     chan os.Signal
	sizes       chan nsexec.Terminal
}

// guardName is argv[0] of the guard.
const guardName = "nsbox-terminal-guard"

// takeTerminal makes the terminal at standard input raw.
func takeTerminal(c *console) (*terminal, error) {
	in, ok := c.in.(*os.File)
	if !ok || !c.inTerminal || !c.out.terminal {
		return nil, reason.New(reason.TerminalRefused, "a box with a terminal", "standard input and standard output are not both a terminal", "use nsbox exec without -t: the program's streams are then pipes")
	}
	t := &terminal{fd: int(in.Fd()), resized: make(chan os.Signal, 1), sizes: make(chan nsexec.Terminal, 1)}
	saved, err := unix.IoctlGetTermios(t.fd, unix.TCGETS)
	if err != nil {
		return nil, terminalError(err)
	}
	t.saved, t.raw = *saved, rawMode(*saved)
	if t.stopped, t.stopReading, err = os.Pipe(); err != nil {
		return nil, terminalError(err)
	}
	if err := t.startGuard(in); err != nil {
		return nil, terminalError(err)
	}
	if err := unix.IoctlSetTermios(t.fd, unix.TCSETSW, &t.raw); err != nil {
		t.giveBack()
		return nil, terminalError(err)
	}
	signal.Notify(t.resized, syscall.SIGWINCH)
	go func() {
		for range t.resized {
			t.sizes <- t.size()
		}
		close(t.sizes)
	}()
	return t, nil
}

func terminalError(err error) error {
	return reason.Wrap(reason.TerminalRefused, "the terminal", "cannot be prepared", "leave -t out, or use exec in place of shell: the program's streams are then pipes", err)
}

// rawMode is cfmakeraw(3).
func rawMode(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return t
}

// size is the terminal's own; 24 by 80 where it does not say.
func (t *terminal) size() nsexec.Terminal {
	w, err := unix.IoctlGetWinsize(t.fd, unix.TIOCGWINSZ)
	if err != nil || w.Row == 0 || w.Col == 0 {
		return nsexec.Terminal{Rows: 24, Cols: 80}
	}
	return nsexec.Terminal{Rows: w.Row, Cols: w.Col}
}

// request is what the launcher is asked for.
func (t *terminal) request() *launcher.Terminal {
	return &launcher.Terminal{Type: os.Getenv("TERM"), Size: t.size(), Sizes: t.sizes}
}

// Read waits for a key or for the end of the box.
func (t *terminal) Read(p []byte) (int, error) {
	fds := []unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}, {Fd: int32(t.stopped.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil {
			return 0, err
		}
		if fds[1].Revents != 0 {
			return 0, io.EOF
		}
		n, err := unix.Read(t.fd, p)
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// giveBack restores the terminal, once.
func (t *terminal) giveBack() {
	if t == nil || t.tellGuard == nil {
		return
	}
	signal.Stop(t.resized)
	t.stopReading.Close()
	_ = unix.IoctlSetTermios(t.fd, unix.TCSETSW, &t.saved)
	_, _ = t.tellGuard.Write([]byte{'d'})
	t.tellGuard.Close()
	_ = t.guard.Wait()
	t.tellGuard = nil
}

// startGuard starts the process that outlives nsbox. It learns both modes through
// the pipe whose end it then waits for.
func (t *terminal) startGuard(tty *os.File) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	t.guard = &exec.Cmd{Path: "/proc/self/exe", Args: []string{guardName}, Env: []string{"GOMAXPROCS=1"}, Stdin: tty, ExtraFiles: []*os.File{read},
		// Not in nsbox's group: what ends that one must leave the guard alone.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
	if err := t.guard.Start(); err != nil {
		write.Close()
		return err
	}
	t.tellGuard = write
	return binary.Write(write, binary.NativeEndian, []unix.Termios{t.saved, t.raw})
}

// runGuard is the guard: it waits for the end of nsbox, and gives the terminal
// back if nsbox did not. A terminal that somebody else has set meanwhile, as a
// shell does for its prompt, is left alone.
func runGuard() int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	said, err := io.ReadAll(os.NewFile(3, "nsbox"))
	if err != nil {
		return 1
	}
	modes := make([]unix.Termios, 2)
	if len(said) != binary.Size(modes) {
		return 0 // told that it is done, or nothing was begun
	}
	if err := binary.Read(bytes.NewReader(said), binary.NativeEndian, modes); err != nil {
		return 1
	}
	if now, err := unix.IoctlGetTermios(0, unix.TCGETS); err != nil || *now != modes[1] {
		return 0
	}
	if err := unix.IoctlSetTermios(0, unix.TCSETSW, &modes[0]); err != nil {
		return 1
	}
	return 0
}
