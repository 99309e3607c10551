package crash

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// overrun is one run with a part that was made to take longer than it may.
type overrun struct {
	result  launcher.Result
	status  int
	records []journal.Record
	dir     string // the attempt's
	out     string // the delivery directory
}

// budgets runs the job under a policy with the changes, disturbed by decide, and
// reads what is on record.
func (b *bench) budgets(code string, changes []harness.Change, decide func() func(int, point) verdict) overrun {
	b.t.Helper()
	b.cells++
	o := overrun{out: filepath.Join(b.dir, "budget-"+time.Now().Format("150405.000000"))}
	b.mkdir(o.out)
	args := b.exec(o.out, code)
	args[slices.Index(args, "--policy")+1] = b.site.Policy(changes...)
	result := filepath.Join(o.out, "..", "budget.json")
	os.Remove(result)
	args = slices.Insert(args, 1, "--result", result)
	cmd := b.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	b.launcher = cmd
	tr, err := trace(cmd, decide())
	if err != nil {
		b.t.Fatal(err)
	}
	o.status = tr.status.ExitStatus()
	data, err := os.ReadFile(result)
	if err != nil || json.Unmarshal(data, &o.result) != nil {
		b.t.Fatalf("no result: %v\n%s", err, said.String())
	}
	o.dir = filepath.Join(b.state, "attempts", o.result.Attempt)
	if o.records, _, err = journal.Read(o.dir + "/journal"); err != nil {
		b.t.Fatal(err)
	}
	return o
}

// want compares the four outcomes, the reason and whether anything was published.
func (o overrun) want(t *testing.T, workload, artifact, cleanup, delivery string, why reason.ID) {
	t.Helper()
	r := o.result
	id := reason.ID("")
	if r.Reason != nil {
		id = r.Reason.ID
	}
	got := []string{r.Workload.Outcome, r.Artifact.Outcome, r.Cleanup.Outcome, r.Delivery.Outcome, string(id)}
	if want := []string{workload, artifact, cleanup, delivery, string(why)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v; reason %+v, detail %q", got, want, r.Reason, r.Workload.Detail)
	}
	if o.status == 0 || o.status != r.ExitStatus {
		t.Errorf("exit status %d, the result says %d", o.status, r.ExitStatus)
	}
	if left, _ := os.ReadDir(o.out); len(left) > 0 {
		t.Errorf("the delivery directory holds %v", left)
	}
}

func (o overrun) count(e journal.Event) int {
	n := 0
	for _, r := range o.records {
		if r.Event == e {
			n++
		}
	}
	return n
}

// TestBudgetOfProvisioning holds up the staging, and then the box.
func TestBudgetOfProvisioning(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		short := []harness.Change{harness.Set("budget_provision_boot", 1)}
		for name, disturb := range map[string]func() func(int, point) verdict{
			"staging": func() func(int, point) verdict {
				decide, _ := holding(ending("write", "/in/job.py"), 1500*time.Millisecond)
				return decide
			},
			"set-up": func() func(int, point) verdict {
				decide, _ := freezing(b.launcher, 1)
				return decide
			},
		} {
			began := time.Now()
			o := b.budgets(job, short, disturb)
			o.want(t, launcher.SetupFailure, launcher.ArtifactNotExamined, launcher.CleanupVerified, launcher.DeliveryNoArtifact, reason.SetupTimeout)
			if o.count(journal.Go) > 0 || time.Since(began) < time.Second {
				t.Errorf("%s: after %s the journal has %v", name, time.Since(began), o.records)
			}
			b.site.WantGone(t, 0)
		}
		b.site.WantNoTrace(t)
	})
}

// TestBudgetOfStopProof has a box that cannot end.
func TestBudgetOfStopProof(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may trace the init of somebody's box")
	}
	asEach(t, func(t *testing.T, b *bench) {
		var release func()
		began := time.Now()
		o := b.budgets("import time\ntime.sleep(60)", []harness.Change{harness.Set("wall_workload", 1), harness.Set("budget_stop_proof", 1)}, func() func(int, point) verdict {
			made, written := false, 0
			return func(_ int, p point) verdict {
				made = made || p.name == "clone3"
				if made && p.name == "write" && p.journal() {
					if written++; written == 2 { // "go" is about to be recorded: pid 1 is what it stays
						var err error
						if release, err = immortal(children(b.launcher.Process.Pid)[0]); err != nil {
							t.Error(err)
						}
					}
				}
				return verdict{}
			}
		})
		if release == nil {
			t.Fatal("the box was not made immortal")
		}
		o.want(t, launcher.Unknown, launcher.ArtifactNotExamined, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.StopUnproven)
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("it took %s", took)
		}
		// Nothing was deleted, and the record says what was decided and what is not known.
		if _, err := os.Stat(o.dir + "/in/job.py"); err != nil {
			t.Errorf("the staged input: %v", err)
		}
		if o.count(journal.StopProved)+o.count(journal.DestroyIntent) > 0 || o.count(journal.Terminal) != 1 {
			t.Errorf("the journal has %v", o.records)
		}
		if len(b.site.Processes()) == 0 {
			t.Error("control: nothing of the box is there")
		}
		// The next start is refused while it is there, and reconcile proves nothing.
		if said, status := b.nsbox(b.exec("", "pass")...); status != 125 || !strings.Contains(said, "quarantined_leftover") {
			t.Errorf("the next start ends with %d: %s", status, said)
		}
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 125 || !strings.Contains(said, string(reason.StopUnproven)) {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
		release()
		b.site.WantGone(t, endWithin)
		b.nextRuns(t.Errorf)
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
			t.Errorf("afterwards reconcile ends with %d: %s", status, said)
		}
		b.site.WantNoTrace(t)
	})
}

// TestBudgetOfExporter freezes the exporter's box.
func TestBudgetOfExporter(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		began := time.Now()
		o := b.budgets(job, []harness.Change{harness.Set("budget_exporter_lifecycle", 1)}, func() func(int, point) verdict {
			decide, _ := freezing(b.launcher, 2)
			return decide
		})
		o.want(t, launcher.Exited, launcher.ArtifactSealFailed, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.ExportFailed)
		if o.count(journal.ExporterStopped) != 1 || o.count(journal.DestroyIntent) > 0 || time.Since(began) < time.Second {
			t.Errorf("after %s the journal has %v", time.Since(began), o.records)
		}
		b.site.WantGone(t, 0)
		b.nextRuns(t.Errorf)
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
		b.site.WantNoTrace(t)
	})
}

// TestBudgetOfCleanup holds up the removal of the inputs, and lets it fail.
func TestBudgetOfCleanup(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		removal := ending("unlinkat", "job.py")
		failing := func(times int) func() func(int, point) verdict {
			return func() func(int, point) verdict {
				return func(_ int, p point) verdict {
					if removal(p) && times > 0 {
						times--
						return verdict{fail: unix.EIO}
					}
					return verdict{}
				}
			}
		}
		t.Run("late", func(t *testing.T) {
			o := b.budgets(job, []harness.Change{harness.Set("budget_cleanup", 1)}, func() func(int, point) verdict {
				decide, _ := holding(removal, 1500*time.Millisecond)
				return decide
			})
			o.want(t, launcher.Exited, launcher.ArtifactAccepted, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.CleanupUnverified)
		})
		t.Run("fails for good", func(t *testing.T) {
			o := b.budgets(job, nil, failing(1<<20))
			o.want(t, launcher.Exited, launcher.ArtifactAccepted, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.CleanupUnverified)
			if n := o.count(journal.DestroyIntent); n != 3 {
				t.Errorf("%d tries, want the policy's 3", n)
			}
		})
		t.Run("fails twice", func(t *testing.T) {
			o := b.budgets(job, nil, failing(2))
			if r := o.result; r.Cleanup.Outcome != launcher.CleanupVerified || r.Delivery.Outcome != launcher.Delivered || o.status != 0 || o.count(journal.DestroyIntent) != 3 {
				t.Errorf("cleanup %+v, delivery %+v, status %d, journal %v", r.Cleanup, r.Delivery, o.status, o.records)
			}
		})
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
		b.site.WantNoTrace(t)
	})
}

// TestBudgetOfAttempt holds up the launcher between two parts, which no budget of
// a part covers: what is left of the attempt is then too short for an export.
func TestBudgetOfAttempt(t *testing.T) {
	callers := harness.Callers(t)
	b := benchOf(t, callers[len(callers)-1])
	var changes []harness.Change
	for key, seconds := range map[string]int{"budget_provision_boot": 6, "wall_workload": 4, "budget_stop_proof": 1, "budget_exporter_lifecycle": 1, "exporter_wall": 1, "budget_cleanup": 1, "attempt_hard_deadline": 13} {
		changes = append(changes, harness.Set(key, seconds))
	}
	held := new(bool)
	o := b.budgets(job, changes, func() func(int, point) verdict {
		var decide func(int, point) verdict
		decide, held = holding(func(p point) bool { return p.name == "openat" && strings.HasSuffix(p.path, "/stdout") }, 14*time.Second)
		return decide
	})
	if !*held {
		t.Fatal("the launcher was not held up")
	}
	o.want(t, launcher.Exited, launcher.ArtifactSealFailed, launcher.CleanupQuarantined, launcher.DeliveryBlocked, reason.ExportFailed)
	b.site.WantGone(t, 0)
	if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
		t.Errorf("reconcile ends with %d: %s", status, said)
	}
	b.site.WantNoTrace(t)
}

// TestTimeoutOfAttempt holds up the launcher right before "go", so that the time of
// the attempt is over before the program's own: what is left of it belongs to stop
// and clean-up, and both are done.
func TestTimeoutOfAttempt(t *testing.T) {
	callers := harness.Callers(t)
	b := benchOf(t, callers[len(callers)-1])
	var changes []harness.Change
	for key, seconds := range map[string]int{"budget_provision_boot": 6, "wall_workload": 1, "budget_stop_proof": 4, "budget_exporter_lifecycle": 1, "exporter_wall": 1, "budget_cleanup": 6, "attempt_hard_deadline": 18} {
		changes = append(changes, harness.Set(key, seconds))
	}
	over := time.Now().Add((18-4-1-6)*time.Second + time.Second)
	held := false
	o := b.budgets("import time\ntime.sleep(60)", changes, func() func(int, point) verdict {
		made, written := false, 0
		return func(_ int, p point) verdict {
			made = made || p.name == "clone3"
			if made && p.name == "write" && p.journal() {
				if written++; written == 2 { // the record of "go"
					held = time.Now().Before(over)
					time.Sleep(time.Until(over))
				}
			}
			return verdict{}
		}
	})
	if !held {
		t.Fatal("the launcher was not held up")
	}
	o.want(t, launcher.TimeoutAttempt, launcher.ArtifactNotExported, launcher.CleanupVerified, launcher.DeliveryNoArtifact, "")
	if o.status != launcher.ExitLimit || o.count(journal.Go) != 1 || o.count(journal.ExporterIntent) != 0 {
		t.Errorf("status %d, journal %v", o.status, o.records)
	}
	b.site.WantGone(t, 0)
	b.site.WantNoTrace(t)
}
