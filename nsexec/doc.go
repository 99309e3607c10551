// Package nsexec makes one box: namespaces, a root of their own, a process that
// has given everything up, and a pid 1 that reports how it ended. It obeys a
// Spec and decides nothing.
//
// # From Spec to box
//
// compile turns a [Spec] into a [Program], a list of system calls with a name,
// a reason, a capability and a rule for the result each. It is pure. link lays
// the program out in a private mapping; Spawn clones a process that runs it with
// a loop of some sixty instructions (interp_amd64.s) and nothing else: no stack,
// no g, no TLS, no Go code. SEQUENCE.md lists the steps of two boxes and is
// generated from them, so what is documented, made to fail in tests, named in
// errors and asked of the kernel is one list.
//
// # Processes
//
//	launcher        Spawn, on a thread that stays locked until pid 1 is reaped
//	  │ clone3: new user, mount, pid, net, ipc and uts namespace
//	  ▼
//	set-up  pid 1   closes what it inherited, drops the bounding set, forks,
//	  │     │       opens sources, waits for the id maps, becomes 0 inside,
//	  │     │       builds the root on a tmpfs, pivots, tells the child
//	  │     └─▶ child  pid 2, in the work cgroup from birth: own keyring, session
//	  │                and cgroup namespace; waits for the tree; gives up groups,
//	  │                ids and capabilities, no_new_privs; makes its pipes, hands
//	  │                the outer ends out; Landlock, read-backs, probes, limits,
//	  │                seccomp; "ready"; waits for go; execve of the workload
//	  ▼ no capabilities, no_new_privs, own filter, execveat of nsbox's own image
//	init    pid 1   RunInit: reaps, reports pid 2's end, exits
//
// Exec is the barrier. Capabilities, ids, Landlock and filters belong to a
// thread, and a Go process cannot give them up on all of its threads; so no Go
// code runs in a box before the privileges are gone, and no hostile code before
// the exec that replaces the launcher's memory image. The launcher does not say
// go before init has exec'd too: an unexec'd pid 1 would have that image.
//
// # Privileges
//
// The set-up has capabilities in its own user namespace only, and of these the
// ones its steps name: the first step cuts the set to their union. A test takes
// each away and requires a step that names it to fail.
//
//   - The fork is early, while the kernel still sees the operator's uid: only then
//     may the child be born in another cgroup of the operator's than pid 1.
//     Moving it later waits for an RCU grace period.
//   - The bounding set is dropped before the fork, once for both.
//   - Sources are opened before the change of uid (they may lie below a directory
//     that is closed to others), by the box itself (a tree opened in another mount
//     namespace cannot be attached: EINVAL), and as detached trees (what is
//     mounted is what was opened, whatever the path becomes).
//   - Where endpoints are listed the set-up brings lo up, makes local routes and
//     listening sockets, and sends these out, all before the root is built; the
//     child was forked before and pid 1's copies end with its exec.
//   - proc is mounted while the old one is visible; afterwards the kernel refuses.
//     user.max_user_namespaces is written through the old one.
//   - Groups, then gid, then uid, then capabilities, then no_new_privs; Landlock
//     and seccomp need no_new_privs from a process without capabilities.
//   - The pipes are made after the change of uid: the program may then open
//     /dev/stdout by name. An end made by the launcher would have an owner that
//     the box cannot name.
//   - A terminal is opened by the workload's id as well, from a devpts of the box,
//     and its peer by the master's ioctl: the host's could not be opened again.
//   - Small limits and seccomp come last, so that neither stands in the way of
//     the set-up: the filter need not permit mount, nor the limit on descriptors
//     the numbers above 60.
//
// A program cannot compute. What the kernel says about the child is shipped as
// raw buffers ([Report]) and compared with the plan by the launcher; what must
// be refused is tried, and the expected errno is the step's rule, beside a
// control that must succeed.
//
// # Failure
//
// The first step whose result its rule does not allow writes sixteen bytes to
// the process's socket, the control socket for pid 1 and the go socket for
// pid 2, and ends it. Spawn returns that step as a [StepError]; what follows
// from it (a map that could not be written, a socket at its end) never hides it.
// A box that ends without a word was killed: [ErrGone]. A program that runs past
// its last step fails there. Package wire has the table of messages.
//
// # Death
//
//   - pid 1's end ends every process of the box: the kernel does it, and pid 1 is
//     reaped only after all others are gone. Done therefore means: nothing is left.
//   - The launcher's end ends pid 1, by the parent-death signal (armed again after
//     the change of uid, which clears it; it fires when the thread that cloned
//     ends, hence the locked thread) and by EOF on the control socket, on which
//     the set-up and init wait. So no process may hold the launcher's socket end:
//     close-the-rest comes before anything is opened and before the fork.
//   - pid 1's number is used, by the id-map helpers among others, only while it
//     cannot have been reaped. Kill goes by pidfd.
//
// # The two ways to clone
//
// With Spec.SharedVM false the set-up runs in a copy of the launcher's memory,
// as after fork. With SharedVM true (CLONE_VM) it runs in the launcher's memory
// itself until each of the two processes execs, which saves the copy of the page
// tables and the faults of both sides afterwards. It is sound because the loop
// touches only its own mapping, every signal is blocked from before the clone, and
// handlers are reset (no handler of the Go runtime can run in the child). What
// differs:
//
//   - A change of uid in shared memory makes the launcher undumpable; Spawn and
//     Abort set the flag again.
//   - The mapping stays until pid 1 is reaped; words in it are read by the
//     launcher only after a message that follows their writing.
//   - The waiting child has the launcher's memory until go. It runs nothing but
//     the last steps, and no other process of the box exists but init.
//
// # Kernels
//
// clone3 5.3, CLONE_CLEAR_SIGHAND 5.5, CLONE_INTO_CGROUP and an 88-byte
// clone_args 5.7, open_tree and move_mount 5.2, openat2 5.6, hidepid=invisible
// 5.8, close_range 5.9, mount_setattr 5.12, Landlock 5.13 (refer with ABI 2 and
// 5.19, truncate 3 and 6.2, TCP 4 and 6.7, ioctl 5 and 6.10, scopes 6 and 6.12),
// RLIMIT_NPROC counted per user namespace 5.14. The probe decides by trying;
// these numbers are for messages.
package nsexec
