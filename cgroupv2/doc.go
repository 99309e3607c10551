// Package cgroupv2 gives each attempt one job cgroup on a version 2 hierarchy.
//
// A hierarchy without a single controller is enough to count the CPU time of a
// whole tree including its dead members (cpu.stat), to end the tree in one act
// that forking cannot outrun (cgroup.kill) and to prove that nothing is left
// (cgroup.events). Hosts that bind memory, pids and cpu to version 1 still have
// such a hierarchy, usually mounted beside. Limits take the controllers.
//
//	<root>/                 a directory that is ours to create groups in
//	  nsbox-launcher/       the launcher, where it had to leave the root itself
//	  nsbox-<name>/         one attempt; kill and the stop proof act here
//	    box/                set-up and init are born here (CLONE_INTO_CGROUP)
//	    work/               the workload; limits and counts are this leaf's
//
// The two leaves exist so that the box's own start is not charged to the
// workload: memory stays with the group that touched it first, and the program
// is moved only when it has nothing left to do but execve. They also keep the
// inner node free of processes, without which it could hand down no controller.
//
// # Finding the root
//
// "Delegated" is decided by doing: a probe leaf is made, its cgroup.procs is
// checked for writing, the controllers are enabled, a limit of each is written
// to a leaf and read back. Neither the owner of a directory nor the content of
// cgroup.subtree_control is asked, since both mislead (systemd hands out
// subtrees with an empty one). Moving or cloning a process into a group also
// takes write permission on cgroup.procs of the closest common ancestor of both
// groups, which is why a directory that can be written may still be of no use.
//
// The order is: the explicit directory, alone; the caller's own group, and the
// delegated unit it lives in; a scope that systemd makes for this process
// (package scope); and, for uid 0 where systemd does not manage the machine, the
// top of the hierarchy. Under systemd its word is needed too, by the mark it
// leaves or by asking, since doing proves too much there (see marked); a
// directory without it is used without controllers, for want of better.
//
// The kernel gives controllers only to the children of a directory that holds no
// process. So the launcher moves itself, and nobody else, to a leaf. It never
// moves back: that would be refused, or undo the limits of a launcher beside it.
// An empty leaf that is left behind is used by the next launcher; in a scope it
// goes with the scope.
//
// # Limits
//
// Limits.Writes is a pure list of {file, value, why}; Group.Apply writes it to
// the work leaf, reads every value back and compares. The box leaf gets a
// backstop for tasks only. Stats are read after WaitEmpty and before Remove, and
// give the verdicts: MemoryKilled rests on the leaf's own events, not on how the
// main process ended.
//
// # Handles
//
// A Group keeps descriptors of its directories and files; no path is resolved
// twice. It is identified by its 64-bit cgroup id (the directory's inode number
// on 64-bit kernels), which is never given out again before the next boot.
// Removal compares that id first, so a directory of the same name that somebody
// else made is left alone.
//
// The package imports nothing from nsbox and reports every failure as *Error,
// whose Kind callers decide by; errno values do not leave it undecided.
package cgroupv2
