package launcher

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
)

// network holds interfaces, addresses, routes and listeners against the Spec. A
// loopback device that is up has an address.
func (in *inspection) network() {
	const kr = attest.KernelRead
	if in.spec.NoUnixPaths {
		want := "a stream socket is made, a datagram socket and a connect fail with EPERM"
		if len(in.spec.Listen) > 0 {
			want = "a pair of AF_UNIX sockets is made, a datagram and a stream one fail with EPERM"
		}
		in.triedBoth("socket-files", want, "steps probe-socket-file-datagram and probe-socket-file, and their control", in.box.Report.SocketFile, succeeded, unix.EPERM)
	}
	in.row("network-interfaces", "lo", strings.Join(parseInterfaces(in.seen.netDev), " "), "/proc/PID/net/dev of the workload", kr)
	shown := parseAddresses(in.seen.fibTrie, in.seen.ifInet6)
	const where = "/proc/PID/net/fib_trie and if_inet6 of the workload"
	if len(in.spec.Listen) == 0 {
		in.row("network-addresses", "none", strings.Join(shown, " "), where, kr)
		return
	}
	want4, want6 := []string{"127.0.0.0", "127.0.0.1"}, []string{}
	for _, l := range in.spec.Listen {
		a, _ := netip.AddrFromSlice(l.IP)
		switch {
		case a.Is6() && !a.IsLoopback() && !slices.Contains(want6, a.String()):
			want6 = append(want6, a.String())
		case a.Is4() && !a.IsLoopback() && !slices.Contains(want4, a.String()):
			want4 = append(want4, a.String())
		}
	}
	// ::1 is there wherever the kernel has IPv6 switched on.
	shown = slices.DeleteFunc(shown, func(a string) bool { return a == strings.Repeat("0", 31)+"1" })
	in.row("network-addresses", sortedList(want4), sortedList(shown), where, kr)
	in.row("network-routes", "none", parseRoutes(in.seen.route), "/proc/PID/net/route of the workload", kr)
	in.row("network-routes-ipv6", "lo: "+sortedList(want6), "lo: "+sortedList(parseRoutes6(in.seen.route6)), "/proc/PID/net/ipv6_route of the workload", kr)
	var listen []string
	for _, l := range in.spec.Listen {
		listen = append(listen, l.Name)
	}
	in.row("network-listeners", sortedList(listen), sortedList(slices.Concat(parseListeners(in.seen.tcp), parseListeners(in.seen.tcp6))), "/proc/PID/net/tcp and tcp6 of the workload", kr)
	r := in.box.Report
	if in.spec.LandlockABI >= 4 {
		in.triedBoth("landlock-connect", "to a port that is not listed EACCES, to a listed one TCP's own ECONNREFUSED", "steps control-connect and probe-connect", r.Connect,
			func(control int64) bool { return control == -int64(unix.ECONNREFUSED) }, unix.EACCES)
	}
	if !in.spec.AnySocket {
		in.triedBoth("socket-filter", "a stream socket is made, a datagram socket fails with EPERM", "steps control-stream and probe-datagram", r.Datagram, succeeded, unix.EPERM)
	}
}

func sortedList(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return strings.Join(list, " ")
}

// parseRoutes lists the main table of /proc/PID/net/route, or "none". Its first
// line is a heading; of a namespace that has no table nothing is shown.
func parseRoutes(data []byte) string {
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) < 2 {
		return "none"
	}
	var out []string
	for _, l := range lines[1:] {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return strings.Join(out, ", ")
}

// parseRoutes6 lists the destinations of /proc/PID/net/ipv6_route that lead
// anywhere, without ::1; one that is no single address of lo is shown whole.
func parseRoutes6(data []byte) []string {
	const reject = 0x200 // RTF_REJECT
	var out []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 10 {
			out = append(out, strconv.Quote(line))
			continue
		}
		flags, err := strconv.ParseUint(f[8], 16, 64)
		raw, rawErr := hex.DecodeString(f[0])
		a, ok := netip.AddrFromSlice(raw)
		switch {
		case err == nil && flags&reject != 0:
		case err != nil || rawErr != nil || !ok || f[1] != "80" || f[9] != "lo":
			out = append(out, strings.Join(f, " "))
		case !a.IsLoopback():
			out = append(out, a.String())
		}
	}
	return out
}

// parseListeners lists what listens, of /proc/PID/net/tcp or tcp6: the address is
// words of the machine's byte order in hexadecimal.
func parseListeners(data []byte) []string {
	const listening = "0A"
	var out []string
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[3] != listening {
			continue
		}
		host, port, _ := strings.Cut(f[1], ":")
		raw, err := hex.DecodeString(host)
		n, portErr := strconv.ParseUint(port, 16, 16)
		for i := 0; i+4 <= len(raw); i += 4 {
			binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
		}
		a, ok := netip.AddrFromSlice(raw)
		if err != nil || portErr != nil || !ok {
			out = append(out, fmt.Sprintf("unreadable %q", f[1]))
			continue
		}
		out = append(out, netip.AddrPortFrom(a, uint16(n)).String())
	}
	return out
}
