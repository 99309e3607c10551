package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayImport is the whole table of import directions inside nsbox: cmd over
// launcher over the mechanisms over the leaves. A package without a line fails
// the test, so a new one is placed on purpose. Test files are not held to it.
func mayImport() map[string][]string {
	return map[string][]string{
		"cmd/nsbox": {"launcher", "launcher/provision", "launcher/attest", "launcher/endpoint", "launcher/policy", "launcher/probe", "launcher/reason", "nsexec", "exporter", "exporter/wipe", "seccompgen"},
		// The image of the box's own processes: nothing of the launcher's side in it.
		"cmd/nsbox-stage": {"nsexec", "exporter", "exporter/wipe"},
		"launcher": {"launcher/policy", "launcher/outslot", "launcher/probe", "launcher/stage", "launcher/attest", "launcher/journal", "launcher/rootfs", "launcher/store", "launcher/lockfile", "launcher/unpack/request", "launcher/reason", "launcher/endpoint", "launcher/broker", "cgroupv2/scope",
			"nsexec", "nsexec/caps/names", "cgroupv2", "seccompgen", "seccompgen/filter", "exporter", "exporter/wipe"},

		"launcher/provision": {"launcher/reason", "launcher/probe", "launcher/outslot"},
		"launcher/policy":    {"launcher/reason", "launcher/endpoint"},
		"launcher/probe":     {"launcher/reason", "launcher/outslot", "cgroupv2"},
		"launcher/rootfs":    {"launcher/reason", "nsexec"},
		"launcher/store":     {"launcher/reason"},
		"launcher/lockfile":  {"launcher/reason"},
		// What reads strangers' formats runs in a box and knows nothing of nsbox.
		"launcher/unpack":         {"launcher/unpack/request"},
		"launcher/unpack/request": {},
		"cmd/nsbox-unpack":        {"nsexec", "launcher/unpack", "launcher/unpack/request"},
		"launcher/outslot":        {},
		"launcher/attest":         {},
		"launcher/journal":        {},
		"launcher/reason":         {},
		"launcher/stage":          {},
		"launcher/endpoint":       {},
		"launcher/broker":         {"launcher/endpoint"},

		"nsexec":            {"nsexec/wire", "nsexec/caps", "seccompgen/filter"},
		"nsexec/caps":       {},
		"nsexec/caps/names": {},
		"nsexec/wire":       {},

		"seccompgen":        {"seccompgen/filter"},
		"seccompgen/filter": {},
		"cgroupv2":          {},
		"cgroupv2/scope":    {"cgroupv2"},
		"exporter":          {"exporter/raw"},
		"exporter/raw":      {},
		"exporter/wipe":     {},

		// Nobody imports the tests; what is below tests/ may import anything.
		"tests": {},
	}
}

// mayUnsafe lists the packages that hand memory to the kernel themselves.
func mayUnsafe() []string {
	return []string{"exporter/raw", "nsexec", "nsexec/caps", "nsexec/wire", "seccompgen", "seccompgen/filter"}
}

// mustUse lists what nsbox is built on: each is really imported by our code.
func mustUse() []string {
	return []string{
		"golang.org/x/sys/unix",
		"github.com/seccomp/libseccomp-golang",
		"github.com/moby/sys/mountinfo",
		"github.com/syndtr/gocapability/capability",
		"github.com/alecthomas/kong",
	}
}

const module = "nsbox"

// listed is what the go command knows about a package of this module.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
}

func (p listed) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func (p listed) sources() []string { return slices.Concat(p.GoFiles, p.CgoFiles) }

func goList(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports", "./...")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 5 {
		t.Fatalf("go list found %d packages only", len(all))
	}
	return all
}

// root is the folder of go.mod; tests run in their package's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// wrongImports is the rule itself, apart from where the facts come from.
func wrongImports(table map[string][]string, pkg string, imports []string) []string {
	if strings.HasPrefix(pkg, "tests/") {
		return nil
	}
	allowed, ok := table[pkg]
	if !ok {
		return []string{"has no line in the table"}
	}
	var wrong []string
	for _, i := range imports {
		name, ours := strings.CutPrefix(i, module+"/")
		if ours && !slices.Contains(allowed, name) {
			wrong = append(wrong, "imports "+name)
		}
	}
	return wrong
}

func TestImportDirections(t *testing.T) {
	table := mayImport()
	for _, p := range goList(t) {
		for _, w := range wrongImports(table, p.name(), p.Imports) {
			t.Errorf("%s %s", p.name(), w)
		}
	}
	// The table can say no.
	for _, bad := range []struct{ pkg, imported string }{
		{"nsexec", "nsbox/launcher/policy"}, {"nsexec", "nsbox/seccompgen"}, {"launcher/policy", "nsbox/nsexec"},
		{"launcher", "nsbox/tests"}, {"nowhere", "fmt"},
	} {
		if wrongImports(table, bad.pkg, []string{bad.imported}) == nil {
			t.Errorf("%s may import %s", bad.pkg, bad.imported)
		}
	}
}

// TestTableHasNoDeadLines wants a package for every line.
func TestTableHasNoDeadLines(t *testing.T) {
	var have []string
	for _, p := range goList(t) {
		have = append(have, p.name())
	}
	for pkg := range mayImport() {
		if !slices.Contains(have, pkg) {
			t.Errorf("the table has a line for %s, which does not exist", pkg)
		}
	}
}

func TestOnlySeccompgenUsesCgo(t *testing.T) {
	cgo := 0
	for _, p := range goList(t) {
		if slices.Contains(p.Imports, "github.com/seccomp/libseccomp-golang") || len(p.CgoFiles) > 0 {
			cgo++
			if p.name() != "seccompgen" {
				t.Errorf("%s uses cgo", p.name())
			}
		}
	}
	if cgo == 0 {
		t.Error("no package uses libseccomp at all: the test looks at the wrong thing")
	}
}

func TestUnsafeIsWhereTheKernelIs(t *testing.T) {
	for _, p := range goList(t) {
		if slices.Contains(p.Imports, "unsafe") && !slices.Contains(mayUnsafe(), p.name()) {
			t.Errorf("%s imports unsafe", p.name())
		}
	}
}

func TestLibrariesAreReallyUsed(t *testing.T) {
	var used []string
	for _, p := range goList(t) {
		if !strings.HasPrefix(p.name(), "tests") {
			used = append(used, p.Imports...)
		}
	}
	for _, lib := range mustUse() {
		if !slices.Contains(used, lib) {
			t.Errorf("%s is not imported by any package that is no test", lib)
		}
	}
}
