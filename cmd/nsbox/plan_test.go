package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
)

func TestPlanAndDoctorHelpGolden(t *testing.T) {
	for _, command := range []string{"plan", "doctor", "policy confirm"} {
		s := call(neverRuns(t), append(strings.Fields(command), "--help")...)
		if s.status != 0 || s.err.Len() > 0 {
			t.Errorf("%s: status %d, stderr %q", command, s.status, s.err.String())
		}
		for _, line := range strings.Split(s.out.String(), "\n") {
			if len(line) > helpWidth {
				t.Errorf("%s: %d columns: %q", command, len(line), line)
			}
		}
		golden(t, "help-nsbox-"+strings.ReplaceAll(command, " ", "-")+".txt", s.out.String())
	}
}

// TestPlanGolden uses the simulated backend, whose host is the same everywhere.
func TestPlanGolden(t *testing.T) {
	simulated := func(args ...string) *session {
		return call(neverRuns(t), append([]string{"plan", "--policy", "sales-summary", "--backend", "simulated"}, args...)...)
	}
	digest := func(text string) string {
		at := strings.Index(text, "sha256:")
		if at < 0 {
			return text
		}
		for ; at >= 0; at = strings.Index(text, "sha256:") {
			text = text[:at] + "DIGEST" + text[at+len("sha256:")+64:]
		}
		return text
	}
	run := simulated("--", "python3", "/in/x.py", "--json")
	if run.status != 0 || run.err.Len() > 0 {
		t.Errorf("RUN: status %d, %q", run.status, run.err.String())
	}
	golden(t, "plan-run.txt", digest(run.out.String()))
	denied := simulated("--connect", "Other.example.invalid.:443", "--connect", "[::FFFF:192.0.2.1]:1", "--", "cat", "a\x1b[2J\nRUN")
	if denied.status != 125 || denied.err.Len() > 0 {
		t.Errorf("REFUSE: status %d, %q", denied.status, denied.err.String())
	}
	golden(t, "plan-refuse.txt", digest(denied.out.String()))
	if strings.ContainsAny(denied.out.String(), "\x1b") {
		t.Error("an escape character passes")
	}
}

func TestPlanJSONIsOneDocument(t *testing.T) {
	for _, tc := range []struct {
		args     []string
		verdict  string
		status   int
		reasonID string
	}{
		{[]string{"--", "python3"}, "RUN", 0, ""},
		{[]string{"--", "cat"}, "REFUSE", 125, "exec_not_allowed"},
		{[]string{"--limit", "wall=5h", "--", "python3"}, "REFUSE", 125, "limit_loosens"},
	} {
		s := call(neverRuns(t), append([]string{"plan", "--json", "--policy", "sales-summary", "--backend", "simulated"}, tc.args...)...)
		var d struct {
			Schema, Backend, Decision string
			Reasons                   []launcher.Reason
			Digest                    string `json:"plan_digest"`
			Restrictions              []map[string]any
			Plan                      *json.RawMessage
		}
		dec := json.NewDecoder(&s.out)
		if err := dec.Decode(&d); err != nil || dec.More() {
			t.Fatalf("%v: %v", tc.args, err)
		}
		if s.status != tc.status || d.Decision != tc.verdict || d.Schema != launcher.PlanSchema || d.Backend != launcher.SimulatedName || (d.Plan != nil) != (tc.status == 0) || (d.Digest != "") != (tc.status == 0) {
			t.Errorf("%v: status %d, %+v", tc.args, s.status, d)
		}
		if tc.reasonID != "" && (len(d.Reasons) == 0 || string(d.Reasons[0].ID) != tc.reasonID) {
			t.Errorf("%v: reasons %+v", tc.args, d.Reasons)
		}
	}
}

// TestPlanLooksAtInputs: whatever else this host lacks, an input that exec would
// refuse is among the reasons, and one that it would take is not.
func TestPlanLooksAtInputs(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.csv")
	if err := os.WriteFile(there, []byte("a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for in, refused := range map[string]bool{there: false, filepath.Join(dir, "none.csv"): true} {
		s := call(neverRuns(t), "plan", "--json", "--policy", "sales-summary", "--state-dir", filepath.Join(dir, "s"), "--in", in, "--", "python3")
		var d launcher.Decision
		if err := json.Unmarshal(s.out.Bytes(), &struct {
			Reasons *[]launcher.Reason
		}{&d.Reasons}); err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(d.Reasons, func(r launcher.Reason) bool { return r.ID == "input_missing" })
		if got != refused || refused && s.status != 125 {
			t.Errorf("%s: status %d, %+v", in, s.status, d.Reasons)
		}
	}
}

func TestPlanWrongUse(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		id   string
	}{
		"no program":        {"--policy sales-summary", "usage"},
		"unknown backend":   {"--policy sales-summary --backend docker -- x", "backend_unknown"},
		"unknown dimension": {"--policy sales-summary --backend simulated --allow-degraded luck -- x", "degrade_unknown"},
		"a URL":             {"--policy sales-summary --backend simulated --connect https://example.org/?token=hunter2 -- x", "endpoint_invalid"},
	} {
		s := call(neverRuns(t), append([]string{"plan"}, strings.Fields(tc.args)...)...)
		if s.status != 125 || !strings.Contains(s.err.String(), "(reason "+tc.id+")") || strings.Contains(s.err.String()+s.out.String(), "hunter2") {
			t.Errorf("%s: status %d, %s", name, s.status, s.err.String())
		}
	}
}

// exec with --backend and --trace.

func TestSimulatedExecRunsNothing(t *testing.T) {
	dir := t.TempDir()
	trace, result, state := filepath.Join(dir, "t.jsonl"), filepath.Join(dir, "r.json"), filepath.Join(dir, "state")
	s := call(neverRuns(t), "exec", "--quiet", "--backend", "simulated", "--policy", "sales-summary", "--state-dir", state, "--trace", trace, "--result", result,
		"--in", "/no/such/input", "--", "python3", "/in/x.py")
	if s.status != 0 || s.out.Len() > 0 || !strings.Contains(s.err.String(), "simulated-no-effects: nothing was executed") {
		t.Errorf("status %d, stdout %q, stderr %q", s.status, s.out.String(), s.err.String())
	}
	if _, err := os.Lstat(state); err == nil {
		t.Error("a state directory was made")
	}
	var r launcher.Result
	data, err := os.ReadFile(result)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil || r.Backend != launcher.SimulatedName || r.Workload.Outcome != launcher.Simulated || r.Digests.Plan == "" {
		t.Errorf("%v: %s", err, data)
	}
	lines, err := os.ReadFile(trace)
	if err != nil || bytes.Count(lines, []byte("\n")) != 4 || bytes.Count(lines, []byte(`"backend":"simulated-no-effects"`)) != 4 || !bytes.Contains(lines, []byte(`"simulated":true`)) {
		t.Errorf("%v: %s", err, lines)
	}

	refused := call(neverRuns(t), "exec", "--backend", "simulated", "--policy", "sales-summary", "--result", result, "--", "cat")
	data, _ = os.ReadFile(result)
	if refused.status != 125 || json.Unmarshal(data, &r) != nil || r.Backend != launcher.SimulatedName || r.Reason == nil || r.Reason.ID != "exec_not_allowed" {
		t.Errorf("refused: status %d, %s", refused.status, data)
	}
}

func TestTraceThatCannotBeWrittenMeansNoRun(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile("/etc/passwd")
	for name, path := range map[string]string{"a directory": dir, "no parent": filepath.Join(dir, "no", "t"), "a link": link, "a device": "/dev/full"} {
		for _, backend := range []string{"simulated", "namespaces"} {
			s := call(neverRuns(t), "exec", "--backend", backend, "--policy", "sales-summary", "--trace", path, "--state-dir", filepath.Join(dir, "s"), "--", "python3")
			if s.status != 125 || !strings.Contains(s.err.String(), "(reason trace_file)") {
				t.Errorf("%s, %s: status %d, %s", name, backend, s.status, s.err.String())
			}
		}
	}
	if after, _ := os.ReadFile("/etc/passwd"); !bytes.Equal(before, after) {
		t.Error("the target of the link was written")
	}
	if s := call(neverRuns(t), "exec", "--backend", "docker", "--policy", "sales-summary", "--", "x"); s.status != 125 || !strings.Contains(s.err.String(), "backend_unknown") {
		t.Errorf("unknown backend: status %d, %s", s.status, s.err.String())
	}
}

// TestWithoutTheFlagsNothingIsDecidedTwice: the runner gets the request as it is.
func TestWithoutTheFlagsNothingIsDecidedTwice(t *testing.T) {
	calls := 0
	s := call(func(_ context.Context, req launcher.Request, _ launcher.Streams) launcher.Result {
		calls++
		return good()
	}, "exec", "--quiet", "--policy", "no-such-policy", "--", "x")
	if calls != 1 || s.status != 0 {
		t.Errorf("%d calls, status %d", calls, s.status)
	}
}
