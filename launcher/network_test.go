package launcher

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/launcher/broker"
	"nsbox/launcher/endpoint"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// openPolicy is the preset with destinations.
func openPolicy(t testing.TB, destinations ...string) (*policy.Policy, policy.Source) {
	t.Helper()
	return openPolicyWith(t, nil, destinations...)
}

func openPolicyWith(t testing.TB, edits map[string]any, destinations ...string) (*policy.Policy, policy.Source) {
	t.Helper()
	all := map[string]any{"network.allowed_destinations": destinations, "network.mode": "exact_endpoints",
		"process_policy.seccomp.denied_classes": strings.Fields("mount unshare ptrace keyctl bpf perf_event_open userfaultfd setns AF_VSOCK socket_non_AF_UNIX_or_TCP")}
	for k, v := range edits {
		all[k] = v
	}
	p, src, err := preset(t, all)
	if err != nil {
		t.Fatal(err)
	}
	return p, src
}

func openPlan(t testing.TB, edits map[string]any, destinations ...string) *Plan {
	t.Helper()
	p, src := openPolicyWith(t, edits, destinations...)
	pl, err := MakePlan(goodRequest(), p, src, goodFacts(t))
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

// Each name has an address of its own, whatever its ports; a literal keeps its
// address; nothing collides.
func TestNetworkPlan(t *testing.T) {
	consent := map[string]any{"network.destination_rules": []any{map[string]any{"destination": "127.64.0.2:443", "allow_private": true}}}
	pl := openPlan(t, consent, "b.example:443", "a.example:443", "a.example:8443", "127.64.0.2:443", "192.0.2.10:443", "[2001:db8::5]:443", "192.0.2.10:80")
	var got []string
	for i, e := range pl.Network.Endpoints {
		got = append(got, e.Endpoint.String()+" "+e.Inside.String())
		l := pl.Box.Listen[i]
		if a, _ := netip.AddrFromSlice(l.IP); netip.AddrPortFrom(a, l.Port) != e.Inside || l.Name != e.Inside.String() {
			t.Errorf("listens at %+v, want %s", l, e.Inside)
		}
	}
	want := []string{"a.example:443 127.64.0.1:443", "a.example:8443 127.64.0.1:8443", "b.example:443 127.64.0.3:443",
		"127.64.0.2:443 127.64.0.2:443", "192.0.2.10:80 192.0.2.10:80", "192.0.2.10:443 192.0.2.10:443", "[2001:db8::5]:443 [2001:db8::5]:443"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	var hosts, bundle string
	for _, n := range pl.Box.Root {
		switch n.Path {
		case "/etc/hosts":
			hosts = string(n.Data)
		case "/etc/ssl/certs/ca-certificates.crt":
			bundle = n.Source
		case "/etc/resolv.conf":
			t.Error("the box has a resolver")
		}
	}
	if hosts != "127.0.0.1 localhost\n::1 localhost\n127.64.0.1 a.example\n127.64.0.3 b.example\n" || bundle != certificatesPlaceholder {
		t.Errorf("hosts %q, certificates %q", hosts, bundle)
	}
	if err := pl.Box.Validate(); err != nil && !strings.Contains(err.Error(), "filter") {
		t.Error(err)
	}
	if pl.workload.Digest() == seccompgen.Workload(seccompgen.Options{}).Digest() || pl.Box.AnySocket {
		t.Error("the filter is that of a shut network, or none")
	}
	again := openPlan(t, consent, "192.0.2.10:80", "[2001:db8::5]:443", "A.example.:8443", "127.64.0.2:443", "192.0.2.10:443", "a.example:443", "b.example:443")
	if !slices.Equal(again.Network.Endpoints, pl.Network.Endpoints) {
		t.Error("the order in the file decides")
	}
}

// Without a destination nothing of all this is in the plan.
func TestNoDestinationNoNetwork(t *testing.T) {
	pl := mustPlan(t, goodFacts(t))
	data, err := json.Marshal(pl)
	if err != nil {
		t.Fatal(err)
	}
	if pl.Network != nil || pl.Box.Listen != nil || bytes.Contains(data, []byte("certificates")) {
		t.Errorf("network %+v, listen %v", pl.Network, pl.Box.Listen)
	}
	if pl.Filters["workload"] == openPlan(t, nil, "a.example:443").Filters["workload"] {
		t.Error("control: the filter is the same with a destination")
	}
}

// A layer is left out only where the policy leaves it out and says so; the plan
// shows it as degraded, and the word on the command line alone changes nothing.
func TestLayersAreDegradedByName(t *testing.T) {
	off := map[string]any{"degrade": []any{"seccomp_network", "landlock"}, "process_policy.mac": "none",
		"process_policy.seccomp.denied_classes": strings.Fields("mount unshare ptrace keyctl bpf perf_event_open userfaultfd setns AF_VSOCK")}
	pl := openPlan(t, off, "a.example:443")
	if !pl.Box.AnySocket || pl.Box.LandlockABI != 0 || !pl.degraded(policy.DimSeccompNetwork) || !pl.degraded(policy.DimLandlock) {
		t.Errorf("any socket %v, Landlock %d, degraded %+v", pl.Box.AnySocket, pl.Box.LandlockABI, pl.Degraded)
	}
	p, src := openPolicy(t, "a.example:443")
	req := goodRequest()
	req.AllowDegraded = policy.Dimensions()
	pl, err := MakePlan(req, p, src, goodFacts(t))
	if err != nil {
		t.Fatal(err)
	}
	if pl.Box.AnySocket || pl.Box.LandlockABI == 0 || pl.degraded(policy.DimSeccompNetwork) {
		t.Error("what may be weaker and need not be is weaker")
	}
}

// Beside a live directory the filter closes the ways to sockets in it, with and
// without endpoints, and the set-up has to have tried them.
func TestSocketFilesArePlanned(t *testing.T) {
	p, src := openPolicy(t, "a.example:443")
	shut, shutSrc, err := preset(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	weak := func(pl *Plan) seccompgen.Options {
		return seccompgen.Options{DenyAffinity: pl.degraded(policy.DimCPURate), DenySharedMemory: pl.degraded(policy.DimMemory)}
	}
	for name, c := range map[string]struct {
		policy  *policy.Policy
		source  policy.Source
		sockets seccompgen.Sockets
	}{"endpoints": {p, src, seccompgen.TCPSockets}, "none": {shut, shutSrc, seccompgen.UnixSockets}} {
		for _, live := range []bool{true, false} {
			req := goodRequest()
			if live {
				req.Live = []rootfs.Bind{{Source: "/srv/tree", Target: "/tree"}}
			}
			pl, err := MakePlan(req, c.policy, c.source, goodFacts(t))
			if err != nil {
				t.Fatal(err)
			}
			want := weak(pl)
			want.Sockets, want.DenySocketFiles = c.sockets, live
			if pl.workload.Digest() != seccompgen.Workload(want).Digest() || pl.Box.NoUnixPaths != live {
				t.Errorf("%s, live %v: another filter, or no unix paths is %v", name, live, pl.Box.NoUnixPaths)
			}
			const eperm = -int64(unix.EPERM)
			for answers, want := range map[*nsexec.Tried]attest.Status{
				nil: attest.Mismatch,
				{Control: 5, Forbidden: []int64{eperm, eperm}}:               attest.Enforced,
				{Control: 5, Forbidden: []int64{6, eperm}}:                   attest.Mismatch,
				{Control: 5, Forbidden: []int64{eperm, -int64(unix.EINVAL)}}: attest.Mismatch,
				{Control: eperm, Forbidden: []int64{eperm, eperm}}:           attest.Mismatch,
			} {
				in := &inspection{box: &nsexec.Box{Report: &nsexec.Report{SocketFile: answers}}, spec: &pl.Box, seen: &seen{}}
				in.network()
				at := slices.IndexFunc(in.rows, func(r attest.Row) bool { return r.Restriction == "socket-files" })
				if (at >= 0) != live || live && in.rows[at].Status != want {
					t.Errorf("%s, live %v: %+v shows %+v", name, live, answers, in.rows)
				}
			}
		}
	}
}

// What is listed is requested and granted; what is not is refused by name.
func TestDestinationsAreDecided(t *testing.T) {
	p, src := openPolicy(t, "a.example:443")
	b := newFake(t)
	d := decide(b, goodRequest(), p, src, b.facts, nil, nil)
	if d.Verdict != VerdictRun || !slices.ContainsFunc(d.Grants, func(g Grant) bool {
		return g.Capability == "connect" && g.Requested == "a.example:443" && g.Allowed
	}) {
		t.Errorf("%s: %+v", d.Verdict, d.Grants)
	}
	other, _ := endpoint.Parse("a.example:444")
	d = decide(b, goodRequest(), p, src, b.facts, nil, []endpoint.Endpoint{other})
	if d.Verdict != VerdictRefuse || len(d.Reasons) != 1 || d.Reasons[0].ID != reason.CapabilityDenied {
		t.Errorf("%s: %+v", d.Verdict, d.Reasons)
	}
	var text bytes.Buffer
	tr := NewTrace(&text, d)
	tr.Connection(broker.Event{Endpoint: other, End: broker.DialFailed})
	for _, want := range []string{`"event":"network.decision"`, `"allowed":["a.example:443"],"denied":["a.example:444"]`, `"event":"network.connection"`, `"endpoint":"a.example:444"`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the trace lacks %s:\n%s", want, text.String())
		}
	}
}

const fib = `Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
     |-- 192.0.2.10
        /32 host LOCAL
`

const tcpText = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100407F:01BB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 263427 1 0000000000000000 100 0 0 10 0
   1: 0A0200C0:20FB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 263428 1 0000000000000000 100 0 0 10 0
`

const tcp6Text = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: B80D0120000000000000000005000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 263427 2 0000000000000000 100 0 0 10 0
`

const route6Text = `00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000003 00000000 80200001       lo
20010db8000000000000000000000005 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 80000001       lo
`

// What the kernel shows of a box with endpoints is held against the plan, row by
// row; each doctored text is a mismatch of its own row.
func TestNetworkRows(t *testing.T) {
	pl := openPlan(t, nil, "a.example:443", "192.0.2.10:8443", "[2001:db8::5]:443")
	good := func() *seen {
		return &seen{netDev: []byte(netDevText), fibTrie: []byte(fib + fib), ifInet6: []byte(strings.Repeat("0", 31) + "1 01 80 10 80       lo\n"),
			route: []byte("Iface\tDestination\tGateway\n"), route6: []byte(route6Text), tcp: []byte(tcpText), tcp6: []byte(tcp6Text)}
	}
	tried := func() *nsexec.Report {
		return &nsexec.Report{Connect: &nsexec.Tried{Control: -int64(unix.ECONNREFUSED), Forbidden: []int64{-int64(unix.EACCES)}}, Datagram: &nsexec.Tried{Control: 5, Forbidden: []int64{-int64(unix.EPERM)}}}
	}
	rows := func(v *seen, r *nsexec.Report) map[string]string {
		in := &inspection{box: &nsexec.Box{Report: r}, spec: &pl.Box, seen: v}
		in.network()
		out := map[string]string{}
		for _, r := range in.rows {
			if r.Status == "mismatch" {
				out[r.Restriction] = r.Shown
			}
		}
		return out
	}
	if got := rows(good(), tried()); len(got) != 0 {
		t.Errorf("control: %v", got)
	}
	for name, c := range map[string]struct {
		doctor func(*nsexec.Report)
		row    string
	}{
		"an unlisted port is open":        {func(r *nsexec.Report) { r.Connect.Forbidden[0] = -int64(unix.ECONNREFUSED) }, "landlock-connect"},
		"somebody listens on it":          {func(r *nsexec.Report) { r.Connect.Forbidden[0] = 0 }, "landlock-connect"},
		"no port can be connected to":     {func(r *nsexec.Report) { r.Connect.Control = -int64(unix.EACCES) }, "landlock-connect"},
		"the control finds a listener":    {func(r *nsexec.Report) { r.Connect.Control = 0 }, "landlock-connect"},
		"connect not tried":               {func(r *nsexec.Report) { r.Connect = nil }, "landlock-connect"},
		"datagrams":                       {func(r *nsexec.Report) { r.Datagram.Forbidden[0] = 6 }, "socket-filter"},
		"refused for want of descriptors": {func(r *nsexec.Report) { r.Datagram.Forbidden[0] = -int64(unix.EMFILE) }, "socket-filter"},
		"no stream either":                {func(r *nsexec.Report) { r.Datagram.Control = -int64(unix.EPERM) }, "socket-filter"},
		"no socket tried":                 {func(r *nsexec.Report) { r.Datagram = nil }, "socket-filter"},
	} {
		r := tried()
		c.doctor(r)
		got := rows(good(), r)
		if _, ok := got[c.row]; !ok || len(got) != 1 {
			t.Errorf("%s: mismatches %v, want %s alone", name, got, c.row)
		}
	}
	noIPv6 := good()
	noIPv6.ifInet6 = nil
	if got := rows(noIPv6, tried()); len(got) != 0 {
		t.Errorf("an interface without ::1: %v", got)
	}
	for name, c := range map[string]struct {
		doctor func(*seen)
		row    string
	}{
		"a second interface":       {func(v *seen) { v.netDev = append(v.netDev, "  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"...) }, "network-interfaces"},
		"lo is down":               {func(v *seen) { v.fibTrie, v.ifInet6 = nil, nil }, "network-addresses"},
		"an address more":          {func(v *seen) { v.fibTrie = []byte(fib + strings.ReplaceAll(fib, "192.0.2.10", "192.0.2.11")) }, "network-addresses"},
		"an IPv6 address more":     {func(v *seen) { v.ifInet6 = append(v.ifInet6, "20010db8000000000000000000000006 01 80 00 80 lo\n"...) }, "network-addresses"},
		"a route to somewhere":     {func(v *seen) { v.route = append(v.route, "eth0\t00000000\t0102000A\n"...) }, "network-routes"},
		"an IPv6 route":            {func(v *seen) { v.route6 = []byte(strings.ReplaceAll(route6Text, "00000005 80", "00000000 40")) }, "network-routes-ipv6"},
		"an IPv6 default":          {func(v *seen) { v.route6 = []byte(strings.Replace(route6Text, "00200200", "00200001", 1)) }, "network-routes-ipv6"},
		"no IPv6 route":            {func(v *seen) { v.route6 = []byte(strings.Join(strings.SplitAfter(route6Text, "\n")[:2], "")) }, "network-routes-ipv6"},
		"an unreadable IPv6 route": {func(v *seen) { v.route6 = append(v.route6, "x\n"...) }, "network-routes-ipv6"},
		"a listener less":          {func(v *seen) { v.tcp6 = nil }, "network-listeners"},
		"a listener more":          {func(v *seen) { v.tcp = append(v.tcp, "   2: 00000000:0050 00000000:0000 0A\n"...) }, "network-listeners"},
		"on another address":       {func(v *seen) { v.tcp = []byte(strings.Replace(tcpText, "0100407F", "00000000", 1)) }, "network-listeners"},
		"an unreadable listener":   {func(v *seen) { v.tcp = append(v.tcp, "   2: zz:0050 00000000:0000 0A\n"...) }, "network-listeners"},
	} {
		v := good()
		c.doctor(v)
		got := rows(v, tried())
		if _, ok := got[c.row]; !ok || len(got) != 1 {
			t.Errorf("%s: mismatches %v, want %s alone", name, got, c.row)
		}
	}
}
