package launcher

import (
	"fmt"
	"slices"

	"nsbox/cgroupv2"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/nsexec"
)

// jobLimits is what the policy's limits are for the job cgroup, as far as its
// controllers go; what they do not cover is a degraded dimension or a rlimit.
func jobLimits(l policy.Limits, controllers []string) cgroupv2.Limits {
	var out cgroupv2.Limits
	if slices.Contains(controllers, "memory") {
		out.MemoryBytes, out.SwapBytes = l.Memory.Bytes, l.Memory.Swap
	}
	if slices.Contains(controllers, "pids") {
		out.Tasks = int64(l.Tasks)
	}
	if slices.Contains(controllers, "cpu") {
		out.CPUPercent = int64(l.CPU.RatePercent)
	}
	return out
}

// exporterLimits is the same for the exporter's own group. Its cpu time is
// bounded as a sum by the launcher, its rate is not.
func exporterLimits(l policy.Limits, controllers []string) cgroupv2.Limits {
	var out cgroupv2.Limits
	if slices.Contains(controllers, "memory") {
		out.MemoryBytes = l.Exporter.Memory
	}
	if slices.Contains(controllers, "pids") {
		out.Tasks = int64(l.Exporter.Tasks)
	}
	return out
}

// cgroupRows is the attestation of limits that were written and read back.
func cgroupRows(prefix, path string, applied []cgroupv2.Applied) []attest.Row {
	var rows []attest.Row
	for _, a := range applied {
		row := attest.Compare(prefix+a.Leaf+"/"+a.File, a.Wanted, a.Shown, path+"/"+a.Leaf+"/"+a.File, attest.KernelRead)
		if a.Shown != a.Wanted {
			// Apply has refused what is not in force; what it let pass says why.
			row.Status, row.Note = attest.Enforced, a.Shown
		}
		rows = append(rows, row)
	}
	return rows
}

// memberRows shows who is in the leaves of the job cgroup: a limit holds only for
// whom it contains. nil: there is no group.
func memberRows(g *cgroupv2.Group, b *nsexec.Box) ([]attest.Row, error) {
	if g == nil {
		return nil, nil
	}
	var rows []attest.Row
	for _, l := range []struct {
		leaf string
		pid  int
	}{{"box", b.InitPID}, {"work", b.ChildPID}} {
		pids, err := g.Members(l.leaf)
		if err != nil {
			return nil, err
		}
		file := l.leaf + "/cgroup.procs"
		rows = append(rows, attest.Compare(file, fmt.Sprint([]int{l.pid}), fmt.Sprint(pids), g.Path()+"/"+file, attest.KernelRead))
	}
	return rows, nil
}

// memoryEnd is whether and by whose limit the kernel's memory killer took part of
// the workload.
type memoryEnd int

const (
	memoryFine   memoryEnd = iota
	memoryOwn              // the job cgroup's own limit
	memoryUntold           // the figures cannot be read
	memoryHost             // the host or a group above was out of memory: not the job's fault
)

// groupUse reads a group's final figures, after its last process is gone.
func groupUse(g jobGroup) (*CgroupUse, memoryEnd) {
	s, err := g.Stats()
	if err != nil {
		return nil, memoryUntold
	}
	return use(s)
}

func use(s cgroupv2.Stats) (*CgroupUse, memoryEnd) {
	use := &CgroupUse{MemoryPeak: s.MemoryPeak, SwapPeak: s.SwapPeak, OOMKills: cgroupv2.Unknown, TasksPeak: s.PidsPeak, TasksDenied: cgroupv2.Unknown, ThrottledUsec: s.CPU.Throttled}
	if s.HasMemory {
		use.OOMKills = s.Memory.OOMKill
	}
	if s.HasPids {
		use.TasksDenied = s.PidsDenied
	}
	switch {
	case s.MemoryKilled():
		return use, memoryOwn
	case s.HostKilled():
		return use, memoryHost
	}
	return use, memoryFine
}
