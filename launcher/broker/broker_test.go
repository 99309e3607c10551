package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/endpoint"
)

// patience bounds what can only hang; nothing is measured against it.
const patience = 60 * time.Second

func wide() Limits {
	return Limits{AtOnce: 64, InTotal: 10000, BytesOut: 1 << 40, BytesIn: 1 << 40, Lifetime: patience, DialTime: patience}
}

// bench is a broker between a listener that stands for the box and servers.
type bench struct {
	t      *testing.T
	broker *Broker
	inside []string // where a program connects to
	events chan Event
}

// start puts a broker before the addresses; each stands for one endpoint.
func start(t *testing.T, l Limits, outside ...netip.AddrPort) *bench {
	t.Helper()
	var routes []Route
	for _, o := range outside {
		e, err := endpoint.Parse(o.String())
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, Literal(e, o.Addr(), true))
	}
	return startRoutes(t, l, routes)
}

func startRoutes(t *testing.T, l Limits, routes []Route) *bench {
	t.Helper()
	b := &bench{t: t, events: make(chan Event, 20000)}
	var fds []int
	for range routes {
		n, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		f, err := n.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.inside = append(b.inside, n.Addr().String())
		fds = append(fds, fd)
		f.Close()
		n.Close()
	}
	var err error
	if b.broker, err = Start(fds, routes, l, func(e Event) { b.events <- e }); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) connect() *net.TCPConn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.inside[0])
	if err != nil {
		b.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(patience))
	b.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// attempt connects and reads to the end; a reset may meet the connect itself.
func (b *bench) attempt() error {
	b.t.Helper()
	c, err := net.Dial("tcp", b.inside[0])
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	_, err = io.ReadAll(c)
	return err
}

func (b *bench) event() Event {
	b.t.Helper()
	select {
	case e := <-b.events:
		return e
	case <-time.After(patience):
		b.t.Fatal("no event")
		return Event{}
	}
}

// server listens and hands each connection to serve.
func server(t *testing.T, serve func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	go func() {
		for {
			c, err := n.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(patience))
			go func() {
				defer c.Close()
				serve(c.(*net.TCPConn))
			}()
		}
	}()
	return netip.MustParseAddrPort(n.Addr().String())
}

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.CloseWrite()
}

func TestDialFails(t *testing.T) {
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	b := start(t, wide(), netip.MustParseAddrPort(n.Addr().String()))
	if err := b.attempt(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the program saw %v, want a reset", err)
	}
	if e := b.event(); e.End != DialFailed || e.Address != "" {
		t.Errorf("event %+v", e)
	}
	if u := b.broker.Stop(0); u.Endpoints[0].Connections != 1 || u.Endpoints[0].Failed != 1 {
		t.Errorf("use %+v", u)
	}
}

// Whether an address is dialled is decided on that address, whatever said so
// before: the server behind it never sees a connection.
func TestRefusedAddressIsNeverDialled(t *testing.T) {
	hits := make(chan struct{}, 10)
	at := server(t, func(*net.TCPConn) { hits <- struct{}{} })
	name, _ := endpoint.Parse(fmt.Sprintf("a.example:%d", at.Port()))
	for word, c := range map[string]struct {
		route Route
		hit   bool
	}{
		"a name that leads to loopback": {Route{Endpoint: name, Addrs: []netip.Addr{at.Addr()}}, false},
		"the same in IPv6 clothes":      {Route{Endpoint: name, Addrs: []netip.Addr{netip.MustParseAddr("::ffff:127.0.0.1")}}, false},
		"pinned without consent":        {Route{Endpoint: name, Addrs: []netip.Addr{at.Addr()}, Listed: true}, false},
		"unspecified with consent":      {Route{Endpoint: name, Addrs: []netip.Addr{netip.IPv4Unspecified()}, Listed: true, Consent: true}, false},
		"control: pinned, with consent": {Route{Endpoint: name, Addrs: []netip.Addr{at.Addr()}, Listed: true, Consent: true}, true},
		"a second address that may":     {Route{Endpoint: name, Addrs: []netip.Addr{netip.IPv4Unspecified(), at.Addr()}, Listed: true, Consent: true}, true},
		"a name that was not resolved":  {Route{Endpoint: name}, false},
	} {
		b := startRoutes(t, wide(), []Route{c.route})
		err := b.attempt()
		e := b.event()
		if c.hit {
			<-hits
			if err != nil || e.End != Closed {
				t.Errorf("%s: %v, %+v", word, err, e)
			}
			continue
		}
		want := RefusedByRule
		if len(c.route.Addrs) == 0 {
			want = Unresolved
		}
		if !errors.Is(err, syscall.ECONNRESET) || e.End != want || e.Address != "" || len(hits) != 0 {
			t.Errorf("%s: %v, %+v, %d hits", word, err, e, len(hits))
		}
		b.broker.Stop(0)
	}
}

// AtOnce are carried; a further one waits until one of them has ended.
func TestAtOnce(t *testing.T) {
	l := wide()
	l.AtOnce = 2
	b := start(t, l, server(t, echo))
	say := func(c *net.TCPConn) error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	first, second, third := b.connect(), b.connect(), b.connect()
	for _, c := range []*net.TCPConn{first, second} {
		if err := say(c); err != nil {
			t.Fatal(err)
		}
	}
	third.Write([]byte("x"))
	third.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection is carried: %d bytes", n)
	}
	third.SetReadDeadline(time.Now().Add(patience))
	first.Close()
	if _, err := io.ReadFull(third, make([]byte, 1)); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// After InTotal the kernel itself refuses, on every endpoint.
func TestInTotal(t *testing.T) {
	l := wide()
	l.InTotal = 3
	at := server(t, echo)
	b := start(t, l, at, at)
	for range 3 {
		c := b.connect()
		c.CloseWrite()
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		if e := b.event(); e.End != Closed {
			t.Errorf("event %+v", e)
		}
	}
	for _, at := range b.inside {
		// A listener closes when its accept returns; until then the kernel may still
		// take a connection, which is reset.
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			c, err := net.Dial("tcp", at)
			if errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			if err == nil {
				c.Close()
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s still listens: %v", at, err)
			}
		}
	}
	if u := b.broker.Stop(0); u.Endpoints[0].Connections-u.Endpoints[0].Failed != 3 {
		t.Errorf("use %+v", u.Endpoints)
	}
}

func TestLifetime(t *testing.T) {
	l := wide()
	l.Lifetime = 300 * time.Millisecond
	b := start(t, l, server(t, echo))
	c := b.connect()
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the program saw %v", err)
	}
	if e := b.event(); e.End != TimeLimit {
		t.Errorf("event %+v", e)
	}
}

// A connection that nobody has taken yet when the program ends is not lost.
func TestStopTakesWhatWaits(t *testing.T) {
	l := wide()
	l.AtOnce = 1
	got := make(chan string, 10)
	b := start(t, l, server(t, func(c *net.TCPConn) {
		data, _ := io.ReadAll(c)
		got <- string(data)
	}))
	const several = 5 // one is carried, one waits for room, the others are with the kernel
	for range several {
		c := b.connect()
		io.WriteString(c, "last words")
		c.Close()
	}
	u := b.broker.Stop(patience)
	if u.Endpoints[0].Connections != several || len(got) != several || u.Endpoints[0].Failed != 0 {
		t.Errorf("%d arrived, %+v", len(got), u)
	}
	for range several {
		if g := <-got; g != "last words" {
			t.Errorf("arrived: %q", g)
		}
	}
}

// What a program wrote before it ended is still delivered; without grace it is cut.
func TestStop(t *testing.T) {
	const total = 8 << 20
	read, got := make(chan struct{}), make(chan int64, 1)
	at := server(t, func(c *net.TCPConn) {
		<-read
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	b := start(t, wide(), at)
	writer := b.connect()
	begin := sync.OnceFunc(func() { close(read) })
	go func() {
		writer.Write(make([]byte, total/2)) // what the kernel holds without a reader differs
		begin()
		writer.Write(make([]byte, total/2))
		writer.Close()
	}()
	time.AfterFunc(time.Second, begin)
	<-read
	u := b.broker.Stop(patience)
	if n := <-got; n != total || u.Connections[0].End != Closed || u.Endpoints[0].BytesOut != total {
		t.Errorf("%d bytes delivered, %+v", n, u)
	}
	b = start(t, wide(), server(t, echo))
	c := b.connect()
	c.Write([]byte("x"))
	io.ReadFull(c, make([]byte, 1))
	u = b.broker.Stop(0)
	if len(u.Connections) != 1 || u.Connections[0].End != Stopped {
		t.Errorf("without grace: %+v", u)
	}
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the program saw %v", err)
	}
	if _, err := net.Dial("tcp", b.inside[0]); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the end: %v", err)
	}
}

// A flood costs what Limits say: goroutines do not grow with the number of
// connections, each is told once, and the bytes are right.
func TestFlood(t *testing.T) {
	const connections = 1000
	l := wide()
	l.AtOnce = 8
	b := start(t, l, server(t, echo))
	before := runtime.NumGoroutine()
	most, over := 0, make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-over:
				return
			case <-time.After(time.Millisecond):
				most = max(most, runtime.NumGoroutine())
			}
		}
	}()
	var all sync.WaitGroup
	work := make(chan int)
	const clients = 32
	for range clients {
		all.Go(func() {
			for i := range work {
				c, err := net.Dial("tcp", b.inside[0])
				if err != nil {
					t.Error(err)
					continue
				}
				c.SetDeadline(time.Now().Add(patience))
				message := fmt.Sprintf("connection %d", i)
				io.WriteString(c, message)
				c.(*net.TCPConn).CloseWrite()
				if answer, err := io.ReadAll(c); err != nil || string(answer) != message {
					t.Errorf("%s: %q, %v", message, answer, err)
				}
				c.Close()
			}
		})
	}
	for i := range connections {
		work <- i
	}
	close(work)
	all.Wait()
	close(over)
	<-watched
	u := b.broker.Stop(patience)
	if got := u.Endpoints[0]; got.Connections != connections || got.Failed != 0 || len(u.Connections) != keptEvents || u.Omitted != connections-keptEvents || len(b.events) != connections {
		t.Errorf("%+v, %d kept, %d omitted, %d events", got, len(u.Connections), u.Omitted, len(b.events))
	}
	// The clients' own and the servers' are among them.
	if bound := before + clients + 4*(l.AtOnce+clients); most > bound {
		t.Errorf("%d goroutines, want at most %d", most, bound)
	}
}
