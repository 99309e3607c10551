package doctor

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// writes leaves a file that the host would see delivered: the marker.
const writes = "open('/out/summary.csv','w').write('a,b\\n1,2\\n')"

// executed runs the marker program under a policy and reports whether the
// marker came out.
func executed(t *testing.T, s *harness.Site, args ...string) (launcher.Result, bool) {
	t.Helper()
	deliver, result := s.Folder(), filepath.Join(s.Dir, "result.json")
	run := s.Raw(append(append([]string{"exec", "--state-dir", s.State, "--allow-degraded", degraded, "--deliver", deliver, "--result", result}, args...), "--", "python3", "-c", writes)...)
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatalf("%v: %s", err, run.Stderr)
	}
	_, err = os.Stat(filepath.Join(deliver, "summary.csv"))
	return harness.DecodeResult(t, data), err == nil
}

func TestAConfirmedPolicyIsHeldToItsWord(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		evidence := filepath.Join(s.Dir, "evidence.json")
		if run := s.Raw("doctor", "--state-dir", s.State, "--evidence", evidence); run.Status != 0 {
			t.Fatalf("%s%s", run.Stdout, run.Stderr)
		}
		confirm := s.Raw("policy", "confirm", "--evidence", evidence, "sales-summary")
		if confirm.Status != 0 {
			t.Fatalf("%s", confirm.Stderr)
		}
		text := string(confirm.Stdout)
		good := s.File("good.json", text)
		res, ran := executed(t, s, "--policy", good)
		if !ran || res.ExitStatus != 0 {
			t.Fatalf("control: %+v %+v", res.Workload, res.Reason)
		}
		if i := slices.IndexFunc(res.Attestation, func(r attest.Row) bool { return r.Restriction == "confirmed-EP1" }); i < 0 || res.Attestation[i].Status != attest.Enforced {
			t.Error("the attestation does not speak of EP1")
		}
		another := s.File("another.json", strings.Replace(string(read(t, evidence)), "{\n", "{ \n", 1))
		for name, tc := range map[string]struct {
			policy string
			id     reason.ID
		}{
			"a point that the evidence does not show": {claim(t, text, "EP9"), reason.EvidenceInsufficient},
			"a point that is degraded in this run":    {claim(t, text, "EP8"), reason.EvidenceInsufficient},
			"no evidence":                             {strings.Replace(text, evidence, s.Dir+"/none.json", 1), reason.EvidenceInvalid},
			"a changed evidence":                      {strings.Replace(text, evidence, another, 1), reason.EvidenceInvalid},
			"another digest":                          {otherDigest(t, text), reason.EvidenceInvalid},
			"no reference":                            {withoutReference(t, text), reason.PolicyConfirmedWithoutEvidence},
		} {
			if res, ran := executed(t, s, "--policy", s.File("bad.json", tc.policy)); ran || res.Reason == nil || res.Reason.ID != tc.id || res.ExitStatus != 125 {
				t.Errorf("%s: ran %v, reason %+v", name, ran, res.Reason)
			}
		}
	})
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// claim writes CONFIRMED at a point.
func claim(t *testing.T, text, point string) string {
	t.Helper()
	at := strings.Index(text, `"id": "`+point+`"`)
	if at < 0 {
		t.Fatalf("no point %s", point)
	}
	key := `"implementation_status": "`
	begin := at + strings.Index(text[at:], key) + len(key)
	end := begin + strings.IndexByte(text[begin:], '"')
	return text[:begin] + launcher.Confirmed + text[end:]
}

func otherDigest(t *testing.T, text string) string {
	t.Helper()
	at := strings.LastIndex(text, "sha256:") + len("sha256:")
	digit := byte('0')
	if text[at] == digit {
		digit = '1'
	}
	return text[:at] + string(digit) + text[at+1:]
}

func withoutReference(t *testing.T, text string) string {
	t.Helper()
	at := strings.LastIndex(text, `"evidence": {`)
	if at < 0 {
		t.Fatal("the policy names no evidence")
	}
	return strings.TrimRight(strings.TrimSpace(text[:at]), ",") + "\n}\n"
}

// TestOnlyThePlanThatWasShownRuns: with --plan a run whose policy, command, inputs
// or host give another plan is refused before its program starts.
func TestOnlyThePlanThatWasShownRuns(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		input := s.File("data.csv", "1\n") + ":data.csv"
		shown, status := planned(t, s, "--allow-degraded", degraded, "--in", input, "--", "python3", "-c", writes)
		if status != 0 {
			t.Fatalf("%+v", shown)
		}
		trace := filepath.Join(s.Dir, "t.jsonl")
		for name, flags := range map[string][]string{"alone": nil, "traced": {"--trace", trace}} {
			if res, ran := executed(t, s, append([]string{"--policy", "sales-summary", "--in", input, "--plan", shown.PlanDigest}, flags...)...); !ran || res.ExitStatus != 0 {
				t.Errorf("control, %s: ran %v, %+v", name, ran, res.Reason)
			}
			for what, changed := range map[string][]string{
				"a limit":      {"--policy", "sales-summary", "--limit", "wall=7s", "--in", input, "--plan", shown.PlanDigest},
				"other bytes":  {"--policy", "sales-summary", "--in", s.File("other.csv", "2\n") + ":data.csv", "--plan", shown.PlanDigest},
				"no input":     {"--policy", "sales-summary", "--plan", shown.PlanDigest},
				"another plan": {"--policy", "sales-summary", "--in", input, "--plan", strings.Replace(shown.PlanDigest, "sha256:", "sha256:0", 1)},
			} {
				if res, ran := executed(t, s, append(changed, flags...)...); ran || res.Reason == nil || res.Reason.ID != reason.PlanChanged {
					t.Errorf("%s, %s: ran %v, reason %+v", what, name, ran, res.Reason)
				}
			}
		}
	})
}
