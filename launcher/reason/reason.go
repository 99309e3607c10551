// Package reason holds the one error type a user meets and the stable ids that
// machines may match on. Text may change between releases, an ID may not.
//
// An Error answers four questions: which rule (ID), what is wrong (What), why
// nsbox will not go on (Why), and what to do next (Next). The ids live in this
// package, one file per area, each constant with a doc comment of one sentence;
// docs/reasons.md is generated from those comments and a test holds both equal.
package reason

import (
	"errors"
	"strings"
)

// ID is a stable machine-readable reason, lower case with underscores.
type ID string

// Error is a refusal or failure of nsbox itself, never of the workload.
type Error struct {
	ID   ID
	What string // the thing: a path, a key, a step; one line
	Why  string // the reason it is not acceptable; one line
	Next string // the next step for a person; one line, may be empty
	Err  error  // the cause, if a lower layer gave one
}

// New returns an Error without a wrapped cause.
func New(id ID, what, why, next string) *Error {
	return &Error{ID: id, What: what, Why: why, Next: next}
}

// Wrap returns an Error whose cause stays reachable by errors.Is and errors.As.
func Wrap(id ID, what, why, next string, err error) *Error {
	return &Error{ID: id, What: what, Why: why, Next: next, Err: err}
}

func (e *Error) Error() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{e.What, e.Why} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if e.Err != nil {
		parts = append(parts, e.Err.Error())
	}
	return strings.Join(parts, ": ")
}

func (e *Error) Unwrap() error { return e.Err }

// Of returns the first Error in err's tree, or nil.
func Of(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
