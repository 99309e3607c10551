package wire

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const testMin = 80

func pair(t *testing.T) (*Conn, int) {
	t.Helper()
	c, peer, err := Pair(testMin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, peer
}

// fdNames lists the descriptors that are open, to see what a refused message left.
func fdNames(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, e.Name())
		}
	}
	return out
}

func want(n int) func([]byte) int { return func([]byte) int { return n } }

func send(t *testing.T, peer int, data string, fds ...int) {
	t.Helper()
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(peer, []byte(data), oob, nil, 0); err != nil {
		t.Fatal(err)
	}
}

func TestPairNumbersAndFlags(t *testing.T) {
	c, peer := pair(t)
	defer unix.Close(peer)
	if peer < testMin {
		t.Errorf("peer is %d, want at least %d", peer, testMin)
	}
	for _, fd := range []int{c.fd, peer} {
		if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || fl&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d: flags %d, %v: want close-on-exec", fd, fl, err)
		}
	}
}

func TestMessageWithDescriptorsAndCredentials(t *testing.T) {
	c, peer := pair(t)
	defer unix.Close(peer)
	var st unix.Stat_t
	if err := unix.Stat("/dev/null", &st); err != nil {
		t.Fatal(err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	send(t, peer, "hello", null, null)
	buf := make([]byte, MaxMessage)
	p, err := c.Recv(buf, func(data []byte) int {
		if string(data) != "hello" {
			t.Errorf("asked about %q", data)
		}
		return 2
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(p.Data) != "hello" || p.PID != os.Getpid() || len(p.FDs) != 2 {
		t.Fatalf("%+v", p)
	}
	for _, fd := range p.FDs {
		var got unix.Stat_t
		if err := unix.Fstat(fd, &got); err != nil || got.Rdev != st.Rdev {
			t.Errorf("descriptor %d is not /dev/null: %v", fd, err)
		}
		if fl, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fl&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor %d would survive an exec", fd)
		}
		unix.Close(fd)
	}
}

// The pid is the sender's own, whoever made the socket.
func TestCredentialsAreTheSenders(t *testing.T) {
	c, peer := pair(t)
	f := os.NewFile(uintptr(peer), "peer")
	cmd := exec.Command("sh", "-c", "printf x >&3")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	p, err := c.Recv(make([]byte, 10), nil)
	if err != nil || p.PID != cmd.Process.Pid || p.PID == os.Getpid() {
		t.Errorf("pid %d, %v; want the child's, %d", p.PID, err, cmd.Process.Pid)
	}
	if _, err := c.Recv(make([]byte, 10), nil); err != io.EOF {
		t.Errorf("after the last end is closed: %v", err)
	}
}

// Every refused message is refused whole: nothing of it stays open.
func TestRefusedMessagesLeaveNothingOpen(t *testing.T) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	many := slices.Repeat([]int{null}, 200)
	rows := map[string]struct {
		data string
		fds  []int
		want func([]byte) int
		buf  int
		err  error // nil: any
	}{
		"one too many":              {"m", []int{null, null}, want(1), 10, nil},
		"one too few":               {"m", []int{null}, want(2), 10, nil},
		"none expected":             {"m", []int{null}, nil, 10, nil},
		"none came":                 {"m", nil, want(1), 10, nil},
		"more than fit":             {"m", many, want(200), 10, ErrTruncated},
		"more than fit, 8 wanted":   {"m", many[:9], want(8), 10, nil},
		"data cut":                  {"0123456789a", nil, nil, 10, ErrTruncated},
		"data cut, with descriptor": {"0123456789a", []int{null}, want(1), 10, ErrTruncated},
	}
	for name, r := range rows {
		c, peer := pair(t)
		before := fdNames(t)
		send(t, peer, r.data, r.fds...)
		p, err := c.Recv(make([]byte, r.buf), r.want)
		if err == nil || r.err != nil && !errors.Is(err, r.err) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if after := fdNames(t); !slices.Equal(before, after) {
			t.Errorf("%s: descriptors before %v, after %v", name, before, after)
		}
		// The next message is whole again.
		send(t, peer, "next", null)
		p, err = c.Recv(make([]byte, 10), want(1))
		if err != nil || string(p.Data) != "next" {
			t.Errorf("%s: next message: %+v, %v", name, p, err)
		}
		for _, fd := range p.FDs {
			unix.Close(fd)
		}
		unix.Close(peer)
		c.Close()
	}
}

func TestEOFAndClosedPeer(t *testing.T) {
	c, peer := pair(t)
	send(t, peer, "last")
	unix.Close(peer)
	// What was sent before the end is not lost.
	if p, err := c.Recv(make([]byte, 10), nil); err != nil || string(p.Data) != "last" {
		t.Errorf("%+v, %v", p, err)
	}
	for range 2 {
		if _, err := c.Recv(make([]byte, 10), nil); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
	}
	if err := c.Send([]byte("x")); err != unix.EPIPE {
		t.Errorf("send to nobody: %v, want EPIPE and no signal", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("closing, also twice: %v", err)
		}
	}
	if c.fd != -1 {
		t.Error("a closed Conn keeps its number")
	}
}

// A peer that ends with unread messages makes the kernel say ECONNRESET.
func TestResetIsEOF(t *testing.T) {
	c, peer := pair(t)
	if err := c.Send([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	unix.Close(peer)
	if _, err := c.Recv(make([]byte, 10), nil); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

// The reset is reported once and before what had been sent: the words of a
// process that died with an unread message must still be heard.
func TestResetHidesNoMessage(t *testing.T) {
	c, peer := pair(t)
	send(t, peer, "why")
	if err := c.Send([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	unix.Close(peer)
	if p, err := c.Recv(make([]byte, 10), nil); err != nil || string(p.Data) != "why" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := c.Recv(make([]byte, 10), nil); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
}

// A signal that interrupts the wait is no end and no error.
func TestSignalsDoNotEndAWait(t *testing.T) {
	c, peer := pair(t)
	defer unix.Close(peer)
	tid := make(chan int, 1)
	type answer struct {
		data string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		p, err := c.Recv(make([]byte, 10), nil)
		got <- answer{string(p.Data), err}
	}()
	id := <-tid
	for range 50 {
		if err := unix.Tgkill(os.Getpid(), id, unix.SIGURG); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case a := <-got:
		t.Fatalf("a signal ended the wait: %+v", a)
	default:
	}
	send(t, peer, "x")
	if a := <-got; a.err != nil || a.data != "x" {
		t.Errorf("%+v", a)
	}
}

// Control parts are parsed as the kernel could never send them, too.
func FuzzParse(f *testing.F) {
	f.Add(unix.UnixRights(3))
	f.Add(unix.UnixCredentials(&unix.Ucred{Pid: 1}))
	f.Add([]byte(strings.Repeat("\xff", 64)))
	f.Add([]byte("\x13\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00000")) // three bytes of descriptors
	f.Fuzz(func(t *testing.T, oob []byte) {
		p, err := parse(nil, oob)
		if err == nil && len(p.FDs) > len(oob)/4 {
			t.Errorf("%d descriptors out of %d bytes", len(p.FDs), len(oob))
		}
	})
}
