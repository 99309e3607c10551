package crash

import (
	"testing"

	"nsbox/launcher/outslot"
	"nsbox/tests/harness"
)

// TestKillMatrixOfProvisionedRuns kills a launcher whose /out is an operator's slot,
// which outlives it. Besides what holds of every run: whatever the slot kept is
// given to nobody, the next run has the other slot, and after a reconcile both are
// as root made them. The policy takes nothing but a slot, so no run falls back.
func TestKillMatrixOfProvisionedRuns(t *testing.T) {
	o := harness.NewOperator(t)
	o.Apply()
	b := &bench{t: t, caller: o.Caller(), bin: harness.Binary(t), every: 24, tally: map[string]int{}}
	b.site = harness.NewSite(t, b.caller)
	b.dir, b.state = b.site.Dir, b.site.State
	b.policy = b.site.Policy(harness.Change{Path: "out_storage", Value: "provisioned", Added: true})
	kept := 0
	left := func(n int) string {
		seen, err := outslot.Look(o.Slot(n))
		if err != nil {
			t.Fatal(err)
		}
		return seen.Left()
	}
	b.always = ending("unlinkat", "job.py") // the clean-up has begun, and the slot is still full
	b.killed = func() {
		if left(0)+left(1) != "" {
			kept++
		}
	}
	b.clean = func(fail failer) {
		for n := range 2 {
			if l := left(n); l != "" {
				fail("after reconcile slot %d keeps %s", n, l)
			}
		}
	}
	b.warm()
	b.killMatrix()
	t.Logf("after %d of them a slot kept what the program had left", kept)
	if kept == 0 && *only < 0 && !*long {
		t.Error("control: no kill left anything in a slot")
	}
}
