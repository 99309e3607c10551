package vm

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// guest is one machine to boot.
type guest struct {
	tier     string // quick or systemd: also the folder below payload/
	kernel   string // 6.1 or 6.12
	delegate string // all, or default
	memory   int    // MiB
	append   string // words for the kernel's command line
}

// results is what came out of a guest: the folder with everything its payload left in /out.
type results struct {
	dir string
	// root and user are the exit statuses of root.sh and run.sh.
	root, user int
}

// What run.sh ends with where the guest's own word is missing.
const (
	noMarker = 99
	noBoot   = 98
)

// boot runs a payload in a guest and fails the test unless the guest said how it
// ended. An emulator on a busy machine may fail to boot: that alone, with nothing
// of the payload run yet, is tried once more.
func boot(t *testing.T, g guest, payload string) results {
	t.Helper()
	out := t.TempDir()
	code := launch(t, g, payload, out)
	if code == noBoot {
		t.Log("booting once more")
		code = launch(t, g, payload, out)
	}
	if code == noBoot {
		t.Fatal("the guest did not boot, twice")
	}
	r := results{dir: filepath.Join(out, "results")}
	if code == noMarker {
		t.Fatalf("the guest gave no result; its logs:\n%s%s", r.text(t, "root.log"), r.text(t, "run.log"))
	}
	marker, err := os.ReadFile(filepath.Join(out, "marker"))
	if err != nil {
		t.Fatalf("no guest was started; run.sh ended with %d and says why above", code)
	}
	var nonce string
	if _, err := fmt.Sscanf(string(marker), "nsbox-vm %s root=%d user=%d", &nonce, &r.root, &r.user); err != nil {
		t.Fatalf("marker %q: %v", marker, err)
	}
	if keep := os.Getenv("NSBOX_VM_KEEP"); keep != "" {
		into := filepath.Join(keep, strings.ReplaceAll(t.Name(), "/", "-"))
		if err := os.RemoveAll(into); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(into, os.DirFS(r.dir)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func launch(t *testing.T, g guest, payload, out string) int {
	t.Helper()
	started := time.Now()
	cmd := exec.Command("sh", "run.sh", g.tier, "--kernel", g.kernel, "--delegate", g.delegate, "--memory", strconv.Itoa(g.memory),
		"--timeout", "2700", "--append", g.append, "--payload", payload, "--out", out)
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%.1f s\n%s", time.Since(started).Seconds(), said)
	return cmd.ProcessState.ExitCode()
}

// text is a file of the results, or a line that says why there is none.
func (r results) text(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return fmt.Sprintf("(%v)\n", err)
	}
	return string(data)
}

// decode fails the test unless the file is there and is one JSON document.
func (r results) decode(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, data)
	}
}

// status is an exit status that the payload wrote down.
func (r results) status(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(r.text(t, name)))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// root is the folder of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// command runs in the repository's folder and fails the test with its output.
func command(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root(t)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// product is the built nsbox: the one that NSBOX_BIN names, or a fresh one.
func product(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("NSBOX_BIN")
	if bin == "" {
		command(t, nil, "make", "build")
		bin = filepath.Join(root(t), "bin/nsbox")
	}
	mustBeStatic(t, bin)
	return bin
}

// mustBeStatic: the guest's libraries are others than this machine's.
func mustBeStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Fatalf("%s is not static", path)
		}
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, mode); err != nil {
		t.Fatal(err)
	}
}

func exitOf(t *testing.T, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	t.Logf("%s", out)
	return cmd.ProcessState.ExitCode()
}
