// Package scope moves the calling process into a transient systemd scope that is
// delegated to it, so that package cgroupv2 finds a group it may fill.
//
// The manager of the user's session is asked (of the system, for uid 0). It
// makes the scope, has the system manager move the process across the border
// that the user could not pass alone, and removes the scope with everything
// below when the last process has left it. Nothing is to be cleaned up, also
// after a kill -9.
//
// # One scope for each launcher
//
// A scope is asked for by every launcher that does not live in a delegated unit
// yet, and not kept for the next one. A scope lives as long as a process is in
// it: keeping one would take a process that stays, which is a daemon. A unit
// that stays without a process (a oneshot service with RemainAfterExit) loses
// its cgroup with its last process, and a slice cannot be delegated. Even a
// group that stayed would be out of reach from a login session, since moving or
// cloning into it passes user-UID.slice, which is root's; only systemd can do
// that, for one process at a time, and that is what asking for a scope is.
//
// Who starts nsbox often can keep one delegated unit for the whole session by
// starting the shell in a leaf of it; see ownCandidates in package cgroupv2.
// Then the manager is only asked whether the unit is delegated:
//
//	systemd-run --user --scope -p Delegate=yes -- sh -c '
//	  d=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
//	  mkdir $d/shell && echo $$ >$d/shell/cgroup.procs && exec bash'
//
// This is a package of its own so that only who imports it has D-Bus in its
// binary.
package scope
