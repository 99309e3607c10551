package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// TestRecordDoc holds the committed record: every fixture has a line on each
// recorded tier, no verdict is other than the tier permits, and the permitted
// lists are those of the code.
func TestRecordDoc(t *testing.T) {
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "docs", "conformance.md"))
	if err != nil {
		t.Fatalf("%v: make conformance", err)
	}
	empty := RecordDoc(nil)
	row := regexp.MustCompile(`(?m)^\| (\S+) .* \| ([A-Z_]+) \| (.*) \|$`)
	for i, part := range strings.Split(string(data), "\n## ")[1:] {
		tier, body, _ := strings.Cut(part, "\n")
		if tier != Tiers()[i] {
			t.Fatalf("tier %d is %q", i, tier)
		}
		rest, list, _ := strings.Cut(body, "\nPermitted besides PASS: ")
		if !strings.Contains(empty, "Permitted besides PASS: "+strings.TrimSpace(list)) {
			t.Errorf("%s: the permitted list is not the code's: make conformance", tier)
		}
		if strings.TrimSpace(rest) == "Not recorded." && tier == TierVM {
			continue
		}
		var r Report
		for _, m := range row.FindAllStringSubmatch(rest, -1) {
			r.Outcomes = append(r.Outcomes, Outcome{ID: m[1], Verdict: Verdict(m[2]), Reason: m[3]})
		}
		if len(r.Outcomes) != len(All()) {
			t.Errorf("%s: %d of %d fixtures are recorded", tier, len(r.Outcomes), len(All()))
		}
		for _, bad := range Unpermitted(tier, r) {
			t.Errorf("%s: %s", tier, bad)
		}
	}
}

// TestUnpermitted: a verdict that a tier does not permit is told, FAIL on each.
func TestUnpermitted(t *testing.T) {
	for _, tier := range Tiers() {
		r := Report{Outcomes: []Outcome{{ID: "S1", Verdict: Pass}, {ID: "S1", Verdict: Blocked}, {ID: "S17", Verdict: NotApplicable}, {ID: "S6a", Verdict: Fail}, {ID: "S2", Verdict: SetupFailure}}}
		if bad := Unpermitted(tier, r); len(bad) != 3 {
			t.Errorf("%s: %q", tier, bad)
		}
	}
}
