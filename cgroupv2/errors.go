package cgroupv2

import (
	"errors"

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
	Failed          Kind = "failed"            // anything else; Err has the kernel's answer
)

// Error is the one error type of this package.
type Error struct {
	Kind Kind
	Path string // the directory or file concerned
	Op   string // what was tried, e.g. "mkdir" or "write cgroup.procs"
	Err  error  // the kernel's answer, if there was one
}

func (e *Error) Error() string {
	s := e.Op + " " + e.Path + ": " + string(e.Kind)
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
