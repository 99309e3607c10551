// Package broker carries a box's connections to the endpoints of its policy and
// to nothing else. It runs in the launcher and holds both ends: sockets that
// listen in the box's network namespace, and connections it makes itself from the
// operator's. The box has no way around it, because it has no route.
//
//	program ─ connect ─▶ 127.64.0.1:443 │ accepted here ─ dial ─▶ pinned address:443
//	                     in the box's    │  copied both ways, counted, bounded
//	                     namespace       │
//
// What is decided, and when:
//
//   - Where an endpoint leads is found once, before the start (Resolve), and never
//     looked up again: what a name means later changes nothing.
//   - Whether an address may be dialled is asked right before each dial, of the
//     very address that is handed to connect(2) (Route.refuses).
//   - What flows is bytes. TLS ends in the box and at the endpoint; nothing is
//     read, changed or kept. Two names behind one address cannot be told apart here.
//
// TCP is carried faithfully: the end of one direction is passed on as a half-close
// and the other goes on; a reset, a failed write or a bound that is met resets
// both sides; a slow reader slows its writer down, since a direction holds one
// buffer and reads only after it could write.
//
// Work and memory are bounded by Limits: connections beyond AtOnce wait in the
// kernel's queue without a cost here; after InTotal nobody listens any more and the
// kernel refuses by itself.
package broker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/endpoint"
)

// Route is an endpoint and where it leads.
type Route struct {
	Endpoint endpoint.Endpoint
	Addrs    []netip.Addr // tried in order; empty: the name was not resolved
	Listed   bool         // the policy names the address itself
	Consent  bool         // and says that one of a special kind is meant
}

// refuses says in a word why an address must not be dialled, or "".
func (r Route) refuses(a netip.Addr) string {
	word := endpoint.Special(a)
	switch {
	case endpoint.Never(a), word != "" && !r.Listed, endpoint.NeedsConsent(a) && !r.Consent:
		return word
	}
	return ""
}

// Limits bound one attempt. Everything is positive.
type Limits struct {
	AtOnce, InTotal   int
	BytesOut, BytesIn int64 // of all connections; out is towards the endpoints
	Lifetime          time.Duration
	DialTime          time.Duration // for all addresses of an endpoint together
}

// End says how a connection ended.
type End string

const (
	Closed        End = "closed"          // both directions came to their end
	ResetInside   End = "reset_inside"    // by the program
	ResetOutside  End = "reset_outside"   // by the endpoint
	DialFailed    End = "dial_failed"     // no address answered
	Unresolved    End = "unresolved"      // the name had no address when the attempt began
	RefusedByRule End = "address_refused" // none of its addresses may be dialled
	TimeLimit     End = "time_limit"      // of one connection
	OutLimit      End = "bytes_out_limit" // of the attempt
	InLimit       End = "bytes_in_limit"  // of the attempt
	TotalLimit    End = "in_total_limit"  // one connection too many
	Stopped       End = "attempt_ended"   // the box was gone
)

// Event is one connection after its end. There is never a payload in it.
type Event struct {
	Endpoint endpoint.Endpoint `json:"endpoint"`  // as the policy lists it
	Address  string            `json:"address"`   // address and port that answered; empty if none did
	BytesOut int64             `json:"bytes_out"` // towards the endpoint
	BytesIn  int64             `json:"bytes_in"`  // from it
	MS       float64           `json:"ms"`        // from the program's connect to the end
	End      End               `json:"end"`       // how it ended
}

// EndpointUse is what went to and from one endpoint.
type EndpointUse struct {
	Endpoint    endpoint.Endpoint `json:"endpoint"`    // as the policy lists it
	Addresses   []netip.Addr      `json:"addresses"`   // where it led, as found before the start
	Connections int               `json:"connections"` // that the program made
	Failed      int               `json:"failed"`      // of those, never connected to the endpoint
	BytesOut    int64             `json:"bytes_out"`   // towards the endpoint
	BytesIn     int64             `json:"bytes_in"`    // from it
}

// Use is the whole traffic of an attempt. All events went to the observer; the
// first of them stand here.
type Use struct {
	Endpoints   []EndpointUse `json:"endpoints"`           // one per listed endpoint, in order
	Connections []Event       `json:"connections"`         // in the order of their end, at most 64
	Omitted     int           `json:"connections_omitted"` // further ones
}

const keptEvents = 64

// Broker is one attempt's. Its zero value is none.
type Broker struct {
	limits    Limits
	observe   func(Event)
	ctx       context.Context
	cancel    context.CancelFunc
	routes    []Route
	listeners []*net.TCPListener
	slots     chan struct{}
	total     atomic.Int64
	out, in   atomic.Int64 // bytes that may still flow
	buffers   sync.Pool
	accepting sync.WaitGroup
	carrying  sync.WaitGroup

	mu  sync.Mutex
	use Use
}

// Start takes listening sockets over, one per route and in its order, and carries
// from then on. observe is called once per connection, one at a time; it must not block.
func Start(sockets []int, routes []Route, l Limits, observe func(Event)) (*Broker, error) {
	files := make([]*os.File, len(sockets))
	for i, fd := range sockets {
		files[i] = os.NewFile(uintptr(fd), "endpoint")
	}
	defer func() {
		for _, f := range files {
			f.Close() // net works on a duplicate
		}
	}()
	if len(sockets) != len(routes) {
		return nil, fmt.Errorf("%d listening sockets for %d endpoints", len(sockets), len(routes))
	}
	b := &Broker{limits: l, observe: observe, routes: routes, slots: make(chan struct{}, l.AtOnce)}
	b.buffers.New = func() any { return new([bufferSize]byte) }
	b.out.Store(l.BytesOut)
	b.in.Store(l.BytesIn)
	for i, f := range files {
		n, err := net.FileListener(f)
		if err != nil {
			b.closeListeners()
			return nil, fmt.Errorf("the socket of %s: %w", routes[i].Endpoint, err)
		}
		b.listeners = append(b.listeners, n.(*net.TCPListener))
		b.use.Endpoints = append(b.use.Endpoints, EndpointUse{Endpoint: routes[i].Endpoint, Addresses: append([]netip.Addr{}, routes[i].Addrs...)})
	}
	b.use.Connections = []Event{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for i, n := range b.listeners {
		b.accepting.Go(func() { b.accept(n, i) })
	}
	return b, nil
}

// Stop ends everything and returns what there was. With grace, connections may
// still deliver what the program has written before it ended, also one that was
// made and not taken yet; without, they are reset at once.
func (b *Broker) Stop(grace time.Duration) Use {
	if grace <= 0 {
		b.cancel()
	}
	for _, n := range b.listeners {
		n.SetDeadline(time.Unix(1, 0)) // long past: accept returns
	}
	done := make(chan struct{})
	go func() {
		b.accepting.Wait()
		for i, n := range b.listeners {
			b.takeWaiting(n, i)
		}
		b.carrying.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(grace):
		b.cancel()
		<-done
	}
	b.cancel()
	b.closeListeners()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.use
}

func (b *Broker) closeListeners() {
	for _, n := range b.listeners {
		n.Close() // a second time is an error nobody needs
	}
}

// accept takes connections of one endpoint while there is room; one that found
// none waits here, and what comes after it in the kernel.
func (b *Broker) accept(n *net.TCPListener, index int) {
	for {
		inside, err := n.AcceptTCP()
		switch {
		case err == nil:
			if !b.take(inside, index) {
				return
			}
		case isTemporary(err):
			time.Sleep(10 * time.Millisecond) // out of descriptors: others have to end first
		default:
			return
		}
	}
}

// takeWaiting takes what the kernel has completed by now and waits for no more:
// of an ended box nothing new can come.
func (b *Broker) takeWaiting(n *net.TCPListener, index int) {
	raw, err := n.SyscallConn()
	if err != nil {
		return
	}
	for {
		fd := -1
		if raw.Control(func(listener uintptr) {
			fd, _, _ = unix.Accept4(int(listener), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		}) != nil || fd < 0 {
			return
		}
		f := os.NewFile(uintptr(fd), "connection")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil || !b.take(c.(*net.TCPConn), index) {
			return
		}
	}
}

// take carries one connection as soon as there is room. It reports whether more
// may be taken.
func (b *Broker) take(inside *net.TCPConn, index int) bool {
	r, begun := b.routes[index], time.Now()
	refuse := func(end End) bool {
		reset(inside)
		b.ended(index, Event{Endpoint: r.Endpoint, End: end}, begun)
		return false
	}
	nth := b.total.Add(1)
	if nth >= int64(b.limits.InTotal) {
		b.closeListeners()
	}
	if nth > int64(b.limits.InTotal) {
		return refuse(TotalLimit)
	}
	select {
	case b.slots <- struct{}{}:
	case <-b.ctx.Done():
		return refuse(Stopped)
	}
	b.carrying.Go(func() {
		defer func() { <-b.slots }()
		b.ended(index, b.serve(inside, r, begun), begun)
	})
	return true
}

// serve is one connection from the program's connect to its end.
func (b *Broker) serve(inside *net.TCPConn, r Route, begun time.Time) Event {
	e := Event{Endpoint: r.Endpoint}
	outside, end := b.dial(r, begun)
	if outside == nil {
		reset(inside)
		e.End = end
		return e
	}
	e.Address = outside.RemoteAddr().String()
	e.BytesOut, e.BytesIn, e.End = b.carry(inside, outside, begun.Add(b.limits.Lifetime))
	return e
}

// dial tries the pinned addresses in order.
func (b *Broker) dial(r Route, begun time.Time) (*net.TCPConn, End) {
	if len(r.Addrs) == 0 {
		return nil, Unresolved
	}
	end := RefusedByRule
	d := net.Dialer{Deadline: begun.Add(min(b.limits.DialTime, b.limits.Lifetime))}
	for _, a := range r.Addrs {
		if r.refuses(a) != "" {
			continue
		}
		c, err := d.DialContext(b.ctx, "tcp", netip.AddrPortFrom(a, uint16(r.Endpoint.Port())).String())
		if err == nil {
			return c.(*net.TCPConn), ""
		}
		end = DialFailed
		if b.ctx.Err() != nil {
			return nil, Stopped
		}
	}
	return nil, end
}

func (b *Broker) ended(index int, e Event, begun time.Time) {
	e.MS = float64(time.Since(begun).Microseconds()) / 1000
	b.mu.Lock()
	defer b.mu.Unlock()
	u := &b.use.Endpoints[index]
	u.Connections++
	if e.Address == "" {
		u.Failed++
	}
	u.BytesOut += e.BytesOut
	u.BytesIn += e.BytesIn
	if len(b.use.Connections) < keptEvents {
		b.use.Connections = append(b.use.Connections, e)
	} else {
		b.use.Omitted++
	}
	if b.observe != nil {
		b.observe(e)
	}
}
