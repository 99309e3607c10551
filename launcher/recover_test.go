package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"nsbox/cgroupv2"
	"nsbox/launcher/journal"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

const thisBoot, otherBoot = "boot-now", "boot-before"

// unusedIDs belong to nobody on any machine this runs on.
func unusedIDs() *probe.Slot {
	at := func(n int64) probe.HostID { return probe.HostID{UID: 4000000000 + n, GID: 4000000000 + n} }
	return &probe.Slot{Root: at(0), Workload: at(1), ExportRoot: at(2), Exporter: at(3)}
}

func newState(t *testing.T) *state {
	t.Helper()
	s, err := openState(t.TempDir() + "/state")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newProver(t *testing.T) *prover {
	t.Helper()
	s, err := slotsIn(t.TempDir()+"/home", thisBoot)
	if err != nil {
		t.Fatal(err)
	}
	return &prover{boot: thisBoot, slots: s}
}

// fullStory is an attempt that goes well, without a cgroup.
func fullStory(dir string) []journal.Record {
	ev := func(e journal.Event, kv ...string) journal.Record {
		d := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			d[kv[i]] = kv[i+1]
		}
		return journal.Record{Event: e, Data: d}
	}
	return []journal.Record{
		ev(journal.Attempt, "boot", thisBoot, "policy", "sha256:p", "deliver", dir), ev(journal.StagingIntent), ev(journal.StagingMade), ev(journal.BoxIntent), ev(journal.BoxUp), ev(journal.Go),
		ev(journal.Terminal, "outcome", "EXITED"), ev(journal.StopIntent), ev(journal.StopProved), ev(journal.SealIntent), ev(journal.Sealed), ev(journal.CopyIntent),
		ev(journal.ExporterIntent), ev(journal.ExporterUp), ev(journal.ExportIntent), ev(journal.Exported), ev(journal.ExporterStopped),
		ev(journal.CopyVerified, "artifact", ArtifactAccepted, "sha256", "sha256:0"), ev(journal.CredentialsEmpty), ev(journal.DestroyIntent), ev(journal.Destroyed),
		ev(journal.CleanupVerified), ev(journal.Outcome, "workload", "EXITED", "artifact", ArtifactAccepted, "cleanup", CleanupVerified),
		ev(journal.DeliverIntent, "dir", dir, "name", "summary.csv"), ev(journal.Delivered, "path", dir+"/summary.csv"),
	}
}

// plant leaves an attempt as a launcher that died after these records would.
func plant(t *testing.T, s *state, m marker, recs []journal.Record) string {
	t.Helper()
	id, err := newAttemptID(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.attempt(id)
	if err != nil {
		t.Fatal(err)
	}
	k, err := s.mark(a, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		if r.Event == journal.Terminal {
			_, err = a.journal.Terminal(r.Data["outcome"], nil)
		} else {
			err = a.journal.Append(r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(a.dir+"/in/d", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(a.dir+"/in/d/f", []byte("x"), 0o600), a.journal.Close()); err != nil {
		t.Fatal(err)
	}
	k.keep()
	return id
}

func mustRecover(t *testing.T, s *state, p *prover) []Leftover {
	t.Helper()
	l, err := s.recoverLeftovers(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestRecoveryAfterEveryRecord cuts the story after each record and in the
// middle of one (the journal's own tests cut at every byte): one defined state, no hindrance, and reconcile ends it.
func TestRecoveryAfterEveryRecord(t *testing.T) {
	cells := 0
	for boot, tails := range map[string][]int64{thisBoot: {0, 1, 9}, otherBoot: {0}} {
		story := fullStory(t.TempDir())
		for n := range len(story) + 1 {
			for _, torn := range tails {
				if testing.Short() && n%4 != 0 {
					continue
				}
				cells++
				s, p := newState(t), newProver(t)
				id := plant(t, s, marker{Boot: boot, IDs: unusedIDs()}, story[:n])
				if st, err := os.Stat(s.path(id) + "/journal"); err != nil || n > 0 && os.Truncate(s.path(id)+"/journal", st.Size()-torn) != nil {
					t.Fatal(err)
				}
				left := mustRecover(t, s, p)
				if len(left) != 1 || left[0].Attempt != id {
					t.Fatalf("%d records, %d bytes short: left over %+v", n, torn, left)
				}
				i := s.info(id)
				want := AttemptQuarantined
				if slices.ContainsFunc(story[:max(0, n-min(1, int(torn)))], func(r journal.Record) bool { return r.Event == journal.CleanupVerified }) {
					want = AttemptClosed
				}
				if i.State != want || i.Delivery == Delivered && n-min(1, int(torn)) < len(story) {
					t.Errorf("%d records, %d bytes short: %+v", n, torn, i)
				}
				if len(mustRecover(t, s, p)) != 0 {
					t.Errorf("%d records: recovered twice", n)
				}
				if want == AttemptQuarantined {
					if missing(s.path(id) + "/in") {
						t.Fatal("recovery removed something")
					}
					rec, err := s.reconcile(context.Background(), p, id, i.State, false)
					if err != nil || s.info(id).State != AttemptClosed || !s.info(id).Reconciled || !missing(s.path(id)+"/in") {
						t.Errorf("%d records, %d bytes short: reconcile %+v, %v, then %+v", n, torn, rec, err, s.info(id))
					}
				}
			}
		}
	}
	t.Logf("%d cells", cells)
}

func TestRebootProvesTheStop(t *testing.T) {
	s, p := newState(t), newProver(t)
	p.slots = nil // no other proof
	id := plant(t, s, marker{Boot: otherBoot}, fullStory("")[:6])
	if l := mustRecover(t, s, p); len(l) != 1 || l[0].Proof != "lost_by_reboot" || s.info(id).Workload != Unknown {
		t.Errorf("%+v, %+v", l, s.info(id))
	}
	// The control: in this boot nothing proves it, and the start is refused.
	id = plant(t, s, marker{Boot: thisBoot}, fullStory("")[:6])
	_, err := s.recoverLeftovers(context.Background(), p)
	if e := reason.Of(err); e == nil || e.ID != reason.QuarantinedLeftover || s.info(id).State != AttemptQuarantined || missing(s.open()+"/"+id) {
		t.Errorf("%v, %+v", err, s.info(id))
	}
}

// TestLiveLookingCgroupRefuses is the second half of A4-L.
func TestLiveLookingCgroupRefuses(t *testing.T) {
	root, err := cgroupv2.Find("")
	if err != nil {
		t.Fatalf("run this where a cgroup can be made (as root, or in a delegated scope): %v", err)
	}
	defer root.Close()
	s, p := newState(t), newProver(t)
	p.root = root
	id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs(), Cgroup: root.Path()}, fullStory("")[:1])
	g, err := root.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	defer func() { g.Kill(); g.Remove(context.Background()) }()
	j, err := journal.Open(s.path(id) + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range append([]journal.Record{{Event: journal.CgroupIntent, Data: map[string]string{"root": root.Path(), "name": id}},
		{Event: journal.CgroupMade, Data: map[string]string{"path": g.Path(), "id": cgroupNumber(g)}}}, fullStory("")[1:6]...) {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("/bin/sleep", "100")
	sleep.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.WorkFD()}
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	defer sleep.Wait()
	defer sleep.Process.Kill()

	_, err = s.recoverLeftovers(context.Background(), p)
	if e := reason.Of(err); e == nil || e.ID != reason.QuarantinedLeftover {
		t.Fatalf("a start beside it: %v", err)
	}
	if i := s.info(id); i.State != AttemptQuarantined {
		t.Errorf("%+v", i)
	}
	if err := sleep.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process was ended by a start: %v", err)
	}
	// The operator's word ends it, through the cgroup that was identified.
	go sleep.Process.Wait()
	rec, err := s.reconcile(context.Background(), p, id, AttemptQuarantined, false)
	if err != nil || s.info(id).State != AttemptClosed || !missing(g.Path()) {
		t.Errorf("%+v, %v, %+v", rec, err, s.info(id))
	}
	if l := mustRecover(t, s, p); len(l) != 0 {
		t.Errorf("still left over: %+v", l)
	}
}

// TestAnotherCgroupOfTheNameIsLeftAlone: same name, another 64-bit id.
func TestAnotherCgroupOfTheNameIsLeftAlone(t *testing.T) {
	root, err := cgroupv2.Find("")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, p := newState(t), newProver(t)
	p.root = root
	recs := append([]journal.Record{fullStory("")[0], {Event: journal.CgroupIntent, Data: map[string]string{"root": root.Path()}},
		{Event: journal.CgroupMade, Data: map[string]string{"id": "1"}}}, fullStory("")[1:6]...)
	id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs(), Cgroup: root.Path()}, recs)
	g, err := root.Create(id)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	defer g.Remove(context.Background())
	mustRecover(t, s, p) // the attempt's own group is gone
	if missing(g.Path()) {
		t.Error("a group that is not the attempt's was removed")
	}
}

func cgroupNumber(g *cgroupv2.Group) string {
	b, _ := json.Marshal(g.ID())
	return string(b)
}

func TestDirectoriesAreIdentified(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+"-away"), os.CopyFS(dir, os.DirFS(dir+"-away")), os.Chmod(dir, 0o700))
		},
		"nonce changed": func(dir string) error { return os.WriteFile(dir+"/"+nonceName, []byte("x"), 0o600) },
	} {
		s, p := newState(t), newProver(t)
		id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs()}, fullStory("")[:6])
		if err := change(s.path(id)); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(s.path(id) + "/journal")
		l := mustRecover(t, s, p)
		after, _ := os.ReadFile(s.path(id) + "/journal")
		if len(l) != 1 || l[0].Note == "" || string(before) != string(after) {
			t.Errorf("%s: %+v; the journal was changed: %v", name, l, string(before) != string(after))
		}
		_, err := s.reconcile(context.Background(), p, id, s.info(id).State, false)
		if e := reason.Of(err); e == nil || e.ID != reason.AttemptForeign || missing(s.path(id)+"/in/d/f") {
			t.Errorf("%s: reconcile %v", name, err)
		}
	}
}

func TestAliveIsLeftAlone(t *testing.T) {
	s, p := newState(t), newProver(t)
	id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs()}, fullStory("")[:6])
	k, err := s.seize(id)
	if err != nil {
		t.Fatal(err)
	}
	if l := mustRecover(t, s, p); len(l) != 0 || s.info(id).State != AttemptRunning {
		t.Errorf("%+v, %+v", l, s.info(id))
	}
	if _, err := s.reconcile(context.Background(), p, id, AttemptRunning, false); reason.Of(err) == nil || reason.Of(err).ID != reason.AttemptRunning {
		t.Errorf("reconcile: %v", err)
	}
	k.keep()
	if l := mustRecover(t, s, p); len(l) != 1 {
		t.Errorf("the control: %+v", l)
	}
}

// TestCorruptJournals is B146 with every kind of damage.
func TestCorruptJournals(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"emptied":  func(p string) error { return os.Truncate(p, 0) },
		"missing":  os.Remove,
		"noise":    func(p string) error { return os.WriteFile(p, []byte("this is no journal at all"), 0o600) },
		"zeros":    func(p string) error { return os.WriteFile(p, make([]byte, 4096), 0o600) },
		"a fifo":   func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
		"a link":   func(p string) error { return errors.Join(os.Rename(p, p+"-away"), os.Symlink(p+"-away", p)) },
		"a folder": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
	} {
		s, p := newState(t), newProver(t)
		id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs()}, fullStory("")[:6])
		if err := damage(s.path(id) + "/journal"); err != nil {
			t.Fatal(err)
		}
		if l := mustRecover(t, s, p); len(l) != 1 || s.info(id).State != AttemptQuarantined {
			t.Errorf("%s: %+v, %+v", name, l, s.info(id))
		}
		if name == "a folder" {
			continue // nothing of nsbox's makes one; the operator has to look
		}
		rec, err := s.reconcile(context.Background(), p, id, AttemptQuarantined, false)
		if err != nil || s.info(id).State != AttemptClosed || !missing(s.path(id)+"/in") {
			t.Errorf("%s: reconcile %+v, %v, %+v", name, rec, err, s.info(id))
		}
	}
}

func TestReconcileCrossesNothing(t *testing.T) {
	s, p := newState(t), newProver(t)
	outside := filepath.Join(t.TempDir(), "kept")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs()}, fullStory("")[:6])
	if err := os.Symlink(filepath.Dir(outside), s.path(id)+"/in/link"); err != nil {
		t.Fatal(err)
	}
	mustRecover(t, s, p)
	dry, err := s.reconcile(context.Background(), p, id, AttemptQuarantined, true)
	if err != nil || len(dry.Done) != 1 || missing(s.path(id)+"/in/link") || s.info(id).State != AttemptQuarantined {
		t.Errorf("dry run: %+v, %v", dry, err)
	}
	if os.Geteuid() == 0 {
		if err := syscall.Mount(filepath.Dir(outside), s.path(id)+"/in/d", "", syscall.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		_, err := s.reconcile(context.Background(), p, id, AttemptQuarantined, false)
		if uerr := syscall.Unmount(s.path(id)+"/in/d", 0); uerr != nil {
			t.Fatal(uerr)
		}
		if e := reason.Of(err); e == nil || e.ID != reason.ReconcileIncomplete || s.info(id).State != AttemptQuarantined {
			t.Errorf("over a mount: %v, %+v", err, s.info(id))
		}
	}
	if rec, err := s.reconcile(context.Background(), p, id, AttemptQuarantined, false); err != nil || !missing(s.path(id)+"/in") {
		t.Errorf("without it: %+v, %v", rec, err)
	}
	if missing(outside) {
		t.Error("a file behind a link or a mount was removed")
	}
}
