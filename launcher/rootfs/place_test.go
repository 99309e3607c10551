package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// pythonRoot is a miniature of Debian's layout around a fake interpreter.
func pythonRoot(t *testing.T, site string) string {
	t.Helper()
	root := realDir(t)
	put(t, root, "usr/bin/python3.11", 0o755, fakeELF{interp: "/lib64/ld-linux-x86-64.so.2", needed: []string{"libz.so.1"}}.bytes())
	must(t, os.Symlink("python3.11", root+"/usr/bin/python3"))
	must(t, os.Symlink("/usr/bin", root+"/bin")) // leads to the root's own, not the host's
	put(t, root, "lib64/ld-linux-x86-64.so.2", 0o755, fakeELF{soname: "ld-linux-x86-64.so.2"}.bytes())
	put(t, root, "lib/x86_64-linux-gnu/libz.so.1", 0o644, fakeELF{soname: "libz.so.1"}.bytes())
	put(t, root, "lib/x86_64-linux-gnu/libextra.so.1", 0o644, fakeELF{soname: "libextra.so.1"}.bytes())
	put(t, root, "usr/lib/python3.11/os.py", 0o644, nil)
	put(t, root, "usr/lib/python3.11/site.py", 0o644, []byte(site))
	put(t, root, "usr/lib/python3/dist-packages/pkg/native.so", 0o644, fakeELF{needed: []string{"libextra.so.1"}}.bytes())
	return root
}

func TestClosureOfAnotherRoot(t *testing.T) {
	root := pythonRoot(t, "dist-packages")
	c, err := Root{Dir: root}.Resolve("/bin/python3", nil)
	must(t, err)
	if c.Python != "3.11" || c.Program != "/bin/python3" {
		t.Errorf("%+v", c)
	}
	for _, n := range c.Nodes {
		if (n.Kind == nsexec.BindDir || n.Kind == nsexec.BindFile) && !strings.HasPrefix(n.Source, root+"/") {
			t.Errorf("%s comes from %s", n.Path, n.Source)
		}
	}
	for p, kind := range map[string]nsexec.NodeKind{"/usr/bin/python3.11": nsexec.BindFile, "/lib/x86_64-linux-gnu/libz.so.1": nsexec.BindFile, "/usr/lib/python3/dist-packages": nsexec.BindDir,
		"/lib/x86_64-linux-gnu/libextra.so.1": nsexec.BindFile, "/bin": nsexec.Symlink} {
		if n := nodeAt(c.Nodes, p); n == nil || n.Kind != kind {
			t.Errorf("%s is %+v, want a %s", p, n, kind)
		}
	}
}

func TestPreparedPackagesStandWhereTheInterpreterLooks(t *testing.T) {
	layer := realDir(t)
	put(t, layer, "mod/_c.so", 0o644, fakeELF{needed: []string{"libextra.so.1", "libown.so.1"}, runpath: "$ORIGIN/../mod.libs"}.bytes())
	put(t, layer, "mod.libs/libown.so.1", 0o644, fakeELF{soname: "libown.so.1"}.bytes())
	const debianPlace = "/usr/local/lib/python3.11/dist-packages"
	root := pythonRoot(t, "dist-packages")
	c, err := Root{Dir: root, Prepared: layer, PreparedFor: "3.11"}.Resolve("python3", nil)
	must(t, err)
	if n := nodeAt(c.Nodes, debianPlace); n == nil || n.Source != layer || n.Access&nsexec.Write != 0 {
		t.Errorf("%s is %+v", debianPlace, n)
	}
	if n := nodeAt(c.Nodes, "/usr/local/lib"); n == nil || n.Kind != nsexec.Dir {
		t.Errorf("the way there is %+v", n)
	}
	for _, note := range c.Notes {
		if strings.Contains(note, "libown") || strings.Contains(note, "libextra") {
			t.Errorf("a library that is there is called missing: %s", note)
		}
	}
	if nodeAt(c.Nodes, "/lib/x86_64-linux-gnu/libextra.so.1") == nil {
		t.Error("the library of a prepared module is not in the box")
	}
	_, err = Root{Dir: root, Prepared: layer, PreparedFor: "3.12"}.Resolve("python3", nil)
	wantReason(t, err, reason.PreparedNotUsable, "3.12")

	other := pythonRoot(t, "site-packages only")
	_, err = Root{Dir: other, Prepared: layer, PreparedFor: "3.11"}.Resolve("python3", nil)
	wantReason(t, err, reason.PreparedNotUsable, "site-packages")
	must(t, os.Mkdir(other+"/usr/lib/python3.11/site-packages", 0o755))
	c, err = Root{Dir: other, Prepared: layer, PreparedFor: "3.11"}.Resolve("python3", nil)
	must(t, err)
	if n := nodeAt(c.Nodes, "/usr/lib/python3.11/site-packages"); n == nil || n.Source != layer {
		t.Errorf("site-packages is %+v", n)
	}
	_, err = Layout(c, Options{ScratchBytes: 1, ScratchInodes: 1, OutBytes: 1, OutInodes: 1, WorkloadUID: 1, WorkloadGID: 1, ExporterUID: 2})
	must(t, err)
}

func TestWholeRoot(t *testing.T) {
	root := pythonRoot(t, "dist-packages")
	for _, p := range []string{"etc/passwd", "etc/ssl/cert.pem", "home/u/secret", "run/x", "dev/x", "opt/tool", "etc/ld.so.cache"} {
		put(t, root, p, 0o644, []byte("x"))
	}
	c, err := Root{Dir: root, Whole: true}.Resolve("python3", nil)
	must(t, err)
	nodes, err := Layout(c, Options{ScratchBytes: 1, ScratchInodes: 1, OutBytes: 1, OutInodes: 1, WorkloadUID: 1, WorkloadGID: 1, ExporterUID: 2})
	must(t, err)
	for p, source := range map[string]string{"/usr": root + "/usr", "/etc/ssl/cert.pem": root + "/etc/ssl/cert.pem", "/opt": root + "/opt", "/etc/ld.so.cache": root + "/etc/ld.so.cache", "/etc/passwd": ""} {
		if n := nodeAt(nodes, p); n == nil || n.Source != source {
			t.Errorf("%s is %+v, want it from %q", p, n, source)
		}
	}
	for _, p := range []string{"/home", "/run"} {
		if n := nodeAt(nodes, p); n != nil {
			t.Errorf("%s is in the box: %+v", p, n)
		}
	}
}

func TestLinksStayInTheRoot(t *testing.T) {
	root := realDir(t)
	outside := put(t, realDir(t), "outside", 0o755, []byte("host"))
	must(t, os.Symlink("../../../../../../.."+outside, root+"/up"))
	must(t, os.Symlink(outside, root+"/abs"))
	must(t, os.Symlink("loop", root+"/loop"))
	for _, p := range []string{"/up", "/abs", "/loop", "/../../" + filepath.Base(outside)} {
		if f, err := (place{dir: root}).open(p); err == nil {
			t.Errorf("%s opens %s", p, f.Name())
		}
	}
	put(t, root, outside, 0o644, []byte("inside"))
	f, err := place{dir: root}.open("/abs")
	if err != nil || f.Name() != root+outside {
		t.Errorf("a link of the root leads to %v, %v", f, err)
	}
}
