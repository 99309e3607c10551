package nsexec

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What runs before main in a stage runs with that stage's rights, so a new
// import shows up in review. Only package names are compared, not the times;
// a package with nothing to do at start is not traced.
func TestInitsGolden(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nsbox-stage")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "nsbox/cmd/nsbox-stage")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// The exporter's argv[0] stands in exporter.StageName, which nsexec does not import.
	for name, argv0 := range map[string]string{"init": StageInit, "export": "nsbox-export"} {
		cmd := exec.Command(bin)
		cmd.Args = []string{argv0}
		cmd.Env = []string{"GODEBUG=inittrace=1"}
		out, err := cmd.CombinedOutput()
		// Not pid 1 and nothing handed in: it must refuse, and as itself.
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 0 || strings.Contains(string(out), "nsbox-stage is a part") {
			t.Errorf("%s: %v\n%s", argv0, err, out)
		}
		var pkgs []string
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "init" && strings.HasPrefix(f[2], "@") {
				pkgs = append(pkgs, f[1])
			}
		}
		slices.Sort(pkgs)
		if len(pkgs) < 3 {
			t.Fatalf("%s: no trace in\n%s", argv0, out)
		}
		got := strings.Join(pkgs, "\n") + "\n"
		path := "testdata/inits_" + name + ".golden"
		if *update {
			if err := os.MkdirAll("testdata", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got); d != "" {
			t.Errorf("%s differs (go test -run Golden -args -update rewrites it):\n%s", path, d)
		}
		for _, heavy := range []string{"net", "os/user", "plugin", "runtime/cgo"} {
			if slices.Contains(pkgs, heavy) {
				t.Errorf("%s: %s does work before main", argv0, heavy)
			}
		}
	}
}
