package cgroupv2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// Search says where to look for a Root.
type Search struct {
	// Explicit, if not empty, is the only candidate: an absolute, clean path
	// without symbolic links.
	Explicit string

	// Delegated asks the user's systemd manager whether it has handed over the
	// inside of one of its units. nil counts as no.
	Delegated func(unit string) bool

	// Scope moves the calling process into a delegated group of its own, by
	// asking systemd; see package scope. It is called at most once, and only
	// when no directory of the caller offers every controller. nil: not tried.
	Scope func() error
}

// Find is Search.Find without a way to a scope.
func Find(explicit string) (*Root, error) { return Search{Explicit: explicit}.Find() }

// Find opens a directory that is ours to create groups in, and enables memory,
// pids and cpu for its children, trying everything first; see the package
// comment for the order. A candidate with all three wins; else the one with
// the most, whose Lack says why one is missing. The calling process may find
// itself in another group afterwards, so call it before helpers are started.
//
// The error is always an *Error: nowhere may a group be made. Close the Root
// after the last Create.
func (s Search) Find() (*Root, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, failure("read", "/proc/self/cgroup", err)
	}
	loc, locErr := locateSelf(string(self))
	v1 := boundToV1(string(self))
	if s.Explicit != "" {
		if !filepath.IsAbs(s.Explicit) || filepath.Clean(s.Explicit) != s.Explicit {
			return nil, &Error{Kind: Escapes, Path: s.Explicit, Op: "open", Err: errors.New("not a clean absolute path")}
		}
		r, err := openRoot(s.Explicit, loc.Dir)
		if err != nil {
			return nil, err
		}
		r.enable(r.offered(v1), loc.Dir)
		return r, nil
	}
	if loc.Mount == "" {
		return nil, locErr
	}
	c := choice{v1: v1}
	systemd := systemdManages()
	for _, dir := range ownCandidates(loc, systemd, s.Delegated) {
		if c.try(dir, loc.Dir) {
			return c.best()
		}
	}
	switch {
	case systemd && s.Scope != nil && !c.hopeless():
		if c.scopeErr = s.Scope(); c.scopeErr != nil {
			break
		}
		now, err := locateNow()
		if now.Dir == "" {
			c.scopeErr = err
			break
		}
		loc = now
		if c.try(loc.Dir, loc.Dir) {
			return c.best()
		}
	case !systemd && os.Geteuid() == 0 && loc.Mount != loc.Dir:
		if c.try(loc.Mount, loc.Dir) {
			return c.best()
		}
	}
	c.own = loc.Dir
	if len(c.found) == 0 && systemd && loc.Dir != "" {
		c.plain(loc.Dir)
	}
	r, err := c.best()
	if err == nil && r == nil {
		err = locErr
	}
	return r, err
}

// choice collects the candidates in which groups can be made.
type choice struct {
	v1       []string
	own      string // the caller's group when the search is over
	found    []*candidate
	err      error // the first refusal
	scopeErr error
}

type candidate struct {
	root  *Root
	can   []string // what its cgroup.controllers offers
	tried bool     // enabling was tried
}

// try opens dir and reports whether it gives every controller. One that does not
// even offer them all is left as it is, until nothing better is found.
func (c *choice) try(dir, own string) bool {
	r, err := openRoot(dir, own)
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return false
	}
	x := &candidate{root: r, can: r.offered(c.v1)}
	c.found = append(c.found, x)
	c.own = own
	if len(x.can) == len(wanted()) {
		r.enable(x.can, own)
		x.tried = true
	}
	return len(r.enabled) == len(wanted())
}

// plain takes a directory that systemd manages, if groups can be made in it, for
// what needs no controller: kill, the stop proof and the count of CPU time.
// Controllers are not enabled there; see marked.
func (c *choice) plain(dir string) {
	r, err := openRoot(dir, dir)
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return
	}
	why := c.scopeErr
	if why == nil {
		why = &Error{Kind: NotDelegated, Path: dir, Op: "enable controllers below", Err: errors.New("systemd has not handed it over")}
	}
	for _, name := range r.offered(c.v1) {
		r.lacks[name] = why
	}
	c.found = append(c.found, &candidate{root: r, tried: true})
}

// hopeless reports that a scope would bring nothing: there is a candidate, and
// what it lacks is bound to version 1 everywhere.
func (c *choice) hopeless() bool {
	for _, x := range c.found {
		for _, err := range x.root.lacks {
			if kind(err) != "" && kind(err) != ControllerOnV1 {
				return false
			}
		}
	}
	return len(c.found) > 0
}

// best gives the candidate with the most controllers, the last of equals: it is
// the one the caller lives in now. The others are closed.
func (c *choice) best() (*Root, error) {
	var best *candidate
	for _, x := range slices.Backward(c.found) {
		if !x.tried && (best == nil || len(x.can) > len(best.root.enabled)) {
			x.root.enable(x.can, c.own)
		}
		if best == nil || len(x.root.enabled) > len(best.root.enabled) {
			best = x
		}
	}
	for _, x := range c.found {
		if x != best {
			x.root.Close()
		}
	}
	switch {
	case best == nil && c.scopeErr != nil:
		return nil, because(c.scopeErr, c.err)
	case best == nil:
		return nil, c.err
	}
	// A scope would have been the cure for processes in the way.
	for name, err := range best.root.lacks {
		if c.scopeErr != nil && kind(err) == InternalProcesses {
			best.root.lacks[name] = because(c.scopeErr, err)
		}
	}
	return best.root, nil
}

func kind(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// because keeps what was met before a scope was asked for beside the scope's own
// failure, on one line.
func because(scopeErr, before error) error {
	var e *Error
	if before == nil || !errors.As(scopeErr, &e) {
		return scopeErr
	}
	both := *e
	both.Err = fmt.Errorf("%w; before that: %w", cause(e), before)
	return &both
}

func cause(e *Error) error {
	if e.Err != nil {
		return e.Err
	}
	return errors.New(string(e.Kind))
}

func locateNow() (Location, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Location{}, failure("read", "/proc/self/cgroup", err)
	}
	return locateSelf(string(self))
}

func locateSelf(self string) (Location, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Location{}, failure("open", "/proc/self/mountinfo", err)
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, mountinfo.FSTypeFilter("cgroup2"))
	if err != nil {
		return Location{}, failure("parse", "/proc/self/mountinfo", err)
	}
	return Locate(mounts, self)
}
