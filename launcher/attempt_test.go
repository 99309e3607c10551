package launcher

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

func TestStateDirIsPrivate(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		why     string // empty: taken
	}{
		"missing":             {func(*testing.T, string) {}, ""},
		"private":             {func(t *testing.T, d string) { must(t, os.Mkdir(d, 0o700)) }, ""},
		"used before":         {func(t *testing.T, d string) { _, err := openState(d); must(t, err) }, ""},
		"readable by a group": {func(t *testing.T, d string) { must(t, os.Mkdir(d, 0o750)) }, "mode 0750"},
		"open to all":         {func(t *testing.T, d string) { must(t, os.Mkdir(d, 0o700)); must(t, os.Chmod(d, 0o777)) }, "mode 0777"},
		"a file":              {func(t *testing.T, d string) { must(t, os.WriteFile(d, nil, 0o600)) }, "not a directory"},
		"a link": {func(t *testing.T, d string) {
			must(t, os.Mkdir(d+".real", 0o700))
			must(t, os.Symlink(d+".real", d))
		}, "is not a directory"},
		"a link to nothing": {func(t *testing.T, d string) { must(t, os.Symlink(d+".none", d)) }, "state directory"},
		"cache open to all": {func(t *testing.T, d string) {
			must(t, os.MkdirAll(d+"/cache", 0o700))
			must(t, os.Chmod(d+"/cache", 0o707))
		}, "mode 0707"},
		"attempts is a link": {func(t *testing.T, d string) {
			must(t, os.Mkdir(d, 0o700))
			must(t, os.Symlink(t.TempDir(), d+"/attempts"))
		}, "is not a directory"},
		"attempts is a file": {func(t *testing.T, d string) {
			must(t, os.Mkdir(d, 0o700))
			must(t, os.WriteFile(d+"/attempts", nil, 0o600))
		}, "is not a directory"},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		c.prepare(t, dir)
		st, err := openState(dir)
		e := reason.Of(err)
		switch {
		case c.why == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.why == "":
			for _, d := range []string{st.dir, st.cache(), st.dir + "/attempts"} {
				if fi, err := os.Lstat(d); err != nil || fi.Mode() != os.ModeDir|0o700 {
					t.Errorf("%s: %s is %v, %v", name, d, fi.Mode(), err)
				}
			}
		case e == nil || e.ID != reason.StateDir || !strings.Contains(e.Error(), c.why):
			t.Errorf("%s: got %v, want %q", name, err, c.why)
		}
	}
}

// A directory of somebody else's is refused even where its mode is right. Only
// root can make one.
func TestStateDirOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		// Root's own directory is foreign to everybody else.
		if _, err := openState("/"); idOf(err) != reason.StateDir {
			t.Errorf("/: %v", err)
		}
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, 12345, 12345))
	if _, err := openState(dir); idOf(err) != reason.StateDir || !strings.Contains(err.Error(), "uid 12345") {
		t.Errorf("a foreign directory: %v", err)
	}
	if fi, _ := os.ReadDir(dir); len(fi) != 0 {
		t.Errorf("something was made in it: %v", fi)
	}
	must(t, os.Chown(dir, 0, 0))
	if _, err := openState(dir); err != nil {
		t.Errorf("control: %v", err)
	}
}

// Whoever owns a directory above can put another one in its place during a run.
func TestStateDirBelowSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a directory that belongs to somebody else")
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	must(t, os.Mkdir(theirs, 0o755))
	for name, c := range map[string]struct {
		uid  int
		mode os.FileMode
		says string
	}{
		"control":             {0, 0o755, ""},
		"nobody of this host": {overflowID, 0o755, ""},
		"sticky":              {0, 0o777 | os.ModeSticky, ""},
		"another user's":      {12345, 0o755, theirs + " belongs to uid 12345"},
		"open to everybody":   {0, 0o777, theirs + " is open to everybody (mode 0777)"},
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.Chown(theirs, c.uid, c.uid))
			must(t, os.Chmod(theirs, c.mode))
			dir := filepath.Join(theirs, "mine", "state")
			_, err := openState(dir)
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				if s, err := existingState(dir); s == nil || err != nil {
					t.Errorf("to be looked at: %v, %v", s, err)
				}
				must(t, os.RemoveAll(filepath.Dir(dir)))
				return
			}
			if idOf(err) != reason.StateDir || !strings.Contains(err.Error(), c.says) {
				t.Errorf("says %v, want %q", err, c.says)
			}
			if !missing(filepath.Dir(dir)) {
				t.Error("something was made there")
			}
			must(t, os.MkdirAll(dir+"/attempts", 0o700))
			if _, err := existingState(dir); idOf(err) != reason.StateDir {
				t.Errorf("to be looked at: %v", err)
			}
			must(t, os.RemoveAll(filepath.Dir(dir)))
		})
	}
}

func TestDefaultStateDir(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Setenv("HOME", "/home/alice") // sudo keeps it
		t.Setenv("XDG_STATE_HOME", "/home/alice/state")
		if got, err := defaultStateDir(); got != "/var/lib/nsbox" || err != nil {
			t.Errorf("root: %s, %v", got, err)
		}
	}
	for _, c := range []struct{ xdg, home, want string }{
		{"/srv/state", "/home/alice", "/srv/state/nsbox"},
		{"", "/home/alice", "/home/alice/.local/state/nsbox"},
		{"relative", "/home/alice", "/home/alice/.local/state/nsbox"},
		{"", "", ""},
		{"relative", "relative", ""},
	} {
		getenv := func(name string) string { return map[string]string{"XDG_STATE_HOME": c.xdg, "HOME": c.home}[name] }
		got, err := userStateDir(getenv)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && idOf(err) != reason.StateDir {
			t.Errorf("XDG_STATE_HOME=%q HOME=%q: %q, %v; want %q", c.xdg, c.home, got, err, c.want)
		}
	}
}

// enterAlone takes the one place of a policy with concurrency 1, or is refused.
func enterAlone(st *state, attempt string) (*lock, error) {
	return st.enter(context.Background(), attempt, 1, 0)
}

// holdLock takes the lock of a state directory, says so, and holds it until its
// stdin ends. With "child" it lets a process of its own live on.
func holdLock(args []string) int {
	if len(args) < 2 {
		return 1
	}
	st, err := openState(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	l, err := enterAlone(st, args[1])
	if err != nil {
		fmt.Println(err)
		return 2
	}
	pid := 0
	if len(args) > 2 {
		c := exec.Command("/bin/sleep", "60")
		if err := c.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		pid = c.Process.Pid
	}
	fmt.Println("held", pid)
	bufio.NewReader(os.Stdin).ReadString('\n')
	l.release()
	return 0
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startHolder returns a process that holds dir's lock, a function that lets it
// end, and its child's pid.
func startHolder(t *testing.T, dir string, args ...string) (holder *exec.Cmd, end func(), child int) {
	t.Helper()
	c := inRole(t, "hold-lock", append([]string{dir}, args...)...)
	in, err := c.StdinPipe()
	must(t, err)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	ended := false
	end = func() {
		if !ended {
			ended = true
			in.Close()
			c.Wait()
		}
	}
	t.Cleanup(end)
	line, err := bufio.NewReader(out).ReadString('\n')
	if f := strings.Fields(line); err != nil || len(f) != 2 || f[0] != "held" {
		t.Fatalf("the holder says %q, %v", line, err)
	} else {
		child, _ = strconv.Atoi(f[1])
	}
	return c, end, child
}

func TestTheLockNamesItsHolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	holder, end, _ := startHolder(t, dir, "01HOLDER")
	st, err := openState(dir)
	must(t, err)
	_, err = enterAlone(st, "01SECOND")
	e := reason.Of(err)
	if e == nil || e.ID != reason.Busy || e.What != fmt.Sprintf("attempt 01HOLDER pid %d", holder.Process.Pid) {
		t.Fatalf("got %v", err)
	}
	// The loser left the holder's name as it was.
	if text, _ := os.ReadFile(dir + "/lock"); !strings.HasPrefix(string(text), "01HOLDER pid ") {
		t.Errorf("the lock file says %q", text)
	}
	end()
	l, err := enterAlone(st, "01SECOND")
	must(t, err)
	if text, _ := os.ReadFile(dir + "/lock"); string(text) != fmt.Sprintf("01SECOND pid %d\n", os.Getpid()) {
		t.Errorf("the lock file says %q", text)
	}
	// The same process is no exception: the lock belongs to the open file.
	if _, err := enterAlone(st, "01THIRD"); idOf(err) != reason.Busy {
		t.Errorf("a second lock of one process: %v", err)
	}
	l.release()
	l, err = enterAlone(st, "01THIRD")
	must(t, err)
	l.release()
}

// A holder that was killed holds nothing, and one that has not yet written its
// name is still a holder.
func TestAKilledHolderLetsGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	holder, _, _ := startHolder(t, dir, "01HOLDER")
	st, err := openState(dir)
	must(t, err)
	must(t, os.Truncate(dir+"/lock", 0))
	if _, err := enterAlone(st, "01SECOND"); idOf(err) != reason.Busy || reason.Of(err).What != "another attempt" {
		t.Errorf("a holder without a name: %v", err)
	}
	must(t, holder.Process.Kill())
	holder.Process.Wait()
	l, err := enterAlone(st, "01SECOND")
	must(t, err)
	l.release()
}

// Rows B149: a process that the holder started and that outlives it holds nothing.
func TestTheLockIsNotInherited(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	_, end, child := startHolder(t, dir, "01HOLDER", "child")
	defer func() {
		p, _ := os.FindProcess(child)
		p.Kill()
	}()
	end()
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone: %v", err)
	}
	st, err := openState(dir)
	must(t, err)
	l, err := enterAlone(st, "01SECOND")
	if err != nil {
		t.Fatalf("the holder's child holds the lock: %v", err)
	}
	l.release()
}

// lockOnFullDisk takes a lock where not one byte can be written.
func lockOnFullDisk(args []string) int {
	st, err := openState(args[0])
	if err != nil {
		return 1
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{}); err != nil {
		return 1
	}
	_, err = enterAlone(st, "01FULL")
	fmt.Println(err)
	return 0
}

func TestALockThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	out, err := inRole(t, "full-disk", dir).Output()
	must(t, err)
	if string(out) != "<nil>\n" {
		t.Errorf("a full disk keeps the operator out: %q", out)
	}
	st, err := openState(dir)
	must(t, err)
	l, err := enterAlone(st, "01NEXT")
	must(t, err)
	l.release()
}

func TestLockFileIsNoLink(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	st, err := openState(dir)
	must(t, err)
	victim := filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	must(t, os.Symlink(victim, dir+"/lock"))
	if _, err := enterAlone(st, "01X"); idOf(err) != reason.StateDir {
		t.Errorf("a link as lock: %v", err)
	}
	if text, _ := os.ReadFile(victim); string(text) != "precious" {
		t.Errorf("the link's target says %q", text)
	}
}

func TestAttemptsHaveNamesOfTheirOwn(t *testing.T) {
	st, err := openState(filepath.Join(t.TempDir(), "state"))
	must(t, err)
	seen := map[string]bool{}
	now := time.Now()
	for range 200 {
		id, err := newAttemptID(now)
		must(t, err)
		if seen[id] || len(id) != 26 {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
	id, err := newAttemptID(now)
	must(t, err)
	a, err := st.attempt(id)
	must(t, err)
	if fi, err := os.Lstat(a.dir); err != nil || fi.Mode() != os.ModeDir|0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	must(t, a.record(journal.Attempt, nil))
	must(t, a.journal.Close())
	if _, err := st.attempt(id); idOf(err) != reason.StateDir {
		t.Errorf("the same id again: %v", err)
	}
	if e := reason.Of(a.record(journal.StagingIntent, nil)); e == nil || e.ID != reason.JournalWrite {
		t.Errorf("a closed journal takes an event: %v", e)
	}
}
