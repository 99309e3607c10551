package rootfs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// prep runs nsbox prep over a lock and a directory.
func prep(s *harness.Site, lock, wheels, name string) *harness.Run {
	return s.Raw("prep", "--state-dir", s.State, "--lock", s.File("lock-"+name+".txt", lock), "--wheels", wheels, "--name", name, "--json")
}

func quarantined(t *testing.T, s *harness.Site) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.State, "store/quarantine/*"))
	must(t, err)
	return all
}

// TestS8 is the specification's case: the right wheel installs and imports inside
// the box; a wrong hash is refused, and the material is put in quarantine.
func TestS8(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		dir := s.Folder()
		lock := wheel(t, dir, "mocktool", "1.0", nil)
		r := prep(s, lock, dir, "tools")
		var made launcher.Prepared
		if err := json.Unmarshal(r.Stdout, &made); r.Status != 0 || err != nil {
			t.Fatalf("control: status %d, %v\n%s", r.Status, err, r.Stderr)
		}
		change := rootfs(object{"prepared": object{"name": "tools", "digest": made.Digest}})
		run := s.Run(harness.Job{Policy: []harness.Change{change}, Code: `
import mocktool, sys
print(mocktool.answer(), mocktool.__file__)
for attempt in (lambda: open(mocktool.__file__, "a"), lambda: open(mocktool.__file__ + ".new", "w")):
    try:
        attempt()
        print("written")
    except OSError as e:
        print(type(e).__name__)
`}).WantOK()
		lines := strings.Split(strings.TrimSpace(string(run.Stdout)), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "42 /usr/") || strings.Contains(string(run.Stdout), "written") {
			t.Errorf("the module in the box: %q", run.Stdout)
		}
		// Without the key it is not there: the import above was the store's.
		if r := s.Run(harness.Job{Code: "import mocktool"}); r.Status == 0 {
			t.Error("the module is in a box whose policy does not name it")
		}
		// The same content again is the same entry.
		again := prep(s, lock, dir, "again")
		if !bytes.Contains(again.Stdout, []byte(made.Digest)) {
			t.Errorf("the same wheels gave another digest: %s%s", again.Stdout, again.Stderr)
		}
		if v := s.Raw("store", "verify", "--state-dir", s.State); v.Status != 0 {
			t.Errorf("verify: %s%s", v.Stdout, v.Stderr)
		}

		wrong := strings.Replace(lock, "sha256:", "sha256:0", 1)
		wrong = wrong[:len(wrong)-2] + "\n"
		bad := prep(s, wrong, dir, "wrong")
		if bad.Status == 0 || !bytes.Contains(bad.Stderr, []byte("wheel_refused")) {
			t.Fatalf("a wrong hash: status %d\n%s", bad.Status, bad.Stderr)
		}
		kept := quarantined(t, s)
		if len(kept) != 1 {
			t.Fatalf("quarantine holds %v", kept)
		}
		want, err := os.ReadFile(filepath.Join(dir, "mocktool-1.0-py3-none-any.whl"))
		must(t, err)
		got, err := os.ReadFile(filepath.Join(kept[0], "material/mocktool-1.0-py3-none-any.whl"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the material in quarantine: %v", err)
		}
		if log, err := os.ReadFile(filepath.Join(kept[0], "log")); err != nil || !bytes.Contains(log, []byte("mocktool")) {
			t.Errorf("the log in quarantine: %q, %v", log, err)
		}
		if list := s.Raw("store", "list", "--state-dir", s.State); bytes.Contains(list.Stdout, []byte("wrong")) || !bytes.Contains(list.Stdout, []byte("tools")) {
			t.Errorf("the store: %s", list.Stdout)
		}
		if rm := s.Raw("store", "rm", "--state-dir", s.State, "again"); rm.Status != 0 {
			t.Errorf("rm of a second name: %s", rm.Stderr)
		}
		s.Run(harness.Job{Policy: []harness.Change{change}, Code: "import mocktool"}).WantOK()
		if rm := s.Raw("store", "rm", "--state-dir", s.State, "tools"); rm.Status != 0 {
			t.Errorf("rm: %s", rm.Stderr)
		}
		if left, _ := filepath.Glob(filepath.Join(s.State, "store/entries/*")); len(left) > 0 {
			t.Errorf("after rm the store holds %v", left)
		}
		if r := s.Run(harness.Job{Policy: []harness.Change{change}, Code: "import mocktool"}); r.Status == 0 {
			t.Error("a run uses packages that were removed")
		}
	})
}

// preparedFor shows that the pip of a whole root installs for that root's own
// Python, and that the box finds there what was installed.
func preparedFor(t *testing.T, s *harness.Site, flag string, root object) {
	t.Helper()
	dir := s.Folder()
	lock := s.File("lock.txt", wheel(t, dir, "mocktool", "1.0", nil))
	r := s.Raw("prep", "--state-dir", s.State, "--lock", lock, "--wheels", dir, "--name", "tools", "--rootfs", flag, "--json")
	var made launcher.Prepared
	if err := json.Unmarshal(r.Stdout, &made); r.Status != 0 || err != nil {
		t.Fatalf("status %d, %v\n%s", r.Status, err, r.Stderr)
	}
	const code = "import mocktool, os; print(mocktool.answer(), mocktool.__file__, os.path.exists('/usr/lib/python3/dist-packages/pandas'))"
	job := harness.Job{Policy: []harness.Change{rootfs(root)}, Code: code}
	if r := s.Run(job); r.Status == 0 || !bytes.Contains(r.Stderr, []byte("No module named 'mocktool'")) {
		t.Errorf("control: without the packages the run ended with %d\n%s", r.Status, r.Stderr)
	}
	root["prepared"] = object{"name": "tools", "digest": made.Digest}
	if got := string(s.Run(job).WantOK().Stdout); !strings.HasPrefix(got, "42 /usr/") || !strings.HasSuffix(got, " True\n") {
		t.Errorf("the module in the box: %q", got)
	}
}

// TestPrepForADirectory is preparedFor a pinned directory; the image's is with
// TestDemoFromAnImage. A root that is not what it was pinned as installs nothing.
func TestPrepForADirectory(t *testing.T) {
	root := debianRoot(t)
	s := harness.NewSite(t, harness.Callers(t)[0])
	digest := digestOf(t, s, root)
	preparedFor(t, s, "directory:"+root+"@"+digest, object{"directory": object{"path": root, "digest": digest}})
	dir := s.Folder()
	lock := s.File("other.txt", wheel(t, dir, "mocktool", "1.0", nil))
	wrong := "directory:" + root + "@sha256:" + strings.Repeat("0", 64)
	r := s.Raw("prep", "--state-dir", s.State, "--lock", lock, "--wheels", dir, "--name", "wrong", "--rootfs", wrong)
	if list := s.Raw("store", "list", "--state-dir", s.State); r.Status == 0 || bytes.Contains(list.Stdout, []byte("wrong")) {
		t.Errorf("a root of another digest: status %d\n%s%s", r.Status, r.Stderr, list.Stdout)
	}
}

// TestPrepRefuses: each is refused, nothing is installed, and what was brought is kept aside.
func TestPrepRefuses(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	for name, c := range map[string]struct {
		fill func(dir string) (lock string)
		want string
	}{
		"missing": {func(dir string) string {
			return wheel(t, dir, "a", "1", nil) + "b==1 --hash=sha256:" + strings.Repeat("0", 64) + "\n"
		}, "has no wheel"},
		"additional": {func(dir string) string { wheel(t, dir, "b", "1", nil); return wheel(t, dir, "a", "1", nil) }, "not in the lock"},
		"sdist": {func(dir string) string {
			must(t, os.WriteFile(dir+"/b-1.tar.gz", []byte("x"), 0o644))
			return wheel(t, dir, "a", "1", nil) + requirement("b", "1", []byte("x"))
		}, "is no wheel"},
		"traversal": {func(dir string) string { return wheel(t, dir, "a", "1", map[string]string{"../../evil.py": "x"}) }, "name_leads_up"},
		"malformed": {func(dir string) string {
			must(t, os.WriteFile(dir+"/a-1-py3-none-any.whl", []byte("PK no zip"), 0o644))
			return requirement("a", "1", []byte("PK no zip"))
		}, "bad_wheel"},
		"unmet-dependency": {func(dir string) string {
			return wheel(t, dir, "a", "1", map[string]string{"a-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: a\nVersion: 1\nRequires-Dist: absent\n"})
		}, "prep_failed"},
	} {
		dir, before := s.Folder(), len(quarantined(t, s))
		r := prep(s, c.fill(dir), dir, name)
		if r.Status == 0 || !bytes.Contains(r.Stderr, []byte(c.want)) {
			t.Errorf("%s: status %d; want %q in\n%s", name, r.Status, c.want, r.Stderr)
		}
		if got := len(quarantined(t, s)); got != before+1 {
			t.Errorf("%s: %d entries in quarantine after it, %d before", name, got, before)
		}
	}
	for name, lock := range map[string]string{
		"doubled":  "a==1 --hash=sha256:" + strings.Repeat("0", 64) + " --hash=sha256:" + strings.Repeat("1", 64),
		"unhashed": "a==1",
	} {
		r := prep(s, lock, s.Folder(), name)
		if r.Status == 0 || !bytes.Contains(r.Stderr, []byte("lock_invalid")) {
			t.Errorf("%s: status %d\n%s", name, r.Status, r.Stderr)
		}
	}
	for _, kind := range []string{"entries", "names", "new", "trash"} {
		if left, _ := filepath.Glob(filepath.Join(s.State, "store", kind, "*")); len(left) > 0 {
			t.Errorf("after refusals only, store/%s holds %v", kind, left)
		}
	}
}
