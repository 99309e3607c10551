package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAttemptCommandsParse(t *testing.T) {
	for args, want := range map[string]string{
		"attempts": "attempts list", "attempts --json": "attempts list", "attempts list": "attempts list", "attempts --state-dir d": "attempts list",
		"attempts show X": "attempts show", "attempts show X --attest": "attempts show", "attempts logs X --stderr": "attempts logs",
		"reconcile": "reconcile", "reconcile X --dry-run": "reconcile", "reconcile --all": "reconcile", "gc --dry-run": "gc",
	} {
		inv, err := parse(strings.Fields(args), helpTextsOf(), os.Stderr)
		if err != nil || inv.command != want {
			t.Errorf("%s: %v, %v", args, inv, err)
		}
	}
	for _, args := range []string{"attempts show", "attempts logs", "attempts show X --json --attest", "reconcile X Y", "gc X", "attempts nosuch"} {
		if _, err := parse(strings.Fields(args), helpTextsOf(), os.Stderr); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}

func TestAttemptHelp(t *testing.T) {
	for _, args := range []string{"attempts --help", "attempts show --help", "attempts logs --help", "reconcile --help", "gc --help"} {
		s := call(neverRuns(t), strings.Fields(args)...)
		if s.status != 0 || s.err.Len() > 0 {
			t.Errorf("%s: status %d, stderr %q", args, s.status, s.err.String())
		}
		name := strings.ReplaceAll(strings.TrimSuffix("nsbox "+args, " --help"), " ", "-")
		golden(t, "help-"+name+".txt", s.out.String())
	}
}

// plantedState is a state directory with one attempt whose record was lost.
func plantedState(t *testing.T) (dir, id string) {
	t.Helper()
	dir, id = t.TempDir(), "01M8Q000000000000000000000"
	for _, d := range []string{dir, dir + "/attempts", dir + "/attempts/" + id} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"journal": "", "stdout": "hello\x1b[2Jthere\n", "stderr": "other\n"} {
		if err := os.WriteFile(dir+"/attempts/"+id+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, id
}

func TestAttemptsPrint(t *testing.T) {
	dir, id := plantedState(t)
	s := call(neverRuns(t), "attempts", "--state-dir", dir)
	if s.status != 0 || !strings.Contains(s.out.String(), id) || !strings.Contains(s.out.String(), "QUARANTINED") {
		t.Errorf("status %d: %s%s", s.status, s.out.String(), s.err.String())
	}
	s = call(neverRuns(t), "attempts", "--json", "--state-dir", dir)
	var doc struct {
		Schema   string
		Attempts []struct{ ID, State, Note string }
	}
	if err := json.Unmarshal(s.out.Bytes(), &doc); err != nil || doc.Schema != "nsbox.attempts/1" || len(doc.Attempts) != 1 || doc.Attempts[0].Note == "" {
		t.Errorf("%v: %s", err, s.out.String())
	}
	s = call(neverRuns(t), "attempts", "show", id, "--state-dir", dir)
	if s.status != 0 || !strings.Contains(s.out.String(), "nsbox reconcile "+id) {
		t.Errorf("show: %s%s", s.out.String(), s.err.String())
	}
	s = call(neverRuns(t), "attempts", "show", id, "--json", "--state-dir", dir)
	if s.status != 0 || !strings.Contains(s.out.String(), `"result": null`) {
		t.Errorf("show --json: %s%s", s.out.String(), s.err.String())
	}
	s = call(neverRuns(t), "attempts", "logs", id, "--state-dir", dir)
	if s.out.String() != "hello\x1b[2Jthere\n" {
		t.Errorf("into a pipe the bytes are exact: %q", s.out.String())
	}
	s = call(neverRuns(t), "attempts", "logs", id, "--stderr", "--state-dir", dir)
	if s.out.String() != "other\n" {
		t.Errorf("stderr: %q", s.out.String())
	}
	s = call(neverRuns(t), "attempts", "show", id[:8], "--state-dir", dir)
	if s.status != 0 || !strings.Contains(s.out.String(), id) {
		t.Errorf("a beginning of the id: %s%s", s.out.String(), s.err.String())
	}
	if err := os.Mkdir(dir+"/attempts/"+id[:25]+"1", 0o700); err != nil {
		t.Fatal(err)
	}
	for given, why := range map[string]string{id[:8]: "beginning of 2 ids", id[1:]: "not recorded", "": "is empty"} {
		if s = call(neverRuns(t), "attempts", "show", given, "--state-dir", dir); s.status != 125 || !strings.Contains(s.err.String(), why) {
			t.Errorf("%q: status %d, %s%s", given, s.status, s.out.String(), s.err.String())
		}
	}
	s = call(neverRuns(t), "attempts", "show", "../x", "--state-dir", dir)
	if s.status != 125 || !strings.Contains(s.err.String(), "attempt_unknown") {
		t.Errorf("an id that is none: %d %s", s.status, s.err.String())
	}
	// Looking makes nothing.
	none := dir + "/none"
	if s = call(neverRuns(t), "attempts", "--state-dir", none); s.status != 0 {
		t.Errorf("no state directory: %s", s.err.String())
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("listing made a state directory")
	}
}

// TestLogsAreEscapedOnATerminal looks at what script(1)-like use shows.
func TestLogsAreEscapedOnATerminal(t *testing.T) {
	dir, id := plantedState(t)
	c := &console{in: strings.NewReader(""), out: &stream{terminal: true}, err: &stream{}}
	var shown strings.Builder
	c.out.to, c.err.to = &shown, &shown
	if err := printLog(c, attemptsLogsFlags{ID: id, StateDir: dir}); err != nil || shown.String() != `hello\x1b[2Jthere`+"\n" {
		t.Errorf("%v: %q", err, shown.String())
	}
}

func TestReconcileAndGCPrint(t *testing.T) {
	dir, id := plantedState(t)
	s := call(neverRuns(t), "reconcile", "--dry-run", "--state-dir", dir)
	if s.status != 0 || !strings.Contains(s.out.String(), id+": was QUARANTINED, is QUARANTINED") {
		t.Errorf("dry run: %d %s%s", s.status, s.out.String(), s.err.String())
	}
	if s = call(neverRuns(t), "reconcile", id, "--all", "--state-dir", dir); s.status != 125 {
		t.Errorf("an id and --all: %d", s.status)
	}
	if s = call(neverRuns(t), "gc", "--json", "--state-dir", dir); s.status != 0 || !strings.Contains(s.out.String(), `"attempts": []`) {
		t.Errorf("gc: %d %s%s", s.status, s.out.String(), s.err.String())
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{-1: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 25 * time.Hour: "1d1h", 90 * time.Minute: "1h30m"} {
		if got := age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}
