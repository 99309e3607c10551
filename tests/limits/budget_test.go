package limits

import (
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestS6a: one busy loop ends near 2 cpu seconds. Control: a short computation;
// its budget is wider because an emulated start of the interpreter alone takes
// most of 2 seconds.
func TestS6a(t *testing.T) {
	s := guest(t)
	run(t, s, fixture(t, s, append(profile(t, "TP-CPU"), harness.Set("cpu_total", 2*harness.Slow())), "short", "1000"), launcher.Exited, 0)
	conclusive(t, s, fixture(t, s, profile(t, "TP-CPU"), "spin", "100000000"), 2, 1)
	s.WantGone(t, 0)
}

// TestS13bA3a: three processes, none at its own limit, end near 3 cpu seconds together.
func TestS13bA3a(t *testing.T) {
	s := guest(t)
	r := conclusive(t, s, fixture(t, s, profile(t, "TP-AGG"), "spin together", "3", "50000000"), 3, 3)
	if peak := r.Result.Resources.Cgroup.TasksPeak; peak != 3 && peak != -1 {
		t.Errorf("the kernel counted %d tasks at most, want 3", peak)
	}
}

// conclusive repeats a run until the budget ends it while all its processes are
// busy: on a machine that is short of time the start alone may spend it.
func conclusive(t *testing.T, s *harness.Site, job harness.Job, seconds int64, processes float64) *harness.Run {
	t.Helper()
	const tries = 6
	for range tries {
		r := s.Run(job)
		cpuEnd(t, r, seconds)
		if lines(t, r)["processes"] == processes {
			return r
		}
	}
	t.Fatalf("INCONCLUSIVE: in %d runs the budget was spent before %v processes were busy", tries, processes)
	return nil
}

// TestS13a: a tree that waits ends by the wall, not by cpu or tasks.
func TestS13a(t *testing.T) {
	s := guest(t)
	run(t, s, fixture(t, s, profile(t, "TP-WALL"), "wait together", "0.1"), launcher.Exited, 0)
	r := run(t, s, fixture(t, s, profile(t, "TP-WALL"), "wait together", "40"), launcher.TimeoutWall, launcher.ExitLimit)
	res := r.Result.Resources
	if got := lines(t, r)["processes"]; got != 3.0 {
		t.Fatalf("INCONCLUSIVE: %v processes of the tree were there when the wall came", got)
	}
	if res.CPUUsec >= 5_000_000 || res.Cgroup.TasksDenied != 0 || res.Cgroup.OOMKills != 0 {
		t.Errorf("cpu %d µs, %d tasks denied, %d killed for memory", res.CPUUsec, res.Cgroup.TasksDenied, res.Cgroup.OOMKills)
	}
	s.WantGone(t, 0)
	t.Logf("wall %d s: over %.1f ms past it, cpu %.3f s of 5", harness.Slow(), res.WallOvershoot, float64(res.CPUUsec)/1e6)
}

// TestOvershoot: how far past 2 cpu seconds four busy processes come. A run that
// spent its budget before they were all there says nothing.
func TestOvershoot(t *testing.T) {
	s := guest(t)
	var over []float64
	n := harness.Series(50, 6, 6)
	for range n {
		r := s.Run(fixture(t, s, profile(t, "TP-CPU"), "spin together", "4", "100000000"))
		cpuEnd(t, r, 2)
		if t.Failed() {
			break
		}
		if lines(t, r)["processes"] == 4.0 {
			over = append(over, float64(r.Result.Resources.CPUOvershoot)/1000)
		}
	}
	if len(over) < n/2 {
		t.Errorf("INCONCLUSIVE: four processes were busy in %d of %d runs", len(over), n)
	}
	if len(over) > 0 {
		p50, p99, most := quantiles(over)
		t.Logf("cpu past a budget of 2 s by four processes, %d runs: p50 %.1f ms, p99 %.1f ms, most %.1f ms", len(over), p50, p99, most)
	}
}
