package crash

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestQuarantineBesideTheJournal lets every journal call fail from the program's end
// on. The quarantine then stands in a file of its own, so every command sees it
// before anything is written to the journal again; gc leaves such an attempt alone,
// and reconcile alone ends it.
func TestQuarantineBesideTheJournal(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		failed := 0
		o := b.budgets(job, nil, func() func(int, point) verdict {
			made, written := false, 0
			return func(_ int, p point) verdict {
				made = made || p.name == "clone3"
				if !made || !p.journal() {
					return verdict{}
				}
				if p.name == "write" {
					written++
				}
				if written <= 2 { // the box is up, "go"
					return verdict{}
				}
				failed++
				return verdict{fail: unix.EIO}
			}
		})
		o.want(t, launcher.Exited, launcher.ArtifactNotExamined, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.JournalWrite)
		if failed == 0 || o.count(journal.Go) != 1 || o.count(journal.Terminal)+o.count(journal.Quarantined)+o.count(journal.Outcome) != 0 {
			t.Errorf("%d calls failed, and the journal has %v", failed, o.records)
		}
		if why, err := os.ReadFile(o.dir + "/QUARANTINE"); err != nil || !strings.Contains(string(why), "the journal could not be written") {
			t.Errorf("the marker: %q, %v", why, err)
		}
		state := func() string {
			all := b.attempts()
			i := slices.IndexFunc(all, func(a launcher.AttemptInfo) bool { return a.ID == o.result.Attempt })
			if i < 0 {
				t.Fatal("the attempt is not listed")
			}
			return all[i].State
		}
		if s := state(); s != launcher.AttemptQuarantined {
			t.Errorf("listed as %s", s)
		}
		if said, status := b.nsbox("gc", "--state-dir", b.state); status != 0 || state() != launcher.AttemptQuarantined {
			t.Errorf("gc ends with %d: %s", status, said)
		}
		b.nextRuns(t.Errorf)
		if s := state(); s != launcher.AttemptQuarantined {
			t.Errorf("after the next run it is %s", s)
		}
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 || state() != launcher.AttemptClosed {
			t.Errorf("reconcile ends with %d, it is %s: %s", status, state(), said)
		}
		if _, err := os.Lstat(o.dir + "/QUARANTINE"); err == nil {
			t.Error("the marker is still there")
		}
		b.site.WantNoTrace(t)
	})
}

// TestAsManyAsThePolicySays: with a concurrency of 2 two runs go side by side under
// ids of their own, and a third is refused by the names of both.
func TestAsManyAsThePolicySays(t *testing.T) {
	b := newBench(t)
	two := b.site.Policy(harness.Change{Path: "lifecycle.concurrency", Value: 2})
	sleeper := harness.Job{Code: "import time\nprint('in', flush=True)\ntime.sleep(60)", PolicyArg: two}
	var live []*harness.Live
	for range 2 {
		l := b.site.Start(sleeper)
		l.Await("in\n")
		live = append(live, l)
	}
	open, err := os.ReadDir(b.state + "/open")
	if err != nil || len(open) != 2 || idsOf(t, b.state, open[0].Name()) == idsOf(t, b.state, open[1].Name()) {
		t.Fatalf("open attempts: %v, %v", open, err)
	}
	r := b.site.Run(harness.Job{Code: "print(1)", PolicyArg: two})
	r.Want(launcher.RefusedBusy, launcher.ExitRefused)
	for _, e := range open {
		if r.Result.Reason == nil || !strings.Contains(r.Result.Reason.What, e.Name()) {
			t.Errorf("the refusal does not name %s: %+v", e.Name(), r.Result.Reason)
		}
	}
	live[0].Signal(unix.SIGTERM)
	live[0].Wait().Want(launcher.Cancelled, 143)
	b.site.Run(harness.Job{Code: "print(1)", PolicyArg: two}).WantOK()
	live[1].Signal(unix.SIGTERM)
	live[1].Wait().Want(launcher.Cancelled, 143)
}
