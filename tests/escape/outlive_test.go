package escape

import (
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestOutlive: whatever a tree does, it is over when its main program is, which
// exits with 7 each time; kill_everybody shows that siblings die and init lives.
func TestOutlive(t *testing.T) {
	ways := []string{"siblings", "many_siblings", "silent_child", "leader_goes", "fork_storm", "vfork", "closed_streams", "subreaper", "late_writer", "kill_everybody"}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, how := range ways {
			t.Run(how, func(t *testing.T) {
				run := s.Run(job("outlive.py", how)).Want(launcher.Exited, 7)
				// The trees would sleep for 30 s, and the wall limit is the same.
				if run.Result.Resources.WallMS > 8000 || run.Took > 15*time.Second {
					t.Errorf("the program took %.0f ms, nsbox %s", run.Result.Resources.WallMS, run.Took)
				}
				if c := run.Result.Cleanup; c.Outcome != launcher.CleanupVerified {
					t.Errorf("cleanup %s, left over: %q", c.Outcome, c.Leftover)
				}
				s.WantGone(t, 0)
				s.WantNoTrace(t)
				if how == "leader_goes" && !strings.Contains(string(run.Stdout), "the thread\n") {
					t.Errorf("control: the thread did not go on: %q", run.Stdout)
				}
			})
		}
	})
}
