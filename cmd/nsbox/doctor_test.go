package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/exporter"
	"nsbox/launcher"
	"nsbox/launcher/probe"
	"nsbox/nsexec"
)

// TestMain plays the stages that nsbox starts itself as: without it a trial
// would run this whole test suite again.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case launcher.DoctorStage:
		os.Exit(launcher.RunDoctorTrial(os.Args))
	case nsexec.StageInit, exporter.StageName:
		os.Exit(99)
	}
	os.Exit(m.Run())
}

func TestDoctorTextGolden(t *testing.T) {
	x := &launcher.Examination{
		Findings: []launcher.Finding{
			{Area: "kernel", Name: "release", Answer: probe.Yes, Shown: "6.1.0", How: "uname", Serves: "every box"},
			{Area: "kernel", Name: "pidfd", Answer: probe.Unknown, Shown: "no answer within 10s", How: "pidfd_open", Serves: "every box", Next: "ask again"},
			{Area: "cgroup", Name: "controller-memory", Answer: probe.No, Shown: "it is bound to a version 1 hierarchy\x1b[2J\nyes", How: "read", Serves: "memory", ID: "controllers_bound_to_v1", Next: "boot with systemd.unified_cgroup_hierarchy=1"},
		},
		Blockers: []launcher.Blocker{{ID: "B1", Question: "cgroup v2 delegation and kernel version", State: launcher.Open, By: "controller-memory: no"}},
	}
	text := doctorText(x, []launcher.TestRun{{Name: "wall-limit", Want: "ended by the wall limit of 1 s", Shown: "workload TIMEOUT_WALL", Passed: true}, {Name: "out-bound", Want: "exit not 0", Shown: "workload EXITED"}})
	golden(t, "doctor.txt", text)
	if strings.ContainsAny(text, "\x1b") {
		t.Error("an escape character passes")
	}
}

func TestEvidenceFileIsCheckedFirst(t *testing.T) {
	s := call(neverRuns(t), "doctor", "--evidence", t.TempDir(), "--state-dir", filepath.Join(t.TempDir(), "s"))
	if s.status != 125 || !strings.Contains(s.err.String(), "(reason output_file)") || s.out.Len() > 0 {
		t.Errorf("status %d, %q %q", s.status, s.out.String(), s.err.String())
	}
}

// TestConfirm goes the whole way with a document of this very process. Linked
// statically the test binary can make the box that doctor looks at, else not; in
// neither case do the stand-in's runs show what the points of a whole run need.
func TestConfirm(t *testing.T) {
	dir := t.TempDir()
	evidence, confirmed := filepath.Join(dir, "e.json"), filepath.Join(dir, "p.json")
	failing := func(context.Context, launcher.Request, launcher.Streams) launcher.Result { return good() }
	if s := call(failing, "doctor", "--json", "--evidence", evidence, "--state-dir", filepath.Join(dir, "state")); s.status != 125 || !json.Valid(s.out.Bytes()) {
		t.Errorf("runs that do not end as they must: status %d, %.300s %s", s.status, s.out.String(), s.err.String())
	}
	left, err := filepath.Glob(filepath.Join(dir, "state", "doctor-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %q", left)
	}
	s := call(neverRuns(t), "policy", "confirm", "--evidence", evidence, "--output", confirmed, "sales-summary")
	if s.status != 0 {
		t.Errorf("status %d, %s", s.status, s.err.String())
	}
	for _, point := range []string{"EP3", "EP6", "EP7", "EP8", "EP9"} {
		if !strings.Contains(s.err.String(), point+" not confirmed") {
			t.Errorf("%s is confirmed by runs that failed: %s", point, s.err.String())
		}
	}
	text, err := os.ReadFile(confirmed)
	if err != nil || !strings.Contains(string(text), evidence) {
		t.Errorf("%v: %s", err, text)
	}
	if s := call(neverRuns(t), "policy", "confirm", "--evidence", evidence, "sales-summary"); s.status != 0 || s.out.String() != string(text) {
		t.Errorf("on standard output: status %d", s.status)
	}
	data, err := os.ReadFile(evidence)
	if err != nil || os.WriteFile(evidence, []byte(strings.Replace(string(data), `"confirmed": false`, `"confirmed": true`, 1)), 0o644) != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"changed": {"--evidence", evidence, "sales-summary"}, "no file": {"--evidence", evidence + "x", "sales-summary"}, "another document": {"--evidence", confirmed, "sales-summary"},
	} {
		s := call(neverRuns(t), append([]string{"policy", "confirm"}, args...)...)
		if s.status != 125 || s.out.Len() > 0 || !strings.Contains(s.err.String(), "(reason evidence_invalid)") {
			t.Errorf("%s: status %d, %s", name, s.status, s.err.String())
		}
	}
}
