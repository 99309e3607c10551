package launcher

import "testing"

// A clock on a busy machine does not see a table that is made anew for each
// mount; its allocations do.
func TestPlanAllocatesNoMoreThanItHolds(t *testing.T) {
	f, req := goodFacts(t), goodRequest()
	p, src := goodPolicy(t)
	var nodes int
	used := testing.AllocsPerRun(20, func() {
		pl, err := MakePlan(req, p, src, f)
		if err != nil {
			t.Fatal(err)
		}
		nodes = len(pl.Box.Root)
	})
	// 639 for 25 nodes when this was written, nearly half to make denied_mounts ready, once.
	if most := 1000.0; nodes > 30 || used > most {
		t.Errorf("%.0f allocations for a root of %d nodes; at most %.0f for 30", used, nodes, most)
	}
}
