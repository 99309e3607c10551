package launcher

import (
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/nsexec"
)

// The verdict on memory is that of the leaf's memory.events: with oom.group the
// killer takes the whole leaf, so a main process that ended with 0 had left
// before it came, and the run is over its limit all the same.
func TestMemoryEventsDecide(t *testing.T) {
	exited := func(code int) nsexec.Exit { return nsexec.Exit{Reported: true, Status: unix.WaitStatus(code << 8)} }
	killed := nsexec.Exit{Reported: true, Status: unix.WaitStatus(unix.SIGKILL)}
	for name, c := range map[string]struct {
		exit    nsexec.Exit
		events  cgroupv2.MemoryEvents
		outcome string
		code    int // -1: none
	}{
		"left with 0 before the kill": {exited(0), cgroupv2.MemoryEvents{Max: 9, OOM: 1, OOMKill: 3}, LimitExceededMemory, -1},
		"left with 7 before the kill": {exited(7), cgroupv2.MemoryEvents{Max: 9, OOM: 1, OOMKill: 1}, LimitExceededMemory, -1},
		"killed itself":               {killed, cgroupv2.MemoryEvents{Max: 9, OOM: 1, OOMKill: 4}, LimitExceededMemory, -1},
		"the host's shortage":         {exited(0), cgroupv2.MemoryEvents{OOMKill: 1}, KilledExternally, -1},
		"control: reclaimed in time":  {exited(0), cgroupv2.MemoryEvents{Max: 9}, Exited, 0},
		"control: another's signal":   {killed, cgroupv2.MemoryEvents{}, KilledExternally, -1},
	} {
		var e ending
		e.fromExit(c.exit, 0, false)
		e.cgroup, e.memory = use(cgroupv2.Stats{HasMemory: true, Memory: c.events})
		e.fromMemory(64 << 20)
		code := -1
		if e.exitCode != nil {
			code = *e.exitCode
		}
		if e.outcome != c.outcome || code != c.code {
			t.Errorf("%s: %s with code %d, want %s with %d: %s", name, e.outcome, code, c.outcome, c.code, e.detail)
		}
	}
}
