package cgroupv2

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestRealFind(t *testing.T) {
	r := realRoot(t)
	if got := r.Controllers(); !slices.Equal(got, wanted()) {
		t.Errorf("controllers %q", got)
	}
	before := subdirs(r.dir)
	for range 3 { // from the launcher's leaf it is the same root, not one deeper
		again, err := Find(realDir())
		if err != nil {
			t.Fatal(err)
		}
		if again.Path() != r.Path() || len(again.Controllers()) != 3 {
			t.Errorf("then found %s with %q, before it was %s", again.Path(), again.Controllers(), r.Path())
		}
		again.Close()
	}
	if after := subdirs(r.dir); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
	if r.isTop() {
		return // the one group that may hold processes and hand controllers down
	}
	if others, inside, err := r.members(); err != nil || inside || len(others) > 0 {
		t.Errorf("in the root: %v, myself %v, %v", others, inside, err)
	}
}

// A directory with a process in it gets no controllers; who is in the way is
// named, and nobody but the launcher is moved.
func TestRealInternalProcesses(t *testing.T) {
	r := realRoot(t)
	dir := r.path + "/internal"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cmd := exec.Command("/bin/sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	x, err := Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range wanted() {
		var e *Error
		if !errors.As(x.Lack(c), &e) || e.Kind != InternalProcesses || !slices.Equal(e.PIDs, []int{cmd.Process.Pid}) {
			t.Errorf("%s: %v, want the process %d", c, x.Lack(c), cmd.Process.Pid)
		}
	}
	if typ, err := os.ReadFile(dir + "/cgroup.type"); err != nil || string(typ) != "domain\n" {
		t.Errorf("type became %q, %v", typ, err)
	}
	if got := subdirs(x.dir); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	x.Close()
	cmd.Process.Kill()
	cmd.Wait()
	x, err = Find(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if got := x.Controllers(); !slices.Equal(got, wanted()) {
		t.Errorf("control, with the process gone: %q", got)
	}
}

// Each controller that is not handed down is named, the others work.
func TestRealMissingControllers(t *testing.T) {
	r := realRoot(t)
	for _, missing := range wanted() {
		upper := r.path + "/upper"
		for _, dir := range []string{upper, upper + "/lower"} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range wanted() {
			if c == missing {
				continue
			}
			if err := os.WriteFile(upper+"/cgroup.subtree_control", []byte("+"+c), 0); err != nil {
				t.Fatal(err)
			}
		}
		x, err := Find(upper + "/lower")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range wanted() {
			want := Kind("")
			if c == missing {
				want = ControllerMissing
			}
			if got := kindIs(t, x.Lack(c)); got != want {
				t.Errorf("without %s, %s: %q, want %q", missing, c, got, want)
			}
		}
		x.Close()
		os.Remove(upper + "/lower")
		if err := os.Remove(upper); err != nil {
			t.Fatal(err)
		}
	}
}

// Launchers that are started at once in one directory make way for each other.
func TestRealLaunchersAtOnce(t *testing.T) {
	r := realRoot(t)
	dir := r.path + "/many"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(dir)
	defer os.Remove(dir + "/" + launcherLeaf)
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var all []*exec.Cmd
	var outs [6]*bufio.Reader
	var gates []io.Closer
	for i := range outs {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"CGROUPV2_TEST_ACT=find 0"}
		if realDir() != "" {
			cmd.Env = append(cmd.Env, "CGROUPV2_TEST_ROOT="+dir)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		outs[i] = bufio.NewReader(out)
		gate, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(d.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all, gates = append(all, cmd), append(gates, gate)
	}
	for _, out := range outs {
		if line, err := out.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	for _, g := range gates {
		g.Close()
	}
	for i, cmd := range all {
		line, err := io.ReadAll(outs[i])
		if err := errors.Join(err, cmd.Wait()); err != nil || string(line) != dir+" [memory pids cpu]\n" {
			t.Errorf("launcher %d: %v, %q", i, err, line)
		}
	}
	if left := procs(t, dir); len(left) > 0 {
		t.Errorf("left in the directory they shared: %v", left)
	}
}

func TestRealRunsLeaveNothing(t *testing.T) {
	r := realRoot(t)
	before := subdirs(r.dir)
	for range 20 {
		g := create(t, r, "n"+nonce())
		if _, err := g.Apply(Limits{MemoryBytes: 64 << 20, Tasks: 8, CPUPercent: 50}); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(deadline(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		g.Close()
	}
	if after := subdirs(r.dir); !slices.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}
