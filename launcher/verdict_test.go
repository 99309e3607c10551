package launcher

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"testing"
	"time"

	"nsbox/launcher/journal"
	"nsbox/launcher/policy"
)

// TestVerdicts is the whole projection of a program that exited 0: artifact and
// clean-up onto delivery and exit status, without and with --deliver. "published"
// is what a publication that succeeds makes of "".
func TestVerdicts(t *testing.T) {
	const published = ""
	verified := map[string]string{
		ArtifactAccepted:    published,
		ArtifactEmpty:       DeliveryNoArtifact,
		ArtifactRejected:    DeliveryNoArtifact,
		ArtifactNotExported: DeliveryNoArtifact,
		ArtifactNotExamined: DeliveryNoArtifact,
		ArtifactSealFailed:  DeliveryBlocked,
		ArtifactUnverified:  DeliveryBlocked,
		"A_LATER_WORD":      DeliveryBlocked,
		"":                  DeliveryBlocked,
	}
	zero := 0
	for artifact, want := range verified {
		for _, cleanup := range []string{CleanupVerified, CleanupQuarantined, ""} {
			want := want
			if cleanup != CleanupVerified {
				want = DeliveryBlocked
			}
			got := deliveryOf(artifact, cleanup)
			if got != want {
				t.Errorf("%q and %q: delivery %q, want %q", artifact, cleanup, got, want)
			}
			if got == published {
				got = Delivered
			}
			for _, asked := range []bool{false, true} {
				r := Result{Workload: WorkloadResult{Outcome: Exited, ExitCode: &zero}, Artifact: ArtifactResult{Outcome: artifact},
					Cleanup: CleanupResult{Outcome: cleanup}, Delivery: DeliveryResult{Outcome: got}}
				status := ExitOK
				switch {
				case asked && got != Delivered:
					status = ExitUndelivered
				case cleanup != CleanupVerified:
					status = ExitRefused
				case got == DeliveryBlocked:
					status = ExitRefused
				}
				if s := ExitStatus(r, asked, 0); s != status {
					t.Errorf("%q and %q, asked %v: status %d, want %d", artifact, cleanup, asked, s, status)
				}
			}
		}
	}
	// The words of result.go, so that a new one has to be decided about here.
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, parser.ParseComments)
	must(t, err)
	words := map[string][][2]string{}
	for _, d := range file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			collectWords(g, words)
		}
	}
	if len(words["Artifact outcomes"]) < 7 {
		t.Fatalf("result.go has the artifact outcomes %v", words["Artifact outcomes"])
	}
	for _, word := range words["Artifact outcomes"] {
		o := word[0]
		if _, there := verified[o]; !there {
			t.Errorf("artifact outcome %s is in no row", o)
		}
		if settles(o) != !slices.Contains([]string{ArtifactSealFailed, ArtifactUnverified}, o) {
			t.Errorf("%s: the source may be destroyed: %v", o, settles(o))
		}
	}
}

// TestSealFails wants the source kept where /out is not what it was.
func TestSealFails(t *testing.T) {
	f, att := finalizerAt(t)
	dir, err := os.Open("/proc/self")
	must(t, err)
	defer dir.Close()
	f.held = int(dir.Fd())
	if !f.stopProof(true) {
		t.Fatal("no stop proof")
	}
	if f.export() {
		t.Error("the end goes on after a seal that failed")
	}
	st := att.journal.State()
	if f.res.Artifact.Outcome != ArtifactSealFailed || f.res.Cleanup.Outcome != CleanupQuarantined || !st.Has(journal.Quarantined) || st.Has(journal.Sealed) || st.Has(journal.DestroyIntent) {
		t.Errorf("artifact %s, cleanup %s, journal %v", f.res.Artifact.Outcome, f.res.Cleanup.Outcome, st)
	}
	if d := deliveryOf(f.res.Artifact.Outcome, f.res.Cleanup.Outcome); d != DeliveryBlocked {
		t.Errorf("delivery %q", d)
	}
}

// TestStopUnproven wants nothing said about a program that may still run.
func TestStopUnproven(t *testing.T) {
	f, att := finalizerAt(t)
	zero := 0
	f.res.Workload = WorkloadResult{Outcome: Exited, ExitCode: &zero}
	if f.stopProof(false) {
		t.Error("a box that is there counts as gone")
	}
	if w := f.res.Workload; w.Outcome != Unknown || w.ExitCode != nil || ExitStatus(*f.res, false, 0) != ExitRefused {
		t.Errorf("workload %+v", w)
	}
	if st := att.journal.State(); !st.Has(journal.Quarantined) || st.Outcome() != Exited {
		t.Errorf("journal %v", st)
	}
}

// finalizerAt is one whose program has just exited.
func finalizerAt(t *testing.T) (*finalizer, *attempt) {
	t.Helper()
	s, err := openState(t.TempDir() + "/state")
	must(t, err)
	id, err := newAttemptID(time.Now())
	must(t, err)
	att, err := s.attempt(id)
	must(t, err)
	for _, e := range []journal.Event{journal.Attempt, journal.BoxIntent, journal.BoxUp, journal.Go} {
		must(t, att.record(e, nil))
	}
	_, err = att.journal.Terminal(Exited, nil)
	must(t, err)
	res := newResult()
	f := &finalizer{res: &res, att: att, plan: &Plan{Limits: policy.Limits{}}, held: -1, self: -1, stopBy: time.Now().Add(time.Hour), deadline: time.Now().Add(time.Hour)}
	return f, att
}

func TestEndOfBudget(t *testing.T) {
	now := time.Now()
	if end := endOfBudget(time.Second, now.Add(time.Hour)); end.Before(now.Add(time.Second)) || end.After(now.Add(time.Minute)) {
		t.Errorf("a budget that fits ends %s from now", end.Sub(now))
	}
	if end := endOfBudget(time.Hour, now.Add(time.Second)); !end.Equal(now.Add(time.Second)) {
		t.Errorf("a budget longer than the attempt ends %s from now", end.Sub(now))
	}
}
