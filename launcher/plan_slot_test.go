package launcher

import (
	"reflect"
	"testing"
)

// Which slot is free changes the ids of the box, and not what was planned.
func TestDigestDoesNotDependOnTheSlot(t *testing.T) {
	digest := func(slot int) (string, *Plan) {
		f := goodFacts(t)
		f.Slot = slot
		p, src := goodPolicy(t)
		pl, err := MakePlan(goodRequest(), p, src, f)
		if err != nil {
			t.Fatal(err)
		}
		d, err := pl.Digest(nil)
		if err != nil {
			t.Fatal(err)
		}
		return d, pl
	}
	d0, p0 := digest(0)
	d1, p1 := digest(1)
	if d0 != d1 {
		t.Errorf("slot 0 gives %s, slot 1 %s", d0, d1)
	}
	if reflect.DeepEqual(p0.Box.Identity, p1.Box.Identity) || reflect.DeepEqual(p0.Exporter.Identity, p1.Exporter.Identity) {
		t.Error("two slots have the same ids")
	}
}

// Where pids.max is in force it must be the limit that is met: only it counts
// what it denies.
func TestProcessLimitLeavesTheCountToPidsMax(t *testing.T) {
	nproc := func(controllers ...string) uint64 {
		f := goodFacts(t)
		f.Controllers = controllers
		for _, l := range mustPlan(t, f).Box.Rlimits {
			if l.Name == "nproc" {
				return l.Hard
			}
		}
		t.Fatal("no nproc limit")
		return 0
	}
	if with, without := nproc("memory", "pids", "cpu"), nproc("memory", "cpu"); with != 33 || without != 32 {
		t.Errorf("with pids.max %d, without %d; want 33 and 32", with, without)
	}
}
