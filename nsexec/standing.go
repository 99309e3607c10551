package nsexec

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What a process inherits and no namespace divides: a launcher that runs ahead
// of others must not have a box that does.

// ordinary takes from the calling thread what a clone of it would inherit: a
// real-time policy or a negative nice value, by the kernel's own rule for that
// (sched(7), "reset-on-fork"), and a real-time class of io. What puts it behind
// others (batch, idle, a positive nice value) stays, for the box too. It cannot be
// undone without CAP_SYS_NICE, so it is done only where it matters.
func ordinary() error {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	if realTime(attr.Policy) || attr.Nice < 0 {
		attr.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		if err := unix.SchedSetAttr(0, attr, 0); err != nil {
			return err
		}
	}
	// ioprio_set(2); golang.org/x/sys has no names for it.
	const process, classShift, realTimeClass = 1, 13, 1
	if class, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_GET, process, 0, 0); errno == 0 && class>>classShift == realTimeClass {
		if _, _, errno := unix.RawSyscall(unix.SYS_IOPRIO_SET, process, 0, 0); errno != 0 {
			return errno
		}
	}
	return nil
}

// Ordinary says how the waiting child is scheduled, and whether that is ahead of
// nobody: SCHED_OTHER, BATCH or IDLE without a negative nice value.
func (r *Report) Ordinary() (string, bool) {
	ahead := r.Policy < 0 || r.Policy > unix.SCHED_IDLE || realTime(uint32(r.Policy)) || r.Nice < 0 || r.Nice > 19
	return fmt.Sprintf("policy %d, nice %d", r.Policy, r.Nice), !ahead
}

func realTime(policy uint32) bool {
	return policy == unix.SCHED_FIFO || policy == unix.SCHED_RR || policy == unix.SCHED_DEADLINE
}
