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
		d, err := pl.Digest()
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
