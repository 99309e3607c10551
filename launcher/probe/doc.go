// Package probe finds out what the host offers and says it as plain data.
//
// Survey looks once, cheaply (well under a millisecond, each file read once),
// and returns a Host. Everything after it is pure: ChooseIdentity decides under
// which ids the box runs, Check and the Host's Refusal methods name what is
// missing, and the planner can be tested with a Host made of literals.
//
// # By doing, with three answers
//
// A fact is asked of the kernel by using it where that is cheap: Landlock by the
// version call, a cgroup by making a leaf (package cgroupv2). Where only a
// setting can be read, the setting may prove a No and never a Yes: a limit above
// zero does not mean that a user namespace can be made. The proof is then the
// step of the box itself, which stops the run if it fails. A fact that could not
// be obtained is Unknown, and Unknown never counts as Yes: Check refuses on it.
// Versions are for messages, with one exception: cgroup.kill and the per
// namespace RLIMIT_NPROC have no other cheap test than Linux 5.14.
//
// # Accounts
//
// A static binary cannot load the name service, so accounts are those of
// /etc/passwd, /etc/group, /etc/subuid and /etc/subgid and of the kernel's own
// view of the process. A group of the process that has no name there is listed
// as a power of the launcher: nsbox cannot show that it is harmless.
//
// Lines that newuidmap would not honour, ranges that hold the caller's, root's
// or another account's id, and ranges that another user was given too are left
// out and named in Host.Problems: two tenants of one id could signal and trace
// each other's processes.
package probe
