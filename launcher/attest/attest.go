// Package attest holds the rows that say what was asked of the kernel and what
// the kernel shows. It is pure: callers read, this package compares.
package attest

import "fmt"

// Grade says how a shown value was obtained, strongest first.
type Grade string

const (
	// KernelRead: the launcher read /proc or cgroupfs from outside the box.
	KernelRead Grade = "kernel-read"
	// ChildRead: trusted code in the confined child shipped the kernel's raw answer.
	ChildRead Grade = "child-read"
	// Probed: the forbidden act was tried in the confined child before "go" and failed.
	Probed Grade = "probed"
	// Launcher: the launcher enforces it itself and counts it (wall clock, output bytes).
	Launcher Grade = "launcher"
	// None: nothing enforces it; the row is there so that nobody believes otherwise.
	None Grade = "none"
)

// Status is the standing of one restriction.
type Status string

const (
	Enforced Status = "enforced" // shown as requested
	Degraded Status = "degraded" // weaker, by the operator's word; Note says what is not covered
	Blocked  Status = "blocked"  // the policy itself says that it cannot be enforced
	Mismatch Status = "mismatch" // shown differs from requested: the run stops before "go"
)

// Row is one restriction.
type Row struct {
	Restriction string `json:"restriction"`    // its name
	Requested   string `json:"requested"`      // what was asked of the kernel
	Shown       string `json:"shown"`          // what the kernel shows
	Where       string `json:"where"`          // where it was seen
	Grade       Grade  `json:"grade"`          // how it was seen
	Status      Status `json:"status"`         // where it stands
	Note        string `json:"note,omitempty"` // what is not covered
}

// Compare fills Status from Requested and Shown.
func Compare(restriction, requested, shown, where string, grade Grade) Row {
	r := Row{Restriction: restriction, Requested: requested, Shown: shown, Where: where, Grade: grade, Status: Enforced}
	if requested != shown {
		r.Status = Mismatch
	}
	return r
}

// Check returns an error naming every mismatch, or nil.
func Check(rows []Row) error {
	var bad []string
	for _, r := range rows {
		if r.Status == Mismatch {
			bad = append(bad, fmt.Sprintf("%s: requested %q, kernel shows %q (%s)", r.Restriction, r.Requested, r.Shown, r.Where))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return MismatchError(bad)
}

// MismatchError lists the restrictions that were asked for and not found.
type MismatchError []string

func (m MismatchError) Error() string {
	s := m[0]
	if len(m) > 1 {
		s += fmt.Sprintf(" (and %d more)", len(m)-1)
	}
	return s
}
