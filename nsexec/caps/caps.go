// Package caps reads capability sets back. Setting is one raw capset in the
// set-up program: the library's own Apply can return nil without effect, and its
// Load needs a /proc, which the exporter's box lacks. The library's names are in
// caps/names.
package caps

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Sets is the five sets of the calling thread, capabilities(7), as bit masks.
type Sets struct{ Effective, Permitted, Inheritable, Bounding, Ambient uint64 }

// Self asks the kernel for the calling thread's sets: capget(2) for three,
// prctl(2) bit by bit for bounding and ambient.
func Self() (Sets, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 fills two
	if err := unix.Capget(&header, &data[0]); err != nil {
		return Sets{}, fmt.Errorf("capget: %w", err)
	}
	s := Sets{
		Effective:   uint64(data[0].Effective) | uint64(data[1].Effective)<<32,
		Permitted:   uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32,
		Inheritable: uint64(data[0].Inheritable) | uint64(data[1].Inheritable)<<32,
	}
	for n := uintptr(0); n < 64; n++ {
		bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, n, 0, 0, 0)
		if err == unix.EINVAL {
			break // beyond the highest one this kernel knows
		}
		ambient, err2 := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, n, 0, 0)
		if err != nil || err2 != nil {
			return Sets{}, fmt.Errorf("prctl for capability %d: %v, %v", n, err, err2)
		}
		s.Bounding |= uint64(bound) << n
		s.Ambient |= uint64(ambient) << n
	}
	return s, nil
}
