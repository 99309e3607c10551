package wipe

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// owner is an id that is nobody's: modes hold for it, as they would not for root.
const owner = 1879048201

// TestMain plays the slot's owner too: plant makes a hostile tree below the
// working directory, wipe empties it, cut N does so until N entries are gone.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "as-owner" {
		if err := asOwner(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func asOwner(args []string) error {
	n := 0
	if len(args) > 1 {
		fmt.Sscan(args[1], &n)
	}
	switch args[0] {
	case "plant":
		return plant(args[1])
	case "cut":
		return cut("slot", n)
	}
	return Empty("slot")
}

// owned runs this test binary as the owner of dir's slot.
func owned(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", append([]string{"as-owner"}, args...)...)
	cmd.Dir = dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// newSlot is a directory of the owner's beside a target of the owner's: what a
// followed link reached, the owner could change.
func newSlot(t *testing.T) (dir string) {
	dir = t.TempDir()
	for p := dir; p != "/tmp" && p != "/"; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o755); err != nil {
			break // above what the test made
		}
	}
	for _, name := range []string{"slot", "target"} {
		if err := os.Mkdir(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/target/kept", []byte("canary"), 0o640); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		for _, name := range []string{"slot", "target", "target/kept"} {
			if err := os.Chown(dir+"/"+name, owner, owner); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// shapes are the hostile trees, each planted below the working directory's slot.
func shapes() map[string]func(slot string) error {
	closed := func(dir string) error {
		return errors.Join(os.MkdirAll(dir+"/a/b/c", 0o700), os.WriteFile(dir+"/a/b/c/f", nil, 0), os.Chmod(dir+"/a/b/c", 0), os.Chmod(dir+"/a/b", 0), os.Chmod(dir+"/a", 0))
	}
	return map[string]func(string) error{
		"nothing": func(string) error { return nil },
		"files": func(s string) error {
			return errors.Join(os.WriteFile(s+"/x", []byte("x"), 0), os.Link(s+"/x", s+"/y"))
		},
		"names that are no text": func(s string) error {
			var errs []error
			for i, n := range []string{"a\nb", "\x1b[2J", "\xff\xfe", " ", "-rf", "..a", "...", strings.Repeat("n", 255), "*"} {
				errs = append(errs, os.WriteFile(s+"/"+n, nil, 0o600), os.MkdirAll(fmt.Sprintf("%s/%d\n/x", s, i), 0o700), os.WriteFile(fmt.Sprintf("%s/%d\n/x/%s", s, i, n), nil, 0o600))
			}
			return errors.Join(errs...)
		},
		"links out": func(s string) error {
			return errors.Join(os.Symlink("../target", s+"/rel"), os.Symlink("/", s+"/root"), os.Symlink("rel/kept", s+"/file"), os.Symlink("self", s+"/self"),
				os.Mkdir(s+"/d", 0o700), os.Symlink("../../target", s+"/d/t"), os.Symlink("..", s+"/d/up"))
		},
		"closed directories": func(s string) error { return errors.Join(closed(s+"/p"), os.Chmod(s, 0)) },
		"closed, many":       func(s string) error { return errors.Join(closed(s+"/.1"), closed(s+"/.2"), closed(s+"/.3")) },
		"other kinds": func(s string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return errors.Join(err, unix.Mkfifo(s+"/fifo", 0), unix.Bind(fd, &unix.SockaddrUnix{Name: s + "/sock"}), unix.Close(fd), os.Mkdir(s+"/sticky", 0o700|os.ModeSticky|os.ModeSetgid))
		},
		"attributes": func(s string) error {
			err := unix.Setxattr(s, "user.note", []byte("kept across runs?"), 0)
			if err == unix.EOPNOTSUPP {
				err = nil // this file system takes none
			}
			return err
		},
		// Deeper than PATH_MAX, than the descriptors a process may have, and than recursion is meant for.
		"deep": func(s string) error {
			if err := unix.Chdir(s); err != nil {
				return err
			}
			for range 3000 {
				if err := errors.Join(unix.Mkdir("d", 0o700), unix.Chdir("d")); err != nil {
					return err
				}
			}
			return os.WriteFile("bottom", nil, 0)
		},
		// The names the wipe itself would use are taken.
		"its own names": func(s string) error {
			var errs []error
			for i := range 40 {
				errs = append(errs, os.MkdirAll(fmt.Sprintf("%s/.%d/.%d/.%d", s, i, i+1, i+2), 0o700))
			}
			return errors.Join(errs...)
		},
		"many": func(s string) error {
			for i := range 5000 {
				if err := os.WriteFile(fmt.Sprintf("%s/%d", s, i), nil, 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func plant(shape string) error { return shapes()[shape]("slot") }

// wantEmpty looks as root, or whoever runs the test, at what is left.
func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	st, err := os.Lstat(dir + "/slot")
	if err != nil || st.Mode() != os.ModeDir|Mode {
		t.Errorf("the slot: %v, %v", st.Mode(), err)
	}
	names, err := os.ReadDir(dir + "/slot")
	if err != nil || len(names) > 0 {
		t.Errorf("%d names are left, %v", len(names), err)
	}
	if n, err := unix.Listxattr(dir+"/slot", nil); err == nil && n > 0 && os.Geteuid() != 0 {
		t.Errorf("%d bytes of attributes are left", n)
	}
	got, err := os.ReadFile(dir + "/target/kept")
	if st, e := os.Stat(dir + "/target/kept"); err != nil || e != nil || string(got) != "canary" || st.Mode().Perm() != 0o640 {
		t.Errorf("outside of the slot: %q, %v %v", got, err, e)
	}
}

func TestEveryShapeIsEmptied(t *testing.T) {
	for name := range shapes() {
		t.Run(name, func(t *testing.T) {
			dir := newSlot(t)
			owned(t, dir, "plant", name)
			owned(t, dir, "wipe")
			wantEmpty(t, dir)
			owned(t, dir, "wipe") // once more changes nothing
			wantEmpty(t, dir)
		})
	}
}

// cut stops an emptying after n entries of the top, as a kill would.
func cut(dir string, n int) error {
	if err := unix.Chmod(dir, Mode); err != nil {
		return err
	}
	top, err := open(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	w := wiper{top: top, buf: make([]byte, 32<<10)}
	stop := errors.New("killed")
	err = w.each(top, func(top int, name string) error {
		if n--; n < 0 {
			return stop
		}
		return w.atTop(top, name)
	})
	if err == stop {
		err = nil
	}
	return err
}

// TestAWipeThatWasCutOff: wherever it stopped, the next one empties the slot.
func TestAWipeThatWasCutOff(t *testing.T) {
	for _, shape := range []string{"its own names", "closed, many", "links out"} {
		for _, n := range []int{1, 2, 3, 7, 20} {
			dir := newSlot(t)
			owned(t, dir, "plant", shape)
			owned(t, dir, "cut", fmt.Sprint(n))
			owned(t, dir, "wipe")
			wantEmpty(t, dir)
		}
	}
}

// TestWhatCannotBeRemovedIsSaid: an entry of somebody else's in a sticky place is
// an error and not a loop. Only root can plant one.
func TestWhatCannotBeRemovedIsSaid(t *testing.T) {
	dir := newSlot(t)
	if os.Geteuid() != 0 {
		t.Fatal("this test plants a foreign file and so runs as root, as make test does")
	}
	if err := errors.Join(os.MkdirAll(dir+"/slot/foreign/x", 0o700), os.WriteFile(dir+"/slot/mine", nil, 0o600), os.Lchown(dir+"/slot/mine", owner, owner)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "as-owner", "wipe")
	cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner, Gid: owner}}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "not permitted") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Lstat(dir + "/slot/mine"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what could be removed was not: %v", err)
	}
	if _, err := os.Lstat(dir + "/slot/foreign/x"); err != nil {
		t.Errorf("the foreign directory: %v", err)
	}
}

// TestByHand: typed by a person, the stage touches nothing.
func TestByHand(t *testing.T) {
	if got := Run(); got != 125 {
		t.Errorf("status %d", got)
	}
}
