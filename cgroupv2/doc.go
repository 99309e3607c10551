// Package cgroupv2 gives each attempt one job cgroup on a version 2 hierarchy.
//
// A hierarchy without a single controller is enough for what this package does
// today: count the CPU time of a whole tree including its dead members
// (cpu.stat), end the tree in one act that forking cannot outrun (cgroup.kill)
// and prove that nothing is left (cgroup.events). Hosts that bind memory, pids
// and cpu to version 1 still have such a hierarchy, usually mounted beside.
//
//	<root>/                 a directory that is ours to create groups in
//	  nsbox-<name>/         one attempt; kill and the stop proof act here
//	    box/                set-up and init are born here (CLONE_INTO_CGROUP)
//	    work/               the workload; limits and counts are this leaf's
//
// The two leaves exist so that the box's own start is not charged to the
// workload, and so that the inner node holds no process: the kernel refuses
// controllers in the children of a populated domain. Limits belong to a later
// issue and will be a pure list of {file, value, why} written to work/.
//
// # Finding the root
//
// "Delegated" is decided by doing: a probe leaf is made, its cgroup.procs is
// checked for writing, and it is removed. Neither the owner of a directory nor
// the content of cgroup.subtree_control is asked, since both mislead (systemd
// hands out subtrees with an empty subtree_control). The order is the explicit
// directory; the caller's own cgroup; and, for uid 0 where systemd does not
// manage the tree, the top of the mounted hierarchy. Moving or cloning a process
// into a group also takes write permission on cgroup.procs of the closest common
// ancestor of both groups, which is why a directory that can be written may
// still be of no use to its owner.
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
