package conformance

import (
	"fmt"
	"slices"
	"strings"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

func reachFixtures() []Fixture {
	return []Fixture{
		{ID: "S5", Title: "the network, closed and with one endpoint", Profile: "TP-PROD", Run: s5,
			Attempt: "3 connects to the deny target under TP-PROD, and again without the filter's rule on sockets; under P+ 1 connect to the endpoint",
			Shows:   "the deny target has no hit, the box has no interface but a loopback, and P+ reaches its endpoint; without the filter's rule the empty namespace alone denies", Cannot: "other tenants of the network"},
		{ID: "S12", Title: "addresses beside the box", Profile: "TP-PROD", Run: s12,
			Attempt: "12 connects: loopback, private, metadata and IPv6 mocks, proxy variables, raw addresses",
			Shows:   "no listener is reached; each listener counts, whatever the client was told", Cannot: "redirects and rebinding, which need an allowed destination: NOT_APPLICABLE here"},
		{ID: "S15", Title: "an endpoint that is down", Profile: "TP-PROD", Run: s15,
			Attempt: "2 runs: the endpoint of P+ down; a name that does not resolve",
			Shows:   "both are refused, and S5 without its control is TEST_SETUP_FAILURE", Cannot: "an endpoint that is up and lies"},
	}
}

// The mock peers of S5 and S15: the endpoint of P+ and the deny target.
const (
	endpointName = "packages.example.invalid"
	endpointAt   = "10.77.0.2"
	endpointPort = 18443
	denyAt       = "10.77.0.1"
	denyPort     = 18444
)

// classes are the preset's denied classes without the one on sockets.
func classes(more ...string) []string {
	return append(strings.Fields("mount unshare ptrace keyctl bpf perf_event_open userfaultfd setns AF_VSOCK"), more...)
}

// positive is the test-only policy P+: one endpoint, by name or as it is.
func positive(destination string, rules ...map[string]any) []harness.Change {
	changes := []harness.Change{
		{Path: "network.allowed_destinations", Value: []string{destination}},
		{Path: "network.mode", Value: "exact_endpoints"},
		{Path: "process_policy.seccomp.denied_classes", Value: classes("socket_non_AF_UNIX_or_TCP")},
	}
	if len(rules) > 0 {
		changes = append(changes, harness.Add("network.destination_rules", rules))
	}
	return changes
}

// pinned leads the endpoint's name to its mock.
func pinned() (string, map[string]any) {
	to := fmt.Sprintf("%s:%d", endpointName, endpointPort)
	return to, map[string]any{"destination": to, "address": endpointAt, "allow_private": true}
}

func s5(c *Case) {
	n := c.ownNetwork(endpointAt, denyAt)
	target, denied := n.listen(endpointAt, endpointPort), n.listen(denyAt, denyPort)
	job := harness.Job{Code: connect, Args: []string{denied.addr.String()}}
	c.Control("outside the box the same program reaches the deny target", func() {
		if out := c.OnHost(job).Stdout; !strings.Contains(string(out), " ok mock") || denied.hits.Load() != 1 {
			c.Errorf("%d hits, printed %s", denied.hits.Load(), out)
		}
	})
	var reached int32
	c.Control("P+ reaches its endpoint", func() {
		to, rule := pinned()
		run := c.Do(harness.Job{Code: connect, Args: []string{to}, Policy: positive(to, rule)}).WantOK()
		// Before the start the launcher asks each endpoint whether it answers.
		if reached = target.hits.Load(); !strings.Contains(string(run.Stdout), " ok mock") || reached == 0 {
			c.Errorf("%d hits, printed %s", reached, run.Stdout)
		}
	})
	job.Args = []string{denied.addr.String(), denied.addr.String(), denied.addr.String()}
	open := []harness.Change{{Path: "process_policy.seccomp.denied_classes", Value: classes()}, harness.Add("degrade", []string{policy.DimSeccompNetwork})}
	for _, v := range []struct {
		what   string
		policy []harness.Change
		errno  string
	}{{"TP-PROD", nil, "EPERM"}, {"TP-PROD without the filter's rule", open, ""}} {
		j := job
		j.Policy = v.policy
		run := c.Do(j).WantOK()
		out := string(run.Stdout)
		c.Note(v.what, strings.TrimSpace(out))
		if strings.Contains(out, " ok") || strings.Count(out, denied.addr.String()) != 3 || strings.Count(out, v.errno) < 3 {
			c.Errorf("%s: printed %s", v.what, out)
		}
	}
	if denied.hits.Load() != 1 || target.hits.Load() != reached {
		c.Errorf("hits: deny target %d, endpoint %d; want the controls' 1 and %d", denied.hits.Load(), target.hits.Load(), reached)
	}
	if view := c.Do(c.Program("view.py")).WantOK().Report(); view["interfaces"] != "lo" {
		c.Errorf("interfaces %q", view["interfaces"])
	}
}

// s15 shows S5's own guard: with the endpoint down or its name unknown S5 has no
// control, and this harness then says TEST_SETUP_FAILURE.
func s15(c *Case) {
	n := c.ownNetwork(endpointAt, denyAt)
	up := n.listen(endpointAt, endpointPort)
	to, rule := pinned()
	c.Control("with the endpoint up P+ reaches it", func() {
		run := c.Do(harness.Job{Code: connect, Args: []string{to}, Policy: positive(to, rule)}).WantOK()
		if !strings.Contains(string(run.Stdout), " ok mock") || up.hits.Load() == 0 {
			c.Errorf("%d hits, printed %s", up.hits.Load(), run.Stdout)
		}
	})
	down := fmt.Sprintf("%s:%d", endpointName, endpointPort+1)
	for _, v := range []struct {
		what   string
		policy []harness.Change
	}{
		{"the endpoint is down", positive(down, map[string]any{"destination": down, "address": endpointAt, "allow_private": true})},
		{"the name is unknown", positive("missing.example.invalid:443")},
	} {
		run := c.Do(harness.Job{Code: connect, Args: []string{down}, Policy: v.policy})
		if run.Status != launcher.ExitRefused || len(run.Stdout) != 0 || run.Result.Reason == nil {
			c.Errorf("%s: status %d, printed %s", v.what, run.Status, run.Stdout)
		} else {
			c.Note(v.what, run.Result.Reason.ID)
		}
		// S5's control under this policy, judged as the suite judges it.
		sub := &Case{fixture: Fixture{ID: "S5", Profile: c.fixture.Profile, Run: func(x *Case) {
			x.ownNetwork(endpointAt) // its goroutine has a thread of its own
			x.Control("P+ reaches its endpoint", func() {
				r := x.Run(harness.Job{Code: connect, Args: []string{down}, Policy: v.policy})
				if !strings.Contains(string(r.Stdout), " ok mock") {
					x.Error("the positive endpoint was not reached")
				}
			})
		}}, suite: c.suite}
		if o := sub.run(); o.Verdict != SetupFailure {
			c.Errorf("%s: S5 would be %s", v.what, o.Verdict)
		}
	}
}

// mocks are the addresses a box must not reach: loopback, private, the metadata
// service's, and IPv6.
var mocks = []string{"127.0.0.1", "10.77.0.1", "192.168.77.1", "169.254.169.254", "fd00:77::1", "::1"}

// connect tries each address and says how it went; it never looks names up.
const connect = `import errno, os, socket, sys
for where in sys.argv[1:]:
    host, _, port = where.rpartition(':')
    host = host.strip('[]')
    try:
        s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(3)
        s.connect((host, int(port)))
        print(where, 'ok', s.recv(16).decode().strip())
    except OSError as e:
        print(where, errno.errorcode.get(e.errno, str(e)))
    except BaseException as e:
        print(where, type(e).__name__)
print('proxies', sorted(k for k in os.environ if 'proxy' in k.lower()))
`

func s12(c *Case) {
	n := c.ownNetwork("10.77.0.1", "192.168.77.1", "169.254.169.254", "fd00:77::1")
	var where []string
	for i, a := range mocks {
		where = append(where, n.listen(a, uint16(18080+i)).addr.String())
	}
	job := harness.Job{Code: connect, Args: where, Env: []string{"http_proxy=http://10.77.0.1:18081", "HTTPS_PROXY=http://10.77.0.1:18081"}}
	c.Control("outside the box the same program reaches every listener", func() {
		out := string(c.OnHost(job).Stdout)
		if strings.Count(out, " ok mock") != len(where) || slices.Contains(n.hits(), 0) {
			c.Errorf("hits %v, printed %s", n.hits(), out)
		}
	})
	before := n.hits()
	twice := job
	twice.Args = append(append([]string{}, where...), where...)
	run := c.Do(twice).WantOK()
	out := string(run.Stdout)
	c.Note("inside", strings.TrimSpace(out))
	if strings.Contains(out, " ok") || !strings.Contains(out, "proxies []") || strings.Count(out, "\n") != len(twice.Args)+1 {
		c.Errorf("printed %s", out)
	}
	if after := n.hits(); !slices.Equal(before, after) {
		c.Errorf("hits %v before, %v after", before, after)
	}
	c.Note("hits", fmt.Sprint(n.hits(), ", all of the control"))
}
