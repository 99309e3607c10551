// Package caps reads capability sets back. Setting is one raw capset in the
// set-up program; the library's own Apply can return nil without effect, so it
// is used for looking only.
package caps

import (
	"fmt"

	"github.com/syndtr/gocapability/capability"
)

// Sets is the five sets of this process's main thread, capabilities(7), as bit masks.
type Sets struct{ Effective, Permitted, Inheritable, Bounding, Ambient uint64 }

// Self reads the calling process's sets.
func Self() (Sets, error) {
	c, err := capability.NewPid2(0)
	if err != nil {
		return Sets{}, fmt.Errorf("capability state: %w", err)
	}
	if err := c.Load(); err != nil {
		return Sets{}, fmt.Errorf("capability state: %w", err)
	}
	mask := func(t capability.CapType) (m uint64) {
		for n := capability.Cap(0); n < 64; n++ {
			if c.Get(t, n) {
				m |= 1 << n
			}
		}
		return m
	}
	return Sets{
		Effective:   mask(capability.EFFECTIVE),
		Permitted:   mask(capability.PERMITTED),
		Inheritable: mask(capability.INHERITABLE),
		Bounding:    mask(capability.BOUNDING),
		Ambient:     mask(capability.AMBIENT),
	}, nil
}

// Any reports whether a set that gives privilege now or at the next exec is not empty.
func (s Sets) Any() bool {
	return s.Effective|s.Permitted|s.Inheritable|s.Bounding|s.Ambient != 0
}

// Name is the lower-case name of capability n without the cap_ prefix.
func Name(n int) string { return capability.Cap(n).String() }
