package scope

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nsbox/cgroupv2"
)

// shown is what one process found, printed by show.
type shown struct {
	Path        string
	Controllers []string
	Lacks       map[string]string // kind, and the text after a blank
	Err         string
	Asked       bool // systemd was asked for a scope
	EnterMS     float64
	FindMS      float64
	Self        string
}

func TestMain(m *testing.M) {
	if os.Getenv("SCOPE_TEST_SHOW") != "" {
		show()
		return
	}
	os.Exit(m.Run())
}

// show does what a launcher does, and prints what came of it.
func show() {
	var s shown
	start := time.Now()
	uid := os.Geteuid()
	list := addresses(uid, os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if os.Getenv("SCOPE_TEST_SHOW") == "bus" {
		list = list[len(list)-1:]
	}
	m := newManager(context.Background(), uid, list)
	defer m.Close()
	r, err := cgroupv2.Search{Delegated: m.Delegated, Scope: func() error {
		s.Asked = true
		before := time.Now()
		defer func() { s.EnterMS = float64(time.Since(before).Microseconds()) / 1000 }()
		return m.Enter()
	}}.Find()
	s.FindMS = float64(time.Since(start).Microseconds()) / 1000
	say := func(err error) string {
		var e *cgroupv2.Error
		if errors.As(err, &e) {
			return string(e.Kind) + " " + e.Error()
		}
		return fmt.Sprint(err)
	}
	if err != nil {
		s.Err = say(err)
	} else {
		s.Path, s.Controllers, s.Lacks = r.Path(), r.Controllers(), map[string]string{}
		for _, c := range []string{"memory", "pids", "cpu"} {
			if err := r.Lack(c); err != nil {
				s.Lacks[c] = say(err)
			}
		}
	}
	self, _ := os.ReadFile("/proc/self/cgroup")
	s.Self = strings.TrimSpace(string(self))
	json.NewEncoder(os.Stdout).Encode(s)
}

const asUser = "setpriv --reuid 1000 --regid 1000 --init-groups --reset-env env XDG_RUNTIME_DIR=/run/user/1000 "

// TestSessions starts this binary in every place a launcher may be started in.
// It needs root, systemd and a user manager for uid 1000: the virtual machine
// tier. Elsewhere it skips for a reason that it has seen.
func TestSessions(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); errors.Is(err, os.ErrNotExist) {
		t.Skip("systemd does not manage this machine: there is no /run/systemd/system")
	}
	if os.Geteuid() != 0 {
		t.Skipf("uid %d cannot open sessions of others", os.Geteuid())
	}
	if _, err := os.Stat("/run/user/1000/systemd/private"); err != nil {
		t.Fatal(err) // the tier has to start it
	}
	bin := publicCopy(t)
	full := []string{"memory", "pids", "cpu"}
	if c := os.Getenv("SCOPE_TEST_CONTROLLERS"); c != "" { // what this machine delegates to users
		full = strings.Fields(c)
	}
	const show = "env SCOPE_TEST_SHOW=1 "
	scope := func(p string) bool { return strings.HasPrefix(filepath.Base(p), "nsbox-") }
	for _, c := range []struct {
		name, command string
		asked         bool
		ownScope      bool
		err           string
		runs          int
		all           bool // every controller, whatever users get
	}{
		{"login session", "systemd-run --uid=1000 -p PAMName=login --wait --pipe -q -- " + show + bin, true, true, "", 1, false},
		{"no variables at all", "setpriv --reuid 1000 --regid 1000 --init-groups --reset-env env -i SCOPE_TEST_SHOW=1 " + bin, true, true, "", 1, false},
		{"another user's bus", "setpriv --reuid 1000 --regid 1000 --init-groups --reset-env env DBUS_SESSION_BUS_ADDRESS=unix:path=/run/dbus/none " + show + bin, true, true, "", 1, false},
		{"over the bus", asUser + "env SCOPE_TEST_SHOW=bus " + bin, true, true, "", 1, false},
		{"delegated scope", asUser + "systemd-run --user --scope -q -p Delegate=yes -- " + show + bin, false, false, "", 1, false},
		{"delegated scope with a shell", asUser + "systemd-run --user --scope -q -p Delegate=yes -- sh -c '" + show + bin + "; true'", true, true, "", 1, false},
		{"delegated session, shell in a leaf", asUser + "systemd-run --user --scope -q -p Delegate=yes -- sh -c 'd=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup); mkdir $d/shell; echo $$ >$d/shell/cgroup.procs; " + show + bin + "; " + show + bin + "'", false, false, "", 2, false},
		{"scope that is not delegated", asUser + "systemd-run --user --scope -q -- " + show + bin, true, true, "", 1, false},
		{"service that is not delegated", asUser + "systemd-run --user --wait --pipe -q -- " + show + bin, true, true, "", 1, false},
		{"delegated service", asUser + "systemd-run --user --wait --pipe -q -p Delegate=yes -- " + show + bin, false, false, "", 1, false},
		{"root", "systemd-run --wait --pipe -q -- " + show + bin, true, true, "", 1, true},
		{"user without a manager", "setpriv --reuid 1001 --regid 1001 --clear-groups --reset-env " + show + bin, true, false, "no_manager", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, "sh", "-c", c.command).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			want := full
			if c.all {
				want = []string{"memory", "pids", "cpu"}
			}
			d, first := json.NewDecoder(strings.NewReader(string(out))), ""
			for range c.runs {
				var s shown
				if err := d.Decode(&s); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				t.Logf("%+v", s)
				if s.Asked != c.asked || (s.Path != "" && scope(s.Path) != c.ownScope) || !strings.HasPrefix(s.Err, c.err) || (c.err == "") != (s.Err == "") {
					t.Errorf("asked %v, at %q, error %q; want %v, own scope %v, %q", s.Asked, s.Path, s.Err, c.asked, c.ownScope, c.err)
				}
				if c.err == "" && !slices.Equal(s.Controllers, want) {
					t.Errorf("controllers %q, want %q; lacks %v", s.Controllers, want, s.Lacks)
				}
				if first != "" && s.Path != first {
					t.Errorf("found %s after %s", s.Path, first)
				}
				first = s.Path
				if c.asked && c.err == "" {
					gone(t, s.Path)
				}
			}
		})
	}
}

// gone waits until systemd has removed the scope with everything below.
func gone(t *testing.T, dir string) {
	for range 100 {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%s is still there", dir)
}

// TestCost prints what a scope costs; it fails only when there is none.
func TestCost(t *testing.T) {
	if _, err := os.Stat("/run/user/1000/systemd/private"); err != nil || os.Geteuid() != 0 {
		t.Skipf("no manager of uid 1000 to ask as root: %v", err)
	}
	bin := publicCopy(t)
	for _, c := range []struct{ name, command string }{
		{"direct", asUser + "env SCOPE_TEST_SHOW=1 " + bin}, {"over the bus", asUser + "env SCOPE_TEST_SHOW=bus " + bin},
		{"delegated, nothing asked", asUser + "systemd-run --user --scope -q -p Delegate=yes -- env SCOPE_TEST_SHOW=1 " + bin},
	} {
		var enter, find []float64
		for range 10 {
			out, err := exec.Command("sh", "-c", c.command).Output()
			var s shown
			if err != nil || json.Unmarshal(out, &s) != nil || s.Err != "" {
				t.Fatalf("%s: %v\n%s", c.name, err, out)
			}
			enter, find = append(enter, s.EnterMS), append(find, s.FindMS)
		}
		slices.Sort(enter)
		slices.Sort(find)
		t.Logf("%s: enter p50 %.1f ms, max %.1f ms; whole Find p50 %.1f ms, max %.1f ms", c.name, enter[5], enter[9], find[5], find[9])
	}
}

// publicCopy puts the test binary where other users may run it.
func publicCopy(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "scope-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(dir+"/test", os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close(), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return out.Name()
}
