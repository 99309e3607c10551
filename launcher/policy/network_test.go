package policy

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"nsbox/launcher/reason"
)

// withDestinations is the manifest with an open network section; edits come on top.
func withDestinations(t testing.TB, list []any, edits map[string]any) []byte {
	t.Helper()
	all := map[string]any{"network.allowed_destinations": list, "network.mode": exactEndpoints, "process_policy.seccomp.denied_classes": append(requiredClasses(), unixOrTCP)}
	maps.Copy(all, edits)
	return edited(t, all)
}

func TestDestinations(t *testing.T) {
	p, err := Decode("p", withDestinations(t, []any{"[2001:DB8::5]:443", "B.example.:443", "a.example:8443", "10.0.0.5:5432", "192.0.2.10:443", "db.example:5432"}, map[string]any{
		"network.destination_rules": []any{
			map[string]any{"destination": "10.0.0.5:5432", "allow_private": true},
			map[string]any{"destination": "DB.example:5432", "address": "::ffff:10.0.0.6", "allow_private": true},
		},
		"network.connections": map[string]any{"at_once": 4, "in_total": 5, "bytes_out": 6, "bytes_in": 1 << 40, "seconds": 7, "dial_seconds": 8},
		"network.unreachable": "per_connection",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range p.Destinations() {
		got = append(got, fmt.Sprintf("%s %s %v", d.Endpoint, d.Address, d.AllowPrivate))
	}
	want := []string{
		"a.example:8443 invalid IP false", "b.example:443 invalid IP false", "db.example:5432 10.0.0.6 true",
		"10.0.0.5:5432 10.0.0.5 true", "192.0.2.10:443 192.0.2.10 false", "[2001:db8::5]:443 2001:db8::5 false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	if c := p.ConnectionLimits(); c != (Connections{4, 5, 6, 1 << 40, 7, 8}) {
		t.Errorf("limits %+v", c)
	}
	if p.RefusesUnreachable() || !p.SocketsFiltered() || !p.WantsLandlock() {
		t.Error("per_connection, or a layer, is not what the document says")
	}
	plain, err := Decode("p", manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(plain.Destinations()) != 0 || !plain.RefusesUnreachable() || !plain.SocketsFiltered() || plain.ConnectionLimits().AtOnce != 32 {
		t.Error("the manifest opens something")
	}
}

func TestDestinationsRefused(t *testing.T) {
	const list, rules = "network.allowed_destinations", "network.destination_rules"
	rule := func(kv ...any) map[string]any {
		r := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			r[kv[i].(string)] = kv[i+1]
		}
		return map[string]any{rules: []any{r}}
	}
	many := make([]any, MaxDestinations+1)
	for i := range many {
		many[i] = fmt.Sprintf("h%d.example:1", i)
	}
	for name, c := range map[string]struct {
		list  []any
		edits map[string]any
		id    reason.ID
		path  string
		what  string
	}{
		"a URL":                       {[]any{"https://example.org/x?token=hunter2"}, nil, invalid, list + "[0]", "has no port"},
		"a wildcard":                  {[]any{"*.example:443"}, nil, invalid, list + "[0]", "no name"},
		"twice":                       {[]any{"a.example:443", "A.example.:443"}, nil, invalid, list + "[1]", "twice"},
		"too many":                    {many, nil, invalid, list, "65"},
		"localhost":                   {[]any{"localhost:80"}, nil, unenforceable, list + "[0]", "the box itself"},
		"below localhost":             {[]any{"x.localhost:80"}, nil, unenforceable, list + "[0]", "the box itself"},
		"private":                     {[]any{"10.0.0.5:1"}, nil, unenforceable, list + "[0]", "private"},
		"loopback":                    {[]any{"127.0.0.1:1"}, nil, unenforceable, list + "[0]", "loopback"},
		"mapped loopback":             {[]any{"[::ffff:127.0.0.1]:1"}, nil, unenforceable, list + "[0]", "loopback"},
		"metadata":                    {[]any{"169.254.169.254:80"}, nil, unenforceable, list + "[0]", "link-local"},
		"metadata, v6":                {[]any{"[fd00:ec2::254]:80"}, nil, unenforceable, list + "[0]", "private"},
		"NAT64":                       {[]any{"[64:ff9b::7f00:1]:80"}, nil, unenforceable, list + "[0]", "ipv4-in-ipv6"},
		"6to4":                        {[]any{"[2002:7f00:1::]:80"}, nil, unenforceable, list + "[0]", "ipv4-in-ipv6"},
		"private, no consent":         {[]any{"10.0.0.5:1"}, rule("destination", "10.0.0.5:1"), unenforceable, list + "[0]", "private"},
		"unspecified, even allowed":   {[]any{"0.0.0.0:1"}, rule("destination", "0.0.0.0:1", "allow_private", true), unenforceable, list + "[0]", "no single host"},
		"unspecified v6":              {[]any{"[::]:1"}, rule("destination", "[::]:1", "allow_private", true), unenforceable, list + "[0]", "no single host"},
		"multicast":                   {[]any{"224.0.0.1:1"}, rule("destination", "224.0.0.1:1", "allow_private", true), unenforceable, list + "[0]", "no single host"},
		"broadcast":                   {[]any{"255.255.255.255:1"}, rule("destination", "255.255.255.255:1", "allow_private", true), unenforceable, list + "[0]", "no single host"},
		"a rule for nothing":          {[]any{"a.example:1"}, rule("destination", "b.example:1"), invalid, rules + "[0].destination", "none of"},
		"a rule for another port":     {[]any{"a.example:1"}, rule("destination", "a.example:2"), invalid, rules + "[0].destination", "none of"},
		"a pinned private address":    {[]any{"a.example:1"}, rule("destination", "a.example:1", "address", "10.0.0.1"), unenforceable, rules + "[0].address", "private"},
		"a pinned unspecified one":    {[]any{"a.example:1"}, rule("destination", "a.example:1", "address", "::", "allow_private", true), unenforceable, rules + "[0].address", "no single host"},
		"a pin that is none":          {[]any{"a.example:1"}, rule("destination", "a.example:1", "address", "10.0.0.1:1"), invalid, rules + "[0].address", "no IPv4"},
		"a pin with a zone":           {[]any{"a.example:1"}, rule("destination", "a.example:1", "address", "fe80::1%lo", "allow_private", true), invalid, rules + "[0].address", "zone"},
		"a pinned literal":            {[]any{"192.0.2.1:1"}, rule("destination", "192.0.2.1:1", "address", "192.0.2.2"), invalid, rules + "[0].address", "itself"},
		"an unknown word":             {[]any{"a.example:1"}, map[string]any{"network.unreachable": "retry"}, unenforceable, "network.unreachable", "cannot be obeyed"},
		"no mode":                     {[]any{"a.example:1"}, map[string]any{"network.mode": noInterfaces}, unenforceable, "network.mode", "over its own loopback"},
		"the class of a shut network": {[]any{"a.example:1"}, map[string]any{"process_policy.seccomp.denied_classes": append(requiredClasses(), onlyUnix)}, unenforceable, "process_policy.seccomp.denied_classes[9]", "no such class"},
		"a bound of 0": {[]any{"a.example:1"}, map[string]any{"network.connections": map[string]any{"at_once": 0, "in_total": 5, "bytes_out": 6, "bytes_in": 1, "seconds": 7, "dial_seconds": 8}},
			invalid, "network.connections.at_once", "out of range"},
		"a bound too large": {[]any{"a.example:1"}, map[string]any{"network.connections": map[string]any{"at_once": 257, "in_total": 5, "bytes_out": 6, "bytes_in": 1, "seconds": 7, "dial_seconds": 8}},
			invalid, "network.connections.at_once", "out of range"},
		"a bound missing": {[]any{"a.example:1"}, map[string]any{"network.connections": map[string]any{"at_once": 1, "bytes_out": 6, "bytes_in": 1, "seconds": 7, "dial_seconds": 8}}, invalid, "network.connections.in_total", "missing"},
		"bounds of nothing": {[]any{}, map[string]any{"network.mode": noInterfaces, "process_policy.seccomp.denied_classes": append(requiredClasses(), onlyUnix), "network.unreachable": "refuse"},
			invalid, "network.unreachable", "none is listed"},
		"open mode, no list":         {[]any{}, map[string]any{"process_policy.seccomp.denied_classes": append(requiredClasses(), onlyUnix)}, unenforceable, "network.mode", "empty network namespace"},
		"no socket rule":             {[]any{"a.example:1"}, map[string]any{"process_policy.seccomp.denied_classes": requiredClasses()}, unenforceable, "process_policy.seccomp.denied_classes", "missing"},
		"no socket rule, shut":       {[]any{}, map[string]any{"network.mode": noInterfaces, "process_policy.seccomp.denied_classes": requiredClasses()}, unenforceable, "process_policy.seccomp.denied_classes", "missing"},
		"no Landlock, not degraded":  {[]any{"a.example:1"}, map[string]any{"process_policy.mac": "none"}, unenforceable, "process_policy.mac", "Landlock is required"},
		"no vsock rule, in any case": {[]any{}, map[string]any{"network.mode": noInterfaces, "degrade": []any{"seccomp_network"}, "process_policy.seccomp.denied_classes": append(requiredClasses()[:8:8], onlyUnix)}, unenforceable, "process_policy.seccomp.denied_classes", "AF_VSOCK"},
	} {
		_, err := Decode("p", withDestinations(t, c.list, c.edits))
		faults := faultsOf(t, err)
		if len(faults) != 1 || faults[0].ID != c.id || faults[0].Path != c.path || !strings.Contains(faults[0].What, c.what) || faults[0].Next == "" {
			t.Errorf("%s: got %+v, want %s at %s", name, faults, c.id, c.path)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a text that is no endpoint is repeated", name)
		}
	}
}

// The two layers can be left out by a policy that says so twice.
func TestLayersLeftOut(t *testing.T) {
	p, err := Decode("p", edited(t, map[string]any{"degrade": []any{"seccomp_network", "landlock"}, "process_policy.seccomp.denied_classes": requiredClasses(), "process_policy.mac": "none"}))
	if err != nil {
		t.Fatal(err)
	}
	if p.SocketsFiltered() || p.WantsLandlock() {
		t.Error("a layer is still asked for")
	}
	p, err = Decode("p", edited(t, map[string]any{"degrade": []any{"seccomp_network", "landlock"}}))
	if err != nil || !p.SocketsFiltered() || !p.WantsLandlock() {
		t.Errorf("allowed to be weaker, a layer is not asked for any more: %v", err)
	}
}
