package rootfs

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"nsbox/nsexec"
)

// materialise makes a layout from copies, which is enough to run it in a chroot.
func materialise(t testing.TB, nodes []nsexec.Node) string {
	t.Helper()
	root := realDir(t)
	for _, n := range nodes {
		at := filepath.Join(root, n.Path)
		switch n.Kind {
		case nsexec.Dir, nsexec.Tmpfs, nsexec.Proc:
			if n.Path != "/" {
				must(t, os.Mkdir(at, 0o755))
			}
		case nsexec.Symlink:
			must(t, os.Symlink(n.Source, at))
		case nsexec.File:
			must(t, os.WriteFile(at, n.Data, fs.FileMode(n.Mode)))
		case nsexec.Device:
			must(t, os.WriteFile(at, nil, 0o666))
		case nsexec.BindFile:
			copyFile(t, n.Source, at)
		case nsexec.BindDir:
			must(t, filepath.WalkDir(n.Source, func(p string, d fs.DirEntry, err error) error {
				must(t, err)
				to := filepath.Join(at, strings.TrimPrefix(p, n.Source))
				switch {
				case d.IsDir():
					return os.Mkdir(to, 0o755)
				case d.Type()&fs.ModeSymlink != 0:
					target, err := os.Readlink(p)
					must(t, err)
					return os.Symlink(target, to)
				}
				copyFile(t, p, to)
				return nil
			}))
		default:
			t.Fatalf("%s: kind %s", n.Path, n.Kind)
		}
	}
	return root
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	must(t, err)
	defer in.Close()
	fi, err := in.Stat()
	must(t, err)
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm()|0o200)
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	// Set-id bits too: a test looks for them.
	must(t, os.Chmod(to, fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid)|0o200))
}

// without takes one path out of root while f runs.
func without(t testing.TB, root, p string, f func()) {
	t.Helper()
	at := filepath.Join(root, p)
	must(t, os.Rename(at, at+".away"))
	f()
	must(t, os.Rename(at+".away", at))
}

// inside runs argv in root, with a user namespace where the caller is not root.
func inside(t testing.TB, root string, argv ...string) (string, error) {
	t.Helper()
	cmd := &exec.Cmd{Path: argv[0], Args: argv, Dir: "/scratch", Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"},
		SysProcAttr: &syscall.SysProcAttr{Chroot: root}}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// pythonBox is the materialised closure of the host's python3.
type pythonBox struct {
	*Closure
	root  string
	nodes []nsexec.Node
}

func (b *pythonBox) lib(t testing.TB, name string) string {
	t.Helper()
	for _, l := range b.Libraries {
		if l.Name == name {
			return l.Path
		}
	}
	t.Fatalf("%s is not in the closure", name)
	return ""
}

func TestPythonClosure(t *testing.T) {
	c, err := Resolve("python3", nil)
	must(t, err)
	if c.Python == "" || !strings.HasSuffix(c.Program, "/bin/python3") || len(c.Args) != 0 {
		t.Fatalf("closure of python3: %+v", c)
	}
	o := goodOptions()
	o.StagedIn = ""
	nodes, err := Layout(c, o)
	must(t, err)
	b := &pythonBox{c, materialise(t, nodes), nodes}
	t.Logf("%d nodes, %d libraries, %d identities, notes %q", len(nodes), len(c.Libraries), len(c.Files), c.Notes)
	t.Run("no other program", b.testNothingElseIsAProgram)
	t.Run("runs", b.testRuns)
	t.Run("imports", b.testImports)
	t.Run("thread exit", b.testThreadExit)
	t.Run("ld.so.cache", b.testLDCache)
}

// importAll tries the modules named as arguments, or else every module of the
// standard library, and prints which failed and how many it tried.
// Left out are those that act when imported (a browser, a text) and __main__.
const importAll = `
import sys, json, importlib, os, sysconfig, contextlib, io
bad = {}
names = sorted(sys.stdlib_module_names - {"antigravity", "this", "__main__"})
dyn = os.path.join(os.path.dirname(os.__file__), "lib-dynload")
names += sorted({f.split(".")[0] for f in os.listdir(dyn) if f.endswith(".so")})
names = sys.argv[1:] or names
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    for n in names:
        try:
            importlib.import_module(n)
        except BaseException as e:
            bad[n] = type(e).__name__
print(json.dumps([bad, len(names)]))
`

func (b *pythonBox) testRuns(t *testing.T) {
	out, err := inside(t, b.root, b.Program, "-c", `import sqlite3, ssl, ctypes, lzma, bz2, zlib, hashlib, csv, json, pwd, grp, time, zoneinfo, multiprocessing, decimal, readline, curses, uuid, asyncio
assert sqlite3.connect(":memory:").execute("select 6*7").fetchone() == (42,)
ssl.create_default_context()
assert hashlib.sha256(b"").hexdigest().startswith("e3b0c442")
assert [pwd.getpwuid(u).pw_name for u in (0, 10001, 20002, 65534)] == ["init", "sandbox", "exporter", "nobody"]
assert grp.getgrgid(10001).gr_name == "sandbox"
assert time.tzname[0] == "UTC" and time.localtime(0).tm_hour == 0, time.tzname
import socket; assert socket.gethostbyname("localhost") == "127.0.0.1"
print("fine")`)
	if err != nil || out != "fine\n" {
		t.Fatalf("%v: %s", err, out)
	}
}

// testImports compares with the host: what imports there imports inside.
func (b *pythonBox) testImports(t *testing.T) {
	parse := func(out []byte, err error) (bad map[string]string, count int) {
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		must(t, json.Unmarshal(out, &[]any{&bad, &count}))
		return bad, count
	}
	inBox := func(names ...string) (bad map[string]string, count int) {
		out, err := inside(t, b.root, append([]string{b.Program, "-c", importAll}, names...)...)
		return parse([]byte(out), err)
	}
	host, tried := parse(exec.Command(b.Program, "-I", "-c", importAll).CombinedOutput())
	box, same := inBox()
	if tried < 250 || tried != same {
		t.Fatalf("%d modules were tried on the host, %d inside", tried, same)
	}
	for name, what := range box {
		if host[name] == "" {
			t.Errorf("module %s fails inside (%s) and not on the host", name, what)
		}
	}
	t.Logf("modules that fail on the host as well: %v", box)

	// The control that the comparison can fail: without one library, its module does.
	without(t, b.root, b.lib(t, "libsqlite3.so.0"), func() {
		if bad, _ := inBox("sqlite3"); bad["sqlite3"] == "" {
			t.Error("sqlite3 imports without its library")
		}
	})
}

// pthread_exit loads libgcc_s at run time: with it a thread ends, without it the
// process aborts.
func (b *pythonBox) testThreadExit(t *testing.T) {
	const script = `import ctypes, threading, time, os
threading.Thread(target=lambda: ctypes.CDLL(None).pthread_exit(None), daemon=True).start()
time.sleep(0.3); print("alive", flush=True); os._exit(0)`
	if out, err := inside(t, b.root, b.Program, "-c", script); err != nil || out != "alive\n" {
		t.Errorf("%v: %s", err, out)
	}
	without(t, b.root, b.lib(t, libgcc), func() {
		if out, err := inside(t, b.root, b.Program, "-c", script); err == nil {
			t.Errorf("without %s the thread ended too: the test shows nothing: %s", libgcc, out)
		}
	})
}

// A library outside the default directories is found by the generated cache, and
// only by it. Runs last: it rearranges the root.
func (b *pythonBox) testLDCache(t *testing.T) {
	root := b.root
	var libs []Library
	for _, l := range b.Libraries {
		if l.Name != "libc.so.6" {
			odd := "/opt/odd/" + l.Name
			must(t, os.MkdirAll(filepath.Join(root, "opt/odd"), 0o755))
			must(t, os.Rename(filepath.Join(root, l.Path), filepath.Join(root, odd)))
			l.Path = odd
		}
		libs = append(libs, l)
	}
	cache := filepath.Join(root, "etc/ld.so.cache")
	must(t, os.Remove(cache))
	must(t, os.WriteFile(cache, encodeLDCache(libs), 0o444))
	const script = `import sqlite3, ssl, ctypes, lzma, bz2, readline; print("fine")`
	if out, err := inside(t, b.root, b.Program, "-c", script); err != nil || out != "fine\n" {
		t.Errorf("%v: %s", err, out)
	}
	must(t, os.Remove(cache))
	if out, err := inside(t, b.root, b.Program, "-c", script); err == nil {
		t.Errorf("without the cache it runs too: the test shows nothing: %s", out)
	}
}

// What can be executed in the root is the interpreter and its loader: by the
// nodes' access, and by a look at every file.
func (b *pythonBox) testNothingElseIsAProgram(t *testing.T) {
	c, root := b.Closure, b.root
	loader, err := filepath.EvalSymlinks("/lib64/ld-linux-x86-64.so.2")
	must(t, err)
	var may []string
	for _, n := range b.nodes {
		if n.Access&nsexec.Execute != 0 {
			may = append(may, n.Source)
		}
	}
	slices.Sort(may)
	if want := []string{c.Real, loader}; !slices.Equal(may, want) {
		t.Errorf("EXECUTE is granted on %v, want %v", may, want)
	}
	libraries := map[string]bool{"/usr/lib64/ld-linux-x86-64.so.2": true}
	for _, l := range c.Libraries {
		libraries[l.Path] = true
	}
	var programs, xlibs []string
	scripts, suid := 0, 0
	must(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		must(t, err)
		if !d.Type().IsRegular() {
			return nil
		}
		fi, err := d.Info()
		must(t, err)
		if fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			suid++
		}
		inside := strings.TrimPrefix(p, root)
		f, err := elf.Open(p)
		if err != nil {
			if fi.Mode()&0o111 != 0 {
				scripts++
			}
			return nil
		}
		defer f.Close()
		isLib := libraries[inside] || strings.HasPrefix(inside, "/usr/lib/python"+c.Python+"/") && path.Ext(inside) == ".so"
		switch {
		case f.Type == elf.ET_REL: // config-*/python.o: for linking, not for running
		case f.Type == elf.ET_EXEC || !isLib:
			programs = append(programs, inside)
		case fi.Mode()&0o111 != 0:
			xlibs = append(xlibs, inside)
		}
		return nil
	}))
	if want := []string{c.Real}; !slices.Equal(programs, want) {
		t.Errorf("programs in the root: %v, want %v and the loader", programs, want)
	}
	if suid > 0 {
		t.Errorf("%d set-id files", suid)
	}
	t.Logf("ELF libraries with an x bit: %v; scripts with an x bit in the standard library: %d", xlibs, scripts)
}

func TestTrivialProgramsInsideTheirClosure(t *testing.T) {
	o := goodOptions()
	o.StagedIn = ""
	for cmd, want := range map[string]string{"/bin/true": "", "/bin/echo": "a\n", "ls": ""} {
		c, err := Resolve(cmd, nil)
		must(t, err)
		nodes, err := Layout(c, o)
		must(t, err)
		root := materialise(t, nodes)
		argv := []string{c.Program}
		if want != "" {
			argv = append(argv, strings.TrimSpace(want))
		}
		if out, err := inside(t, root, argv...); err != nil || out != want {
			t.Errorf("%s: %v: %q", cmd, err, out)
		}
		must(t, os.Remove(filepath.Join(root, "lib64"))) // the control: the loader's path must matter
		if out, err := inside(t, root, argv...); err == nil {
			t.Errorf("%s runs without /lib64: %q", cmd, out)
		}
	}
}

func TestResolveIsDeterministic(t *testing.T) {
	a, err := Resolve("python3", nil)
	must(t, err)
	for range 3 {
		b, err := Resolve("/usr/bin/python3", nil)
		must(t, err)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatal("two closures of one program differ")
		}
	}
}
