package cgroupv2

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrites(t *testing.T) {
	const spec = "memory.swap.max=0 memory.zswap.max=0 memory.oom.group=1 memory.max=%d pids.max=8 cpu.max=50000 100000"
	for _, c := range []struct {
		l    Limits
		want string // or the file of the BadLimit
	}{
		{Limits{}, ""},
		{Limits{MemoryBytes: 64 << 20, Tasks: 8, CPUPercent: 50}, fmt.Sprintf(spec, 64<<20)},
		{Limits{MemoryBytes: 64<<20 + 4095, Tasks: 8, CPUPercent: 50}, fmt.Sprintf(spec, 64<<20)},
		{Limits{MemoryBytes: 8192, SwapBytes: 5000}, "memory.swap.max=4096 memory.zswap.max=0 memory.oom.group=1 memory.max=8192"},
		{Limits{CPUPercent: 1}, "cpu.max=1000 100000"},
		{Limits{CPUPercent: 250}, "cpu.max=250000 100000"},
		{Limits{Tasks: maxTasks}, "pids.max=4194304"},
		{Limits{MemoryBytes: 4095}, "bad memory.max"},
		{Limits{MemoryBytes: -1}, "bad memory.max"},
		{Limits{SwapBytes: 1}, "bad memory.max"}, // swap without memory would limit nothing
		{Limits{MemoryBytes: 8192, SwapBytes: -1}, "bad memory.swap.max"},
		{Limits{Tasks: -1}, "bad pids.max"},
		{Limits{Tasks: maxTasks + 1}, "bad pids.max"},
		{Limits{CPUPercent: -1}, "bad cpu.max"},
		{Limits{CPUPercent: maxCPUPercent + 1}, "bad cpu.max"},
	} {
		writes, err := c.l.Writes()
		var got []string
		for _, w := range writes {
			got = append(got, w.File+"="+w.Value)
			if w.Why == "" || !strings.HasPrefix(w.File, w.Controller+".") {
				t.Errorf("%+v: %+v has no reason or another controller's file", c.l, w)
			}
		}
		text := strings.Join(got, " ")
		var e *Error
		if errors.As(err, &e) && e.Kind == BadLimit {
			text = "bad " + e.Path
		} else if err != nil {
			t.Error(err)
		}
		if text != c.want {
			t.Errorf("%+v:\n%q, want\n%q", c.l, text, c.want)
		}
	}
}

func TestParsers(t *testing.T) {
	const events = "low 0\nhigh 1\nmax 20\noom 3\noom_kill 4\n"
	for text, want := range map[string]MemoryEvents{
		events:                         {20, 3, 4, 0},
		events + "oom_group_kill 5\n":  {20, 3, 4, 5},
		"max 1\noom 2\n":               {-1, 0, 0, 0}, // a file without oom_kill shows nothing
		"max 1\noom x\noom_kill 1\n":   {-1, 0, 0, 0},
		events + "oom_group_kill -1\n": {-1, 0, 0, 0},
	} {
		got, err := parseMemoryEvents(text)
		if (err != nil) != (want.Max < 0) || err == nil && got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	const stat = "usage_usec 10\nuser_usec 7\nsystem_usec 3\n"
	for text, want := range map[string]CPUStat{
		stat: {10, 7, 3, 0, 0},
		stat + "nr_periods 9\nnr_throttled 4\nthrottled_usec 55\n": {10, 7, 3, 55, 4},
		"user_usec 7\nsystem_usec 3\n":                             {-1, 0, 0, 0, 0},
	} {
		got, err := parseCPUStat(text)
		if (err != nil) != (want.Usage < 0) || err == nil && got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	const head = "Filename\tType\tSize\tUsed\tPriority\n"
	for text, on := range map[string]bool{head: false, "": false, head + "/dev/zram0 partition 1 0 100\n": true} {
		if _, err := swapless(text); (err != nil) != on {
			t.Errorf("swapless(%q): %v, want on=%v", text, err, on)
		}
	}
}

// Only this leaf's own limit makes the job guilty.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		e            MemoryEvents
		denied       int64
		memory, host bool
		pids         bool
	}{
		{MemoryEvents{}, 0, false, false, false},
		{MemoryEvents{Max: 9}, 0, false, false, false}, // reclaim did help
		{MemoryEvents{Max: 9, OOM: 1}, 1, false, false, true},
		{MemoryEvents{Max: 9, OOM: 1, OOMKill: 1}, 0, true, false, false},
		{MemoryEvents{Max: 9, OOM: 1, OOMKill: 3, OOMGroupKill: 1}, 0, true, false, false},
		{MemoryEvents{OOMKill: 1}, 0, false, true, false},
	} {
		s := Stats{Memory: c.e, PidsDenied: c.denied}
		if s.MemoryKilled() != c.memory || s.HostKilled() != c.host || s.PidsPressure() != c.pids {
			t.Errorf("%+v: memory %v, host %v, pids %v", c, s.MemoryKilled(), s.HostKilled(), s.PidsPressure())
		}
	}
}

// A limit whose file is not there is never taken as applied.
func TestApplyWithoutController(t *testing.T) {
	r := ownRoot(t)
	r.enabled = nil // also where the kernel offers them
	g := create(t, r, "none")
	defer g.Close()
	for _, c := range []struct {
		l    Limits
		file string
	}{{Limits{MemoryBytes: 1 << 20}, "work/memory."}, {Limits{Tasks: 8}, "work/pids.max"}, {Limits{CPUPercent: 50}, "work/cpu.max"}} {
		rows, err := g.Apply(c.l)
		var e *Error
		if !errors.As(err, &e) || e.Kind != LimitNotApplied || !strings.Contains(e.Path, c.file) || !errors.Is(err, unix.ENOENT) {
			t.Errorf("%+v: %v (%+v), want limit_not_applied at %s", c.l, err, rows, c.file)
		}
	}
	if rows, err := g.Apply(Limits{}); err != nil || len(rows) != 0 {
		t.Errorf("no limits: %+v, %v", rows, err)
	}
	s, err := g.Stats()
	if err != nil || s.HasMemory || s.HasPids || s.MemoryPeak != Unknown || s.PidsPeak != Unknown || s.MemoryKilled() {
		t.Errorf("stats: %+v, %v", s, err)
	}
	if err := g.Remove(deadline(t, 5e9)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Stats(); kindIs(t, err) != Gone {
		t.Errorf("stats after Remove: %v, want gone", err)
	}
}

func TestUnitOf(t *testing.T) {
	const m = "/sys/fs/cgroup"
	for dir, want := range map[string]string{
		m: "",
		m + "/user.slice/user-1000.slice/session-3.scope":                          m + "/user.slice/user-1000.slice/session-3.scope",
		m + "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope":      m + "/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope",
		m + "/user.slice/user-1000.slice/user@1000.service/app.slice/b.service/in": m + "/user.slice/user-1000.slice/user@1000.service/app.slice/b.service",
		m + "/user.slice/user-1000.slice/user@1000.service/app.slice":              "", // the manager's own
		m + "/user.slice/user-1000.slice/user@1000.service":                        "",
		m + "/system.slice": "",
	} {
		if got := unitOf(dir, m); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
}

func TestBoundToV1(t *testing.T) {
	const self = "9:name=systemd:/\n4:memory:/a\n3:cpu,cpuacct:/\n0::/x:pids:/y\n"
	if got := strings.Join(boundToV1(self), " "); got != "name=systemd memory cpu cpuacct" {
		t.Errorf("%q", got)
	}
}
