package vm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

func TestMain(m *testing.M) {
	// Not a skip in each test: `go test ./...` on a laptop must not install an emulator.
	if os.Getenv("NSBOX_VM") != "1" {
		println("vm: guests are booted where NSBOX_VM=1; make test and make test-vm set it")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// gotest is a package whose own tests run in a guest as well: what they say
// about this machine's kernel they must say about the guest's.
type gotest struct {
	tier, who string // who: root, user, or scope: the user in a delegated scope
	pkg       string
	usual     string // which of its tests run without NSBOX_TEST_ALL, as the go command takes it
	skip      string // tests that meet no kernel and take long emulated, or that want what this guest is not
	seconds   int    // the most it may take there
	harness   bool   // it drives the built nsbox, and holds the launcher's types, which need cgo
}

const (
	every = "."
	none  = "^$"
	// byTheClock are tests of tests/e2e that judge by seconds of a machine that
	// is not emulated, or repeat a run for minutes; tests/limits has their limits.
	byTheClock = "^(TestS13a|TestCPUBudget|TestProcessCPU|TestForkBomb|TestStubbornTrees|TestCancel|TestCancelEarly|TestStdin|TestTimeInLine|TestUnderLoad|TestOutputFlood|TestReaderGoesAway|TestKilledLauncher|TestExitTable|TestBusy|TestDeliverNeverOverwrites|TestHostIdentity)$"
)

func gotests() []gotest {
	return []gotest{
		{"quick", "user", "cgroupv2", every, none, 300, false},
		{"quick", "root", "cgroupv2", "^TestReal", none, 300, false},
		// What the stages do before main is a fact of the build, not of a kernel.
		{"quick", "root", "nsexec", none, "^(TestCompileIsPure|TestInitsGolden)$", 900, false},
		{"quick", "user", "tests/limits", "^(TestS6|TestS13|TestScratch|TestHugePages)", "^TestScopeCost$", 2400, true},
		{"systemd", "scope", "cgroupv2", none, none, 300, false},
		{"systemd", "scope", "tests/limits", none, "^Test([^S]|S[^c]|Scr)", 900, true}, // TestScopeCost alone
		{"systemd", "user", "launcher/probe", none, none, 180, false},
		{"systemd", "user", "launcher/rootfs", none, none, 180, false},
		{"systemd", "user", "tests/e2e", "^(TestDemo|TestS1|TestS2|TestS3)$", byTheClock, 2400, true},
		// Each run asks systemd for a scope there; the long series are the quick tier's.
		{"systemd", "user", "tests/limits", "^(TestS6|TestS13|TestScratch|TestBombs)", "^(TestOvershoot|TestMemoryVerdict|TestNothingIsLeft|TestHugePages|TestScopeCost)$", 2400, true},
	}
}

func (g gotest) runs(tier string) bool {
	return g.tier == tier && (harness.Whole() || g.usual != none)
}

func (g gotest) name() string { return g.who + "-" + strings.ReplaceAll(g.pkg, "/", "-") }

// makePayload gathers the main job, the facts program and the static test
// binaries around the scripts of payload/TIER.
func makePayload(t *testing.T, tier string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("payload", tier))); err != nil {
		t.Fatal(err)
	}
	copyFile(t, "payload/job.sh", filepath.Join(dir, "job.sh"), 0o644)
	copyFile(t, product(t), filepath.Join(dir, "nsbox"), 0o755)
	for _, beside := range []string{"nsbox-verify", "nsbox-verify-shim"} {
		copyFile(t, filepath.Join(root(t), "bin", beside), filepath.Join(dir, beside), 0o755)
	}
	patientPolicy(t, filepath.Join(dir, "nsbox"), filepath.Join(dir, "policy.json"))
	// Where tests look for the repository they find what they need of it.
	copyFile(t, filepath.Join(root(t), "go.mod"), filepath.Join(dir, "src", "go.mod"), 0o644)
	for _, of := range []string{"demo", "tests/programs"} {
		copySources(t, filepath.Join(root(t), of), filepath.Join(dir, "src", of))
	}
	for _, name := range []string{"txhousing.csv", "summarise.py"} {
		copyFile(t, filepath.Join(root(t), "demo", name), filepath.Join(dir, name), 0o644)
	}
	if err := os.WriteFile(filepath.Join(dir, "whole"), []byte(os.Getenv("NSBOX_TEST_ALL")), 0o644); err != nil {
		t.Fatal(err)
	}
	static := []string{"CGO_ENABLED=0"}
	command(t, static, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "facts"), "./tests/vm/facts")
	var index strings.Builder
	for _, g := range gotests() {
		if !g.runs(tier) {
			continue
		}
		// Some tests read their package's files, or those of the one beside it.
		for _, pkg := range []string{g.pkg, "cgroupv2", "nsexec/wire"} {
			copySources(t, filepath.Join(root(t), pkg), filepath.Join(dir, "src", pkg))
		}
		binary := filepath.Join(dir, "src", g.pkg, "package.test")
		if g.harness {
			command(t, []string{"CGO_ENABLED=1"}, "go", "test", "-c", "-tags", "netgo,osusergo", "-ldflags", `-s -w -linkmode external -extldflags "-static"`, "-o", binary, "./"+g.pkg)
		} else {
			command(t, static, "go", "test", "-c", "-ldflags", "-s -w", "-o", binary, "./"+g.pkg)
		}
		mustBeStatic(t, binary)
		run := g.usual
		if harness.Whole() {
			run = every
		}
		fmt.Fprintln(&index, g.who, g.name(), g.pkg, g.seconds, run, g.skip)
	}
	if err := os.WriteFile(filepath.Join(dir, "gotests"), []byte(index.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// patientPolicy writes the main job's policy with what the clock of the wall
// bounds made longer, for an emulated machine; every other limit is the preset's.
func patientPolicy(t *testing.T, nsbox, path string) {
	t.Helper()
	shown, err := exec.Command(nsbox, "policy", "show", "sales-summary").Output()
	if err != nil {
		t.Fatal(err)
	}
	var policy map[string]any
	if err := json.Unmarshal(shown, &policy); err != nil {
		t.Fatal(err)
	}
	for key, seconds := range map[string]int{"budget_provision_boot": 120, "wall_workload": 240, "budget_stop_proof": 60,
		"budget_exporter_lifecycle": 60, "exporter_wall": 60, "budget_cleanup": 60, "attempt_hard_deadline": 600} {
		policy["resources"].(map[string]any)[key].(map[string]any)["value"] = seconds
	}
	data, err := json.MarshalIndent(policy, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// copySources copies a package's own files and its testdata.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			copyFile(t, filepath.Join(from, e.Name()), filepath.Join(to, e.Name()), 0o644)
		}
	}
	if into := filepath.Join(to, "testdata"); exists(filepath.Join(from, "testdata")) && !exists(into) {
		if err := os.CopyFS(into, os.DirFS(filepath.Join(from, "testdata"))); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// jobResult is the part of nsbox's JSON result that is judged here.
type jobResult struct {
	Workload  struct{ Outcome string }
	Artifact  struct{ Outcome string }
	Cleanup   struct{ Outcome string }
	Delivery  struct{ Outcome string }
	Reason    *struct{ ID, What, Why, Next string }
	Resources struct {
		CPUSource string `json:"cpu_source"`
	}
	Degraded []struct {
		Dimension string
	}
	Durations   map[string]float64 `json:"durations_ms"`
	Attestation []struct {
		Restriction, Requested, Shown, Status, Grade string
	}
}

// enforced is what the kernel showed for a restriction, or nothing unless it is enforced.
func (j jobResult) enforced(restriction string) string {
	for _, r := range j.Attestation {
		if r.Restriction == restriction && r.Status == "enforced" {
			return r.Shown
		}
	}
	return ""
}

// idMap reads "INSIDE OUTSIDE COUNT, …" of an attestation row.
func idMap(t *testing.T, j jobResult, restriction string) map[int]int {
	t.Helper()
	ids := map[int]int{}
	for entry := range strings.SplitSeq(j.enforced(restriction), ", ") {
		var inside, outside, count int
		if _, err := fmt.Sscan(entry, &inside, &outside, &count); err != nil || count != 1 {
			t.Fatalf("%s entry %q: %v", restriction, entry, err)
		}
		ids[inside] = outside
	}
	return ids
}

// delivered wants the main job done to the last byte, and returns its result.
func delivered(t *testing.T, r results, name string) jobResult {
	t.Helper()
	if code := r.status(t, name+".status"); code != 0 {
		t.Fatalf("job %s: exit status %d\n%s", name, code, r.text(t, name+".txt"))
	}
	var j jobResult
	r.decode(t, name+".json", &j)
	if j.Workload.Outcome != "EXITED" || j.Artifact.Outcome != "ACCEPTED" || j.Cleanup.Outcome != "VERIFIED" || j.Delivery.Outcome != "DELIVERED" {
		t.Errorf("job %s: workload %s, artifact %s, cleanup %s, delivery %s", name, j.Workload.Outcome, j.Artifact.Outcome, j.Cleanup.Outcome, j.Delivery.Outcome)
	}
	if !strings.Contains(r.text(t, name+".txt"), programSays) {
		t.Errorf("job %s printed nothing", name)
	}
	got := r.text(t, name+"/summary.csv")
	want, err := os.ReadFile(filepath.Join(root(t), "demo/txhousing-by-city.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal([]byte(got), want) {
		t.Errorf("job %s delivered another summary:\n%s", name, got)
	}
	for _, row := range j.Attestation {
		if row.Status == "mismatch" {
			t.Errorf("job %s: %s is %s, want %s", name, row.Restriction, row.Shown, row.Requested)
		}
	}
	t.Logf("job %s: cpu by %q, uid_map %s, landlock %s, degraded %v, ms %v", name, j.Resources.CPUSource, j.enforced("uid_map"), j.enforced("landlock"), j.Degraded, j.Durations)
	return j
}

// programSays stands in what the main job's program prints.
const programSays = " dollars not counted"

// facts is what the facts program prints.
type facts struct {
	Kernel         string `json:"kernel"`
	UID            int    `json:"uid"`
	LandlockABI    int    `json:"landlock_abi"`
	Cgroup         string `json:"cgroup"`
	Controllers    string `json:"controllers"`
	SubtreeControl string `json:"subtree_control"`
	OwnMkdir       string `json:"own_mkdir"`
	ParentMkdir    string `json:"parent_mkdir"`
	CgroupMount    string `json:"cgroup_mount"`
	UIDMap         string `json:"uid_map"`
}

func readFacts(t *testing.T, r results, name string) facts {
	t.Helper()
	var f facts
	r.decode(t, name+".facts", &f)
	t.Logf("%s: %+v", name, f)
	return f
}

// passed wants every package's own tests to have passed in the guest.
func passed(t *testing.T, r results, tier string) {
	t.Helper()
	for _, g := range gotests() {
		if !g.runs(tier) {
			continue
		}
		out := r.text(t, g.name()+".gotest")
		if code := r.status(t, g.name()+".gotest.status"); code != 0 {
			t.Errorf("tests of %s as %s in the guest ended with %d:\n%s", g.pkg, g.who, code, failures(out))
		} else if strings.Count(out, "--- PASS") == 0 {
			t.Errorf("tests of %s as %s: nothing ran in the guest:\n%s", g.pkg, g.who, out)
		} else {
			t.Logf("tests of %s as %s: %d passed, %d skipped", g.pkg, g.who, strings.Count(out, "--- PASS"), strings.Count(out, "--- SKIP"))
		}
	}
}

// failures is the part of a test log that is about what failed: all of it
// from the first failing or panicking line's test on would be too long to read.
func failures(log string) string {
	const most = 6000
	var b strings.Builder
	for _, part := range strings.SplitAfter(log, "=== RUN") {
		if strings.Contains(part, "--- FAIL") || strings.Contains(part, "panic:") || strings.Contains(part, "FAIL:") {
			b.WriteString(part)
		}
	}
	if b.Len() == 0 {
		b.WriteString(log)
	}
	return b.String()[max(0, b.Len()-most):]
}
