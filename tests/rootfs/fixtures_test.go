package rootfs

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// object is a JSON object of a policy.
type object = map[string]any

func rootfs(value object) harness.Change {
	return harness.Change{Path: "rootfs", Value: value, Added: true}
}

func programs(word string) harness.Change {
	return harness.Change{Path: "process_policy.exec_allowlist", Value: word}
}

// hello prints its arguments; %s are extra lines of main.
const hello = `#include <stdio.h>
#include <unistd.h>
#include <string.h>
int main(int c, char **v) { printf("hello"); for (int i = 1; i < c; i++) printf(" %%s", v[i]); puts(""); fflush(stdout); %s return 0; }
`

// compile builds a C program.
func compile(t testing.TB, out, extra, compiler string, flags ...string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(out), 0o755))
	source := filepath.Join(t.TempDir(), "hello.c")
	must(t, os.WriteFile(source, fmt.Appendf(nil, hello, extra), 0o644))
	if text, err := exec.Command(compiler, append(flags, "-o", out, source)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", compiler, err, text)
	}
	must(t, os.Chmod(out, 0o755))
}

// shared is a directory that every caller can read.
func shared(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nsbox-rootfs-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	return dir
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	must(t, err)
	must(t, os.MkdirAll(filepath.Dir(to), 0o755))
	must(t, os.WriteFile(to, data, 0o755))
	must(t, os.Chmod(to, 0o755))
}

// digestOf asks nsbox for a directory's content digest.
func digestOf(t testing.TB, s *harness.Site, dir string) string {
	t.Helper()
	r := s.Raw("store", "digest", dir)
	if r.Status != 0 || !bytes.HasPrefix(r.Stdout, []byte("sha256:")) {
		t.Fatalf("store digest: status %d\n%s%s", r.Status, r.Stdout, r.Stderr)
	}
	return strings.Fields(string(r.Stdout))[0]
}

// directory is the policy's value for a root that is pinned as it is now.
func directory(t testing.TB, s *harness.Site, dir string) object {
	t.Helper()
	return object{"directory": object{"path": dir, "digest": digestOf(t, s, dir)}}
}

var debian struct {
	once  sync.Once
	root  string
	image string
	digit string
	err   error
}

// debianRoot is the whole root that root.sh makes.
func debianRoot(t testing.TB) string {
	t.Helper()
	debian.once.Do(func() {
		out, err := exec.Command("sh", "root.sh").Output()
		if e, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("root.sh: %w: %s", err, e.Stderr)
		}
		debian.root, debian.err = strings.TrimSpace(string(out)), err
	})
	must(t, debian.err)
	return debian.root
}

// wheel writes a wheel of one module and returns its requirement.
func wheel(t testing.TB, dir, name, version string, extra map[string]string) string {
	t.Helper()
	info := name + "-" + version + ".dist-info/"
	files := map[string]string{
		name + "/__init__.py": "def answer():\n    return 42\n",
		info + "METADATA":     "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n",
		info + "WHEEL":        "Wheel-Version: 1.0\nGenerator: nsbox\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	for k, v := range extra {
		files[k] = v
	}
	var names []string
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	record := ""
	for _, n := range names {
		sum := sha256.Sum256([]byte(files[n]))
		record += fmt.Sprintf("%s,sha256=%s,%d\n", n, base64.RawURLEncoding.EncodeToString(sum[:]), len(files[n]))
	}
	files[info+"RECORD"] = record + info + "RECORD,,\n"
	names = append(names, info+"RECORD")
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, n := range names {
		f, err := w.Create(n)
		must(t, err)
		_, err = f.Write([]byte(files[n]))
		must(t, err)
	}
	must(t, w.Close())
	path := filepath.Join(dir, name+"-"+version+"-py3-none-any.whl")
	must(t, os.WriteFile(path, b.Bytes(), 0o644))
	must(t, os.Chmod(path, 0o644))
	return requirement(name, version, b.Bytes())
}

func requirement(name, version string, data []byte) string {
	sum := sha256.Sum256(data)
	return name + "==" + version + " --hash=sha256:" + hex.EncodeToString(sum[:]) + "\n"
}
