package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"nsbox/tests/harness"
)

// TestKilledLauncher kills nsbox at random moments of its run. Whatever stage it
// was in, no process of it may live two seconds later, and the next run works.
func TestKilledLauncher(t *testing.T) {
	kills := harness.Series(200, 80, 30)
	for _, c := range harness.Callers(t) {
		t.Run(c.Name, func(t *testing.T) {
			s := harness.NewSite(t, c)
			job := harness.Job{Script: script("stubborn.py"), Args: []string{"ignores signals"}}
			// How long a run takes to reach its program here and now bounds the moments.
			began := time.Now()
			live := s.Start(job)
			live.Await("ready\n")
			ready := time.Since(began)
			if len(s.Processes()) < 3 {
				t.Errorf("control: a running box shows %v", s.Processes())
			}
			live.Signal(syscall.SIGKILL)
			live.Wait()
			s.WantGone(t, 2*time.Second)

			var longest time.Duration
			stages := map[string]int{}
			for range kills {
				live := s.Start(job)
				time.Sleep(time.Duration(rand.Int64N(int64(ready * 13 / 10))))
				stages[stageOf(s)]++
				live.Signal(syscall.SIGKILL)
				if run := live.Wait(); run.Killed != syscall.SIGKILL {
					t.Errorf("nsbox ended by itself: status %d\n%s", run.Status, run.Stderr)
				}
				longest = max(longest, s.WantGone(t, 2*time.Second))
				if t.Failed() {
					t.FailNow()
				}
			}
			s.Run(harness.Job{Code: "print('again')"}).WantOK()
			t.Logf("%d empty directories of job cgroups wait for recovery", len(s.Cgroups()))
			figures, _ := json.Marshal(stages)
			t.Logf("%d kills within %s: 0 survivors, the longest-lived one %s; stages %s", kills, ready*13/10, longest, figures)
		})
	}
}

// stageOf names what is running, to show that the moments are spread.
func stageOf(s *harness.Site) string {
	name := "launcher alone"
	for _, p := range s.Processes() {
		switch {
		case len(p.Command) > 7 && p.Command[:7] == "python3":
			return "program"
		case p.Command == "nsbox-init":
			name = "init"
		case name == "launcher alone" && p.PID != 0 && isFork(p):
			name = "set-up"
		}
	}
	return name
}

// isFork tells a fork of the launcher that has not exec'd yet by its namespaces.
func isFork(p harness.Process) bool {
	own, err := os.Readlink("/proc/self/ns/user")
	there, err2 := os.Readlink("/proc/" + itoa(p.PID) + "/ns/user")
	return err == nil && err2 == nil && own != there
}
