package cgroupv2

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Unknown is a figure that this kernel does not give or whose controller is not
// in force.
const Unknown int64 = -1

// Stats is what the work leaf used and met in its whole life.
type Stats struct {
	CPU        CPUStat
	MemoryPeak int64        // bytes; kernels before 5.19: Unknown
	SwapPeak   int64        // bytes; kernels before 6.5: Unknown
	Memory     MemoryEvents // all 0 if !HasMemory
	HasMemory  bool
	PidsPeak   int64 // kernels before 6.1: Unknown
	PidsDenied int64 // forks and clones that failed at pids.max
	HasPids    bool
}

// Stats reads all figures once. They are final when the processes are gone
// (WaitEmpty) and lost after Remove, which gives kind Gone. What a controller
// that is in force must show and does not is an error, never a zero.
func (g *Group) Stats() (Stats, error) {
	s := Stats{MemoryPeak: Unknown, SwapPeak: Unknown, PidsPeak: Unknown}
	if g.work == nil {
		return s, &Error{Kind: Gone, Path: g.Path() + "/work", Op: "read the figures of"}
	}
	text, err := reread(g.cpu)
	if err == nil {
		s.CPU, err = parseCPUStat(text)
	}
	if err != nil {
		return s, failure("read cpu.stat of", g.Path()+"/work", err)
	}
	for _, c := range g.Controllers() {
		switch c {
		case "memory":
			s.HasMemory = true
			s.Memory, err = statFile(g.work, "memory.events", parseMemoryEvents)
		case "pids":
			s.HasPids = true
			s.PidsDenied, err = statFile(g.work, "pids.events", func(t string) (int64, error) { return flatKeyed(t, "max") })
		}
		if err != nil {
			return s, failure("read the events of "+c+" in", g.Path()+"/work", err)
		}
	}
	for _, f := range []struct {
		name string
		to   *int64
	}{{"memory.peak", &s.MemoryPeak}, {"memory.swap.peak", &s.SwapPeak}, {"pids.peak", &s.PidsPeak}} {
		n, err := statFile(g.work, f.name, func(t string) (int64, error) {
			return strconv.ParseInt(strings.TrimSuffix(t, "\n"), 10, 64)
		})
		switch {
		case err == nil:
			*f.to = n
		case err != unix.ENOENT:
			return s, failure("read "+f.name+" of", g.Path()+"/work", err)
		}
	}
	return s, nil
}

func statFile[T any](dir *os.File, name string, parse func(string) (T, error)) (T, error) {
	text, err := readSmall(dir, name)
	if err != nil {
		var zero T
		return zero, err
	}
	return parse(text)
}

// MemoryKilled reports that the kernel killed a process of the work leaf at the
// leaf's own limit, however the main process ended.
func (s Stats) MemoryKilled() bool {
	return s.Memory.OOM > 0 && (s.Memory.OOMKill > 0 || s.Memory.OOMGroupKill > 0)
}

// HostKilled reports that the kernel's memory killer took a process of the work
// leaf although the leaf's own limit was not met: the host, or a group above,
// was out of memory. It is not the job's fault.
func (s Stats) HostKilled() bool { return s.Memory.OOM == 0 && s.Memory.OOMKill > 0 }

// PidsPressure reports that a fork or clone failed at pids.max.
func (s Stats) PidsPressure() bool { return s.PidsDenied > 0 }
