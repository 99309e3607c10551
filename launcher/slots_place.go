package launcher

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// lock is one of the places of a state directory, held for the whole attempt.
// The descriptor is close-on-exec and only closed, never unlocked, so no forked
// child can let it go.
type lock struct{ file *os.File }

func (l *lock) release() { l.file.Close() }

// enter takes one of the n places of this state directory, which is what the
// policy's concurrency counts. wait is how long a caller is ready to stand in
// line; ctx ends the wait. The error is a *reason.Error, Busy naming who runs.
func (s *state) enter(ctx context.Context, attempt string, n int, wait time.Duration) (*lock, error) {
	deadline := time.Now().Add(wait)
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		var holders []string
		for k := range max(n, 1) {
			l, holder, err := s.place(k, attempt)
			if l != nil || err != nil {
				return l, err
			}
			if holder != "" { // written after the lock is taken, so it may still be missing
				holders = append(holders, holder)
			}
		}
		left := time.Until(deadline)
		if left > 0 {
			select {
			case <-time.After(min(pause, left)):
				continue
			case <-ctx.Done():
			}
		}
		who := "another attempt"
		if len(holders) > 0 {
			who = "attempt " + strings.Join(holders, ", ")
		}
		return nil, reason.New(reason.Busy, who,
			fmt.Sprintf("is running with this state directory, and the policy's concurrency is %d", max(n, 1)), "wait for it with --wait DURATION, or use another --state-dir")
	}
}

// place tries one of the places: the lock, or who holds it.
func (s *state) place(k int, attempt string) (*lock, string, error) {
	path := s.dir + "/lock"
	if k > 0 {
		path = fmt.Sprintf("%s.%d", path, k)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, "", stateError(path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if err != unix.EWOULDBLOCK {
			return nil, "", stateError(path, err)
		}
		b := make([]byte, 128)
		n, _ := f.ReadAt(b, 0)
		return nil, strings.TrimSpace(string(b[:n])), nil
	}
	// Written for people only: a full disk must not keep the operator out.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintf("%s pid %d\n", attempt, os.Getpid())), 0)
	}
	return &lock{f}, "", nil
}
