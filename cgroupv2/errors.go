package cgroupv2

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kind says what stands in the way. It is stable and fit for a table.
type Kind string

const (
	NoV2Mount       Kind = "no_v2_mount"       // no cgroup2 file system in this mount namespace
	NotDelegated    Kind = "not_delegated"     // the directory is not ours to create groups in, or processes may not be moved there
	ReadOnly        Kind = "readonly"          // cgroupfs is mounted read-only
	Busy            Kind = "busy"              // processes or children are in the way
	Denied          Kind = "denied"            // another operation was forbidden
	Threaded        Kind = "threaded"          // the subtree is threaded and cannot hold whole processes
	SystemdOwnsRoot Kind = "systemd_owns_root" // the top of the hierarchy belongs to systemd
	NotACgroup      Kind = "not_a_cgroup"      // the directory is not on a cgroup2 file system
	Escapes         Kind = "escapes"           // the path or name leads out of the tree it must stay in
	Exists          Kind = "exists"            // a group of that name is already there
	Full            Kind = "full"              // cgroup.max.descendants or cgroup.max.depth is reached
	Gone            Kind = "gone"              // the group or process no longer exists

	Boundary          Kind = "boundary"           // groups can be made, but no process may cross into them from where the caller lives
	InternalProcesses Kind = "internal_processes" // processes live in the directory itself, so its children get no controllers; PIDs names them
	ControllerOnV1    Kind = "controller_on_v1"   // Controller is bound to a version 1 hierarchy
	ControllerMissing Kind = "controller_missing" // Controller is not handed down to the directory
	LimitNotApplied   Kind = "limit_not_applied"  // File shows something else than was written, or does not exist
	SwapUncounted     Kind = "swap_uncounted"     // swap is on and the kernel has no file to limit it for a group
	BadLimit          Kind = "bad_limit"          // a value that no kernel would take
	NoManager         Kind = "no_manager"         // no systemd manager can be reached that could give a delegated scope
	ScopeRefused      Kind = "scope_refused"      // the systemd manager answered, but gave no scope

	Failed Kind = "failed" // anything else; Err has the kernel's answer
)

// Error is the one error type of this package.
type Error struct {
	Kind Kind
	Path string // the directory or file concerned
	Op   string // what was tried, e.g. "mkdir" or "write cgroup.procs"
	Err  error  // the kernel's answer, if there was one

	Controller string // of ControllerOnV1 and ControllerMissing
	PIDs       []int  // of InternalProcesses, as the caller's pid namespace shows them; 0 is one outside of it
	Wanted     string // of LimitNotApplied: what was written to Path
	Shown      string // of LimitNotApplied: what it shows; empty if it cannot be read
}

func (e *Error) Error() string {
	s := e.Op + " " + e.Path + ": " + string(e.Kind)
	if e.Controller != "" {
		s += " " + e.Controller
	}
	if len(e.PIDs) > 0 {
		s += " " + fmt.Sprint(e.PIDs)
	}
	if e.Wanted != "" {
		s += fmt.Sprintf(", wanted %q, shown %q", e.Wanted, e.Shown)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// failure translates an errno in the one place that knows what was tried.
func failure(op, path string, err error) *Error {
	return &Error{Kind: kindOf(err), Path: path, Op: op, Err: err}
}

func kindOf(err error) Kind {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return Failed
	}
	switch errno {
	case unix.EROFS:
		return ReadOnly
	case unix.EACCES, unix.EPERM:
		return Denied
	case unix.EBUSY:
		return Busy
	case unix.EOPNOTSUPP:
		return Threaded
	case unix.ELOOP, unix.EXDEV:
		return Escapes
	case unix.EEXIST:
		return Exists
	case unix.EAGAIN:
		return Full
	case unix.ENOENT, unix.ENODEV, unix.ESRCH:
		return Gone
	case unix.ENOTDIR:
		return NotACgroup
	}
	return Failed
}

// ownership turns Denied into NotDelegated for operations that only ever fail
// so because the subtree is somebody else's: mkdir and writing cgroup.procs.
// ENOENT from a write to cgroup.procs means that source and target are not both
// visible in the caller's cgroup namespace.
func ownership(op, path string, err error) *Error {
	e := failure(op, path, err)
	if e.Kind == Denied {
		e.Kind = NotDelegated
	}
	return e
}
