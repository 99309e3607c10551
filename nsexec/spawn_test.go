package nsexec

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stepAt finds a step by name in a program that is about to be altered.
func stepAt(t *testing.T, p *Program, name string) int {
	t.Helper()
	at := positions(p, name)
	if len(at) != 1 {
		t.Fatalf("%d steps are called %s", len(at), name)
	}
	return at[0]
}

// The helpers are told a pid. While they work that number must stay pid 1's,
// even if pid 1 has died: reaped, it could be any other process of the host.
func TestPidIsKeptWhileMapsAreWritten(t *testing.T) {
	dir := t.TempDir()
	helper := dir + "/helper"
	script := "#!/bin/sh\nsleep 0.2\nif [ -e /proc/$1/status ]; then grep ^State /proc/$1/status; else echo gone; fi >" + dir + "/seen\nexit 1\n"
	if err := os.WriteFile(helper, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := testSpec("/usr/bin/true")
	spec.Identity.UIDHelper = helper
	before := openFDs(t)
	_, err := spawnAltered(spec, Files{Self: -1, Cgroup: -1, Work: -1}, nil, nil)
	if err == nil {
		t.Fatal("a box without an image")
	}
	nothingLeft(t, before, "without an image")
	files := filesFor(t, spec)
	before = openFDs(t)
	_, err = spawnAltered(spec, files, nil, func(p *Program) { impossible(&p.Steps[0]) })
	var step *StepError
	if !errors.As(err, &step) || step.Step != "scope-capabilities" {
		t.Errorf("got %v, want the first step as the cause, not what followed from it", err)
	}
	seen, _ := os.ReadFile(dir + "/seen")
	if !strings.Contains(string(seen), "zombie") {
		t.Errorf("the helper saw %q, want pid 1 dead and not reaped", seen)
	}
	nothingLeft(t, before, "with a dead pid 1")
}

// A helper that refuses is itself the cause, in its own words.
func TestMapErrorIsTheCause(t *testing.T) {
	dir := t.TempDir()
	helper := dir + "/helper"
	if err := os.WriteFile(helper, []byte("#!/bin/sh\necho $# $2 $3 $4\nenv\necho no such range >&2\nhead -c 1000000 /dev/zero | tr '\\0' x\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := testSpec("/usr/bin/true")
	spec.Identity.GIDHelper = helper
	files := filesFor(t, spec)
	before := openFDs(t)
	_, err := Spawn(spec, files, nil)
	var m *MapError
	if !errors.As(err, &m) || m.Path != helper || !strings.Contains(m.Text, "no such range") || len(m.Text) > 4096 {
		t.Fatalf("got %v", err)
	}
	if !strings.HasPrefix(m.Text, "7 0 1879048192 1\n") {
		t.Errorf("the helper was called with %.40q", m.Text)
	}
	if strings.Contains(m.Text, "HOME=") {
		t.Errorf("the helper has our environment: %.300q", m.Text)
	}
	nothingLeft(t, before, "after a refused map")
}

// What the caller can read, its helper cannot: it would eat a script's input, or
// wait for a keyboard.
func TestHelperHasNoInputOfTheCaller(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("for the caller"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	own, err := unix.Dup(0)
	if err != nil || unix.Dup2(int(r.Fd()), 0) != nil {
		t.Fatal(err)
	}
	defer func() {
		unix.Dup2(own, 0)
		unix.Close(own)
	}()
	helper := t.TempDir() + "/helper"
	if err := os.WriteFile(helper, []byte("#!/bin/sh\necho \"[$(cat)]\"\nls -l /proc/self/fd\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	err = runHelper(helper, os.Getpid(), nil, nil)
	var m *MapError
	if !errors.As(err, &m) || !strings.HasPrefix(m.Text, "[]\n") || !strings.Contains(m.Text, " 0 -> /dev/null") {
		t.Errorf("got %v", err)
	}
	if left, err := io.ReadAll(os.Stdin); string(left) != "for the caller" {
		t.Errorf("control: the caller still has %q, %v", left, err)
	}
}

// A helper may wait for a user database on the network; a cancel must not.
func TestStopEndsAHelperThatHangs(t *testing.T) {
	dir := t.TempDir()
	helper := dir + "/helper"
	if err := os.WriteFile(helper, []byte("#!/bin/sh\necho $$ >"+dir+"/pid\nexec sleep 20\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := testSpec("/usr/bin/true")
	spec.Identity.UIDHelper = helper
	files := filesFor(t, spec)
	before := openFDs(t)
	stop := make(chan struct{})
	var pid string
	go func() {
		defer close(stop)
		for end := time.Now().Add(10 * time.Second); pid == "" && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			b, _ := os.ReadFile(dir + "/pid")
			pid = strings.TrimSpace(string(b))
		}
	}()
	began := time.Now()
	_, err := Spawn(spec, files, stop)
	if took := time.Since(began); !errors.Is(err, ErrGone) || took > 15*time.Second {
		t.Errorf("%v after %v, want %v at once", err, took, ErrGone)
	}
	if pid == "" {
		t.Fatal("the helper never ran")
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Error("the helper lives on")
	}
	nothingLeft(t, before, "after a stopped helper")
}

func dumpable(t *testing.T) int {
	t.Helper()
	v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A set-up in our own memory changes our dumpable flag, and then nobody but root
// can write the next box's maps: it must be back after a box that failed, too.
func TestLauncherStaysDumpable(t *testing.T) {
	if dumpable(t) != 1 {
		t.Fatal("not dumpable to begin with")
	}
	spec := testSpec("/usr/bin/true")
	spec.SharedVM = true
	files := filesFor(t, spec)
	for _, broken := range []string{"", "root-tmpfs", "workload-uid", "landlock-restrict", "ready", "init-exec"} {
		var after int
		box, err := spawnAltered(spec, files, nil, func(p *Program) {
			if broken != "" {
				impossible(&p.Steps[stepAt(t, p, broken)])
			}
		})
		after = dumpable(t)
		if (err == nil) != (broken == "") {
			t.Errorf("%q: %v", broken, err)
		}
		if err == nil {
			box.Abort()
		}
		if after != 1 {
			t.Errorf("with %q broken the launcher's dumpable flag is %d", broken, after)
			unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		}
	}
}

// A fired stop ends Spawn at any time, and leaves nothing.
func TestStopDuringSetup(t *testing.T) {
	spec := testSpec("/usr/bin/true")
	files := filesFor(t, spec)
	before := openFDs(t)
	stopped := 0
	for i := range 60 {
		stop := make(chan struct{})
		timer := time.AfterFunc(time.Duration(i)*150*time.Microsecond, func() { close(stop) })
		box, err := Spawn(spec, files, stop)
		timer.Stop()
		if err == nil {
			box.Abort()
		} else {
			stopped++
			if !errors.Is(err, ErrGone) {
				t.Errorf("after %d: %v", i, err)
			}
		}
		nothingLeft(t, before, "after a stop")
	}
	if stopped == 0 {
		t.Error("no box was stopped during its set-up")
	}
	t.Logf("%d of 60 boxes stopped during set-up", stopped)
}
