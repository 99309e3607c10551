package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

// late, in ms, is far beyond what a kill takes on a busy machine and far below
// what the trees of these tests would take by themselves.
const late = 5000

// TestS13a: a tree that waits ends by the wall, not by cpu or tasks.
func TestS13a(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.Run(limits(s.Profile("TP-WALL"), "wait together", "0.3")).WantOK()
		run := s.Run(limits(s.Profile("TP-WALL"), "wait together", "4")).Want(launcher.TimeoutWall, launcher.ExitLimit)
		r := run.Result.Resources
		if r.WallMS < 1000 || r.WallOvershoot > 2500 || r.CPUUsec > 1_000_000 {
			t.Errorf("wall %.1f ms, overshoot %.1f ms, cpu %d µs", r.WallMS, r.WallOvershoot, r.CPUUsec)
		}
		s.WantGone(t, 0)
		t.Logf("wall limit 1 s: the tree was gone %.1f ms after it", r.WallOvershoot)
	})
}

// TestCPUBudget is S6a and S13b: the cpu budget of the tree, by one process and by three none
// of which meets its own limit.
func TestCPUBudget(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.Run(limits(s.Profile("TP-CPU"), "burn", "0.5")).WantOK()
		for _, c := range []struct {
			profile string
			args    []string
			budget  int64
		}{
			{"TP-CPU", []string{"burn", "10"}, 2_000_000},
			{"TP-AGG", []string{"burn together", "4", "3"}, 3_000_000},
		} {
			// A busy host must not let the profile's wall come first: the budget is what is shown.
			job := limits(append(s.Profile(c.profile), harness.Set("wall_workload", 60), harness.Set("attempt_hard_deadline", 100)), c.args...)
			job.Within = 110 * time.Second
			// Where nsbox can only sample, the test counts by itself.
			job.Meter = s.Caller.UID != 0
			run := s.Run(job).Want(launcher.LimitExceededCPU, launcher.ExitLimit)
			run.NotShown(policy.DimCPUTotal)
			r := run.Result.Resources
			// Sampled times are clock ticks of 10 ms per process.
			if r.CPUUsec < c.budget-50_000 || r.CPUUsec > c.budget+300_000 {
				t.Errorf("%s: %d µs used of %d", c.profile, r.CPUUsec, c.budget)
			}
			budget, counted := time.Duration(c.budget)*time.Microsecond, ""
			if run.CPU != 0 {
				counted = fmt.Sprintf("; the kernel counts %s for nsbox and its tree", run.CPU)
			}
			if run.CPU != 0 && (run.CPU < budget*9/10 || run.CPU > budget+time.Second) {
				t.Errorf("%s: the kernel counts %s for nsbox and its tree", c.profile, run.CPU)
			}
			s.WantGone(t, 0)
			t.Logf("%s: %.1f ms past the budget of %.0f s when the tree was gone (%s)%s", c.profile, float64(r.CPUOvershoot)/1000, float64(c.budget)/1e6, r.CPUSource, counted)
		}
	})
}

// TestStubbornTrees: what outlives its main program delays the end by no more
// than the kill takes.
func TestStubbornTrees(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, how := range []string{"keeps stdout", "writes on", "double fork", "stopped child"} {
			run := s.Run(harness.Job{Script: script("stubborn.py"), Args: []string{how}}).WantOK()
			if run.Result.Resources.WallMS > late || run.Took > 2*late*time.Millisecond {
				t.Errorf("%s: the program took %.0f ms, nsbox %s", how, run.Result.Resources.WallMS, run.Took)
			}
			s.WantGone(t, 0)
			t.Logf("%s: over after %.0f ms", how, run.Result.Resources.WallMS)
		}
		for _, how := range []string{"ignores signals", "stops itself"} {
			job := harness.Job{Script: script("stubborn.py"), Args: []string{how}, Policy: s.Profile("TP-WALL")}
			live := s.Start(job)
			live.Await("ready\n")
			if n := len(s.Processes()); n < 3 {
				t.Errorf("control: %d processes of the tree live", n)
			}
			run := live.Wait().Want(launcher.TimeoutWall, launcher.ExitLimit)
			if run.Result.Resources.WallOvershoot > late {
				t.Errorf("%s: stopped %.0f ms late", how, run.Result.Resources.WallOvershoot)
			}
			s.WantGone(t, 0)
			t.Logf("%s: gone %.1f ms after the wall", how, run.Result.Resources.WallOvershoot)
		}
	})
}

// TestCancel: the three signals a user or a supervisor sends.
func TestCancel(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for sig, status := range map[syscall.Signal]int{syscall.SIGHUP: 129, syscall.SIGINT: 130, syscall.SIGTERM: 143} {
			live := s.Start(harness.Job{Script: script("stubborn.py"), Args: []string{"ignores signals"}})
			live.Await("ready\n")
			sent := time.Now()
			live.Signal(sig)
			run := live.Wait().Want(launcher.Cancelled, status)
			took := time.Since(sent)
			if took > late*time.Millisecond {
				t.Errorf("%v: nsbox ended %s later", sig, took)
			}
			if run.Result.Cleanup.Outcome != launcher.CleanupVerified {
				t.Errorf("%v: cleanup %+v", sig, run.Result.Cleanup)
			}
			s.WantGone(t, 0)
			s.WantNoTrace(t)
			t.Logf("%v: status %d after %.1f ms", sig, run.Status, took.Seconds()*1000)
		}
	})
}

// TestCancelEarly sends the signal at moments before the program runs.
func TestCancelEarly(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		outcomes := map[string]int{}
		for n := range 12 {
			live := s.Start(harness.Job{Code: "import time; time.sleep(20)"})
			time.Sleep(time.Duration(5+n*9) * time.Millisecond)
			live.Signal(syscall.SIGTERM)
			run := live.Wait()
			switch {
			case run.Killed == syscall.SIGTERM:
				outcomes["ended by the signal before it was caught"]++
			case run.Status != 143 || run.Result.Workload.Outcome != launcher.Cancelled:
				t.Errorf("after %d ms: status %d, %s, %+v", 5+n*9, run.Status, run.Result.Workload.Outcome, run.Result.Reason)
			default:
				outcomes["cancelled: "+run.Result.Workload.Detail]++
			}
			s.WantGone(t, time.Second)
		}
		s.WantNoTrace(t)
		t.Log(outcomes)
	})
}

// TestSignalsOfTheProgram: its own death is told apart from a cancel.
func TestSignalsOfTheProgram(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, c := range []struct {
			code, outcome  string
			signal, status int
		}{
			{"os.abort()", launcher.Signaled, 6, 134},
			{"os.kill(os.getpid(), 9)", launcher.KilledExternally, 9, 137},
			{"os.kill(os.getpid(), 15)", launcher.Signaled, 15, 143},
			{"import ctypes; ctypes.string_at(0)", launcher.Signaled, 11, 139},
			{"import signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)", launcher.Signaled, 2, 130},
		} {
			run := s.Run(harness.Job{Code: "import os\n" + c.code}).Want(c.outcome, c.status)
			if got := run.Result.Workload; got.Signal == nil || *got.Signal != c.signal || got.ExitCode != nil {
				t.Errorf("%s: %s", c.code, fmt.Sprint(got))
			}
		}
	})
}
