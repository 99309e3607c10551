package policy

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nsbox/launcher/reason"
)

func TestTighten(t *testing.T) {
	for _, c := range []struct {
		spec string
		want func(*Limits)
	}{
		{"wall=5s", func(l *Limits) { l.Wall, l.Attempt.Deadline = 5*time.Second, 45*time.Second }},
		{"wall=500ms", func(l *Limits) { l.Wall, l.Attempt.Deadline = 500*time.Millisecond, 40500*time.Millisecond }},
		{"wall=0.5m", func(l *Limits) {}},
		{"wall=30s", func(l *Limits) {}},
		{"wall=5s,deadline=50s", func(l *Limits) { l.Wall, l.Attempt.Deadline = 5*time.Second, 50*time.Second }},
		{"deadline=50s,wall=5s", func(l *Limits) { l.Wall, l.Attempt.Deadline = 5*time.Second, 50*time.Second }},
		{"deadline=65s", func(l *Limits) { l.Attempt.Deadline = 65 * time.Second }},
		{"cpu=1.5s", func(l *Limits) { l.CPU.Total = 1500 * time.Millisecond }},
		{"cpu_process=2s", func(l *Limits) { l.CPU.PerProcess = 2 * time.Second }},
		{"cpu_rate=50%", func(l *Limits) { l.CPU.RatePercent = 50 }},
		{"memory=128M", func(l *Limits) { l.Memory.Bytes = 128 << 20 }},
		{"memory=128MiB", func(l *Limits) { l.Memory.Bytes = 128 << 20 }},
		{"memory=134217729", func(l *Limits) { l.Memory.Bytes = 128<<20 + 1 }},
		{"scratch=64K", func(l *Limits) { l.Scratch.Bytes = 64 << 10 }},
		{"tasks=8,fds=16", func(l *Limits) { l.Tasks, l.FDs = 8, 16 }},
		{"out=1M,out_inodes=2,out_file=1K", func(l *Limits) { l.Out.Bytes, l.Out.Inodes, l.Out.FileBytes = 1<<20, 2, 1024 }},
		{"stdout=1,stderr=2,log=3", func(l *Limits) { l.Log.Stdout, l.Log.Stderr, l.Log.Runtime = 1, 2, 3 }},
		{"input=1M,file_size=1M,scratch_inodes=9", func(l *Limits) { l.Input, l.FileSize, l.Scratch.Inodes = 1<<20, 1<<20, 9 }},
		{"rows=10,line=80", func(l *Limits) { l.Exporter.MaxRows, l.Exporter.MaxLine = 10, 80 }},
	} {
		p := decodeManifest(t)
		want := p.Limits()
		c.want(&want)
		tight, err := p.Tighten([]string{c.spec})
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if d := cmp.Diff(want, tight.Limits()); d != "" {
			t.Errorf("%s: %s", c.spec, d)
		}
		if d := cmp.Diff(decodeManifest(t), p); d != "" {
			t.Errorf("%s changed its receiver: %s", c.spec, d)
		}
		redecode(t, tight)
	}
}

// redecode shows that a tightened policy is a policy.
func redecode(t interface{ Fatalf(string, ...any) }, p *Policy) {
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("%v", err)
	}
	again, err := Decode("tightened", raw)
	if err != nil {
		t.Fatalf("a tightened policy is refused: %v", err)
	}
	if again.Limits() != p.Limits() {
		t.Fatalf("limits %+v became %+v", p.Limits(), again.Limits())
	}
}

func TestTightenNothing(t *testing.T) {
	p := decodeManifest(t)
	tight, err := p.Tighten(nil)
	if err != nil || !cmp.Equal(p, tight) || tight == p {
		t.Errorf("got %v, same pointer %v", err, tight == p)
	}
}

func TestTightenRefuses(t *testing.T) {
	for _, c := range []struct {
		spec []string
		id   reason.ID
		what string
	}{
		{[]string{"wall=31s"}, reason.LimitLoosens, "more than the policy's 30s"},
		{[]string{"memory=1G"}, reason.LimitLoosens, "256 MiB"},
		{[]string{"memory=256M,tasks=33"}, reason.LimitLoosens, "32 tasks"},
		{[]string{"deadline=71s"}, reason.LimitLoosens, "1m10s"},
		{[]string{"deadline=64s"}, reason.LimitRange, "below the sum"},
		{[]string{"wall=20s,deadline=54s"}, reason.LimitRange, "below the sum"},
		{[]string{"walls=5s"}, reason.LimitUnknown, "no limit"},
		{[]string{"Wall=5s"}, reason.LimitUnknown, "no limit"},
		{[]string{"memory_swap=0"}, reason.LimitUnknown, "no limit"},
		{[]string{"\x1b[31m=5s"}, reason.LimitUnknown, "no limit"},
		{[]string{"wall=5s,wall=5s"}, reason.LimitSyntax, "twice"},
		{[]string{"wall=5s", "wall=4s"}, reason.LimitSyntax, "twice"},
		{[]string{"wall=5"}, reason.LimitSyntax, "no duration"},
		{[]string{"wall=-5s"}, reason.LimitSyntax, "no duration"},
		{[]string{"wall=+5s"}, reason.LimitSyntax, "no duration"},
		{[]string{"wall=5s "}, reason.LimitSyntax, "no duration"},
		{[]string{"wall=0s"}, reason.LimitRange, "below"},
		{[]string{"wall=1500us"}, reason.LimitRange, "multiple"},
		{[]string{"cpu_process=1500ms"}, reason.LimitRange, "multiple"},
		{[]string{"wall=9999999999h"}, reason.LimitSyntax, "no duration"},
		{[]string{"cpu_rate=50"}, reason.LimitSyntax, "percentage"},
		{[]string{"cpu_rate=0%"}, reason.LimitRange, "below"},
		{[]string{"memory=128MB"}, reason.LimitSyntax, "no size"},
		{[]string{"memory=128m"}, reason.LimitSyntax, "no size"},
		{[]string{"memory=1.5M"}, reason.LimitSyntax, "whole number"},
		{[]string{"memory=M"}, reason.LimitSyntax, "whole number"},
		{[]string{"memory=-1"}, reason.LimitSyntax, "whole number"},
		{[]string{"memory=1"}, reason.LimitRange, "below"},
		{[]string{"memory=99999999999999999999"}, reason.LimitSyntax, "whole number"},
		{[]string{"memory=9007199254740991G"}, reason.LimitSyntax, "whole number"},
		{[]string{"scratch=5000"}, reason.LimitRange, "multiple"},
		{[]string{"scratch=0"}, reason.LimitRange, "below"},
		{[]string{"out_inodes=1"}, reason.LimitRange, "below"},
		{[]string{"tasks=8.0"}, reason.LimitSyntax, "whole number"},
		{[]string{"tasks=0x8"}, reason.LimitSyntax, "whole number"},
		{[]string{"tasks=K"}, reason.LimitSyntax, "whole number"},
		{[]string{""}, reason.LimitSyntax, "name=value"},
		{[]string{"wall"}, reason.LimitSyntax, "name=value"},
		{[]string{"wall="}, reason.LimitSyntax, "name=value"},
		{[]string{"=5s"}, reason.LimitSyntax, "name=value"},
		{[]string{"wall=5s,"}, reason.LimitSyntax, "name=value"},
	} {
		tight, err := decodeManifest(t).Tighten(c.spec)
		if err == nil || tight != nil {
			t.Errorf("%q: accepted", c.spec)
			continue
		}
		if f := faultsOf(t, err); len(f) != 1 || f[0].ID != c.id || !strings.Contains(f[0].What, c.what) || f[0].Next == "" {
			t.Errorf("%q: got %+v; want %s with %q", c.spec, f, c.id, c.what)
		}
	}
}

func TestTightenTellsEveryFault(t *testing.T) {
	_, err := decodeManifest(t).Tighten([]string{"wall=99s,foo=1", "memory=1X", "tasks=4"})
	f := faultsOf(t, err)
	if len(f) != 3 || f[0].Path != "--limit wall=99s" || f[1].ID != reason.LimitUnknown || f[2].ID != reason.LimitSyntax {
		t.Errorf("got %+v", f)
	}
}

func TestLimitNames(t *testing.T) {
	names := LimitNames()
	if len(names) < 15 {
		t.Fatalf("only %d names", len(names))
	}
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n.Name] || n.Key == "" || n.Value == "" {
			t.Errorf("%+v is doubled or incomplete", n)
		}
		seen[n.Name] = true
		if _, err := decodeManifest(t).Tighten([]string{n.Example}); err != nil {
			t.Errorf("the example %s is refused: %v", n.Example, err)
		}
	}
	for _, want := range []string{"wall", "cpu", "cpu_rate", "memory", "tasks", "fds", "scratch", "scratch_inodes", "out", "out_inodes", "file_size", "stdout", "stderr", "input", "deadline"} {
		if !seen[want] {
			t.Errorf("%s is missing", want)
		}
	}
}

// Whatever is accepted never raises a limit and leaves a valid policy. The
// legal half is drawn on purpose: three free draws may never meet.
func TestTightenOnlyLowers(t *testing.T) {
	p := decodeManifest(t)
	before := p.Limits()
	try := func(t *rapid.T, wall, memory, tasks int64) {
		spec := "wall=" + (time.Duration(wall) * time.Millisecond).String() + ",memory=" + jsonNumber(memory) + ",tasks=" + jsonNumber(tasks)
		tight, err := p.Tighten([]string{spec})
		legal := wall >= 1 && wall <= 30_000 && memory >= 1<<20 && memory <= 256<<20 && tasks >= 1 && tasks <= 32
		if (err == nil) != legal {
			t.Fatalf("%s: %v", spec, err)
		}
		if err != nil {
			return
		}
		l := tight.Limits()
		if l.Wall != time.Duration(wall)*time.Millisecond || l.Memory.Bytes != memory || int64(l.Tasks) != tasks || l.Attempt.Deadline > before.Attempt.Deadline || l.Attempt.Deadline < l.budgets() {
			t.Fatalf("%s: %+v", spec, l)
		}
		redecode(t, tight)
	}
	t.Run("any", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			try(t, rapid.Int64Range(-10, 40_000).Draw(t, "wall"), rapid.Int64Range(0, 300<<20).Draw(t, "memory"), rapid.Int64Range(0, 40).Draw(t, "tasks"))
		})
	})
	t.Run("legal", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			try(t, rapid.Int64Range(1, 30_000).Draw(t, "wall"), rapid.Int64Range(1<<20, 256<<20).Draw(t, "memory"), rapid.Int64Range(1, 32).Draw(t, "tasks"))
		})
	})
}

func jsonNumber(n int64) string {
	out, _ := json.Marshal(n)
	return string(out)
}

// The bounds of connections go down by the same rules, where there is something to
// connect to; the receiver keeps its own.
func TestTightenConnections(t *testing.T) {
	with := func(t *testing.T) *Policy {
		p, err := Decode("p", withDestinations(t, []any{"a.example:443"}, nil))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := with(t)
	before := p.ConnectionLimits()
	tight, err := p.Tighten([]string{"network.connections=3,network.at_once=2,wall=5s", "network.bytes_out=1K,network.bytes_in=2M,network.time=90s,network.dial_time=1s"})
	if err != nil {
		t.Fatal(err)
	}
	if got := tight.ConnectionLimits(); got != (Connections{2, 3, 1 << 10, 2 << 20, 90, 1}) || tight.Limits().Wall != 5*time.Second {
		t.Errorf("got %+v", got)
	}
	redecode(t, tight)
	if again, err := tight.Tighten([]string{"network.connections=2"}); err != nil || again.ConnectionLimits().InTotal != 2 || tight.ConnectionLimits().InTotal != 3 || p.ConnectionLimits() != before {
		t.Errorf("a further time: %v; the receivers have %+v and %+v", err, tight.ConnectionLimits(), p.ConnectionLimits())
	}
	for _, n := range ConnectionLimitNames() {
		if _, err := p.Tighten([]string{n.Example}); err != nil {
			t.Errorf("the example %s is refused: %v", n.Example, err)
		}
		_, err := decodeManifest(t).Tighten([]string{n.Example})
		if f := faultsOf(t, err); len(f) != 1 || f[0].ID != reason.LimitUnknown || !strings.Contains(f[0].What, "no destination") {
			t.Errorf("%s without a destination: %+v", n.Example, f)
		}
	}
	for spec, want := range map[string]struct {
		id   reason.ID
		what string
	}{
		"network.connections=1025":                    {reason.LimitLoosens, "1024 connections"},
		"network.bytes_in=2G":                         {reason.LimitLoosens, "1 GiB"},
		"network.time=601s":                           {reason.LimitLoosens, "10m0s"},
		"network.at_once=0":                           {reason.LimitRange, "below"},
		"network.time=1500ms":                         {reason.LimitRange, "multiple"},
		"network.dial_time=5":                         {reason.LimitSyntax, "no duration"},
		"network.connections=many":                    {reason.LimitSyntax, "whole number"},
		"network.connections=":                        {reason.LimitSyntax, "name=value"},
		"network.connection=5":                        {reason.LimitUnknown, "no limit"},
		"network.connections=5,network.connections=4": {reason.LimitSyntax, "twice"},
		"network.connections.in_total=5":              {reason.LimitUnknown, "no limit"},
		"network.bytes_out=18446744073709551617":      {reason.LimitSyntax, "whole number"},
	} {
		tight, err := with(t).Tighten([]string{spec})
		if err == nil || tight != nil {
			t.Errorf("%s: accepted", spec)
			continue
		}
		if f := faultsOf(t, err); len(f) != 1 || f[0].ID != want.id || !strings.Contains(f[0].What, want.what) || f[0].Next == "" {
			t.Errorf("%s: got %+v; want %s with %q", spec, f, want.id, want.what)
		}
	}
}
