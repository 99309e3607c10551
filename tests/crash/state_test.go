package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"nsbox/launcher"
)

// small mounts a file system of its own for a state directory of the caller's.
func (b *bench) small() string {
	b.t.Helper()
	if os.Geteuid() != 0 {
		b.t.Skip("only root can mount a small file system")
	}
	dir := b.dir + "/small"
	b.mkdir(dir)
	options := fmt.Sprintf("size=16m,mode=0700,uid=%d,gid=%d", b.caller.UID, b.caller.GID)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			b.t.Error(err)
		}
	})
	return dir
}

// fill leaves no room in the file system of dir; empty gives it back.
func (b *bench) fill(dir string) (empty func()) {
	b.t.Helper()
	f, err := os.Create(dir + "/filler")
	if err != nil {
		b.t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	f.Close()
	if err := os.WriteFile(dir+"/more", []byte("x"), 0o600); err == nil || !errors.Is(err, syscall.ENOSPC) {
		b.t.Fatalf("the file system is not full: %v", err)
	}
	return func() { os.Remove(dir + "/filler"); os.Remove(dir + "/more") }
}

// TestStartOnAFullDisk: nothing is started that could not be recorded, nothing is
// left, what is there can be read, and with room everything works again.
func TestStartOnAFullDisk(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		small := b.small()
		b.state = small + "/state"
		out := b.dir + "/out"
		b.mkdir(out)
		if said, status := b.nsbox(b.exec("", "pass")...); status != 0 { // the control, on another file system than the rest
			t.Fatalf("status %d: %s", status, said)
		}
		before := b.attempts()
		empty := b.fill(small)
		said, status := b.nsbox(b.exec(out, job)...)
		if status != 125 || !strings.Contains(said, "(reason ") || !strings.Contains(said, "no space left") {
			t.Errorf("status %d: %s", status, said)
		}
		if left, _ := os.ReadDir(out); len(left) > 0 {
			t.Errorf("delivered: %v", left)
		}
		if after := b.attempts(); len(after) != len(before) {
			t.Errorf("attempts: %+v", after)
		}
		b.site.WantGone(t, 0)
		if groups := b.site.Cgroups(); len(groups) > 0 {
			t.Errorf("cgroups are left: %v", groups)
		}
		empty()
		if said, status := b.nsbox(b.exec(out, job)...); status != 0 {
			t.Errorf("with room again: status %d: %s", status, said)
		}
		if data, err := os.ReadFile(out + "/summary.csv"); err != nil || string(data) != artifact {
			t.Errorf("delivered %q, %v", data, err)
		}
	})
}

// remount changes the flags of a mount, once nobody is just closing a file on it.
func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	err := syscall.EBUSY
	for n := 0; n < 500 && err == syscall.EBUSY; n++ {
		if n > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		err, _ = syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|flags, "").(syscall.Errno)
	}
	if err != 0 {
		t.Fatal(err)
	}
}

// TestStrangeStateDirectories wants one clear line and nothing written.
func TestStrangeStateDirectories(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		if os.Geteuid() != 0 {
			t.Skip("only root can make directories of others and remount")
		}
		small, stranger := b.small(), 12345
		good := b.state
		for name, c := range map[string]struct {
			prepare func(dir string) error
			why     string
		}{
			"somebody else's": {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chown(d, stranger, stranger)) }, "uid 12345"},
			"open to others": {func(d string) error {
				return errors.Join(os.Mkdir(d, 0o777), os.Chmod(d, 0o777), os.Chown(d, b.caller.UID, b.caller.GID))
			}, "0777"},
			"a link":       {func(d string) error { return os.Symlink(good, d) }, "not a directory"},
			"a file":       {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "directory"},
			"below a file": {func(d string) error { return os.WriteFile(filepath.Dir(d), nil, 0o600) }, "not a directory"},
		} {
			b.state = b.dir + "/" + strings.ReplaceAll(name, " ", "-")
			if name == "below a file" {
				b.state += "/state"
			}
			if err := c.prepare(b.state); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{b.exec("", "print('ran')"), {"attempts", "--state-dir", b.state}, {"reconcile", "--state-dir", b.state}, {"gc", "--state-dir", b.state}} {
				said, status := b.nsbox(args...)
				if args[0] != "exec" && name != "a link" && status == 0 {
					continue // nobody's attempts are in it, so there is nothing to list
				}
				if status != 125 || !strings.Contains(said, "(reason state_dir)") || !strings.Contains(said, c.why) || strings.Contains(said, "ran") {
					t.Errorf("%s: nsbox %s ends with %d: %s", name, args[0], status, said)
				}
			}
			if left, _ := filepath.Glob(b.state + "/*"); len(left) > 0 && name != "a link" {
				t.Errorf("%s: it holds %v", name, left)
			}
		}

		b.state = small + "/state"
		if said, status := b.nsbox(b.exec("", "pass")...); status != 0 {
			t.Fatalf("the control: %d, %s", status, said)
		}
		for _, flags := range []uintptr{syscall.MS_RDONLY, 0} {
			remount(t, small, flags)
			said, status := b.nsbox(b.exec("", "pass")...)
			if readOnly := flags != 0; (status == 125 && strings.Contains(said, "read-only file system")) != readOnly {
				t.Errorf("read-only %v: status %d: %s", readOnly, status, said)
			}
			if said, status := b.nsbox("attempts", "--state-dir", b.state); status != 0 || !strings.Contains(said, launcher.AttemptClosed) {
				t.Errorf("attempts: status %d: %s", status, said)
			}
		}
	})
}

// TestAnotherBoot: what a launcher of an earlier boot left is closed without a
// look at processes or cgroups that only bear its names. (A box cannot be made
// with a part of /proc mounted over, so reconcile it is.)
func TestAnotherBoot(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		if os.Geteuid() != 0 {
			t.Skip("only root can show a program another boot id")
		}
		kill, id := b.sleeper(b.state)
		kill(syscall.SIGKILL)
		b.site.WantGone(t, endWithin)
		later := b.dir + "/boot_id"
		if err := os.WriteFile(later, []byte("11111111-2222-3333-4444-555555555555\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-m", "/bin/sh", "-c", `mount --bind "$1" /proc/sys/kernel/random/boot_id; u=$2 g=$3; shift 3; exec setpriv --reuid "$u" --regid "$g" --clear-groups -- "$@"`, "sh",
			later, strconv.Itoa(b.caller.UID), strconv.Itoa(b.caller.GID), b.bin}, "reconcile", "--state-dir", b.state)
		cmd := exec.Command("unshare", args...)
		cmd.Env, cmd.Dir = b.command().Env, b.dir
		said, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "stopped: lost_by_reboot") {
			t.Fatalf("after the reboot: %v: %s", err, said)
		}
		all := b.attempts()
		at := slices.IndexFunc(all, func(a launcher.AttemptInfo) bool { return a.ID == id })
		if at < 0 || all[at].State != launcher.AttemptClosed || all[at].Workload != launcher.Unknown || !all[at].Reconciled {
			t.Errorf("%+v", all)
		}
		if log, err := os.ReadFile(b.state + "/audit.log"); err != nil || !strings.Contains(string(log), "lost_by_reboot") {
			t.Errorf("the audit log: %v\n%s", err, log)
		}
		b.nextRuns(t.Errorf)
		b.site.WantNoTrace(t)
	})
}

// TestClockThatWentBack: attempts that seem to be of the future are listed, kept
// by gc, and hinder nothing.
func TestClockThatWentBack(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		old := b.attempts()[0]
		future, err := ulid.New(ulid.Timestamp(time.Now().Add(1000*time.Hour)), strings.NewReader(strings.Repeat("x", 16)))
		if err != nil {
			t.Fatal(err)
		}
		dir := b.state + "/attempts/" + future.String()
		if err := os.Rename(old.Dir, dir); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			b.nextRuns(t.Errorf)
		}
		said, status := b.nsbox("attempts", "--state-dir", b.state)
		if lines := strings.Split(strings.TrimSpace(said), "\n"); status != 0 || len(lines) != 4 || !strings.HasPrefix(lines[3], "0s ") || !strings.Contains(lines[3], future.String()) {
			t.Errorf("status %d: %s", status, said)
		}
		if said, status := b.nsbox("gc", "--state-dir", b.state); status != 0 || len(b.attempts()) != 3 {
			t.Errorf("gc ends with %d: %s", status, said)
		}
	})
}
