package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// built returns the path of a program that make build made.
func built(t *testing.T, name string) string {
	t.Helper()
	path := os.Getenv("NSBOX_BIN")
	if path == "" {
		root, err := harness.Repository()
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(root, "bin", "nsbox")
	}
	path = filepath.Join(filepath.Dir(path), name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	return path
}

// TestWholeSuite is `nsbox verify` as root and as a plain user: no FAIL, no
// verdict that is not permitted, and a bundle whose digests hold.
func TestWholeSuite(t *testing.T) {
	for _, caller := range harness.Callers(t) {
		t.Run(caller.Name, func(t *testing.T) {
			site := harness.NewSite(t, caller)
			for _, name := range []string{"nsbox", "nsbox-verify", "nsbox-verify-shim"} {
				data, err := os.ReadFile(built(t, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(site.File("bin/"+name, string(data)), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			out := site.Folder()
			run := site.OnHost(harness.Job{Argv: []string{site.Dir + "/bin/nsbox", "verify", "--json", "--out", out}, Within: 15 * 60 * 1e9})
			var report Report
			if err := json.Unmarshal(run.Stdout, &report); err != nil {
				t.Fatalf("status %d: %v\n%s\n%s", run.Status, err, run.Stdout, run.Stderr)
			}
			if len(report.Outcomes) != len(All()) {
				t.Errorf("%d outcomes of %d fixtures", len(report.Outcomes), len(All()))
			}
			tier := TierUser
			if caller.UID == 0 {
				tier = TierRoot
			}
			for _, bad := range Unpermitted(tier, report) {
				t.Error(bad)
			}
			for _, o := range report.Outcomes {
				if o.Verdict == Pass && (len(o.Controls) == 0 || len(o.Runs) == 0 && o.ID != "S8") { // S8 runs prep, not exec
					t.Errorf("%s is PASS with controls %q and %d runs", o.ID, o.Controls, len(o.Runs))
				}
				t.Logf("%-5s %-14s %6d ms %s", o.ID, o.Verdict, o.Millis, strings.Join(append([]string{o.Reason}, o.Problems...), "\n"))
			}
			if run.Status != 0 || report.Failed() {
				t.Errorf("exit status %d, counts %v", run.Status, report.Counts)
			}
			wantBundle(t, out)
		})
	}
}

// wantBundle recomputes every digest and wants no file beside those listed.
func wantBundle(t *testing.T, dir string) {
	t.Helper()
	var manifest struct {
		Files []struct{ Name, SHA256 string }
	}
	data, err := os.ReadFile(dir + "/manifest.json")
	if err == nil {
		err = json.Unmarshal(data, &manifest)
	}
	if err != nil || len(manifest.Files) < 30 {
		t.Fatalf("%d files in the manifest: %v", len(manifest.Files), err)
	}
	listed := map[string]bool{"manifest.json": true}
	for _, f := range manifest.Files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name))
		sum := sha256.Sum256(data)
		if err != nil || "sha256:"+hex.EncodeToString(sum[:]) != f.SHA256 {
			t.Errorf("%s is not what the manifest says: %v", f.Name, err)
		}
		listed[f.Name] = true
	}
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, p); err == nil && !d.IsDir() && !listed[name] {
			t.Errorf("%s is not in the manifest", name)
		}
		return nil
	})
	for _, name := range []string{"report.html", "report.json", "seccomp.txt", "policy.json", "S1/result-1.json"} {
		if !listed[name] {
			t.Errorf("the bundle has no %s", name)
		}
	}
	if page, _ := os.ReadFile(dir + "/report.html"); strings.Contains(string(page), "src=") || strings.Contains(string(page), "http") {
		t.Error("the page asks for something from outside")
	}
}

// TestVerdicts runs made-up fixtures: a broken control is never PASS, and a host
// that changed is FAIL whatever the fixture says.
func TestVerdicts(t *testing.T) {
	holds := func(c *Case) { c.Control("holds", func() {}) }
	for name, c := range map[string]struct {
		run  func(*Case)
		want Verdict
	}{
		"passes":            {holds, Pass},
		"no control":        {func(c *Case) {}, SetupFailure},
		"attempt succeeded": {func(c *Case) { holds(c); c.Error("the secret was read") }, Fail},
		"fatal attempt":     {func(c *Case) { holds(c); c.Fatal("the secret was read") }, Fail},
		"control failed":    {func(c *Case) { c.Control("broken", func() { c.Error("no answer") }); c.Note("reached", true) }, SetupFailure},
		"control was fatal": {func(c *Case) { c.Control("broken", func() { c.Fatal("no answer") }) }, SetupFailure},
		"control panics":    {func(c *Case) { c.Control("broken", func() { panic("oops") }) }, SetupFailure},
		"listener down": {func(c *Case) {
			c.Control("the listener answers", func() {
				if got := c.OnHost(harness.Job{Code: connect, Args: []string{"127.0.0.1:1"}}).Stdout; !strings.Contains(string(got), " ok") {
					c.Errorf("printed %s", got)
				}
			})
		}, SetupFailure},
		"canary unreadable": {func(c *Case) {
			c.Control("the caller reads the token", func() {
				if _, err := os.ReadFile(c.canaries()[0] + ".none"); err != nil {
					c.Fatal(err)
				}
			})
		}, SetupFailure},
		"canary changed":        {func(c *Case) { holds(c); c.File("mock-secret/token.txt", "taken") }, Fail},
		"inconclusive":          {func(c *Case) { holds(c); c.Stop(Inconclusive, "too quick") }, Inconclusive},
		"blocked after failure": {func(c *Case) { holds(c); c.Error("read"); c.Stop(Blocked, "no privilege") }, Fail},
	} {
		s := &Suite{Nsbox: built(t, "nsbox")}
		r, err := s.Run([]Fixture{{ID: "X", Profile: "TP-PROD", Run: c.run}}, "", "test")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Outcomes[0]; got.Verdict != c.want {
			t.Errorf("%s: %s, want %s; %s %q", name, got.Verdict, c.want, got.Reason, got.Problems)
		}
		if r.Failed() != (c.want == Fail) {
			t.Errorf("%s: failed is %v", name, r.Failed())
		}
	}
}

func TestSelect(t *testing.T) {
	all := All()
	seen := map[string]bool{}
	for _, f := range all {
		if seen[f.ID] || f.Title == "" || f.Attempt == "" || f.Shows == "" || f.Cannot == "" || f.Run == nil || deadlines()[f.Profile] == 0 {
			t.Errorf("%s is doubled or incomplete", f.ID)
		}
		seen[f.ID] = true
	}
	for _, id := range strings.Fields("S1 S2 S3 S4 S5 S6a S6b S6c S6d S6e S6f S7 S8 S9 S10 S11 S12 S13a S13b S14 S15 S16 S17 A1a A1b A2a A2b A3a A4-L A5a A5b") {
		if !seen[id] {
			t.Errorf("%s is missing", id)
		}
	}
	for _, c := range []struct {
		ids     []string
		profile string
		quick   bool
		want    int
	}{{nil, "", false, len(all)}, {[]string{"s2", "A1a"}, "", false, 2}, {[]string{"S99"}, "", false, 0}, {nil, "TP-LOG", false, 1}, {nil, "TP-NONE", false, 0}, {[]string{"S10"}, "", true, 0}} {
		got, err := Select(all, c.ids, c.profile, c.quick)
		if len(got) != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%+v: %d fixtures, %v", c, len(got), err)
		}
	}
}

// TestWithoutVerifier: nsbox alone says what is missing.
func TestWithoutVerifier(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile(built(t, "nsbox"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/nsbox", data, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(dir+"/nsbox", "verify").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "verifier_missing") || !strings.Contains(string(out), "make build") {
		t.Errorf("%v: %s", err, out)
	}
}
