package nsexec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// MaxListen bounds the listening sockets of a box. They cross in one message,
// which holds 253 descriptors at most (SCM_MAX_FD, unix(7)).
const MaxListen = 64

// backlog is how many connections wait in the kernel until the launcher takes them.
const backlog = 32

// loopbackIndex is lo's in every network namespace: it is the first device made.
const loopbackIndex = 1

// ipv6FreeBind is IPV6_FREEBIND of linux/in6.h (4.15): x/sys has no name for it.
const ipv6FreeBind = 78

// network gives the box what it listens on: lo up, a local route for each address
// that is not a loopback one, and one listening socket per endpoint. The sockets
// go to the launcher and stay with nobody in the box, so init and workload can
// neither accept on them nor keep them open.
//
// A route and no address: a kernel worker finishes an IPv6 address some time
// later, while a route is there when the call returns.
func (c *compiler) network() {
	if len(c.spec.Listen) == 0 {
		return
	}
	ctl := c.word("loopback-socket")
	c.add("loopback-socket", "interfaces are changed through any socket of their namespace", unix.SYS_SOCKET, imm(unix.AF_INET), imm(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), imm(0)).into(ctl)
	ifreq := make([]byte, 40) // struct ifreq: name, then flags
	copy(ifreq, "lo")
	binary.NativeEndian.PutUint16(ifreq[unix.IFNAMSIZ:], unix.IFF_UP)
	c.need(c.add("loopback-up", "the endpoints are listened for on the box's own loopback, the only interface there is", unix.SYS_IOCTL, load(ctl), imm(unix.SIOCSIFFLAGS), bytesArg(ifreq)), unix.CAP_NET_ADMIN)
	c.localRoutes()
	ctlBuf := c.prog.slot("listeners", 8+unix.CmsgSpace(4*len(c.spec.Listen)))
	for i, at := range c.spec.Listen {
		c.listen(at, ctlBuf.at(16+4*i))
	}
	c.handOutListeners(ctlBuf)
}

// localRoutes makes each address that is not a loopback one lead to lo.
func (c *compiler) localRoutes() {
	var addrs [][]byte
	for _, at := range c.spec.Listen {
		if !at.loopback() && !slices.ContainsFunc(addrs, func(a []byte) bool { return bytes.Equal(a, at.IP) }) {
			addrs = append(addrs, at.IP)
		}
	}
	if len(addrs) == 0 {
		return
	}
	nl := c.word("route-socket")
	c.add("route-socket", "local routes can be made through netlink only", unix.SYS_SOCKET, imm(unix.AF_NETLINK), imm(unix.SOCK_RAW|unix.SOCK_CLOEXEC), imm(unix.NETLINK_ROUTE)).into(nl)
	answer := c.prog.slot("route-answer", 256).at(0)
	for _, a := range addrs {
		msg := routeRequest(a)
		name := fmt.Sprintf("route:%x", a)
		c.need(c.add(name, "the policy lists this address itself, and nothing else may lead anywhere", unix.SYS_SENDTO, load(nl), bytesArg(msg), imm(uintptr(len(msg))), imm(0), imm(0), imm(0)).exactly(int64(len(msg))), unix.CAP_NET_ADMIN)
		// An acknowledgement repeats the header only, a refusal the whole request.
		c.add(name+"-answer", "the kernel's word on it; a refusal is longer than an acknowledgement", unix.SYS_READ, load(nl), addr(answer), imm(256)).exactly(ackSize)
	}
}

// ackSize is struct nlmsghdr, an error number and a header again.
const ackSize = unix.SizeofNlMsghdr + 4 + unix.SizeofNlMsghdr

// routeRequest is RTM_NEWROUTE for one local address, rtnetlink(7).
func routeRequest(raw []byte) []byte {
	family := byte(unix.AF_INET)
	if len(raw) == 16 {
		family = unix.AF_INET6
	}
	b := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWROUTE)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	b = append(b, family, byte(8*len(raw)), 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
	attr := func(kind uint16, data []byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(data)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, data...)
	}
	attr(unix.RTA_DST, raw)
	attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopbackIndex))
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

// listen makes one listening socket and leaves its number at to.
func (c *compiler) listen(at Listen, to Ref) {
	family, name := uintptr(unix.AF_INET), at.Name
	if len(at.IP) == 16 {
		family = unix.AF_INET6
	}
	c.add("socket:"+name, "one listening socket for one endpoint", unix.SYS_SOCKET, imm(family), imm(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), imm(unix.IPPROTO_TCP)).into(to)
	if len(at.IP) == 16 {
		one := bytesArg(binary.NativeEndian.AppendUint32(nil, 1))
		c.add("free-bind:"+name, "the address has a route and stands on no interface", unix.SYS_SETSOCKOPT, load(to), imm(unix.SOL_IPV6), imm(ipv6FreeBind), one, imm(4))
	}
	bind := c.add("bind:"+name, "what the program connects to", unix.SYS_BIND, load(to), bytesArg(sockaddr(at.IP, at.Port)), imm(uintptr(len(sockaddr(at.IP, at.Port)))))
	if at.Port < 1024 {
		c.need(bind, unix.CAP_NET_BIND_SERVICE)
	}
	c.add("listen:"+name, "from here on the kernel completes connections, and the launcher takes them", unix.SYS_LISTEN, load(to), imm(backlog))
}

// sockaddr is struct sockaddr_in or sockaddr_in6.
func sockaddr(ip []byte, port uint16) []byte {
	family, before, after := uint16(unix.AF_INET), 0, 8
	if len(ip) == 16 {
		family, before, after = unix.AF_INET6, 4, 4 // flow label and scope
	}
	b := binary.NativeEndian.AppendUint16(nil, family)
	b = binary.BigEndian.AppendUint16(b, port)
	return slices.Concat(b, make([]byte, before), ip, make([]byte, after))
}

func (c *compiler) handOutListeners(ctl *Slot) {
	n := 4 * len(c.spec.Listen)
	binary.NativeEndian.PutUint64(ctl.Init, uint64(unix.CmsgLen(n)))
	binary.NativeEndian.PutUint32(ctl.Init[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(ctl.Init[12:], unix.SCM_RIGHTS)
	iov := Arg{kind: argBlob, data: make([]byte, 16), relocs: []reloc{{0, bytesArg([]byte{msgListeners})}}}
	binary.NativeEndian.PutUint64(iov.data[8:], 1)
	msg := Arg{kind: argBlob, data: make([]byte, 56), relocs: []reloc{{16, iov}, {32, addr(ctl.at(0))}}}
	binary.NativeEndian.PutUint64(msg.data[24:], 1)
	binary.NativeEndian.PutUint64(msg.data[40:], uint64(unix.CmsgSpace(n)))
	c.add("hand-out-listeners", "the launcher decides on every connection, outside of the box; the sockets' numbers here end with pid 1's exec", unix.SYS_SENDMSG, imm(fdControl), msg, imm(unix.MSG_NOSIGNAL)).exactly(1)
}

// connectPorts are the ports that Landlock lets the workload connect to.
func (s *Spec) connectPorts() []uint16 {
	var ports []uint16
	for _, at := range s.Listen {
		ports = append(ports, at.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

const (
	llRuleNetPort = 2 // LANDLOCK_RULE_NET_PORT, ABI 4
	llConnectTCP  = 2 // LANDLOCK_ACCESS_NET_CONNECT_TCP
)

// landlockPorts adds one rule per port; binding stays without a rule and so denied.
func (c *compiler) landlockPorts(rs Ref) {
	for _, port := range c.spec.connectPorts() {
		rule := make([]byte, 16) // struct landlock_net_port_attr: rights, port in the machine's order
		binary.NativeEndian.PutUint64(rule, llConnectTCP)
		binary.NativeEndian.PutUint64(rule[8:], uint64(port))
		c.add(fmt.Sprintf("landlock-connect-%d", port), "a second layer: no other port can be connected to, not even within the box", unix.SYS_LANDLOCK_ADD_RULE, load(rs), imm(llRuleNetPort), bytesArg(rule), imm(0))
	}
}

// probeConnect tries a port that the policy does not list. Nobody listens on the
// address, so the control's refusal is TCP's own, and only Landlock's is another.
func (c *compiler) probeConnect() {
	ports := c.spec.connectPorts()
	if len(ports) == 0 || c.spec.LandlockABI < 4 {
		return
	}
	other := uint16(1)
	for slices.Contains(ports, other) {
		other++
	}
	s := c.word("probe-connect")
	control, probe := c.placeTried("connect", 1)
	c.add("probe-connect-socket", "for the two attempts below", unix.SYS_SOCKET, imm(unix.AF_INET), imm(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), imm(0)).into(s)
	to := func(port uint16) (Arg, Arg) {
		b := sockaddr(vacant(), port)
		return bytesArg(b), imm(uintptr(len(b)))
	}
	a, n := to(ports[0])
	c.add("control-connect", "shows that the refusal below is not a general one: here TCP itself answers", unix.SYS_CONNECT, load(s), a, n).into(control).anyResult()
	a, n = to(other)
	c.add("probe-connect", "Landlock must stop what would reach the same answer", unix.SYS_CONNECT, load(s), a, n).into(probe[0]).anyResult()
	c.add("probe-connect-close", "no socket is left to the program", unix.SYS_CLOSE, load(s))
}

// vacant is a loopback address that no endpoint is given.
func vacant() []byte { return []byte{127, 255, 255, 254} }

// probeSockets runs under the filter: streams can be made, datagrams cannot.
func (c *compiler) probeSockets() {
	c.probeSocketFiles()
	if len(c.spec.Listen) == 0 || c.spec.AnySocket {
		return
	}
	control, probe := c.placeTried("datagram", 1)
	c.add("control-stream", "shows that a refusal below is not a general one; closes on exec", unix.SYS_SOCKET, imm(unix.AF_INET), imm(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), imm(0)).into(control).anyResult()
	c.add("probe-datagram", "UDP, and with it DNS, must not even have a socket", unix.SYS_SOCKET, imm(unix.AF_INET), imm(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), imm(0)).into(probe[0]).anyResult()
}

// probeSocketFiles tries the two ways to a socket by its path. Where TCP has to
// connect, there is no AF_UNIX socket to do it with; elsewhere nothing connects.
func (c *compiler) probeSocketFiles() {
	if !c.spec.NoUnixPaths {
		return
	}
	unixSocket := func(name, why string, kind uintptr) *Step {
		return c.add(name, why, unix.SYS_SOCKET, imm(unix.AF_UNIX), imm(kind|unix.SOCK_CLOEXEC), imm(0))
	}
	control, probe := c.placeTried("socketfile", 2)
	const way = "a read-only mount does not keep a program from a socket in it"
	unixSocket("probe-socket-file-datagram", "a datagram may carry the path in memory, where no filter looks", unix.SOCK_DGRAM).into(probe[0]).anyResult()
	if len(c.spec.Listen) > 0 {
		pair := c.prog.slot("probe-pair", 16) // two numbers of four bytes; the kernel takes the lower half of what is loaded
		c.add("control-pair", "shows that the refusal below is not a general one", unix.SYS_SOCKETPAIR, imm(unix.AF_UNIX), imm(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), imm(0), addr(pair.at(0))).into(control)
		for _, end := range []int{0, 4} {
			c.add(fmt.Sprintf("control-pair-close-%d", end/4), "no socket is left to the program", unix.SYS_CLOSE, load(pair.at(end)))
		}
		unixSocket("probe-socket-file", way, unix.SOCK_STREAM).into(probe[1]).anyResult()
		return
	}
	unixSocket("control-unix-stream", "shows that the refusals beside it are not general ones; closes on exec", unix.SOCK_STREAM).into(control).anyResult()
	c.add("probe-socket-file", way+"; to this address, which is too short, the kernel itself would answer EINVAL", unix.SYS_CONNECT, load(control), bytesArg(make([]byte, 2)), imm(1)).into(probe[1]).anyResult()
}

// Listen is one place where the box listens for an endpoint. Addresses are bytes:
// a stage links this package, and none of them needs net/netip, which works before main.
type Listen struct {
	Name string `json:"name"` // IP and Port as people write them, unique
	IP   []byte `json:"-"`    // 4 or 16 bytes
	Port uint16 `json:"-"`
}

func (l Listen) loopback() bool {
	return l.IP[0] == 127 && len(l.IP) == 4 || bytes.Equal(l.IP, append(make([]byte, 15), 1))
}

func (s *Spec) validateListen() error {
	if len(s.Listen) > MaxListen {
		return fmt.Errorf("%d endpoints; at most %d", len(s.Listen), MaxListen)
	}
	for i, l := range s.Listen {
		multicast := len(l.IP) == 4 && l.IP[0] >= 224 || len(l.IP) == 16 && l.IP[0] == 0xff
		if len(l.IP) != 4 && len(l.IP) != 16 || l.Port == 0 || multicast || bytes.Equal(l.IP, make([]byte, len(l.IP))) || bytes.Equal(l.IP, vacant()) {
			return fmt.Errorf("%q cannot be listened on", l.Name)
		}
		for _, o := range s.Listen[:i] {
			if o.Name == l.Name || bytes.Equal(o.IP, l.IP) && o.Port == l.Port {
				return fmt.Errorf("%q is listened on twice", l.Name)
			}
		}
	}
	return nil
}
