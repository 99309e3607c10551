package policy

import "testing"

func TestRetention(t *testing.T) {
	p, err := Decode("test", edited(t, nil))
	if err != nil || p.Retention() != (Retention{14, 90}) {
		t.Fatalf("without the key: %v, %v", p.Retention(), err)
	}
	p, err = Decode("test", edited(t, map[string]any{"lifecycle.retention": map[string]any{"results_days": 1, "audit_days": 3653}}))
	if err != nil || p.Retention() != (Retention{1, 3653}) {
		t.Fatalf("with it: %v, %v", p, err)
	}
	for _, bad := range []any{
		map[string]any{"results_days": 0, "audit_days": 90}, map[string]any{"results_days": 14, "audit_days": -1},
		map[string]any{"results_days": 14, "audit_days": 3654}, map[string]any{"results_days": 14}, map[string]any{},
		map[string]any{"results_days": 1.5, "audit_days": 90}, map[string]any{"results_days": 14, "audit_days": 90, "x": 1}, "forever",
	} {
		if _, err := Decode("test", edited(t, map[string]any{"lifecycle.retention": bad})); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
