package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// closed leaves a finished attempt without a marker.
func closed(t *testing.T, s *state, recs []journal.Record) string {
	t.Helper()
	id := plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs()}, recs)
	if err := errors.Join(os.Remove(s.open()+"/"+id), removeIn(s.path(id), "in")); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestCollect(t *testing.T) {
	s := newState(t)
	story := fullStory("/nowhere")
	done := closed(t, s, story)
	quarantined := closed(t, s, append(append([]journal.Record{}, story[:9]...), journal.Record{Event: journal.Quarantined}, story[22]))
	marked := closed(t, s, story)
	s.quarantineFile(marked, "a test")
	open := plant(t, s, marker{Boot: thisBoot}, story)
	if err := os.WriteFile(s.dir+"/audit.log", []byte(`{"time":"2020-01-01T00:00:00Z","event":"attempt"}`+"\nnot json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.auditAttempt("attempt", AttemptInfo{ID: done}, "")
	for name, age := range map[string]time.Duration{"old": 2 * time.Hour, "young": 0} {
		path := s.cache() + "/.stage-" + name
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, time.Time{}, time.Now().Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	soon, late := time.Now().Add(13*day), time.Now().Add(15*day)
	collected := func(now time.Time, dry bool) Collected {
		c, err := Collect(s.dir, now, dry)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := collected(soon, true); len(c.Attempts) != 0 {
		t.Errorf("before its time: %+v", c)
	}
	if c := collected(late, true); len(c.Attempts) != 1 || c.Attempts[0] != done || c.AuditLines != 1 || missing(s.path(done)) || missing(s.cache()+"/.stage-old") {
		t.Errorf("dry run: %+v", c)
	}
	if c := collected(late, false); len(c.Attempts) != 1 || !missing(s.path(done)) || !missing(s.trash()+"/"+done) {
		t.Errorf("%+v", c)
	}
	for _, id := range []string{quarantined, marked, open} {
		if missing(s.path(id) + "/journal") {
			t.Errorf("%s was removed; it is %s", id, s.info(id).State)
		}
	}
	log, err := os.ReadFile(s.dir + "/audit.log")
	if err != nil || strings.Contains(string(log), "2020") || !strings.Contains(string(log), "not json") || !strings.Contains(string(log), done) || !strings.Contains(string(log), `"gc"`) {
		t.Errorf("the log is %s, %v", log, err)
	}
	if !missing(s.cache()+"/.stage-old") && missing(s.cache()+"/.stage-young") {
		t.Error("the wrong temporary file went")
	}
}

// TestCollectFinishesWhatWasCutOff: the record leaves attempts/ in one act.
func TestCollectFinishesWhatWasCutOff(t *testing.T) {
	s := newState(t)
	if err := errors.Join(os.MkdirAll(s.trash()+"/X/in", 0o700), os.Chmod(s.trash(), 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, err := Collect(s.dir, time.Now(), false); err != nil || !missing(s.trash()+"/X") {
		t.Error(err)
	}
}

func TestCollectStopsAtForeignOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	s := newState(t)
	id := closed(t, s, fullStory("/nowhere"))
	if err := errors.Join(os.MkdirAll(s.path(id)+"/sub/d", 0o755), os.WriteFile(s.path(id)+"/sub/d/f", nil, 0o600), os.Chown(s.path(id)+"/sub/d", 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	_, err := Collect(s.dir, time.Now().Add(400*24*time.Hour), false)
	if e := reason.Of(err); e == nil || e.ID != reason.CollectFailed || !strings.Contains(err.Error(), "12345") {
		t.Errorf("%v", err)
	}
	if missing(s.trash() + "/" + id + "/sub/d/f") {
		t.Error("a file in a directory of another user was removed")
	}
}

func auditLines(t *testing.T, s *state) (all []auditLine, broken int) {
	t.Helper()
	data, err := os.ReadFile(s.auditPath())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var l auditLine
		if json.Unmarshal([]byte(line), &l) != nil {
			broken++
			continue
		}
		all = append(all, l)
	}
	return all, broken
}

func TestAuditNamesPolicyChanges(t *testing.T) {
	s := newState(t)
	for _, p := range []string{"a", "a", "b", "a"} {
		res := newResult()
		res.Attempt, res.Digests.Policy = "ID", p
		if err := s.auditResult(res, 1<<20, 0); err != nil {
			t.Fatal(err)
		}
	}
	s.auditAttempt("recovered", AttemptInfo{Policy: "c"}, "")
	s.auditAttempt("reconcile", AttemptInfo{Policy: "a"}, "") // of an old attempt: no change
	s.auditAttempt("attempt", AttemptInfo{Policy: "c"}, "")
	var got []string
	all, _ := auditLines(t, s)
	for _, l := range all {
		got = append(got, l.Event+":"+l.Was+">"+l.Policy)
	}
	if want := "policy:>a attempt:>a attempt:>a policy:a>b attempt:>b policy:b>a attempt:>a policy:a>c recovered:>c reconcile:>a attempt:>c"; strings.Join(got, " ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, " "), want)
	}
}

// TestAuditSurvivesTornLines: a half line never swallows the next one (B143), and
// lines from many writers never mix, gc in the middle or not.
func TestAuditSurvivesTornLines(t *testing.T) {
	s := newState(t)
	if err := os.WriteFile(s.auditPath(), []byte(`{"time":"2026-01-01T00:00:00Z","eve`), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				s.auditAttempt("attempt", AttemptInfo{ID: "ID", Path: strings.Repeat("p", 1000) + "\n\x1b[2J"}, "line\nline")
			}
		})
	}
	for range 5 {
		if _, err := s.trimAudit(time.Now().Add(-time.Hour), false); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	all, broken := auditLines(t, s)
	if len(all) != 160 || broken != 1 {
		t.Errorf("%d whole lines and %d broken ones", len(all), broken)
	}
}

func TestAuditIsCapped(t *testing.T) {
	s := newState(t)
	res := newResult()
	res.Attempt, res.Digests.Policy = "ID", "p"
	if err := s.auditResult(res, 10, 0); reason.Of(err) == nil || reason.Of(err).ID != reason.AuditWrite {
		t.Errorf("past runtime_log_bytes: %v", err)
	}
	if data, _ := os.ReadFile(s.auditPath()); len(data) > 0 {
		t.Errorf("something was written: %s", data)
	}
	if err := s.auditResult(res, 4096, 0); err != nil {
		t.Errorf("the control: %v", err)
	}
}

// TestListAndLogs looks at what the commands print from.
func TestListAndLogs(t *testing.T) {
	if all, err := Attempts(t.TempDir() + "/none"); err != nil || all != nil {
		t.Errorf("no state directory: %v, %v", all, err)
	}
	s := newState(t)
	first := closed(t, s, fullStory("/nowhere"))
	time.Sleep(2 * time.Millisecond) // ids of one millisecond have no order
	second := plant(t, s, marker{Boot: thisBoot}, fullStory("/nowhere")[:6])
	all, err := Attempts(s.dir)
	if err != nil || len(all) != 2 || all[0].ID != first || all[1].ID != second || all[0].Delivery != Delivered || all[0].Path != "/nowhere/summary.csv" {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[1].State != AttemptLeftover || len(all[1].Open) != 0 || all[1].Workload != "" {
		t.Errorf("%+v", all[1])
	}
	for _, id := range []string{"../attempts/" + first, "", "X", strings.ToLower(first), first + "/in"} {
		if _, _, err := Attempt(s.dir, id); reason.Of(err) == nil || reason.Of(err).ID != reason.AttemptUnknown {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := os.Symlink("/etc/passwd", s.path(first)+"/stdout"); err != nil {
		t.Fatal(err)
	}
	if _, err := AttemptLog(s.dir, first, false); err == nil {
		t.Error("a link was followed")
	}
	if err := os.WriteFile(s.path(first)+"/stderr", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := AttemptLog(s.dir, first, true); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	if _, err := Reconcile(context.Background(), ReconcileRequest{StateDir: s.dir, ID: "X"}); reason.Of(err) == nil || reason.Of(err).ID != reason.AttemptUnknown {
		t.Errorf("reconcile X: %v", err)
	}
}

// TestRetentionIsThePolicys: an attempt and its audit lines go when the policy
// that it ran under says so, and a quarantined attempt never.
func TestRetentionIsThePolicys(t *testing.T) {
	s := newState(t)
	with := func(results, audit string) []journal.Record {
		story := append([]journal.Record{}, fullStory("/nowhere")...)
		story[0].Data = map[string]string{keepResults: results, keepAudit: audit}
		return story
	}
	short, usual, long := closed(t, s, with("2", "3")), closed(t, s, with("", "")), closed(t, s, with("100", "200"))
	quarantined := closed(t, s, with("1", "4"))
	s.quarantineFile(quarantined, "a test")
	for _, id := range []string{short, usual, long, quarantined} {
		s.auditAttempt("attempt", s.told(id), "")
	}
	left := func(days int) (attempts, lines []string) {
		if _, err := Collect(s.dir, time.Now().Add(time.Duration(days)*day), false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{short, usual, long, quarantined} {
			if !missing(s.path(id)) {
				attempts = append(attempts, id)
			}
		}
		all, _ := auditLines(t, s)
		for _, l := range all {
			if l.Event == "attempt" {
				lines = append(lines, l.Attempt)
			}
		}
		return attempts, lines
	}
	for _, c := range []struct {
		after           int
		attempts, lines []string
	}{
		{1, []string{short, usual, long, quarantined}, []string{short, usual, long, quarantined}},
		{2, []string{usual, long, quarantined}, []string{short, usual, long, quarantined}},
		{13, []string{usual, long, quarantined}, []string{usual, long}},
		{14, []string{long, quarantined}, []string{usual, long}},
		{90, []string{long, quarantined}, []string{long}},
		{101, []string{quarantined}, []string{long}},
		{201, []string{quarantined}, nil},
	} {
		attempts, lines := left(c.after)
		if !slices.Equal(attempts, c.attempts) || !slices.Equal(lines, c.lines) {
			t.Errorf("after %d days: attempts %v, want %v; lines %v, want %v", c.after, attempts, c.attempts, lines, c.lines)
		}
	}
}
