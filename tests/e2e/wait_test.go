package e2e

import (
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestTimeInLine: who waits for a place has all of the attempt's own budgets
// when its turn comes, and may leave the line.
func TestTimeInLine(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		const boot = 5 // seconds, less than the place is held
		holder := s.Start(harness.Job{Code: "import time; print('in', flush=True); time.sleep(7)"})
		holder.Await("in\n")
		refused := s.Run(harness.Job{Code: "print(1)"})
		refused.Want(launcher.RefusedBusy, launcher.ExitRefused)
		refused.WantReason(reason.Busy)

		leaver := s.Start(harness.Job{Code: "print(1)", Flags: []string{"--wait", "30s"}})
		time.Sleep(500 * time.Millisecond)
		if err := leaver.Cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		leaver.Wait().Want(launcher.Cancelled, 130)

		began := time.Now()
		s.Run(harness.Job{Code: "print(1)", Flags: []string{"--wait", "30s"}, Policy: []harness.Change{harness.Set("budget_provision_boot", boot)}}).WantOK()
		if waited := time.Since(began); waited < boot*time.Second+time.Second/2 {
			t.Fatalf("control: the place was free after %s", waited)
		}
		holder.Wait().WantOK()
		s.WantGone(t, 0)
	})
}
