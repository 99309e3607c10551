package provision

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestALostRecord: a slot that keeps what an attempt left, and the attempt's record
// is gone with its state directory. Every way there says what to do, and one
// command does it; it refuses while the record is there, while somebody has the
// slot, and while a process has its ids.
func TestALostRecord(t *testing.T) {
	o := newOperator(t, "--slots", "1").apply()
	s := harness.NewSite(t, o.Caller())
	const canary = "open('/out/left','w').write('secret')\nprint('written', flush=True)\nimport time\ntime.sleep(60)"
	plain := harness.Job{Code: "print(1)", Bare: true, Flags: degrade()}
	clear := []string{"reconcile", "--slot", o.Slot(0), "--state-dir", s.State}
	refused := func(what string, r *harness.Run, id reason.ID, next string) {
		t.Helper()
		if said := string(r.Stderr); r.Status != launcher.ExitRefused || !strings.Contains(said, "(reason "+string(id)+")") || !strings.Contains(said, next) {
			t.Errorf("%s: status %d, want %s and %q: %s%s", what, r.Status, id, next, r.Stdout, said)
		}
	}
	live := s.Start(harness.Job{Code: canary, Bare: true, Flags: degrade()})
	live.Await("written")
	refused("while it runs", s.Raw(clear...), reason.OutSlotsTaken, "in use")
	live.Signal(syscall.SIGKILL)
	live.Wait()
	s.WantGone(t, 20*time.Second)
	attempt := s.Attempts()[0][strings.LastIndexByte(s.Attempts()[0], '/')+1:]
	refused("with its record", s.Raw(clear...), reason.OutSlotsTaken, "nsbox reconcile "+attempt)
	if err := os.Rename(s.State, s.State+".lost"); err != nil {
		t.Fatal(err)
	}

	refused("exec", s.Run(plain), reason.OutSlotsTaken, "nsbox reconcile")
	said := s.Raw("reconcile", "--state-dir", s.State)
	if text := string(said.Stdout); said.Status != 0 || !strings.Contains(text, "keeps what attempt "+attempt+" left") || !strings.Contains(text, "nsbox reconcile --slot "+o.Slot(0)) {
		t.Errorf("reconcile: %d %s%s", said.Status, text, said.Stderr)
	}
	if text := string(s.Raw("reconcile", "--json", "--state-dir", s.State).Stdout); !strings.Contains(text, `"slot": "`+o.Slot(0)+`"`) {
		t.Errorf("reconcile --json: %s", text)
	}
	if out, err := o.Command("--undo"); err == nil || !strings.Contains(out, "nsbox reconcile --slot "+o.Slot(0)) {
		t.Errorf("--undo: %v %s", err, out)
	}
	asRoot := harness.NewSite(t, harness.Callers(t)[0])
	refused("as root, whose ids are others", asRoot.Raw("reconcile", "--slot", o.Slot(0), "--state-dir", asRoot.State), reason.OutSlotForeign, "setpriv --reuid "+o.User)
	refused("what is no slot", s.Raw("reconcile", "--slot", o.Dir, "--state-dir", s.State), reason.OutSlotForeign, "next: ")

	// Somebody with the ids of the slot, as a box has them.
	id := int(o.look(0).UID)
	box := exec.Command("/bin/sleep", "100")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: id, Size: 1}}
	box.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Credential: &syscall.Credential{NoSetGroups: true}}
	if err := box.Start(); err != nil {
		t.Fatal(err)
	}
	refused("with a process of it", s.Raw(clear...), reason.StopUnproven, "sleep")
	box.Process.Kill()
	box.Wait()

	if r := s.Raw(append(clear, "--dry-run")...); r.Status != 0 || !strings.Contains(string(r.Stdout), "would remove what attempt "+attempt+" left") || o.look(0).Left() == "" {
		t.Errorf("dry run: %d %s%s", r.Status, r.Stdout, r.Stderr)
	}
	if r := s.Raw(clear...); r.Status != 0 || !strings.Contains(string(r.Stdout), "removed what attempt "+attempt+" left (1 entries and 1 pages)") || o.look(0).Left() != "" {
		t.Errorf("%d %s%s, left %q", r.Status, r.Stdout, r.Stderr, o.look(0).Left())
	}
	if log, err := os.ReadFile(s.State + "/audit.log"); err != nil || !strings.Contains(string(log), `"event":"slot","attempt":"`+attempt+`"`) {
		t.Errorf("the audit log: %v %s", err, log)
	}
	if r := s.Raw(clear...); r.Status != 0 || !strings.Contains(string(r.Stdout), "is empty") {
		t.Errorf("again: %d %s%s", r.Status, r.Stdout, r.Stderr)
	}
	wantProvisioned(t, s.Run(plain).WantOK())
	// The record turns up again: there is nothing left for it to do to the slot.
	if r := s.Raw("reconcile", "--state-dir", s.State+".lost"); r.Status != 0 || o.look(0).Left() != "" {
		t.Errorf("the old record: %d %s%s", r.Status, r.Stdout, r.Stderr)
	}
}

// TestEmptyingMany empties a slot of many entries and says how long that took. The
// budget is six times the preset's, so that no busy machine decides the verdict; a
// tenth of the entries is enough to see that it works.
func TestEmptyingMany(t *testing.T) {
	many := harness.Series(100000, 10000, 1000)
	o := newOperator(t, "--slots", "1", "--policy", inodes(t, many))
	o.apply()
	s := harness.NewSite(t, o.Caller())
	policy := s.Policy(harness.Set("out_inodes", many), harness.Set("wall_workload", 120), harness.Set("budget_cleanup", 60), harness.Set("attempt_hard_deadline", 260))
	job := harness.Job{Code: hostile(t), Args: []string{"100", "end"}, PolicyArg: policy, Bare: true, Flags: degrade(), Within: 4 * time.Minute}
	live := s.Start(job)
	live.Await("full 28 ")
	most := o.look(0).Used
	began := time.Now()
	r := live.Wait()
	took := time.Since(began)
	if most != int64(many)-1 || o.look(0).Left() != "" || r.Result.Cleanup.Outcome != launcher.CleanupVerified {
		t.Errorf("of %d entries %d were there, left %q, clean-up %+v", many-1, most, o.look(0).Left(), r.Result.Cleanup)
	}
	t.Logf("%d entries: %s from the last one until everything of the attempt was gone and verified; the preset allows 10s", most, took.Round(time.Millisecond))
}
