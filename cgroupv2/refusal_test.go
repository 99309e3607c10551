package cgroupv2

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const nobody = 65534

// onThread runs f on an OS thread that is thrown away afterwards, so that f may
// change the thread's mounts and ids.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		f()
	}()
	<-done
}

func TestFindRefuses(t *testing.T) {
	r := ownRoot(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(r.path, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dir  string
		want Kind
	}{
		"control":          {r.path, ""},
		"ordinary dir":     {t.TempDir(), NotACgroup},
		"missing":          {r.path + "/missing", NotACgroup},
		"file":             {file, NotACgroup},
		"relative":         {"sys/fs/cgroup", Escapes},
		"dot dot":          {r.path + "/../x", Escapes},
		"through a link":   {link, Escapes},
		"link in the path": {link + "/nsbox-x", Escapes},
	} {
		got, err := Find(c.dir)
		if k := kindIs(t, err); k != c.want {
			t.Errorf("%s: %q, want %q (%v)", name, k, c.want, err)
		}
		if got != nil {
			got.Close()
		}
	}
}

func TestThreadedIsRefused(t *testing.T) {
	r := ownRoot(t)
	for _, name := range []string{"a", "b"} {
		if err := os.Mkdir(r.path+"/"+name, 0o755); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(r.path + "/" + name)
	}
	if x, err := Find(r.path + "/b"); err != nil {
		t.Errorf("control: %v", err)
	} else {
		x.Close()
	}
	if err := os.WriteFile(r.path+"/a/cgroup.type", []byte("threaded"), 0); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{r.path + "/a", r.path + "/b", r.path} {
		if _, err := Find(dir); kindIs(t, err) != Threaded {
			t.Errorf("%s: %v, want threaded", dir, err)
		}
	}
}

func TestReadOnlyMountIsRefused(t *testing.T) {
	r := ownRoot(t)
	mnt := t.TempDir()
	onThread(func() {
		for _, step := range []func() error{
			func() error { return unix.Unshare(unix.CLONE_NEWNS) },
			func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
			func() error { return unix.Mount(r.path, mnt, "", unix.MS_BIND, "") },
		} {
			if err := step(); err != nil {
				t.Error(err)
				return
			}
		}
		if x, err := Find(mnt); err != nil {
			t.Errorf("control, bound read-write: %v", err)
		} else {
			x.Close()
		}
		if err := unix.Mount("", mnt, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			t.Error(err)
			return
		}
		if _, err := Find(mnt); kindIs(t, err) != ReadOnly {
			t.Errorf("bound read-only: %v, want readonly", err)
		}
	})
}

func TestForeignSubtreeIsNotDelegated(t *testing.T) {
	r := ownRoot(t)
	sub := r.path + "/mine"
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(sub)
	asNobody := func(f func()) {
		onThread(func() {
			// The raw call changes this thread only.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); e != 0 {
				t.Error(e)
				return
			}
			f()
		})
	}
	asNobody(func() {
		if _, err := Find(sub); kindIs(t, err) != NotDelegated {
			t.Errorf("directory of root: %v, want not_delegated", err)
		}
	})
	if err := os.Chown(sub, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	asNobody(func() {
		// It may be written now, but processes would have to pass the top.
		_, err := Find(sub)
		if kindIs(t, err) != Boundary || !strings.Contains(err.Error(), "move processes through") {
			t.Errorf("own directory, foreign ancestor: %v, want boundary by the ancestor", err)
		}
	})
	if left, _ := filepath.Glob(sub + "/nsbox-*"); len(left) != 0 {
		t.Errorf("probe leaf left: %q", left)
	}
}

// TestAsDelegate is the body of TestDelegatedUser; alone it has nothing to do.
func TestAsDelegate(t *testing.T) {
	if os.Getenv("CGROUPV2_TEST_DELEGATE") == "" {
		return
	}
	if os.Geteuid() != nobody {
		t.Fatalf("uid %d", os.Geteuid())
	}
	r, err := Find("")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if want := os.Getenv("CGROUPV2_TEST_DELEGATE"); r.Path() != want {
		t.Fatalf("found %s, want %s", r.Path(), want)
	}
	g := create(t, r, "d")
	defer g.Close()
	cmd := startIn(t, g, "sleep 600 & wait")
	if err := g.moveToWork(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := procs(t, g.Path()+"/work"); len(got) == 0 {
		t.Error("work is empty after the move")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := g.WaitEmpty(ctx); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if err := g.Remove(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(filepath.Dir(r.Path())); kindIs(t, err) != NotDelegated {
		t.Errorf("the parent: %v, want not_delegated", err)
	}
}

func TestDelegatedUser(t *testing.T) {
	r := ownRoot(t)
	sub := r.path + "/user"
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(sub)
	defer os.Remove(sub + "/" + launcherLeaf) // where there are controllers, the delegate has moved there
	for _, f := range []string{"", "/cgroup.procs", "/cgroup.subtree_control"} {
		if err := os.Chown(sub+f, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(sub)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()

	cmd := exec.Command(copyOfTest(t), "-test.run=^TestAsDelegate$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = []string{"CGROUPV2_TEST_DELEGATE=" + sub, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(dir.Fd()),
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestAsDelegate") {
		t.Errorf("%v\n%s", err, out)
	}
}

// copyOfTest puts the test binary where another user may execute it.
func copyOfTest(t *testing.T) string {
	t.Helper()
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir, err := os.MkdirTemp("", "cgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(dir+"/test", os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
