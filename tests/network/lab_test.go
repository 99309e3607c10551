package network

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// Addresses of the lab's far side. The first three are the positive ones of a
// policy; nobody may reach the others.
const (
	named   = "192.0.2.10" // where a name leads
	literal = "192.0.2.11"
	six     = "2001:db8::5"

	neighbour = "192.0.2.66" // on the same cable, on nobody's list
	elsewhere = "198.51.100.20"
	private   = "10.77.0.3"
	metadata  = "169.254.169.254"
	sixOther  = "2001:db8::66"
	ula       = "fd00:ec2::254"
)

func denied() []string { return []string{neighbour, elsewhere, private, metadata, sixOther, ula} }

// namespace is a network namespace that lives as long as its descriptor.
type namespace struct{ file *os.File }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	var n namespace
	onThread(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		n.file = f
		return err
	})
	t.Cleanup(func() { n.file.Close() })
	return n
}

// onThread runs f on a thread of its own, which ends afterwards: what it entered
// must not be found by another goroutine.
func onThread(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		defer close(done) // also where f ends by t.FailNow
		runtime.LockOSThread()
		done <- f()
	}()
	if err, whole := <-done; err != nil || !whole {
		t.Fatal("on a thread of its own: ", err)
	}
}

// in runs f inside: sockets that it makes and processes that it starts belong there.
func (n namespace) in(t *testing.T, f func() error) {
	t.Helper()
	onThread(t, func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (n namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

func (n namespace) ip(t *testing.T, lines string) {
	t.Helper()
	n.in(t, func() error {
		for line := range strings.Lines(strings.TrimSpace(lines)) {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %v: %s (sh tests/setup.sh test installs iproute2)", strings.TrimSpace(line), err, out)
			}
		}
		return nil
	})
}

// lab is nsbox's side, the far side and what was hit there.
type lab struct {
	t         *testing.T
	near, far namespace
	shown     map[string]string // paths of the host that nsbox and its like see otherwise
	mu        sync.Mutex
	hits      map[string]int // by "tcp ADDRESS:PORT" and "udp ADDRESS:PORT"
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces and a cable between them take root: run make test")
	}
	l := &lab{t: t, near: newNamespace(t), far: newNamespace(t), shown: map[string]string{}, hits: map[string]int{}}
	l.near.ip(t, "link set lo up\nlink add near type veth peer name far netns "+l.far.path()+`
		addr add 192.0.2.1/24 dev near
		addr add 198.51.100.1/24 dev near
		addr add 10.77.0.1/24 dev near
		addr add 169.254.0.1/16 dev near
		addr add 2001:db8::1/64 dev near nodad
		addr add fd00:ec2::1/64 dev near nodad
		link set near up`)
	far := "link set lo up\nlink set far up\n"
	for _, a := range append([]string{named, literal, six}, denied()...) {
		bits := 24
		switch {
		case strings.Contains(a, ":"):
			bits = 64
		case a == metadata:
			bits = 16
		}
		far += fmt.Sprintf("addr add %s/%d dev far nodad\n", a, bits)
	}
	l.far.ip(t, strings.ReplaceAll(far, "24 dev far nodad", "24 dev far"))
	return l
}

func (l *lab) hit(kind string, at net.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hits[kind+" "+at.String()]++
}

// at is the number of hits of one kind at one place.
func (l *lab) at(place string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hits[place]
}

// count is the number of hits at an address, of every kind and port.
func (l *lab) count(address string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for at, hits := range l.hits {
		_, addr, _ := strings.Cut(at, " ")
		if a, err := netip.ParseAddrPort(addr); err == nil && a.Addr() == netip.MustParseAddr(address) {
			n += hits
		}
	}
	return n
}

func (l *lab) deniedHits() int {
	n := 0
	for _, a := range denied() {
		n += l.count(a)
	}
	return n
}

// listen listens in the far namespace. What it accepts is counted.
func (l *lab) listen(address string, port int) net.Listener {
	l.t.Helper()
	var counted net.Listener
	l.far.in(l.t, func() error {
		n, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		counted = counting{n, l}
		return err
	})
	l.t.Cleanup(func() { counted.Close() })
	return counted
}

type counting struct {
	net.Listener
	lab *lab
}

func (n counting) Accept() (net.Conn, error) {
	c, err := n.Listener.Accept()
	if err == nil {
		n.lab.hit("tcp", n.Addr())
	}
	return c, err
}

// serve listens in the far namespace on every address given, and counts.
func (l *lab) serve(port int, handle func(net.Conn), addresses ...string) {
	l.t.Helper()
	for _, a := range addresses {
		n := l.listen(a, port)
		go func() {
			for {
				c, err := n.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					handle(c)
				}()
			}
		}()
	}
}

// datagrams counts what arrives by UDP.
func (l *lab) datagrams(port int, addresses ...string) {
	l.t.Helper()
	l.far.in(l.t, func() error {
		for _, a := range addresses {
			c, err := net.ListenPacket("udp", net.JoinHostPort(a, strconv.Itoa(port)))
			if err != nil {
				return err
			}
			l.t.Cleanup(func() { c.Close() })
			go func() {
				buf := make([]byte, 2048)
				for {
					_, from, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					l.hit("udp", c.LocalAddr())
					c.WriteTo([]byte("answer"), from)
				}
			}()
		}
		return nil
	})
}

// echoes is how many ICMP echo requests the far side has received, by the
// kernel's own count.
func (l *lab) echoes() int {
	l.t.Helper()
	total := 0
	l.far.in(l.t, func() error {
		tid := unix.Gettid()
		for _, f := range []struct{ file, name string }{{"snmp", "InEchos"}, {"snmp6", "Icmp6InEchos"}} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/%s", tid, f.file))
			if err != nil {
				return err
			}
			n, err := counter(string(data), f.name)
			if err != nil {
				return err
			}
			total += n
		}
		return nil
	})
	return total
}

// counter reads one number of /proc/net/snmp (a line of names, a line of values)
// or snmp6 (a name and a value).
func counter(text, name string) (int, error) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		f := strings.Fields(line)
		for at, word := range f {
			switch {
			case word != name:
			case at == 0 && len(f) == 2:
				return strconv.Atoi(f[1])
			case i+1 < len(lines) && len(strings.Fields(lines[i+1])) == len(f):
				return strconv.Atoi(strings.Fields(lines[i+1])[at])
			}
		}
	}
	return 0, fmt.Errorf("no counter %s", name)
}

// inNear runs f in the near namespace, with the paths of shown covered.
func (l *lab) inNear(f func() error) {
	l.t.Helper()
	l.near.in(l.t, func() error {
		if len(l.shown) == 0 {
			return f()
		}
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for path, source := range l.shown {
			if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("%s at %s: %w", source, path, err)
			}
		}
		return f()
	})
}

// start starts a job of the site in the near namespace.
func (l *lab) start(s *harness.Site, j harness.Job) *harness.Live {
	l.t.Helper()
	var live *harness.Live
	l.inNear(func() error {
		live = s.Start(j)
		return nil
	})
	return live
}

func (l *lab) run(s *harness.Site, j harness.Job) *harness.Run {
	l.t.Helper()
	return l.start(s, j).Wait()
}

// onHost runs the same script in the near namespace without nsbox.
func (l *lab) onHost(s *harness.Site, j harness.Job) *harness.Run {
	l.t.Helper()
	var run *harness.Run
	l.inNear(func() error {
		run = s.OnHost(j)
		return nil
	})
	return run
}

// open is a policy with the destinations; rules come as harness.Change values of
// the caller's.
func open(destinations []string, more ...harness.Change) []harness.Change {
	return append([]harness.Change{
		{Path: "network.allowed_destinations", Value: destinations},
		{Path: "network.mode", Value: "exact_endpoints"},
		{Path: "process_policy.seccomp.denied_classes", Value: append(classes(), "socket_non_AF_UNIX_or_TCP")},
	}, more...)
}

// classes are the denied classes without the one on sockets.
func classes() []string {
	return strings.Fields("mount unshare ptrace keyctl bpf perf_event_open userfaultfd setns AF_VSOCK")
}

func rule(destination, address string) map[string]any {
	return map[string]any{"destination": destination, "address": address}
}

// page answers every HTTP request with one text.
func page(text string) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 4096)
		c.Read(buf)
		fmt.Fprintf(c, "HTTP/1.0 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
	}
}

// redirect answers with a place elsewhere.
func redirect(to string) func(net.Conn) {
	return func(c net.Conn) {
		buf := make([]byte, 4096)
		c.Read(buf)
		fmt.Fprintf(c, "HTTP/1.0 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", to)
	}
}
