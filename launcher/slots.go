package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// Subordinate ids belong to an account, not to a state directory: two state
// directories of one user draw from the same range. Whose processes have which
// ids is the only stop proof there is without a cgroup, so a slot of ids serves
// one attempt of the whole account at a time. Its lock is a file below the
// account's own state home, found from /etc/passwd and not from the
// environment: every nsbox of the account must come to the same place, and a
// place that everybody may write to (/tmp) could be taken by somebody else.
//
// A slot's file names the attempt that took it until that attempt's stop was
// proven. One that still names an attempt is dirty, and is given out again only
// after no process on the host has one of its ids.
type slots struct {
	dir  string
	boot string
}

// slot is a locked set of ids.
type slot struct {
	n    int
	file *os.File
	span *os.File // locks the ids themselves; nil where only the file counts
}

// openSlots finds or makes the directory of the caller's slot locks.
func openSlots(boot string) (*slots, error) {
	home, err := slotHome(os.Getuid())
	if err != nil {
		return nil, err
	}
	return slotsIn(home, boot)
}

func slotsIn(home, boot string) (*slots, error) {
	dir := filepath.Join(home, "slots")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, slotPlace(home, err)
	}
	for _, d := range []string{home, dir} {
		if err := privateDir(d); err != nil {
			return nil, slotPlace(d, err)
		}
	}
	return &slots{dir, boot}, nil
}

func slotPlace(dir string, err error) error {
	return reason.Wrap(reason.SlotPlace, dir, "cannot hold the locks of this account's subordinate ids", "make it a directory of your own with mode 0700", err)
}

// slotHome is root's state directory, the one below the account's home, or, for
// an account without a home, one in its runtime directory.
func slotHome(uid int) (string, error) {
	if uid == 0 {
		return "/var/lib/nsbox", nil
	}
	if home := passwdHome(uid); filepath.IsAbs(home) && ownDir(home, uid) {
		return filepath.Join(home, ".local/state/nsbox"), nil
	}
	if run := "/run/user/" + strconv.Itoa(uid); ownDir(run, uid) {
		return filepath.Join(run, "nsbox"), nil
	}
	return "", reason.New(reason.SlotPlace, "uid "+strconv.Itoa(uid), "has neither a home directory of its own nor /run/user/"+strconv.Itoa(uid),
		"give the account a home directory that belongs to it")
}

func ownDir(dir string, uid int) bool {
	var st unix.Stat_t
	return unix.Stat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid
}

// passwdHome reads the home of uid from /etc/passwd, or "".
func passwdHome(uid int) string {
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if part := strings.Split(s.Text(), ":"); len(part) == 7 && part[2] == strconv.Itoa(uid) {
			return part[5]
		}
	}
	return ""
}

// take locks the lowest slot that is free and proven empty. The error is a
// *reason.Error: IdentitySlotsExhausted if there is none.
func (s *slots) take(id probe.Identity, attempt string) (*slot, error) {
	if id.Kind == probe.Single {
		return &slot{}, nil // nothing to have alone
	}
	for n := 0; ; n++ {
		ids, err := id.Map(n)
		if err != nil {
			return nil, err // all of them were tried
		}
		sl, err := s.try(n, ids)
		if err != nil {
			return nil, err
		}
		if sl == nil {
			continue
		}
		if err := sl.write(attempt + " " + s.boot + "\n"); err != nil {
			sl.release(false)
			return nil, slotPlace(s.path(ids), err)
		}
		return sl, nil
	}
}

func (s *slots) path(ids probe.Slot) string {
	return fmt.Sprintf("%s/%d-%d", s.dir, ids.Root.UID, ids.Root.GID)
}

// try returns the locked slot, or nil if it is in use or not proven empty.
func (s *slots) try(n int, ids probe.Slot) (*slot, error) {
	f, err := os.OpenFile(s.path(ids), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, slotPlace(s.path(ids), err)
	}
	locked, err := tryLock(f)
	if err != nil || !locked {
		f.Close()
		if err != nil {
			return nil, slotPlace(s.path(ids), err)
		}
		return nil, nil
	}
	if s.dirty(f) {
		if found, err := holders(idSet(ids), bootTicks()); err != nil || len(found) > 0 {
			f.Close()
			return nil, nil // recovery or reconcile says why
		}
	}
	span, err := s.span(ids)
	if span == nil {
		f.Close()
		return nil, err
	}
	return &slot{n, f, span}, nil
}

// span locks the ids, each as a byte of one file, user ids first and group ids
// behind them; nil without an error if somebody has one of them. The slot's own
// file is named by its first ids: after a change of the account's ranges a slot
// may overlap one that was taken before, under another name.
func (s *slots) span(ids probe.Slot) (*os.File, error) {
	path := s.dir + "/ids"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, slotPlace(path, err)
	}
	for _, start := range []int64{ids.Root.UID, 1<<32 + ids.Root.GID} {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: probe.IDsPerSlot}
		if locked, err := setLock(f, l); err != nil || !locked {
			f.Close()
			if err != nil {
				return nil, slotPlace(path, err)
			}
			return nil, nil
		}
	}
	return f, nil
}

// dirty reports whether the last attempt of this boot that had the slot was
// never proven stopped.
func (s *slots) dirty(f *os.File) bool {
	part := words(f)
	return len(part) > 0 && (len(part) != 2 || part[1] == s.boot)
}

// names reports whether the slot was last taken by the attempt, or says nothing
// that can be understood.
func (s *slots) names(f *os.File, attempt string) bool {
	part := words(f)
	return len(part) > 0 && (len(part) != 2 || part[0] == attempt)
}

func words(f *os.File) []string {
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0)
	return strings.Fields(string(b[:n]))
}

// write replaces the file's text in place: the lock is the inode's.
func (sl *slot) write(text string) error {
	if err := sl.file.Truncate(0); err != nil {
		return err
	}
	_, err := sl.file.WriteAt([]byte(text), 0)
	return err
}

// release gives the slot back; clean says that no process of it is left. The
// descriptor is closed and never unlocked, so that a forked child cannot let go
// of it for us.
func (sl *slot) release(clean bool) {
	if sl == nil || sl.file == nil {
		return
	}
	if clean {
		_ = sl.file.Truncate(0) // still dirty costs the next one a look at /proc
	}
	sl.file.Close()
	if sl.span != nil {
		sl.span.Close()
	}
}

// vacant waits until no process of the attempt has one of its ids. A slot that
// names another attempt was found empty when that one took it, and one that names
// none was given back after a proof. That somebody holds the lock proves nothing:
// a start that only looks whether the slot is empty holds it too. exe is the
// program of the attempt's launcher.
func (s *slots) vacant(ctx context.Context, ids probe.Slot, exe fileID, attempt string) error {
	if ids.Shared() {
		return nobodyNested(ctx, ids, exe)
	}
	f, err := os.OpenFile(s.path(ids), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return slotPlace(s.path(ids), err)
	}
	defer f.Close()
	// Whoever looks reads all of /proc meanwhile, and a busy machine takes its time.
	began := time.Now()
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		locked, err := tryLock(f)
		if err != nil {
			return slotPlace(s.path(ids), err)
		}
		if !s.names(f, attempt) {
			return nil
		}
		if locked {
			break
		}
		if errors.Is(ctx.Err(), context.Canceled) || ctx.Err() != nil && time.Since(began) > dyingGrace {
			return fmt.Errorf("%s is locked by somebody who looks at it", s.path(ids))
		}
		time.Sleep(wait)
	}
	since, who := bootTicks(), idSet(ids)
	who.exe = exe
	if err := awaitGone(ctx, dyingGrace, func() ([]holder, error) { return holders(who, since) }); err != nil {
		return err
	}
	_ = f.Truncate(0)
	return nil
}

const (
	firstLook = 2 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// tryLock takes the write lock of an open file description, without waiting. It
// ends with the last descriptor, and can be asked about without being taken.
func tryLock(f *os.File) (bool, error) {
	return setLock(f, unix.Flock_t{Type: unix.F_WRLCK})
}

func setLock(f *os.File, l unix.Flock_t) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// isLocked asks without taking; an error counts as locked.
func isLocked(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err != nil {
		return true
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l) != nil || l.Type != unix.F_UNLCK
}
