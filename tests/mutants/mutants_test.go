package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nsbox/tests/conformance"
	"nsbox/tests/harness"
)

// TestEveryMutantIsCaught takes each enforcement away and wants a fixture to fail
// for it. The same build with nothing taken away passes all of them.
func TestEveryMutantIsCaught(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a caller with something to lose, and fixtures with a network of their own, take root")
	}
	program := build(t)
	list := mutants()
	if !harness.Whole() {
		list = slices.DeleteFunc(list, func(m mutant) bool { return !m.usual })
	}
	var used []string
	for _, m := range list {
		used = append(used, m.fixtures...)
	}
	slices.Sort(used)
	for id, o := range verify(t, copyOf(t, program, ""), slices.Compact(used)...) {
		if o.Verdict == conformance.Fail || o.Verdict == conformance.SetupFailure {
			t.Fatalf("control: with nothing taken away %s is %s: %q", id, o.Verdict, o.Problems)
		}
	}
	for _, m := range list {
		t.Run(m.name, func(t *testing.T) {
			at := copyOf(t, program, m.name)
			defer os.RemoveAll(filepath.Dir(at))
			seen := []string{}
			for _, id := range m.fixtures {
				o := verify(t, at, id)[id]
				if o.Verdict == conformance.Fail {
					t.Logf("missed by %s: %.160s", id, strings.ReplaceAll(o.Problems[0], "\n", " "))
					return
				}
				seen = append(seen, fmt.Sprintf("%s %s %s", id, o.Verdict, o.Reason))
			}
			t.Errorf("it survives: %q", seen)
		})
	}
	t.Logf("%d of %d mutants", len(list), len(mutants()))
}

// verify runs fixtures against a program, as a root with groups, names and shared
// mounts of its own: what the caller has not, no box can lack.
func verify(t *testing.T, nsbox string, ids ...string) map[string]conformance.Outcome {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", "-c", "import ctypes, os, sys\nctypes.CDLL(None).syscall(250, 1, b'caller')\nos.execv(sys.argv[1], sys.argv[1:])", // a session keyring of its own
		"/bin/sh", "-c", `echo callers.example >/proc/sys/kernel/domainname && mount --make-rshared / && exec "$@"`, "sh",
		filepath.Join(root(t), "bin", "nsbox-verify"), "--nsbox="+nsbox, "--json", "--only="+strings.Join(ids, ","))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS, Credential: &syscall.Credential{Groups: []uint32{0, 1234}}}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output() // 1 tells that a fixture failed
	var report conformance.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %v: %s%s", cmd.Args, err, out, stderr.String())
	}
	by := map[string]conformance.Outcome{}
	for _, o := range report.Outcomes {
		by[o.ID] = o
	}
	if len(by) != len(ids) {
		t.Fatalf("%d outcomes of %q", len(by), ids)
	}
	return by
}

// copyOf writes one mutant's name into a copy, in every program that it holds.
func copyOf(t *testing.T, program []byte, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nsbox-mutant-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "nsbox")
	if err := os.WriteFile(path, bytes.ReplaceAll(program, []byte(placeholder()), []byte(named(name))), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// build lays the edits over the source, builds the stages with them, and then an
// nsbox that holds those.
func build(t *testing.T) []byte {
	t.Helper()
	dir, source := t.TempDir(), map[string]string{}
	for _, e := range edits() {
		if source[e.file] == "" {
			data, err := os.ReadFile(filepath.Join(root(t), e.file))
			if err != nil {
				t.Fatal(err)
			}
			source[e.file] = string(data)
		}
		if strings.Count(source[e.file], e.old) != 1 {
			t.Fatalf("%s has %q %d times: the mutants must follow the product", e.file, e.old, strings.Count(source[e.file], e.old))
		}
		source[e.file] = strings.Replace(source[e.file], e.old, e.new, 1)
	}
	for file, text := range source {
		if strings.Contains(text, "mutant.") {
			if strings.Contains(text, "import (\n") {
				text = strings.Replace(text, "import (\n", "import (\n\t\"nsbox/mutant\"\n", 1)
			} else {
				text = strings.Replace(text, "import ", "import \"nsbox/mutant\"\nimport ", 1)
			}
			source[file] = text
		}
	}
	for file, text := range added() {
		source[file] = text
	}
	over := map[string]string{}
	n := 0
	for file, text := range source {
		n++
		at := filepath.Join(dir, fmt.Sprintf("%d.go", n))
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		over[filepath.Join(root(t), file)] = at
	}
	for _, stage := range []string{"nsbox-stage", "nsbox-unpack"} {
		at := filepath.Join(dir, stage)
		goBuild(t, dir, over, "CGO_ENABLED=0", at, "./cmd/"+stage, "-ldflags", "-s -w")
		over[filepath.Join(root(t), "launcher/stage/image", stage)] = at
	}
	at := filepath.Join(dir, "nsbox")
	goBuild(t, dir, over, "CGO_ENABLED=1", at, "./cmd/nsbox", "-tags", "netgo,osusergo", "-ldflags", `-s -w -linkmode external -extldflags "-static"`)
	program, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	// Its own, and one in each stage.
	if n := bytes.Count(program, []byte(placeholder())); n < 2 {
		t.Fatalf("the place for a mutant's name is there %d times", n)
	}
	return program
}

func goBuild(t *testing.T, dir string, over map[string]string, cgo, to, what string, flags ...string) {
	t.Helper()
	table, err := json.Marshal(map[string]any{"Replace": over})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), table, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", to}, flags...), what)...)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), cgo, "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
}
