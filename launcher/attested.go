package launcher

import (
	"nsbox/launcher/attest"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"syscall"
)

type sysSignal = syscall.Signal

// sharedVM says whether the set-up runs in the launcher's memory (CLONE_VM) or
// in a copy of it (fork).
const sharedVM = false

func (pl *Plan) degraded(dimension string) bool {
	for _, d := range pl.Degraded {
		if d.Dimension == dimension {
			return true
		}
	}
	return false
}

// attestation is the rows that are not read from the box: what the launcher
// enforces itself, what is degraded and what is blocked.
func (pl *Plan) attestation() []attest.Row {
	var rows []attest.Row
	for _, r := range pl.Restrictions {
		switch {
		case r.Status == attest.Degraded || r.Status == attest.Blocked:
			rows = append(rows, attest.Row{Restriction: r.Name, Requested: r.Requested, Shown: r.Primitive, Where: "plan", Grade: attest.None, Status: r.Status, Note: r.Note})
		case heldByLauncher(r.Name):
			rows = append(rows, attest.Row{Restriction: r.Name, Requested: r.Requested, Shown: r.Primitive, Where: "launcher", Grade: attest.Launcher, Status: r.Status, Note: r.Note})
		}
	}
	return rows
}

// heldByLauncher are the restrictions that the launcher enforces by watching.
func heldByLauncher(name string) bool {
	return name == "wall" || name == "cpu-total" || name == "stdout" || name == "stderr"
}

func cgroupReason(err error) *reason.Error { return probe.CgroupReason(err) }
