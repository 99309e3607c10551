package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/reason"
)

// manifestDigest is the specification's document; the preset may not drift from it.
const manifestDigest = "539008e193d1c26feefaacf4c906630b32ca8943b8ad7a51dfa6f01596e365f1"

func manifest(t testing.TB) []byte {
	t.Helper()
	raw, ok := PresetBytes("sales-summary")
	if !ok {
		t.Fatal("preset sales-summary is not embedded")
	}
	return raw
}

func decodeManifest(t testing.TB) *Policy {
	t.Helper()
	p, err := Decode("manifest", manifest(t))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// faultsOf returns the faults behind an error and checks the error's own shape.
func faultsOf(t testing.TB, err error) Faults {
	t.Helper()
	var f Faults
	if !errors.As(err, &f) || len(f) == 0 {
		t.Fatalf("error %v carries no faults", err)
	}
	e := reason.Of(err)
	if e == nil || e.ID != f.Reason() || e.ID == "" {
		t.Fatalf("error %v has reason %v; want the first fault's, %v", err, e, f.Reason())
	}
	for _, x := range f {
		if x.ID == "" || x.What == "" || strings.ContainsAny(x.What+x.Path+x.Next, "\n\x1b") {
			t.Errorf("fault %+v is not one printable line with an id", x)
		}
	}
	return f
}

func TestManifestVerbatim(t *testing.T) {
	raw := manifest(t)
	sum := sha256.Sum256(raw)
	if got := hex.EncodeToString(sum[:]); got != manifestDigest {
		t.Fatalf("preset has digest %s, the specification's is %s", got, manifestDigest)
	}
	p, src, err := Load("sales-summary")
	if err != nil {
		t.Fatal(err)
	}
	if src.Arg != "preset:sales-summary" || src.Digest != "sha256:"+manifestDigest || !bytes.Equal(src.Raw, raw) {
		t.Errorf("source is %q %q", src.Arg, src.Digest)
	}
	again, src2, err := Load("preset:sales-summary")
	if err != nil || src2.Digest != src.Digest || !cmp.Equal(p, again) {
		t.Errorf("preset:sales-summary differs from sales-summary: %v", err)
	}
}

func TestMarshalKeepsTheDocument(t *testing.T) {
	out, err := json.Marshal(decodeManifest(t))
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(manifest(t), &want), json.Unmarshal(out, &got)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLimitsOfTheManifest(t *testing.T) {
	var want Limits
	want.CPU.RatePercent, want.CPU.Total, want.CPU.PerProcess = 100, 25*time.Second, 25*time.Second
	want.Wall, want.Memory.Bytes, want.Tasks, want.FDs = 30*time.Second, 256<<20, 32, 64
	want.FileSize, want.Input, want.Scratch.Bytes, want.Scratch.Inodes = 64<<20, 64<<20, 64<<20, 256
	want.Out.Bytes, want.Out.Inodes, want.Out.FileBytes, want.Out.Files = 8<<20, 64, 1<<20, 1
	want.Log.Stdout, want.Log.Stderr, want.Log.Runtime, want.IOWriteRate = 65536, 65536, 131072, 16<<20
	e := &want.Exporter
	e.CPU, e.Memory, e.Tasks, e.FDs, e.Wall = 5*time.Second, 64<<20, 4, 32, 10*time.Second
	e.MaxLine, e.MaxRows, e.Log = 8192, 20000, 16384
	a := &want.Attempt
	a.ProvisionBoot, a.StopProof, a.ExporterLifecycle, a.Cleanup, a.Deadline = 10*time.Second, 5*time.Second, 10*time.Second, 10*time.Second, 70*time.Second
	p := decodeManifest(t)
	if d := cmp.Diff(want, p.Limits()); d != "" {
		t.Error(d)
	}
	if sum := want.budgets(); sum != 65*time.Second {
		t.Errorf("budgets are %v", sum)
	}
}

// The rows and the struct are two lists of the same keys.
func TestResourceRowsFollowTheStruct(t *testing.T) {
	var d decoder
	p := decodeManifest(t)
	d.fields = map[reflect.Type][]field{}
	for i, f := range d.fieldsOf(reflect.TypeFor[resources]()) {
		if f.key != resourceRows[i].key {
			t.Errorf("row %d is %s, field is %s", i, resourceRows[i].key, f.key)
		}
	}
	for i, r := range p.Resources.all() {
		row := resourceRows[i]
		if r.Unit != row.unit || r.Scope != row.scope {
			t.Errorf("%s: row has %s %s, manifest %s %s", row.key, row.unit, row.scope, r.Unit, r.Scope)
		}
	}
}

func TestEnviron(t *testing.T) {
	want := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
	if d := cmp.Diff(want, decodeManifest(t).Environ(64)); d != "" {
		t.Error(d)
	}
	for _, name := range strings.Split(envNames, ", ") {
		if _, ok := envValue(name, 1); !ok {
			t.Errorf("%s is offered but has no value", name)
		}
	}
}

// TestThreadsFollowTheCPURate: one thread for each cpu that the policy pays for,
// the host has and the task limit has room for.
func TestThreadsFollowTheCPURate(t *testing.T) {
	for _, c := range []struct {
		percent, tasks float64
		cpus, want     int
	}{
		{50, 8, 64, 1}, {100, 8, 64, 1}, {199, 8, 64, 1}, {400, 8, 64, 4}, {400, 8, 2, 2}, {1600, 8, 64, 8}, {100000, 512, 16, 16}, {400, 8, 0, 1},
	} {
		p := decodeManifest(t)
		p.Resources.CPURate.Value, p.Resources.TasksJob.Value = c.percent, c.tasks
		p.ProcessPolicy.EnvAllowlist = []string{"PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
		n := strconv.Itoa(c.want)
		want := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "OMP_NUM_THREADS=" + n, "OPENBLAS_NUM_THREADS=" + n, "MKL_NUM_THREADS=" + n}
		if d := cmp.Diff(want, p.Environ(c.cpus)); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
}

func TestDimensions(t *testing.T) {
	if err := CheckDimensions([]string{"memory", "cpu_rate", "memory", "landlock"}); err != nil {
		t.Errorf("known names, one doubled: %v", err)
	}
	if err := CheckDimensions(nil); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"Memory", "", "memroy", "memory,cpu_rate", "\x1b[31m"} {
		err := reason.Of(CheckDimensions([]string{"memory", bad}))
		if err == nil || err.ID != reason.DegradeUnknown || !strings.Contains(err.Next, "launcher_identity") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"wal", "wall"}, {"WALL", "wall"}, {"memroy", "memory"}, {"tasks", "tasks"}, {"xyzzy", ""}, {"", ""}, {strings.Repeat("w", 100), ""},
	} {
		if got := nearest(c.word, []string{"wall", "memory", "tasks"}); got != c.want {
			t.Errorf("nearest(%q) = %q, want %q", c.word, got, c.want)
		}
	}
}

func TestLintOfTheManifest(t *testing.T) {
	notes := Lint(decodeManifest(t))
	for _, want := range []struct{ path, text string }{
		{"isolation_backend.name", "own namespace box"},
		{"process_policy.mac", "Landlock is required"},
		{"process_policy.seccomp.status", "filter is required"},
		{"resources.io_write_rate", "nothing enforces it"},
		{"resources.memory_workload.value", "leave 184 MiB for the program"},
		{"execution_identity.host_launcher.uid", "dedicated unprivileged"},
		{"filesystem.export_scope", "out_storage"},
		{"artifact_export.immutable_copy.immutability", "taken strictly"},
		{"enforcement_points[0].implementation_status", "UNVERIFIED"},
		{"blockers[12]", "B13"},
	} {
		if !hasNote(notes, want.path, want.text, false) {
			t.Errorf("no note at %s with %q", want.path, want.text)
		}
	}
	for _, n := range notes {
		if n.Warn {
			t.Errorf("the manifest draws a warning: %+v", n)
		}
	}
}

func hasNote(notes []Note, path, text string, warn bool) bool {
	for _, n := range notes {
		if n.Path == path && strings.Contains(n.Text, text) && n.Warn == warn {
			return true
		}
	}
	return false
}

func TestLintWarns(t *testing.T) {
	for _, c := range []struct {
		edit       map[string]any
		path, text string
	}{
		{map[string]any{"resources.memory_workload.value": 72}, "resources.memory_workload.value", "leave nothing"},
		{map[string]any{"resources.out_file_size_accept.value": 9}, "resources.out_file_size_accept.value", "never be reached"},
		{map[string]any{"resources.workload_file_size.unit": "KiB"}, "resources.workload_file_size.value", "before the 1 MiB"},
		{map[string]any{"resources.exporter_wall.value": 11}, "resources.exporter_wall.value", "ends the exporter first"},
		{map[string]any{"resources.cpu_total.value": 31}, "resources.cpu_total.value", "cannot be used up"},
		{map[string]any{"filesystem.denied_mounts[5]": remove{}}, "filesystem.denied_mounts", `"host_etc" is left out`},
		{map[string]any{"degrade": []any{"memory"}}, "degrade", "weaker in: memory"},
	} {
		p, err := Decode("edited", edited(t, c.edit))
		if err != nil {
			t.Errorf("%v: %v", c.edit, err)
			continue
		}
		if !hasNote(Lint(p), c.path, c.text, true) {
			t.Errorf("%v: no warning at %s with %q", c.edit, c.path, c.text)
		}
	}
}

func BenchmarkDecodeManifest(b *testing.B) {
	raw := manifest(b)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := Decode("manifest", raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadPreset(b *testing.B) {
	for b.Loop() {
		if _, _, err := Load("sales-summary"); err != nil {
			b.Fatal(err)
		}
	}
}
