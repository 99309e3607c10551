package launcher

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// state is nsbox's own directory: cache/, attempts/ and lock. Nothing is ever
// created in any other directory of the host but the delivery directory.
type state struct{ dir string }

// openState opens or makes the state directory, 0700 and the caller's own.
func openState(dir string) (*state, error) {
	if dir == "" {
		var err error
		if dir, err = defaultStateDir(); err != nil {
			return nil, err
		}
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, stateError(dir, err)
	}
	dir = abs
	if err := heldByNobodyElse(dir, os.Geteuid()); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, stateError(dir, err)
	}
	for _, d := range []string{dir, dir + "/cache", dir + "/attempts"} {
		if err := privateDir(d); err != nil {
			return nil, err
		}
	}
	return &state{dir}, nil
}

func defaultStateDir() (string, error) {
	if os.Geteuid() == 0 {
		// sudo keeps the user's HOME; root's files do not belong there.
		return "/var/lib/nsbox", nil
	}
	return userStateDir(os.Getenv)
}

func userStateDir(getenv func(string) string) (string, error) {
	if x := getenv("XDG_STATE_HOME"); filepath.IsAbs(x) {
		return x + "/nsbox", nil
	}
	if h := getenv("HOME"); filepath.IsAbs(h) {
		return h + "/.local/state/nsbox", nil
	}
	return "", reason.New(reason.StateDir, "the state directory", "neither XDG_STATE_HOME nor HOME is an absolute path", "name a directory with --state-dir")
}

func stateError(dir string, err error) error {
	return reason.Wrap(reason.StateDir, dir, "cannot be used as state directory", "name another one with --state-dir", err)
}

func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return stateError(dir, err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return stateError(dir, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return reason.New(reason.StateDir, dir, "is not a directory", "move it away, or name another state directory with --state-dir")
	case int(st.Uid) != os.Geteuid():
		return reason.New(reason.StateDir, dir, fmt.Sprintf("belongs to uid %d, not to you (uid %d)", st.Uid, os.Geteuid()), "name a state directory of your own with --state-dir")
	case st.Mode&0o077 != 0:
		return reason.New(reason.StateDir, dir, fmt.Sprintf("has mode %04o; others could read or change attempts", st.Mode&0o7777), "chmod 0700 "+dir)
	}
	return nil
}

func (s *state) cache() string { return s.dir + "/cache" }

// attempt is one run's directory and journal.
type attempt struct {
	observe func(journal.Record) // nil: nobody looks
	id      string
	dir     string
	journal *journal.Journal
}

func newAttemptID(now time.Time) (string, error) {
	id, err := ulid.New(ulid.Timestamp(now), rand.Reader)
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

func (s *state) attempt(id string) (*attempt, error) {
	a := &attempt{id: id, dir: s.dir + "/attempts/" + id}
	if err := os.Mkdir(a.dir, 0o700); err != nil {
		return nil, stateError(a.dir, err)
	}
	j, err := journal.Create(a.dir + "/journal")
	if err != nil {
		os.Remove(a.dir) // nothing else could find it
		return nil, reason.Wrap(reason.JournalWrite, a.dir+"/journal", "cannot be created, and nothing is done that is not journaled first", "free space in the state directory", err)
	}
	a.journal = j
	return a, nil
}

// record appends one event; its effect must not begin if it cannot be written.
func (a *attempt) record(e journal.Event, data map[string]string) error {
	rec := journal.Record{Event: e, Data: data}
	if err := a.journal.Append(rec); err != nil {
		return reason.Wrap(reason.JournalWrite, a.dir+"/journal", "event "+string(e)+" cannot be recorded", "free space in the state directory", err)
	}
	if a.observe != nil {
		a.observe(rec)
	}
	return nil
}
