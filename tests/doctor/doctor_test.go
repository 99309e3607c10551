// Package doctor runs nsbox plan, doctor, policy confirm and exec --trace from
// outside: what they say is held against what exec then does and leaves behind.
package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const degraded = policy.DimMemory + "," + policy.DimCPURate + "," + policy.DimCPUTotal + "," + policy.DimLauncherIdentity + "," + policy.DimOutStorage

type decision struct {
	Decision     string
	PlanDigest   string `json:"plan_digest"`
	Reasons      []launcher.Reason
	Restrictions []struct{ Name, Status, Probed string }
}

func planned(t *testing.T, s *harness.Site, args ...string) (decision, int) {
	t.Helper()
	run := s.Raw(append([]string{"plan", "--json", "--policy", "sales-summary", "--state-dir", s.State}, args...)...)
	var d decision
	if err := json.Unmarshal(run.Stdout, &d); err != nil {
		t.Fatalf("%v\n%s\n%s", err, run.Stdout, run.Stderr)
	}
	return d, run.Status
}

// TestExecRunsThePlanThatWasShown: the same digest for plan, exec and trace, and
// another one as soon as the command differs.
func TestExecRunsThePlanThatWasShown(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		script := s.File("job.py", "print(1)")
		d, status := planned(t, s, "--allow-degraded", degraded, "--in", script, "--", "python3", "/in/job.py")
		if status != 0 || d.Decision != "RUN" || d.PlanDigest == "" {
			t.Fatalf("status %d, %+v", status, d)
		}
		if n := len(s.Attempts()); n != 0 {
			t.Errorf("plan left %d attempts", n)
		}
		trace, result := filepath.Join(s.Dir, "trace.jsonl"), filepath.Join(s.Dir, "r.json")
		run := s.Raw("exec", "--policy", "sales-summary", "--state-dir", s.State, "--allow-degraded", degraded, "--trace", trace, "--result", result,
			"--in", script, "--", "python3", "/in/job.py")
		data, err := os.ReadFile(result)
		if err != nil {
			t.Fatalf("%v: %s", err, run.Stderr)
		}
		res := harness.DecodeResult(t, data)
		if run.Status != 0 || res.Workload.Outcome != launcher.Exited || res.Digests.Plan != d.PlanDigest {
			t.Errorf("status %d, plan %s, shown %s\n%s", run.Status, res.Digests.Plan, d.PlanDigest, run.Stderr)
		}
		holdTrace(t, trace, res)
		if other, _ := planned(t, s, "--allow-degraded", degraded, "--in", script, "--", "python3", "/in/job.py", "x"); other.PlanDigest == d.PlanDigest {
			t.Error("another command, the same plan")
		}
		if err := os.WriteFile(script, []byte("print(2)"), 0o644); err != nil {
			t.Fatal(err)
		}
		if other, _ := planned(t, s, "--allow-degraded", degraded, "--in", script, "--", "python3", "/in/job.py"); other.PlanDigest == d.PlanDigest || other.Decision != "RUN" {
			t.Errorf("other bytes in the input: %s, plan %s, was %s", other.Decision, other.PlanDigest, d.PlanDigest)
		}
	})
}

// holdTrace wants the decisions before the first effect, "go" before the
// terminal event, the result last, and one plan and backend throughout.
func holdTrace(t *testing.T, path string, res launcher.Result) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range bytes.Lines(data) {
		var e struct {
			Seq                  int
			Event, Backend, Plan string
			Data                 struct{ Journal string }
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.Seq != len(order)+1 || e.Backend != launcher.BackendName || e.Plan != res.Digests.Plan {
			t.Errorf("line %d: %s", len(order)+1, line)
		}
		order = append(order, strings.TrimSuffix(e.Event+" "+e.Data.Journal, " "))
	}
	if len(order) < 8 || !slices.Equal(order[:3], []string{"approval.decision", "sandbox.configure", "network.decision"}) || order[len(order)-1] != "tool.result" {
		t.Fatalf("order %q", order)
	}
	last := 0
	for _, want := range []string{"network.decision", "lifecycle attempt", "lifecycle box_intent", "lifecycle go", "lifecycle terminal", "lifecycle stop_proved", "lifecycle outcome", "tool.result"} {
		at := slices.Index(order, want)
		if at < last {
			t.Errorf("%s stands at %d, behind %d: %q", want, at, last, order)
		}
		last = max(at, last)
	}
}

// TestRefusedPlanIsRefusedByExec: same reason, and the marker that the program
// would leave is not there. The control is the allowed run above.
func TestRefusedPlanIsRefusedByExec(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		deliver := s.Folder()
		for name, args := range map[string][]string{
			"nothing allowed": {"--", "python3", "-c", "open('/out/summary.csv','w').write('a\\n1\\n')"},
			"not Python":      {"--allow-degraded", degraded, "--", "cp", "/etc/hostname", "/out/summary.csv"},
			"no such program": {"--allow-degraded", degraded, "--", "no-such-program"},
		} {
			d, status := planned(t, s, args...)
			result := filepath.Join(s.Dir, "r.json")
			run := s.Raw(append([]string{"exec", "--policy", "sales-summary", "--state-dir", s.State, "--result", result, "--deliver", deliver}, args...)...)
			data, err := os.ReadFile(result)
			if err != nil {
				t.Fatalf("%s: %v: %s", name, err, run.Stderr)
			}
			res := harness.DecodeResult(t, data)
			if status != 125 || d.Decision != "REFUSE" || d.PlanDigest != "" || len(d.Reasons) == 0 {
				t.Errorf("%s: plan: status %d, %+v", name, status, d)
				continue
			}
			if res.Reason == nil || !slices.ContainsFunc(d.Reasons, func(r launcher.Reason) bool { return r.ID == res.Reason.ID }) || res.Workload.Outcome == launcher.Exited {
				t.Errorf("%s: exec says %+v, plan %+v", name, res.Reason, d.Reasons)
			}
			if len(d.Restrictions) < 15 {
				t.Errorf("%s: the table has %d rows", name, len(d.Restrictions))
			}
		}
		if left, err := os.ReadDir(deliver); err != nil || len(left) != 0 {
			t.Errorf("something was delivered: %v %v", left, err)
		}
		if n := len(s.Attempts()); n != 0 {
			t.Errorf("%d attempts began", n)
		}
	})
}
