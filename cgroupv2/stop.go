package cgroupv2

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// The kernel holds back notifications of cgroup.events for 10 ms after the
	// previous one, which a short-lived box would feel; so the first looks are
	// taken on our own clock and the notification only serves long waits.
	firstWait = 50 * time.Microsecond
	maxWait   = 20 * time.Millisecond

	// rmdir fails with EBUSY for some milliseconds after the last process is
	// gone from cgroup.events, until the kernel has let go of it.
	removeGrace = 2 * time.Second

	maxDepth = 8
)

// WaitEmpty returns nil once the kernel shows "populated 0" for the whole
// group: no process is left in it, whatever it forked or ignored. It looks at
// least once; with ctx done and processes left it returns Kind Busy wrapping
// ctx.Err().
func (g *Group) WaitEmpty(ctx context.Context) error {
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		populated, err := g.populated()
		if err != nil || !populated {
			return err
		}
		if ctx.Err() != nil {
			return &Error{Kind: Busy, Path: g.Path(), Op: "wait for the end of all processes in", Err: ctx.Err()}
		}
		ts := unix.NsecToTimespec(int64(wait))
		fds := []unix.PollFd{{Fd: int32(g.ev.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Ppoll(fds, &ts, nil); err != nil && err != unix.EINTR {
			return failure("poll cgroup.events of", g.Path(), err)
		}
	}
}

func (g *Group) populated() (bool, error) {
	text, err := reread(g.ev)
	if err != nil {
		return true, failure("read cgroup.events of", g.Path(), err)
	}
	n, err := flatKeyed(text, "populated")
	if err != nil {
		return true, failure("parse cgroup.events of", g.Path(), err)
	}
	return n != 0, nil
}

// Remove removes the leaves and the group, deepest first, and nothing at all as
// long as a process is left in one of them. The kernel's EBUSY is
// retried until ctx is done, for two seconds at most; then the error has Kind
// Busy and the group stays. A group that is gone already is no error; a
// directory of the same name with another id is not touched and gives Escapes.
// The descriptors stay open until Close.
func (g *Group) Remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeGrace)
	defer cancel()
	for wait := firstWait; ; wait = min(2*wait, maxWait) {
		err := g.removeOnce()
		var e *Error
		if err == nil || !errors.As(err, &e) || e.Kind != Busy {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

func (g *Group) removeOnce() error {
	var st unix.Stat_t
	err := unix.Fstatat(g.root.fd(), groupPrefix+g.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == unix.ENOENT:
		return nil
	case err != nil:
		return failure("stat", g.Path(), err)
	case st.Ino != g.id:
		return &Error{Kind: Escapes, Path: g.Path(), Op: "rmdir", Err: errors.New("the directory is not the group that was created")}
	}
	if populated, err := g.populated(); err != nil {
		return err
	} else if populated {
		return &Error{Kind: Busy, Path: g.Path(), Op: "remove", Err: errors.New("processes are left in it")}
	}
	if err := removeBelow(g.top, g.Path(), maxDepth); err != nil {
		return err
	}
	return rmdir(g.root.fd(), groupPrefix+g.name, g.Path())
}

// removeBelow removes the groups inside dir, at most depth levels of them. Only
// box and work are ever made, so deeper ones mean that somebody else writes
// here; they are removed if empty.
func removeBelow(dir *os.File, path string, depth int) error {
	for _, name := range subdirs(dir) {
		if depth == 0 {
			return &Error{Kind: Failed, Path: path, Op: "remove", Err: errors.New("nested too deeply")}
		}
		sub, err := openFile(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return failure("open", path+"/"+name, err)
		}
		err = removeBelow(sub, path+"/"+name, depth-1)
		sub.Close()
		if err != nil {
			return err
		}
		if err := rmdir(int(dir.Fd()), name, path+"/"+name); err != nil {
			return err
		}
	}
	return nil
}

func rmdir(dirfd int, name, path string) error {
	if err := unix.Unlinkat(dirfd, name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return failure("rmdir", path, err)
	}
	return nil
}
