package conformance

import "testing"

// TestUnpermitted: a verdict that a tier does not permit is told, FAIL on each.
func TestUnpermitted(t *testing.T) {
	for _, tier := range Tiers() {
		r := Report{Outcomes: []Outcome{{ID: "S1", Verdict: Pass}, {ID: "S1", Verdict: Blocked}, {ID: "S17", Verdict: NotApplicable}, {ID: "S6a", Verdict: Fail}, {ID: "S2", Verdict: SetupFailure}}}
		if bad := Unpermitted(tier, r); len(bad) != 3 {
			t.Errorf("%s: %q", tier, bad)
		}
	}
}
