package limits

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/tests/harness"
)

const mib = 1 << 20

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// guest makes a site in a guest; on another machine there is nothing to show.
func guest(t *testing.T) *harness.Site {
	t.Helper()
	if os.Getenv("NSBOX_VM_TIER") == "" {
		t.Skip("limits are shown in the guests of tests/vm: make test-vm")
	}
	callers := harness.Callers(t)
	if len(callers) != 1 || callers[0].UID == 0 {
		t.Fatalf("started by %v, want one ordinary user", callers)
	}
	return harness.NewSite(t, callers[0])
}

// profile is a test profile of the specification.
func profile(t *testing.T, name string) []harness.Change {
	t.Helper()
	set := harness.Set
	switch name {
	case "TP-PROD":
		return []harness.Change{set("wall_workload", 30)}
	case "TP-WALL":
		return []harness.Change{set("wall_workload", 1), set("cpu_total", 5)}
	case "TP-CPU":
		return []harness.Change{set("cpu_total", 2), set("wall_workload", 20)}
	case "TP-AGG":
		return []harness.Change{set("cpu_total", 3), set("cpu_per_process_rlimit", 10), set("wall_workload", 15)}
	case "TP-MEM":
		return []harness.Change{set("memory_workload", 64), set("memory_swap", 0), set("cpu_total", 10), set("wall_workload", 15)}
	case "TP-PID":
		return []harness.Change{set("tasks_job", 8), set("cpu_total", 10), set("wall_workload", 5)}
	}
	t.Fatalf("no profile %s", name)
	return nil
}

// fixture is one of testdata/fixtures.py under a policy.
func fixture(t *testing.T, s *harness.Site, policy []harness.Change, args ...string) harness.Job {
	t.Helper()
	code, err := os.ReadFile("testdata/fixtures.py")
	if err != nil {
		t.Fatal(err)
	}
	flags := []string{"--allow-degraded", "out_storage"}
	if dir := os.Getenv("NSBOX_LIMITS_CGROUP"); dir != "" {
		flags = append(flags, "--cgroup", dir)
	}
	// The shortest start of the interpreter: it is paid from the same budget.
	file := s.File("job-"+s.Marker+".py", string(code))
	return harness.Job{Argv: append([]string{"python3", "-I", "-S", "/in/" + filepath.Base(file)}, args...), In: []string{file},
		Policy: policy, Bare: true, Flags: flags}
}

// run wants the outcome, every limit held by the kernel, and nothing left.
func run(t *testing.T, s *harness.Site, job harness.Job, outcome string, status int) *harness.Run {
	t.Helper()
	r := s.Run(job).Want(outcome, status)
	held(t, r)
	return r
}

// held wants every limit of the job read back from its cgroup, nothing degraded
// but the storage, and the clean-up proven.
func held(t *testing.T, r *harness.Run) {
	t.Helper()
	for _, d := range r.Result.Degraded {
		if d.Dimension != "out_storage" {
			t.Errorf("%s is degraded: %s", d.Dimension, d.Instead)
		}
	}
	for _, file := range []string{"work/memory.max", "work/memory.swap.max", "work/memory.oom.group", "work/pids.max", "work/cpu.max"} {
		if !slices.ContainsFunc(r.Result.Attestation, func(row attest.Row) bool {
			return row.Restriction == file && row.Status == "enforced" && row.Shown == row.Requested
		}) {
			t.Errorf("%s is not shown to be enforced", file)
		}
	}
	if r.Result.Cleanup.Outcome != launcher.CleanupVerified {
		t.Errorf("clean-up %+v", r.Result.Cleanup)
	}
	if r.Result.Resources.Cgroup == nil {
		t.Fatalf("no figures of a cgroup: %+v", r.Result.Reason)
	}
}

// lines decodes what the fixture said, the later value of a name winning.
func lines(t *testing.T, r *harness.Run) map[string]any {
	t.Helper()
	all := map[string]any{}
	for line := range strings.Lines(string(r.Stdout)) {
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			t.Fatalf("the fixture said %q: %v", line, err)
		}
	}
	return all
}

// groups is every directory of the hierarchy: what a run leaves shows here.
func groups(t *testing.T) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, p)
		}
		return nil // groups of others come and go during the walk
	})
	if err != nil || len(all) < 3 {
		t.Fatalf("%d groups, %v", len(all), err)
	}
	return strings.Join(all, "\n")
}

// sameGroups wants the listing of before back. A scope of systemd's is removed
// by systemd, some time after its last process.
func sameGroups(t *testing.T, before string) {
	t.Helper()
	after := ""
	for range 100 {
		if after = groups(t); after == before {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("groups before:\n%s\nafter:\n%s", before, after)
}

// quantiles sorts and names p50, p99 and the most.
func quantiles(values []float64) (p50, p99, most float64) {
	slices.Sort(values)
	at := func(q float64) float64 { return values[min(int(q*float64(len(values))), len(values)-1)] }
	return at(0.5), at(0.99), values[len(values)-1]
}
