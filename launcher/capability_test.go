package launcher

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/endpoint"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// goldenFile compares with a file of testdata; -update writes it.
func goldenFile(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (write it with -update):\n%s", path, d)
	}
}

func endpoints(t testing.TB, texts ...string) []endpoint.Endpoint {
	t.Helper()
	var out []endpoint.Endpoint
	for _, text := range texts {
		e, err := endpoint.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		out = append(out, e)
	}
	return out
}

func sampleCapabilities(t testing.TB) Capabilities {
	return Capabilities{
		Executable: "/usr//bin/../bin/inspect", Argv: []string{"inspect", "b", "a", "a"},
		ReadPaths: []string{"/in/b/", "/in", "/in/b/c", "/inside", "/lock"}, WritePaths: []string{"/out/./", "/scratch", "/out"},
		Destinations: endpoints(t, "b.example:443", "A.Example.:443", "[::ffff:192.0.2.1]:1", "a.example:443", "[2001:DB8::1]:443"),
		Environment:  []string{"PATH", "LANG", "PATH"}, MaxRuntimeMS: 20000,
	}
}

func TestCanonicalRequestGolden(t *testing.T) {
	c := sampleCapabilities(t)
	got, err := c.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	goldenFile(t, "capability.json", append(got, '\n'))
	// A second endpoint or path in another place changes nothing.
	slices.Reverse(c.ReadPaths)
	slices.Reverse(c.WritePaths)
	slices.Reverse(c.Destinations)
	slices.Reverse(c.Environment)
	if again, err := c.Canonical(); err != nil || string(again) != string(got) {
		t.Errorf("%v:\n%s\n%s", err, got, again)
	}
	n, _ := c.Normalised()
	if twice, err := n.Normalised(); err != nil || !cmp.Equal(n, twice, cmp.Comparer(func(a, b endpoint.Endpoint) bool { return a == b })) {
		t.Errorf("normalising is no fixed point: %v %+v", err, twice)
	}
	// The order of arguments does count.
	slices.Reverse(c.Argv)
	if other, _ := c.Canonical(); string(other) == string(got) {
		t.Error("argv is taken for a set")
	}
}

func TestNormalisedRefuses(t *testing.T) {
	if _, err := sampleCapabilities(t).Normalised(); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(*Capabilities){
		"no program":        func(c *Capabilities) { c.Executable = "" },
		"NUL in program":    func(c *Capabilities) { c.Executable = "a\x00b" },
		"no argv":           func(c *Capabilities) { c.Argv = nil },
		"NUL in argv":       func(c *Capabilities) { c.Argv[1] = "\x00" },
		"no end":            func(c *Capabilities) { c.MaxRuntimeMS = 0 },
		"negative end":      func(c *Capabilities) { c.MaxRuntimeMS = -1 },
		"relative path":     func(c *Capabilities) { c.ReadPaths[0] = "in" },
		"empty path":        func(c *Capabilities) { c.WritePaths[0] = "" },
		"dotdot":            func(c *Capabilities) { c.ReadPaths[0] = "/in/../etc" },
		"dotdot at the end": func(c *Capabilities) { c.ReadPaths[0] = "/in/.." },
		"NUL in path":       func(c *Capabilities) { c.ReadPaths[0] = "/\x00" },
		"empty variable":    func(c *Capabilities) { c.Environment[0] = "" },
		"a value":           func(c *Capabilities) { c.Environment[0] = "TOKEN=x" },
		"no endpoint":       func(c *Capabilities) { c.Destinations[0] = endpoint.Endpoint{} },
	} {
		c := sampleCapabilities(t)
		change(&c)
		_, err := c.Normalised()
		if e := reason.Of(err); e == nil || e.ID != reason.CapabilityInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGrants(t *testing.T) {
	p, _ := goodPolicy(t)
	c := Capabilities{
		Executable: "python3", Argv: []string{"python3"}, ReadPaths: []string{"/in/x", "/input"}, WritePaths: []string{"/", "/out/x"},
		Destinations: endpoints(t, "a.example:443", "a.example:444", "b.example:443"), Environment: []string{"HOME", "PATH"}, MaxRuntimeMS: 30001,
	}
	n, err := c.Normalised()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range Granted(n, p, endpoints(t, "A.example.:443"), false) {
		word := "no "
		if g.Allowed {
			word = "yes "
		}
		got = append(got, word+g.Capability+" "+g.Requested)
	}
	want := []string{"no execute python3", "yes read /in/x", "no read /input", "no write /", "no environment HOME", "yes environment PATH",
		"no runtime 30s", "yes connect a.example:443", "no connect a.example:444", "no connect b.example:443"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// fake is a backend whose execution leaves a mark.
type fake struct {
	matrix []string
	facts  Facts
	err    error
	marker string
}

func (f fake) Name() string                                     { return "fake" }
func (f fake) Matrix() []string                                 { return f.matrix }
func (f fake) survey(Request, *policy.Policy) (Facts, error)    { return f.facts, f.err }
func (f fake) execute(context.Context, Request, Streams) Result { return f.mark() }

func (f fake) mark() Result {
	res := newResult()
	if err := os.WriteFile(f.marker, nil, 0o600); err != nil {
		panic(err)
	}
	res.Workload.Outcome = Exited
	return res
}

func decided(t testing.TB, b fake, req Request, destinations ...string) *Decision {
	t.Helper()
	p, src := goodPolicy(t)
	return decide(b, req, p, src, b.facts, b.err, endpoints(t, destinations...))
}

// executed starts what was decided and reports whether the backend was reached.
func executed(t testing.TB, b fake, d *Decision) (Result, bool) {
	t.Helper()
	res := Start(t.Context(), b, d, goodRequest(), Streams{})
	_, err := os.Stat(b.marker)
	return res, err == nil
}

// wholeFacts are goodFacts with no limit inherited at all.
func wholeFacts(t testing.TB) Facts {
	f := goodFacts(t)
	for _, l := range rlimits(policy.Limits{}, f.Host, false) {
		f.Host.RLimits[l.Name] = probe.Unlimited
	}
	return f
}

func newFake(t testing.TB) fake {
	return fake{matrix: namespaces{}.Matrix(), facts: wholeFacts(t), marker: t.TempDir() + "/marker"}
}

// TestWithoutOneCapabilityNothingIsExecuted removes each member of the matrix in
// turn. Those that the operator's word has weakened are optional: their absence
// is an explicit degraded status.
func TestWithoutOneCapabilityNothingIsExecuted(t *testing.T) {
	control := newFake(t)
	// With a destination the plan has every row.
	p, src := openPolicy(t, "a.example:443")
	decided := func(b fake) *Decision { return decide(b, goodRequest(), p, src, b.facts, b.err, nil) }
	d := decided(control)
	if res, ran := executed(t, control, d); d.Verdict != VerdictRun || !ran || res.Workload.Outcome != Exited {
		t.Fatalf("control: %s %+v", d.Verdict, d.Reasons)
	}
	required, optional := 0, 0
	for _, capability := range control.matrix {
		b := newFake(t)
		b.matrix = slices.DeleteFunc(slices.Clone(control.matrix), func(s string) bool { return s == capability })
		d := decided(b)
		row := d.Rows[slices.IndexFunc(d.Rows, func(r DecisionRow) bool { return r.Name == capability })]
		if row.Want == Optional {
			optional++
			if row.Status != "degraded" || d.Verdict != VerdictRun {
				t.Errorf("%s: optional, status %s, %s", capability, row.Status, d.Verdict)
			}
			continue
		}
		required++
		res, ran := executed(t, b, d)
		if ran || d.Verdict != VerdictRefuse || row.Status != Unsupported || d.Plan != nil || d.Digest != "" {
			t.Errorf("%s: executed %v, %s, row %s", capability, ran, d.Verdict, row.Status)
		}
		if res.ExitStatus != ExitRefused || res.Reason == nil || res.Reason.ID != reason.BackendUnsupported || res.Reason.What != capability {
			t.Errorf("%s: status %d, reason %+v", capability, res.ExitStatus, res.Reason)
		}
	}
	if required < 10 || optional != 3 {
		t.Errorf("%d required, %d optional: the table is not what this test thinks", required, optional)
	}
}

// TestStartIsTheOnlyDoor: a decision made for another backend, an invented
// verdict and the zero value all stay outside.
func TestStartIsTheOnlyDoor(t *testing.T) {
	b := newFake(t)
	good := decided(t, b, goodRequest())
	other := *good
	other.Backend = BackendName
	word := *good
	word.Verdict = "run"
	for name, d := range map[string]*Decision{"another backend's": &other, "another word": &word, "zero": {}} {
		if res, ran := executed(t, b, d); ran || res.ExitStatus != ExitRefused || res.Reason == nil {
			t.Errorf("%s: executed %v, status %d", name, ran, res.ExitStatus)
		}
	}
}

func TestMatrixIsThePlansRows(t *testing.T) {
	p, src := openPolicy(t, "a.example:443")
	pl, err := MakePlan(goodRequest(), p, src, wholeFacts(t))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range pl.Restrictions {
		if r.Status != "blocked" {
			rows = append(rows, r.Name)
		}
	}
	if d := cmp.Diff(rows, namespaces{}.Matrix()); d != "" {
		t.Errorf("launcher/backend.go, Matrix, has to name the rows of restrictions():\n%s", d)
	}
}

// ids are the reasons of a decision in their order.
func ids(d *Decision) string {
	var out []string
	for _, r := range d.Reasons {
		out = append(out, string(r.ID))
	}
	return strings.Join(out, " ")
}
