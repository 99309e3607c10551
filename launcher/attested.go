package launcher

import (
	"syscall"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// What run.go still names; see there.
type sysSignal = syscall.Signal

// sharedVM says whether the set-up runs in the launcher's memory (CLONE_VM) or
// in a copy of it (fork).
const sharedVM = false

func cgroupReason(err error) *reason.Error { return probe.CgroupReason(err) }
