package limits

import (
	"slices"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// cpuEnd wants the job ended by its cpu budget, near it.
func cpuEnd(t *testing.T, r *harness.Run, seconds int64) {
	t.Helper()
	r.Want(launcher.LimitExceededCPU, launcher.ExitLimit)
	held(t, r)
	if lines(t, r)["finished"] != nil {
		t.Fatal("INCONCLUSIVE: the work was done before the budget was spent")
	}
	res := r.Result.Resources
	// An emulated machine that shares its host stands still for parts of a second;
	// the figure is printed, the bound is for a monitor that does not watch.
	// Unwatched, the work takes a multiple of it.
	if used, budget := res.CPUUsec, seconds*1_000_000; used < budget || used > 4*budget {
		t.Errorf("%d µs of cpu used of %d", used, budget)
	}
	t.Logf("cpu budget %d s: %.1f ms past it when the tree was gone; throttled %.1f s", seconds, float64(res.CPUOvershoot)/1000, float64(res.Cgroup.ThrottledUsec)/1e6)
}

// TestBombs: each ends by its own limit, leaves nothing, and a process beside it
// keeps its turn on the cpu.
func TestBombs(t *testing.T) {
	s := guest(t)
	run(t, s, fixture(t, s, profile(t, "TP-PROD"), "short", "1"), launcher.Exited, 0)
	before := groups(t)
	calm := watchLateness()
	time.Sleep(5 * time.Second)
	calm.report(t, "nothing runs")
	tight := append(profile(t, "TP-PROD"), harness.Set("cpu_total", 10))
	for _, c := range []struct {
		name   string
		policy []harness.Change
		args   []string
		ends   []string
	}{
		{"fork bomb", tight, []string{"fork bomb"}, []string{launcher.LimitExceededCPU}},
		// Emulated, touching memory costs much of the cpu budget: half of the profile's memory is met in time.
		{"memory bomb over 16 processes", append(profile(t, "TP-PROD"), harness.Set("memory_workload", 128)), []string{"memory bomb", "16", "16"}, []string{launcher.LimitExceededMemory}},
		{"tmpfs bomb", profile(t, "TP-MEM"), []string{"fill", "64"}, []string{launcher.LimitExceededMemory}},
		{"cpu hog of 8 threads", tight, []string{"cpu hog", "8"}, []string{launcher.LimitExceededCPU}},
		{"all at once", append(slices.Clone(tight), harness.Set("memory_workload", 128)), []string{"all at once"}, []string{launcher.LimitExceededMemory, launcher.LimitExceededCPU}},
	} {
		l := watchLateness()
		r := s.Run(fixture(t, s, c.policy, c.args...))
		l.report(t, c.name)
		held(t, r)
		res := r.Result.Resources
		if !slices.Contains(c.ends, r.Result.Workload.Outcome) {
			t.Errorf("%s ended as %s, want one of %v: %s\n%s", c.name, r.Result.Workload.Outcome, c.ends, r.Result.Workload.Detail, r.Stderr)
		}
		t.Logf("%s: %s after %.1f s; cpu %.2f s, peak %d MiB and %d tasks, %d tasks denied, %d kills; nsbox needed %.0f ms more than its program",
			c.name, r.Result.Workload.Outcome, res.WallMS/1000, float64(res.CPUUsec)/1e6, res.Cgroup.MemoryPeak/mib, res.Cgroup.TasksPeak, res.Cgroup.TasksDenied, res.Cgroup.OOMKills,
			r.Took.Seconds()*1000-res.WallMS)
		s.WantGone(t, 0)
		s.WantNoTrace(t)
		sameGroups(t, before)
	}
}

// lateness is a bystander: this process, which sleeps and looks how much too
// late it wakes up.
type lateness struct {
	stop chan struct{}
	late chan []float64 // ms
}

func watchLateness() *lateness {
	l := &lateness{make(chan struct{}), make(chan []float64)}
	go func() {
		var late []float64
		for {
			select {
			case <-l.stop:
				l.late <- late
				return
			default:
			}
			began := time.Now()
			time.Sleep(10 * time.Millisecond)
			late = append(late, time.Since(began).Seconds()*1000-10)
		}
	}()
	return l
}

func (l *lateness) report(t *testing.T, beside string) {
	t.Helper()
	close(l.stop)
	p50, p99, most := quantiles(<-l.late)
	t.Logf("beside %s a sleep of 10 ms ends late by p50 %.1f ms, p99 %.1f ms, most %.1f ms", beside, p50, p99, most)
}

// TestNothingIsLeft repeats two runs by turns: one that delivers a file, so that
// the exporter's box is made as well, and one that meets its memory limit. Both
// are the cheapest there are: a guest is emulated.
func TestNothingIsLeft(t *testing.T) {
	s := guest(t)
	well := fixture(t, s, nil, "deliver")
	well.PolicyArg, well.Policy = s.Policy(profile(t, "TP-PROD")...), nil
	full := fixture(t, s, nil, "fill", "64")
	full.PolicyArg, full.Policy = s.Policy(profile(t, "TP-MEM")...), nil
	one := func(i int) {
		if i%2 == 1 {
			run(t, s, full, launcher.LimitExceededMemory, 137)
			return
		}
		well.Deliver = s.Folder()
		if r := run(t, s, well, launcher.Exited, 0); r.Result.Delivery.Outcome != launcher.Delivered {
			t.Errorf("run %d: artifact %+v, delivery %+v\n%s", i+1, r.Result.Artifact, r.Result.Delivery, r.Stderr)
		}
	}
	one(0)
	before, n := groups(t), harness.Series(200, 10, 10)
	for i := range n {
		one(i)
		sameGroups(t, before)
		s.WantNoTrace(t)
		if t.Failed() {
			t.Fatalf("run %d of %d", i+1, n)
		}
	}
	s.WantGone(t, 0)
	t.Logf("%d runs in a row: the directories of the hierarchy are the same before and after each", n)
}
