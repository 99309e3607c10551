package conformance

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// network is a network namespace of the case's own: its loopback carries the
// addresses of the mock peers, and nothing in it reaches the machine's network.
type network struct {
	c         *Case
	listeners []*mock
}

// mock is a listener that counts its connections and answers with one word.
type mock struct {
	addr netip.AddrPort
	hits atomic.Int32
}

// ownNetwork puts the case's thread, and thus every program it starts from now
// on, into a new network namespace. It takes root.
func (c *Case) ownNetwork(addrs ...string) *network {
	if c.suite.caller.UID != 0 {
		c.Stop(Blocked, "a network namespace with mock addresses takes root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the case
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		c.Fatalf("a new network namespace: %v", err)
	}
	if err := upLoopback(); err != nil {
		c.Fatalf("loopback up: %v", err)
	}
	for _, a := range addrs {
		if err := addAddress(netip.MustParseAddr(a)); err != nil {
			c.Fatalf("address %s: %v", a, err)
		}
	}
	return &network{c: c}
}

// listen starts a mock in the case's namespace.
func (n *network) listen(addr string, port uint16) *mock {
	return n.serve(addr, port, func(conn net.Conn) { fmt.Fprintln(conn, "mock") })
}

// redirect starts a mock that answers every request with another place.
func (n *network) redirect(addr string, port uint16, to string) *mock {
	return n.serve(addr, port, func(conn net.Conn) {
		conn.Read(make([]byte, 4096))
		fmt.Fprintf(conn, "HTTP/1.1 302 Found\r\nLocation: http://%s/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", to)
	})
}

func (n *network) serve(addr string, port uint16, answer func(net.Conn)) *mock {
	at := netip.AddrPortFrom(netip.MustParseAddr(addr), port)
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		n.c.Fatalf("a mock listener on %s: %v", at, err)
	}
	n.c.Cleanup(func() { l.Close() })
	m := &mock{addr: l.Addr().(*net.TCPAddr).AddrPort()}
	n.listeners = append(n.listeners, m)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.hits.Add(1)
			answer(conn)
			conn.Close()
		}
	}()
	return m
}

// hits is how often each listener was reached so far.
func (n *network) hits() (all []int32) {
	for _, m := range n.listeners {
		all = append(all, m.hits.Load())
	}
	return all
}

func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// addAddress adds one address to loopback, interface 1 of every namespace, by
// RTM_NEWADDR; see rtnetlink(7).
func addAddress(a netip.Addr) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	raw := a.AsSlice()
	family, flags := byte(unix.AF_INET), byte(0)
	if a.Is6() {
		family, flags = unix.AF_INET6, unix.IFA_F_NODAD
	}
	msg := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfAddrmsg)
	copy(msg[unix.SizeofNlMsghdr:], []byte{family, byte(a.BitLen()), flags, unix.RT_SCOPE_UNIVERSE, 1, 0, 0, 0})
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		msg = binary.NativeEndian.AppendUint16(msg, uint16(4+len(raw)))
		msg = binary.NativeEndian.AppendUint16(msg, kind)
		msg = append(msg, raw...)
	}
	binary.NativeEndian.PutUint32(msg, uint32(len(msg)))
	binary.NativeEndian.PutUint16(msg[4:], unix.RTM_NEWADDR)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil || n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("answer of %d bytes: %w", n, err)
	}
	if errno := int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])); errno != 0 {
		return unix.Errno(-errno)
	}
	return nil
}
