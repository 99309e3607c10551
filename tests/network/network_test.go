package network

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/broker"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

const script = "testdata/reach.py"

func job(p []harness.Change, attempts ...string) harness.Job {
	return harness.Job{Script: script, Args: attempts, Policy: p}
}

// forEach runs a test as every caller, each in a lab of its own.
func forEach(t *testing.T, test func(t *testing.T, l *lab, s *harness.Site)) {
	t.Helper()
	for _, c := range harness.Callers(t) {
		t.Run(c.Name, func(t *testing.T) { test(t, newLab(t), harness.NewSite(t, c)) })
	}
}

const name = "packages.example.invalid"

// positive is the policy P+: a name, a literal of each family.
func positive(more ...harness.Change) []harness.Change {
	return open([]string{name + ":443", name + ":80", literal + ":8080", "[" + six + "]:8443"},
		append([]harness.Change{harness.Add("network.destination_rules", []any{rule(name+":443", named), rule(name+":80", named)})}, more...)...)
}

// TestPositive: under P+ an ordinary client reaches each endpoint, with TLS end to
// end, and the result and the trace say so.
func TestPositive(t *testing.T) {
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		ca, config := authority(t, name)
		l.serve(443, over(config, page("over TLS")), named)
		l.serve(80, page("plain"), named)
		l.serve(8080, page("literal"), literal)
		l.serve(8443, page("six"), six)
		trace := filepath.Join(s.Dir, "trace.jsonl")
		j := job(positive(), "https=https://"+name+"/", "http=http://"+name+"/", "http=http://"+literal+":8080/", "http=http://["+six+"]:8443/")
		l.trust(s, "good", ca)
		j.Flags = []string{"--trace", trace}
		run := l.run(s, j).WantOK()
		report := run.Report()
		for attempt, want := range map[string]string{j.Args[0]: "ok over TLS", j.Args[1]: "ok plain", j.Args[2]: "ok literal", j.Args[3]: "ok six"} {
			if report[attempt] != want {
				t.Errorf("%s: %s, want %s", attempt, report[attempt], want)
			}
		}
		// The client's own check, against the copy of the host's authorities, is what makes it end to end: a stranger fails.
		other, _ := authority(t, name)
		l.trust(s, "other", other)
		j.Flags = nil
		if got := l.run(s, j).WantOK().Report()[j.Args[0]]; got == "ok over TLS" || !strings.Contains(got, "rror") && got != "None" {
			t.Errorf("control: with another authority: %q", got)
		}
		u := run.Result.Network
		if u == nil || len(u.Endpoints) != 4 || len(u.Connections) != 4 || u.Omitted != 0 {
			t.Fatalf("use %+v", u)
		}
		for _, e := range u.Endpoints {
			if e.Connections != 1 || e.Failed != 0 || e.BytesIn == 0 || e.BytesOut == 0 || len(e.Addresses) != 1 {
				t.Errorf("%+v", e)
			}
		}
		for _, c := range u.Connections {
			if c.End != broker.Closed && c.End != broker.ResetInside || c.Address == "" {
				t.Errorf("%+v", c)
			}
		}
		events := map[string]int{}
		data, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var e struct{ Event string }
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			events[e.Event]++
		}
		if events["network.decision"] != 1 || events["network.connection"] != 4 {
			t.Errorf("events %v", events)
		}
		if bytes.Contains(data, []byte("over TLS")) || bytes.Contains(data, []byte("GET ")) {
			t.Error("payload stands in the trace")
		}
		for _, want := range []string{"network-interfaces", "network-addresses", "network-routes", "network-routes-ipv6", "network-listeners", "landlock-connect", "socket-filter"} {
			if !slices.ContainsFunc(run.Result.Attestation, func(r attestRow) bool { return r.Restriction == want && r.Status == "enforced" }) {
				t.Errorf("the attestation has no row %s", want)
			}
		}
	})
}

// attempts is everything that must reach nobody. Redirects and tunnels go through
// the allowed hosts.
func attempts(abstract string) []string {
	out := []string{
		"tcp=" + named + ":443", "tcp=" + named + ":22", "tcp=" + literal + ":8081", "tcp=[" + six + "]:22", // another port, or by the address behind a name
		"http=http://" + literal + ":8080/", // answers with a redirect
		"tunnel=" + literal + ":8080>" + neighbour + ":80",
		"tcp=" + elsewhere + ":81", "resolve=question.example.invalid", "udp=127.0.0.53:53", "udp=127.0.0.1:53",
		"abstract=" + abstract, "family=16", "family=17", "family=40", "listen=127.0.0.1:8080",
	}
	for _, a := range denied() {
		host := a
		if strings.Contains(a, ":") {
			host = "[" + a + "]"
		}
		out = append(out, "tcp="+host+":80", "tcp="+host+":8080", "udp="+host+":53", "udp="+host+":80", "icmp="+a, "raw="+a)
	}
	return out
}

// TestDenied counts hits on everything that P+, the preset, and both with a layer
// left out, must not reach: zero, beside one hit of the same script on the host.
func TestDenied(t *testing.T) {
	degrade := func(names ...string) harness.Change { return harness.Add("degrade", names) }
	off := func(with string) harness.Change {
		return harness.Change{Path: "process_policy.seccomp.denied_classes", Value: strings.Fields(strings.Join(classes(), " ") + " " + with)}
	}
	noLandlock := harness.Change{Path: "process_policy.mac", Value: "none"}
	profiles := []struct {
		name     string
		policy   []harness.Change
		open     bool   // P+
		degraded string // the layer left out
		errno    string // of a TCP connect to a host that is not listed, at a port that is
		port     string // and at a port that is not
	}{
		{"P+", positive(), true, "", "ENETUNREACH", "EACCES"},
		{"P+ without the socket rule", positive(off(""), degrade(policy.DimSeccompNetwork)), true, policy.DimSeccompNetwork, "ENETUNREACH", "EACCES"},
		{"P+ without Landlock", positive(noLandlock, degrade(policy.DimLandlock)), true, policy.DimLandlock, "ENETUNREACH", "ENETUNREACH"},
		{"P+ without both", positive(off(""), noLandlock, degrade(policy.DimSeccompNetwork, policy.DimLandlock)), true, policy.DimSeccompNetwork, "ENETUNREACH", "ENETUNREACH"},
		{"TP-PROD", nil, false, "", "EPERM", "EPERM"},
		{"TP-PROD without the socket rule and Landlock", []harness.Change{off(""), noLandlock, degrade(policy.DimSeccompNetwork, policy.DimLandlock)}, false, policy.DimSeccompNetwork, "ENETUNREACH", "ENETUNREACH"},
	}
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		abstract := "nsbox-network-" + s.Marker
		l.near.in(t, func() error {
			n, err := net.Listen("unix", "@"+abstract)
			if err != nil {
				return err
			}
			t.Cleanup(func() { n.Close() })
			go func() {
				for {
					c, err := n.Accept()
					if err != nil {
						return
					}
					l.hit("unix", n.Addr())
					c.Close()
				}
			}()
			return nil
		})
		unixHits := func() int { return l.at("unix @" + abstract) }
		// On the host names are asked for, of a server that nobody may reach.
		l.shown["/etc/resolv.conf"] = s.File("resolv.conf", "nameserver "+elsewhere+"\noptions timeout:1 attempts:1\n")
		l.shown["/etc/nsswitch.conf"] = s.File("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
		l.serve(443, page("named"), named)
		l.serve(80, page("denied"), append(denied(), named)...)
		l.serve(8080, page("denied"), denied()...)
		l.serve(22, page("denied"), named, six)
		l.serve(8443, page("six"), six)
		l.serve(8080, redirect("http://"+elsewhere+":80/"), literal)
		l.datagrams(53, denied()...)
		l.datagrams(80, denied()...)
		tried := attempts(abstract)

		for _, p := range profiles {
			if p.degraded != "" && s.Caller.UID != 0 && !harness.Whole() {
				continue // which layer holds is no matter of who calls
			}
			before, echoes, names, hops := l.deniedHits(), l.echoes(), unixHits(), l.at("tcp "+literal+":8080")
			wrongPorts := l.at("tcp "+named+":22") + l.at("tcp ["+six+"]:22")
			j := job(p.policy, append(slices.Clone(tried), "http=http://"+name+"/")...)
			if p.policy != nil { // TP-PROD is the preset itself, and there nothing waits
				const wall = 150 // s: on a busy machine some attempts wait for their own time limit
				j.Policy = append(slices.Clone(p.policy), harness.Set("wall_workload", wall), harness.Set("attempt_hard_deadline", wall+40),
					harness.Change{Path: "resources.attempt_hard_deadline.scope", Value: "attempt_wide_must_be_gte_sum_" + strconv.Itoa(wall+35)})
				j.Within = (wall + 60) * 1e9
			}
			run := l.run(s, j).WantOK()
			report := run.Report()
			if got := l.deniedHits() - before; got != 0 {
				t.Errorf("%s: %d hits on what is denied: %v", p.name, got, l.hits)
			}
			if got := l.echoes() - echoes; got != 0 {
				t.Errorf("%s: %d echo requests arrived", p.name, got)
			}
			if got := unixHits() - names; got != 0 {
				t.Errorf("%s: %d connections to an abstract name of the host", p.name, got)
			}
			if got := l.at("tcp "+named+":22") + l.at("tcp ["+six+"]:22") - wrongPorts; got != 0 {
				t.Errorf("%s: %d hits on other ports", p.name, got)
			}
			if got := l.at("tcp "+literal+":8080") - hops; (got >= 2) != p.open {
				t.Errorf("%s: %d requests to the host that redirects", p.name, got)
			}
			for _, a := range tried {
				// What answers is the box's own loopback, or an allowed host that does not go on.
				own := p.open && strings.HasPrefix(a, "tunnel=") || strings.HasPrefix(a, "listen=") || strings.HasPrefix(a, "family=16")
				if strings.HasPrefix(report[a], "ok") && !own {
					t.Errorf("%s: %s: %s", p.name, a, report[a])
				}
			}
			for _, family := range []string{"family=16", "family=17", "family=40"} {
				if rule := p.degraded != policy.DimSeccompNetwork; rule && report[family] != "EPERM" {
					t.Errorf("%s: %s: %s, want the filter's EPERM", p.name, family, report[family])
				}
			}
			if want := map[bool]string{true: "ok denied", false: ""}[p.open]; (want != "") != (report["http=http://"+name+"/"] == want) {
				t.Errorf("%s: the endpoint itself: %s", p.name, report["http=http://"+name+"/"])
			}
			// Which layer speaks: without a rule on ports or sockets it is the namespace, which has no route.
			for at, want := range map[string]string{":80": p.errno, ":81": p.port} {
				if got := report["tcp="+elsewhere+at]; got != want {
					t.Errorf("%s: port %s of a host that is not listed: %s, want %s", p.name, at, got, want)
				}
			}
			if has := slices.ContainsFunc(run.Result.Degraded, func(d launcher.Degradation) bool { return d.Dimension == p.degraded }); has != (p.degraded != "") {
				t.Errorf("%s: degraded %+v", p.name, run.Result.Degraded)
			}
		}

		// The same script on the host, next to the box: every target counts.
		echoes := l.echoes()
		report := l.onHost(s, job(nil, tried...)).Report()
		for _, a := range denied() {
			if l.count(a) < 3 {
				t.Errorf("control: %d hits at %s on the host, want TCP and UDP: %v", l.count(a), a, l.hits)
			}
		}
		if unixHits() == 0 || l.at("tcp "+named+":22") == 0 {
			t.Errorf("control: hits on the host: %v", l.hits)
		}
		// One question by hand to each of the denied, and the one that a name makes.
		if l.at("udp "+elsewhere+":53") < 2 {
			t.Errorf("control: nobody was asked for a name: %v", l.hits)
		}
		for _, own := range []string{"family=16", "listen=127.0.0.1:8080"} {
			if report[own] != "ok" {
				t.Errorf("control: %s on the host: %s", own, report[own])
			}
		}
		if s.Caller.UID == 0 && (l.echoes() == echoes || report["family=17"] != "ok") {
			t.Errorf("control: %d echo requests of the host's were counted, packets %s", l.echoes()-echoes, report["family=17"])
		}
		if vsock := report["family=40"]; vsock != "ok" && vsock != "EAFNOSUPPORT" {
			t.Errorf("control: AF_VSOCK on the host: %s; without the family's module it is not supported", vsock)
		}
	})
}

// A verdict on S5 rests on its positive control: without it, nothing was shown.
type verdict string

const (
	pass         verdict = "PASS"
	fail         verdict = "FAIL"
	setupFailure verdict = "TEST_SETUP_FAILURE"
)

// judge is S5 in one line: the endpoint of P+ works and the deny targets have no hit.
func judge(positiveRun *harness.Run, positiveHits, deniedHits int) verdict {
	switch {
	case positiveHits != 1 || !positiveRun.HasResult || positiveRun.Result.Workload.Outcome != launcher.Exited:
		return setupFailure
	case deniedHits != 0:
		return fail
	}
	return pass
}

// TestUnreachable is S15: an endpoint that is down and a name that does not
// resolve are told before the start or per connection, as the policy says, and S5
// is then never passed.
func TestUnreachable(t *testing.T) {
	per := harness.Add("network.unreachable", "per_connection")
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		up := open([]string{literal + ":80"})
		for _, c := range []struct {
			name, attempt string
			policy        []harness.Change
			reason        reason.ID  // refused before the start
			end           broker.End // or told per connection
		}{
			{"down, refused", "tcp=" + literal + ":81", open([]string{literal + ":81"}), reason.EndpointUnreachable, ""},
			{"down, told", "tcp=" + literal + ":81", open([]string{literal + ":81"}, per), "", broker.DialFailed},
			{"no name, refused", "tcp=missing.example.invalid:80", open([]string{"missing.example.invalid:80"}), reason.EndpointUnresolved, ""},
			{"no name, told", "tcp=missing.example.invalid:80", open([]string{"missing.example.invalid:80"}, per), "", broker.Unresolved},
		} {
			run := l.run(s, job(c.policy, c.attempt))
			if c.reason != "" {
				run.WantReason(c.reason)
				if len(run.Stdout) != 0 || run.Status != launcher.ExitRefused || run.Result.Cleanup.Outcome != launcher.CleanupVerified {
					t.Errorf("%s: the program ran, or status %d, cleanup %s", c.name, run.Status, run.Result.Cleanup.Outcome)
				}
			} else {
				run.WantOK()
				if got := run.Report()[c.attempt]; got != "ECONNRESET" {
					t.Errorf("%s: the program saw %s", c.name, got)
				}
				if u := run.Result.Network; u == nil || len(u.Connections) != 1 || u.Connections[0].End != c.end || u.Endpoints[0].Failed != 1 {
					t.Errorf("%s: use %+v", c.name, u)
				}
			}
			if v := judge(run, l.count(literal), l.deniedHits()); v != setupFailure {
				t.Errorf("%s: S5 is %s without a positive control", c.name, v)
			}
		}
		// The control: with the endpoint up, S5 can be passed.
		l.serve(80, page("x"), literal)
		run := l.run(s, job(append(up, per), "tcp="+literal+":80")).WantOK()
		if v := judge(run, l.count(literal), l.deniedHits()); v != pass {
			t.Errorf("with the endpoint up S5 is %s", v)
		}
		if v := judge(run, 1, 1); v != fail {
			t.Errorf("with a hit on a deny target S5 is %s", v)
		}
	})
}

// Names are resolved by the launcher, once, and what they lead to is decided on.
func TestResolvedNames(t *testing.T) {
	l, s := newLab(t), harness.NewSite(t, harness.Callers(t)[0])
	l.serve(80, page("hit"), private, metadata, elsewhere)
	l.shown["/etc/hosts"] = s.File("hosts", private+" private.example.invalid\n"+metadata+" metadata.example.invalid\n127.0.0.1 rebound.example.invalid\n"+elsewhere+" docs.example.invalid\n8.8.8.8 public.example.invalid\n")
	for _, host := range []string{"private", "metadata", "rebound", "docs"} {
		j := job(open([]string{host + ".example.invalid:80"}), "http=http://"+host+".example.invalid/")
		run := l.run(s, j).WantReason(reason.EndpointUnresolved)
		if run.Result.Reason != nil && !strings.Contains(run.Result.Reason.Why, "may be dialled") {
			t.Errorf("%s: %s", host, run.Result.Reason.Why)
		}
	}
	if l.deniedHits() != 0 {
		t.Errorf("hits %v", l.hits)
	}
	// The control: a public address is resolved and pinned. It has no route here, so nothing is sent.
	j := job(open([]string{"public.example.invalid:80"}, harness.Add("network.unreachable", "per_connection")), "http=http://public.example.invalid/")
	u := l.run(s, j).WantOK().Result.Network
	if u == nil || len(u.Endpoints[0].Addresses) != 1 || u.Endpoints[0].Addresses[0].String() != "8.8.8.8" || u.Connections[0].End != broker.DialFailed {
		t.Errorf("use %+v", u)
	}
}

// The box of a policy without destinations is as shut as ever: lo is down, and no
// socket but AF_UNIX can be made.
func TestShutByDefault(t *testing.T) {
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		run := l.run(s, harness.Job{Code: `
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    try:
        socket.socket(family)
        print("made")
    except OSError as e:
        print(e.errno)
print(open("/etc/hosts").read().count("\n"))
import os
print(os.path.exists("/etc/ssl"), os.path.exists("/etc/resolv.conf"))
`}).WantOK()
		if got := strings.Join(strings.Fields(string(run.Stdout)), " "); got != "1 1 1 2 False False" {
			t.Errorf("printed %q", got)
		}
		if run.Result.Network != nil {
			t.Errorf("use %+v", run.Result.Network)
		}
		for _, r := range run.Result.Attestation {
			if r.Restriction == "network-addresses" && r.Shown != "none" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// numbers reads "key=value" words of a line.
func numbers(t *testing.T, text string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for w := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatalf("%q in %q", w, text)
		}
		out[k] = n
	}
	return out
}
