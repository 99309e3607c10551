package launcher

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/journal"
	"nsbox/launcher/policy"
)

// An attempt that fails before it opened anything closes nothing of its caller's.
func TestFinishClosesOnlyItsOwn(t *testing.T) {
	var before, after unix.Stat_t
	must(t, unix.Fstat(0, &before))
	s := newState(t)
	id, err := newAttemptID(time.Now())
	must(t, err)
	r := newRun(Request{}, Streams{})
	r.state, r.gathered = s, &gathered{}
	r.plan = &Plan{Limits: policy.Limits{}}
	r.plan.Limits.Attempt.Cleanup, r.plan.Limits.Attempt.Deadline = time.Minute, time.Hour
	r.att, err = s.attempt(id)
	must(t, err)
	must(t, r.att.record(journal.Attempt, nil))
	r.journalTerminal(SetupFailure)
	r.finish(true)
	if err := unix.Fstat(0, &after); err != nil || after.Ino != before.Ino || after.Dev != before.Dev {
		t.Fatalf("standard input is %v, %v", after.Ino, err)
	}
	// Control: the attempt was really ended.
	recs, _, err := journal.Read(r.att.dir + "/journal")
	must(t, err)
	if st, err := journal.Replay(recs); err != nil || !st.Has(journal.CleanupVerified) || !st.Has(journal.Outcome) {
		t.Errorf("%v, open %v", err, st.Open())
	}
	if _, err := os.Stat(r.att.dir + "/QUARANTINE"); err == nil {
		t.Error("quarantined")
	}
}
