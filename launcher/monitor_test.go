package launcher

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/nsexec"
)

// fakeBox ends when it is killed, or has ended already.
type fakeBox struct {
	done   chan nsexec.Exit
	onKill *nsexec.Exit
	kills  int
}

func (b *fakeBox) Done() <-chan nsexec.Exit { return b.done }

func (b *fakeBox) Kill() error {
	if b.kills++; b.kills == 1 && b.onKill != nil {
		b.done <- *b.onKill
	}
	return nil
}

// fakeGroup is a job cgroup with fixed figures.
type fakeGroup struct {
	cpu   int64
	stats cgroupv2.Stats
	err   error
	kills int
}

func (g *fakeGroup) CPUUsage() (int64, error)       { return g.cpu, g.err }
func (g *fakeGroup) Stats() (cgroupv2.Stats, error) { return g.stats, g.err }
func (g *fakeGroup) Kill() error                    { g.kills++; return nil }

func ended(status uint32) *nsexec.Exit {
	return &nsexec.Exit{Reported: true, Status: unix.WaitStatus(status)}
}

// watched runs a monitor over fakes. ends: the box has already ended so; nil: it
// ends as killed once it is killed.
func watched(t *testing.T, ends *nsexec.Exit, g *fakeGroup, change func(*monitor, *Plan)) (e ending, gone bool, decided []string) {
	t.Helper()
	pl := *mustPlan(t, goodFacts(t))
	pl.Limits.Wall, pl.Limits.CPU.Total = time.Hour, time.Hour
	b := &fakeBox{done: make(chan nsexec.Exit, 1), onKill: ended(uint32(unix.SIGKILL))}
	if ends != nil {
		b.done <- *ends
	}
	m := &monitor{box: b, child: -1, plan: &pl, output: make(chan string), drained: func() string { return "" }, deadline: time.Now().Add(time.Hour), cpus: 1,
		decide: func(outcome string) { decided = append(decided, outcome) }}
	if g != nil {
		m.group = g
	}
	if change != nil {
		change(m, &pl)
	}
	e, gone = m.run(t.Context(), time.Now(), time.Minute)
	if g != nil && ends == nil && g.kills != 1 {
		t.Errorf("the group was killed %d times", g.kills)
	}
	return e, gone, decided
}

func TestEndsOfAWatchedBox(t *testing.T) {
	oom := cgroupv2.Stats{HasMemory: true, Memory: cgroupv2.MemoryEvents{OOM: 1, OOMKill: 1}}
	host := cgroupv2.Stats{HasMemory: true, Memory: cgroupv2.MemoryEvents{OOMKill: 1}}
	unreadable := errors.New("no figures")
	sampled := func(m *monitor, _ *Plan) { m.watchMem = true }
	for name, c := range map[string]struct {
		ends    *nsexec.Exit
		group   *fakeGroup
		change  func(*monitor, *Plan)
		outcome string
	}{
		"exit 0":                          {ended(0), &fakeGroup{}, nil, Exited},
		"exit 3":                          {ended(3 << 8), nil, nil, Exited},
		"a signal":                        {ended(uint32(unix.SIGSEGV)), nil, nil, Signaled},
		"somebody's kill":                 {ended(uint32(unix.SIGKILL)), &fakeGroup{}, nil, KilledExternally},
		"no word of init":                 {&nsexec.Exit{}, nil, nil, KilledExternally},
		"the job's memory":                {ended(uint32(unix.SIGKILL)), &fakeGroup{stats: oom}, nil, LimitExceededMemory},
		"a child's memory, and exit 0":    {ended(0), &fakeGroup{stats: oom}, nil, LimitExceededMemory},
		"the host's memory":               {ended(0), &fakeGroup{stats: host}, nil, KilledExternally},
		"killed, figures unreadable":      {ended(uint32(unix.SIGKILL)), &fakeGroup{err: unreadable}, nil, Unknown},
		"exit 0, figures unreadable":      {ended(0), &fakeGroup{err: unreadable}, nil, Unknown},
		"the same, no memory limit there": {ended(0), &fakeGroup{err: unreadable}, sampled, Exited},
		"never ran, figures unreadable":   {&nsexec.Exit{ExecErr: &nsexec.StepError{}}, &fakeGroup{err: unreadable}, nil, ExecFailed},
		"the set-up failed after go":      {&nsexec.Exit{Reported: true, SetupErr: &nsexec.StepError{}}, nil, nil, SetupFailure},
		"wall time":                       {nil, &fakeGroup{}, func(_ *monitor, pl *Plan) { pl.Limits.Wall = 0 }, TimeoutWall},
		"the attempt's time":              {nil, &fakeGroup{}, func(m *monitor, _ *Plan) { m.deadline = time.Now() }, TimeoutAttempt},
		"cpu time":                        {nil, &fakeGroup{cpu: 9e9}, func(_ *monitor, pl *Plan) { pl.Limits.CPU.Total = time.Second }, LimitExceededCPU},
		"output": {nil, nil, func(m *monitor, _ *Plan) {
			over := make(chan string, 1)
			over <- "stdout"
			m.output = over
		}, LimitExceededOutput},
		"output told late": {ended(0), nil, func(m *monitor, _ *Plan) { m.drained = func() string { return "stderr" } }, LimitExceededOutput},
	} {
		e, gone, decided := watched(t, c.ends, c.group, c.change)
		if e.outcome != c.outcome || !gone {
			t.Errorf("%s: %s (%s), gone %v; want %s", name, e.outcome, e.detail, gone, c.outcome)
		}
		if len(decided) != 1 || decided[0] != c.outcome {
			t.Errorf("%s: recorded %q, want %s once", name, decided, c.outcome)
		}
		if e.outcome != Exited && e.exitCode != nil {
			t.Errorf("%s: exit code %d", name, *e.exitCode)
		}
	}
}

func TestACancelledBox(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(CancelCause{Signal: unix.SIGTERM})
	b := &fakeBox{done: make(chan nsexec.Exit, 1), onKill: ended(uint32(unix.SIGKILL))}
	m := &monitor{box: b, plan: mustPlan(t, goodFacts(t)), deadline: time.Now().Add(time.Hour), cpus: 1, drained: func() string { return "" }, decide: func(string) {}}
	if e, gone := m.run(ctx, time.Now(), time.Minute); e.outcome != Cancelled || e.cancel != unix.SIGTERM || !gone || b.kills != 1 {
		t.Errorf("%+v, gone %v, %d kills", e, gone, b.kills)
	}
	// One that does not end is not called gone.
	b = &fakeBox{done: make(chan nsexec.Exit)}
	m.box = b
	if e, gone := m.run(ctx, time.Now(), time.Millisecond); e.outcome != Cancelled || gone {
		t.Errorf("%s, gone %v", e.outcome, gone)
	}
}
