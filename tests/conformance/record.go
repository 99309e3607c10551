package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Permitted are the verdicts other than PASS that a fixture may have on a tier,
// each with the reason; nothing may be FAIL. Tiers are root and a plain user on a
// host like CI's (no controllers on the unified hierarchy, no provisioned
// storage, an operator's own account), and the guests of tests/vm.
func Permitted(tier string) map[string][]Verdict {
	list := map[string][]Verdict{
		"S17": {NotApplicable}, // no brokered credentials exist
		"S8":  {Blocked},       // no pip
		"S14": {Blocked},       // no dedicated launcher user
		// A machine too busy to spend the budget, or to swap in time.
		"S6a": {Inconclusive}, "S13b": {Inconclusive}, "A3a": {Inconclusive}, "S11": {Inconclusive},
	}
	also := func(ids ...string) {
		for _, id := range ids {
			list[id] = append(list[id], Blocked)
		}
	}
	if tier != TierVM {
		also("S6b", "B4") // no memory controller; B4's other limits are shown
	}
	if tier != TierRoot {
		also("S5", "S11", "S12", "S15", "B3") // the racer and networks with mock addresses take root
	}
	if tier == TierUser {
		also("S6a", "S13b", "A3a", "A4-L") // cpu_total is sampled, and no cgroup can be planted
	}
	return list
}

// The tiers that docs/conformance.md records.
const (
	TierRoot = "host, root"
	TierUser = "host, plain user"
	TierVM   = "vm, delegated user"
)

// Tiers lists them in order.
func Tiers() []string { return []string{TierRoot, TierUser, TierVM} }

// Unpermitted lists what a report shows that its tier does not permit.
func Unpermitted(tier string, r Report) (bad []string) {
	may := Permitted(tier)
	for _, o := range r.Outcomes {
		if o.Verdict != Pass && !slices.Contains(may[o.ID], o.Verdict) {
			bad = append(bad, fmt.Sprintf("%s is %s: %s", o.ID, o.Verdict, o.Reason))
		}
	}
	return bad
}

// RecordDoc is docs/conformance.md: the whole table of each tier's last recorded run.
func RecordDoc(runs map[string]Report) string {
	var b strings.Builder
	b.WriteString("# What the fixtures showed\n\nWritten by `make conformance` from the reports of `nsbox verify`; nothing is edited by\nhand. `nsbox verify --out DIR` makes the same on your machine, with its evidence.\n" +
		"BLOCKED, INCONCLUSIVE and NOT_APPLICABLE are no PASS: they say what this run does\nnot show.\n")
	for _, tier := range Tiers() {
		r, ok := runs[tier]
		fmt.Fprintf(&b, "\n## %s\n\n", tier)
		if !ok {
			b.WriteString("Not recorded.\n")
		} else {
			fmt.Fprintf(&b, "%s, Linux %s, %s, %s, %.0f s.\nCommand: `nsbox verify --out DIR`\n\n| fixture | verdict | shows, or why not |\n|---|---|---|\n",
				r.Started.Format("2006-01-02"), r.Kernel, r.System, r.Nsbox, float64(r.Millis)/1000)
			for _, o := range r.Outcomes {
				text := o.Shows
				if o.Verdict != Pass {
					text = o.Reason
				}
				fmt.Fprintf(&b, "| %s %s | %s | %s |\n", o.ID, o.Title, o.Verdict, strings.ReplaceAll(text, "|", "\\|"))
			}
		}
		var may []string
		for _, id := range slices.Sorted(maps.Keys(Permitted(tier))) {
			may = append(may, fmt.Sprintf("%s %s", id, strings.Trim(fmt.Sprint(Permitted(tier)[id]), "[]")))
		}
		fmt.Fprintf(&b, "\nPermitted besides PASS: %s.\n", strings.Join(may, ", "))
	}
	return b.String()
}
