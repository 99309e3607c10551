package cgroupv2

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ownRoot returns a Root in a fresh group of the test's own, removed afterwards.
func ownRoot(t testing.TB) *Root {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a group at the top of the hierarchy")
	}
	loc, err := locateNow()
	if loc.Mount == "" {
		t.Fatalf("no v2 hierarchy: %v", err)
	}
	top := loc.Mount
	if systemdManages() {
		top = loc.Dir // the top is systemd's, for tests too
	}
	if realDir() != "" {
		top = realDir()
	}
	dir := top + "/cgtest-" + strconv.Itoa(os.Getpid()) + "-" + nonce()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := Find(dir)
	if err != nil {
		os.Remove(dir)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := subdirs(r.dir); len(left) > 0 {
			t.Errorf("left in %s: %q", dir, left)
			_ = writeSmall(r.dir, "cgroup.kill", "1")
			time.Sleep(100 * time.Millisecond)
			_ = removeBelow(r.dir, dir, maxDepth)
		}
		r.Close()
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return r
}

func create(t testing.TB, r *Root, name string) *Group {
	t.Helper()
	g, err := r.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// startIn runs a shell command born in the box leaf.
func startIn(t testing.TB, g *Group, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.BoxFD(), Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func procs(t testing.TB, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path + "/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func deadline(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// A tree with an orphan in a session of its own, one that ignores signals and
// one that is stopped: none survives, and the group goes away.
func TestTreeIsKilledAndRemoved(t *testing.T) {
	r := ownRoot(t)
	const rounds = 200
	var worst time.Duration
	for i := range rounds {
		g := create(t, r, "r"+strconv.Itoa(i))
		cmd := startIn(t, g, `(setsid sleep 600 &) ; (trap "" TERM HUP INT; sleep 600) & (kill -STOP $(sh -c 'echo $PPID'); sleep 600) & wait`)
		if i == 0 { // positive control: before the kill, there is a tree
			for len(procs(t, g.Path()+"/box")) < 4 {
				time.Sleep(time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			if got := kindIs(t, g.WaitEmpty(ctx)); got != Busy {
				t.Errorf("WaitEmpty with a live tree: %q, want busy", got)
			}
			if got := kindIs(t, g.Remove(ctx)); got != Busy {
				t.Errorf("Remove with a live tree: %q, want busy", got)
			}
			if got := subdirs(g.top); len(got) != 2 {
				t.Errorf("Remove with a live tree took a leaf: %q left", got)
			}
			cancel()
		} else {
			time.Sleep(time.Duration(i%40) * 100 * time.Microsecond) // hit the tree while it forks
		}
		if err := g.moveToWork(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := g.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := g.WaitEmpty(deadline(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > worst {
			worst = d
		}
		if n := len(procs(t, g.Path()+"/box")) + len(procs(t, g.Path()+"/work")); n != 0 {
			t.Fatalf("populated 0, but %d processes listed", n)
		}
		cmd.Wait()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != unix.SIGKILL {
			t.Errorf("shell ended with %v, want SIGKILL", ws)
		}
		if err := g.Remove(deadline(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := g.Remove(deadline(t, time.Second)); err != nil {
			t.Errorf("second Remove: %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if left := subdirs(r.dir); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	t.Logf("%d rounds, slowest kill to populated 0: %v", rounds, worst)
}

// The CPU time of dead grandchildren counts, that of the box leaf does not.
func TestCPUUsage(t *testing.T) {
	r := ownRoot(t)
	g := create(t, r, "cpu")
	defer g.Close()
	zero, err := g.CPUUsage()
	if err != nil || zero != 0 {
		t.Fatalf("fresh leaf: %d µs, %v", zero, err)
	}
	const burn = `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`
	if err := startIn(t, g, burn).Wait(); err != nil {
		t.Fatal(err)
	}
	if n, err := g.CPUUsage(); err != nil || n != 0 {
		t.Errorf("after work in box only: %d µs, %v; want 0", n, err)
	}
	cmd := startIn(t, g, `read x; for n in 1 2 3; do (`+burn+`); done`)
	// The shell blocks on the terminal-less stdin and gets EOF at once, unless
	// it is stopped until it has been moved.
	_ = cmd.Process.Signal(unix.SIGSTOP)
	if err := g.moveToWork(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(unix.SIGCONT)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ru := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	n, err := g.CPUUsage()
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(n) * time.Microsecond; got < ru/2 || got > 2*ru+20*time.Millisecond {
		t.Errorf("cpu.stat shows %v, rusage of the tree %v", got, ru)
	}
	if err := g.Remove(deadline(t, 5*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.CPUUsage(); kindIs(t, err) != Gone {
		t.Errorf("after Remove: %v, want gone", err)
	}
}

func TestCreateRefusesAndUndoes(t *testing.T) {
	r := ownRoot(t)
	g := create(t, r, "one")
	defer g.Close()
	if _, err := r.Create("one"); kindIs(t, err) != Exists {
		t.Errorf("second Create: %v, want exists", err)
	}
	if _, err := r.Create("../one"); kindIs(t, err) != Escapes {
		t.Errorf("name with a slash: %v, want escapes", err)
	}
	if got := subdirs(r.dir); !slices.Equal(got, []string{"nsbox-one"}) {
		t.Errorf("listing %q", got)
	}
	if err := g.Remove(deadline(t, time.Second)); err != nil {
		t.Fatal(err)
	}

	// Room for the group and one leaf: the second mkdir fails, all is undone.
	if err := writeSmall(r.dir, "cgroup.max.descendants", "2"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create("two"); kindIs(t, err) != Full {
		t.Errorf("over the limit: %v, want full", err)
	}
	if got := subdirs(r.dir); len(got) != 0 {
		t.Errorf("left after a failed Create: %q", got)
	}
	if err := writeSmall(r.dir, "cgroup.max.descendants", "max"); err != nil {
		t.Fatal(err)
	}
}

func TestOpenAndRemoveGoById(t *testing.T) {
	r := ownRoot(t)
	g := create(t, r, "id")
	defer g.Close()

	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, g.Path(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := binary.NativeEndian.Uint64(handle.Bytes()); got != g.ID() {
		t.Errorf("handle says id %d, Group says %d", got, g.ID())
	}
	again, err := r.Open("id", g.ID())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if _, err := r.Open("id", g.ID()+1); kindIs(t, err) != Gone {
		t.Errorf("Open with another id: %v, want gone", err)
	}
	if err := again.Remove(deadline(t, time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open("id", g.ID()); kindIs(t, err) != Gone {
		t.Errorf("Open after Remove: %v, want gone", err)
	}

	other := create(t, r, "id") // same name, another group
	defer other.Close()
	if other.ID() == g.ID() {
		t.Fatalf("id %d was given out twice", g.ID())
	}
	if got := kindIs(t, g.Remove(deadline(t, time.Second))); got != Escapes {
		t.Errorf("Remove over a stranger: %q, want escapes", got)
	}
	if _, err := os.Stat(other.Path() + "/work"); err != nil {
		t.Errorf("the stranger was touched: %v", err)
	}

	// A launcher that died between the two leaves.
	if err := os.Remove(other.Path() + "/work"); err != nil {
		t.Fatal(err)
	}
	half, err := r.Open("id", other.ID())
	if err != nil {
		t.Fatalf("half-made group: %v", err)
	}
	defer half.Close()
	if err := errors.Join(half.Kill(), half.WaitEmpty(deadline(t, time.Second)), half.Remove(deadline(t, time.Second))); err != nil {
		t.Errorf("half-made group: %v", err)
	}
}

// moveToWork puts a process that was started in box where a box's own would
// have been born.
func (g *Group) moveToWork(pid int) error {
	return writeSmall(g.work, "cgroup.procs", strconv.Itoa(pid))
}

func TestStaleProbesAreSwept(t *testing.T) {
	r := ownRoot(t)
	for _, d := range []string{probePrefix + "x", "nsbox-notaprobe"} {
		if err := unix.Mkdirat(r.fd(), d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.sweepProbes(time.Now().Add(-staleProbe))
	if got := subdirs(r.dir); len(got) != 2 {
		t.Errorf("a fresh probe was swept: %q", got)
	}
	r.sweepProbes(time.Now().Add(time.Hour))
	if got := subdirs(r.dir); !slices.Equal(got, []string{"nsbox-notaprobe"}) {
		t.Errorf("after the sweep: %q", got)
	}
	_ = unix.Unlinkat(r.fd(), "nsbox-notaprobe", unix.AT_REMOVEDIR)
}

func BenchmarkGroup(b *testing.B) {
	r := ownRoot(b)
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			x, err := Find(r.path)
			if err != nil {
				b.Fatal(err)
			}
			x.Close()
		}
	})
	b.Run("create-remove", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			g := create(b, r, fmt.Sprint(i))
			if err := g.Remove(context.Background()); err != nil {
				b.Fatal(err)
			}
			g.Close()
		}
	})
	b.Run("cpu-usage", func(b *testing.B) {
		g := create(b, r, "b")
		for b.Loop() {
			if _, err := g.CPUUsage(); err != nil {
				b.Fatal(err)
			}
		}
		g.Remove(context.Background())
		g.Close()
	})
}
