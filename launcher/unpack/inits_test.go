package unpack

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/unpack/request"
)

var update = flag.Bool("update", false, "rewrite golden files")

// What runs before main in the unpacker runs with its rights, and its libraries
// bring much along: a new one shows up in review.
func TestInitsGolden(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nsbox-unpack")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "nsbox/cmd/nsbox-unpack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(bin)
	cmd.Args, cmd.Env = []string{request.StageName}, []string{"GODEBUG=inittrace=1"}
	out, err := cmd.CombinedOutput()
	// Without a request it must say so as itself.
	if err != nil || !strings.Contains(string(out), "not by hand") {
		t.Errorf("%v\n%s", err, out)
	}
	var pkgs []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "init" && strings.HasPrefix(f[2], "@") {
			pkgs = append(pkgs, f[1])
		}
	}
	slices.Sort(pkgs)
	if len(pkgs) < 3 {
		t.Fatalf("no trace in\n%s", out)
	}
	got := strings.Join(pkgs, "\n") + "\n"
	const path = "testdata/inits.golden"
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s differs (go test -run Golden -args -update rewrites it):\n%s", path, d)
	}
}
