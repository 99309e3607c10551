package limits

import (
	"os"
	"slices"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestScopeCost tells what it costs that a run asks systemd for its subtree,
// against one that is given a delegated directory. The figures are printed and
// nothing is judged by them; both ways must hold every limit.
func TestScopeCost(t *testing.T) {
	s := guest(t)
	given := os.Getenv("CGROUPV2_TEST_ROOT")
	if given == "" {
		t.Fatal("CGROUPV2_TEST_ROOT names no delegated directory")
	}
	asked := fixture(t, s, nil, "short", "1")
	asked.PolicyArg, asked.Policy = s.Policy(profile(t, "TP-PROD")...), nil
	told := asked
	told.Flags = append(slices.Clone(asked.Flags), "--cgroup", given)
	took := map[bool][]float64{}
	for i := range 2 * harness.Series(20, 5, 5) {
		job, scope := asked, i%2 == 0
		if !scope {
			job = told
		}
		began := time.Now()
		run(t, s, job, launcher.Exited, 0)
		took[scope] = append(took[scope], time.Since(began).Seconds()*1000)
	}
	slices.Sort(took[true])
	slices.Sort(took[false])
	scope, dir := took[true][len(took[true])/2], took[false][len(took[false])/2]
	t.Logf("an exec that asks systemd for a scope: %.0f ms, one with --cgroup: %.0f ms (medians of %d); the scope costs %.0f ms, %.0f%% of the exec", scope, dir, len(took[true]), scope-dir, 100*(scope-dir)/dir)
}
