package seccompgen

import (
	"slices"
	"strings"
)

// Options closes ways around a limit that could not be enforced fully.
type Options struct {
	DenyAffinity     bool // no sched_setaffinity: one cpu stands in for the cpu rate
	DenySharedMemory bool // no memfd_create, System V segments or Landlock rules: memory is only sampled per process
	Sockets          Sockets
	// DenySocketFiles leaves no way to a socket by its path: a live bind of the host
	// may hold one that anybody may use. AnySocket is then UnixSockets.
	DenySocketFiles bool
}

// Sockets says which sockets can be made.
type Sockets int

const (
	UnixSockets Sockets = iota // AF_UNIX only
	TCPSockets                 // TCP streams besides: the policy lists endpoints
	AnySocket                  // every family but AF_VSOCK: the policy leaves the rule out
)

// calls splits a blank-separated list of system call names.
func calls(list string) []string { return strings.Fields(list) }

// Workload returns the profile of the untrusted program: wide enough for what
// interpreters, compilers and language runtimes do with their own files, memory
// and processes, and nothing that reaches past them.
func Workload(o Options) Profile {
	rules := []Rule{
		{Class: "files", Verdict: Allow,
			Why: "reading and writing descriptors; which files exist is decided by the mounts and Landlock",
			Syscalls: calls(`read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek
				open openat openat2 creat close close_range dup dup2 dup3 flock fsync fdatasync
				sync_file_range fallocate truncate ftruncate readahead fadvise64 sendfile copy_file_range splice tee`)},
		{Class: "paths", Verdict: Allow,
			Why: "names, status and attributes; permission bits, read-only mounts and Landlock decide on each",
			Syscalls: calls(`stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 readlink
				readlinkat getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link
				linkat unlink unlinkat symlink symlinkat chmod fchmod fchmodat fchmodat2 umask utime utimes utimensat
				futimesat getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
				removexattr lremovexattr fremovexattr`)},
		{Class: "nodes and owners", Verdict: Allow,
			Why:      "FIFOs and sockets are ordinary; device nodes and foreign owners need capabilities nobody in the box has",
			Syscalls: calls(`mknod mknodat chown lchown fchown fchownat`)},
		{Class: "memory", Verdict: Allow,
			Why: "a process's own address space, bounded by the memory limit",
			Syscalls: calls(`munmap mprotect mremap msync mincore brk mlock mlock2 munlock mlockall
				munlockall membarrier pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack get_mempolicy
				set_mempolicy mbind set_mempolicy_home_node`)},
		{Class: "processes", Verdict: Allow,
			Why: "start, wait for and signal processes of the same pid namespace, bounded by the task limit",
			Syscalls: calls(`fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open
				pidfd_send_signal getpid getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address
				restart_syscall arch_prctl rseq set_robust_list get_robust_list`)},
		{Class: "clone", Verdict: Allow, Else: Deny, ElseIs: "unshare",
			Why:      "threads and processes, but no new namespace: a user namespace opens kernel code meant for root",
			Syscalls: calls(`clone`), When: noNamespace()},
		{Class: "signals", Verdict: Allow,
			Why: "handlers and masks of the process itself",
			Syscalls: calls(`rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
				rt_tgsigqueueinfo rt_sigsuspend sigaltstack signalfd signalfd4 pause`)},
		{Class: "waiting", Verdict: Allow,
			Why: "locks, events and timers of the process itself",
			Syscalls: calls(`futex futex_waitv futex_wake futex_wait futex_requeue poll ppoll select pselect6
				epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
				timerfd_create timerfd_settime timerfd_gettime inotify_init inotify_init1 inotify_add_watch
				inotify_rm_watch pipe pipe2`)},
		{Class: "time", Verdict: Allow,
			Why: "reading clocks and sleeping",
			Syscalls: calls(`nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getitimer
				setitimer alarm timer_create timer_settime timer_gettime timer_getoverrun timer_delete`)},
		{Class: "scheduling", Verdict: Allow,
			Why: "a process may give up cpu time; asking for more needs a capability",
			Syscalls: calls(`sched_yield sched_getaffinity sched_getparam sched_setparam sched_getscheduler
				sched_setscheduler sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min
				sched_rr_get_interval getpriority setpriority ioprio_get ioprio_set getcpu`)},
		{Class: "identity", Verdict: Allow,
			Why: "reading ids, and changes that the kernel refuses without capabilities",
			Syscalls: calls(`getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid
				setregid setresuid setresgid setfsuid setfsgid setgroups capget capset`)},
		{Class: "facts and limits", Verdict: Allow,
			Why:      "resource use and limits; a hard limit can only be lowered",
			Syscalls: calls(`getrlimit getrusage sysinfo uname getrandom`)},
		ownConfinement(o.DenySharedMemory),
		{Class: "own filter", Verdict: Allow, Else: Deny, ElseIs: "seccomp_listener",
			Why:      "a further filter can only narrow this one; a listener would hand calls to another process and is refused",
			Syscalls: calls(`seccomp`), When: &When{Arg: 1, What: "flags lack", Mask: 0x8, In: []Value{{"SECCOMP_FILTER_FLAG_NEW_LISTENER", 0}}}},
		{Class: "unix sockets", Verdict: Allow,
			Why: "messages between processes of the box; only AF_UNIX sockets can be made",
			Syscalls: calls(`accept accept4 bind listen shutdown getsockname getpeername getsockopt
				sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg`)},
		connecting(o),
		{Class: "posix queues", Verdict: Allow,
			Why:      "message queues of the box's own ipc namespace; their memory counts against RLIMIT_MSGQUEUE, which is 0",
			Syscalls: calls(`mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`)},
		{Class: "page_merging", Verdict: Deny, Else: Allow,
			Why:      "merging equal pages with the host's tells what the host holds; all other advice concerns the process alone",
			Syscalls: calls(`madvise`), When: &When{Arg: 2, What: "advice is", Mask: ^uint32(0), In: []Value{{"MADV_MERGEABLE", 12}}}},
		{Class: "host_sync", Verdict: Pretend,
			Why:      "flushes whole file systems, the host's disks among them; nothing of the box is on one",
			Syscalls: calls(`sync syncfs`)},
		{Class: "core_limit", Verdict: Pretend, Else: Allow,
			Why:      "a core limit of exactly 1 is what keeps the kernel from starting the host's core handler, and 0 does not; programs that set 0 get what they want, no core file",
			Syscalls: calls(`setrlimit`), When: coreLimit(0, 0)},
		{Class: "core_limit", Verdict: Pretend, Else: Allow,
			Why:      "the same by the newer call, where it sets and does not only read",
			Syscalls: calls(`prlimit64`), When: coreLimit(1, 2)},
		personalityRule(),
		prctlRule(),
	}
	queues := slices.IndexFunc(rules, func(r Rule) bool { return r.Class == "posix queues" })
	rules = slices.Insert(rules, queues, makingSockets(o.Sockets, o.DenySocketFiles)...)
	rules = append(rules, affinity(o.DenyAffinity), mappings(o.DenySharedMemory), socketBuffers(o.DenySharedMemory), pipeSize(o.DenySharedMemory), memfd(o.DenySharedMemory))
	rules = append(rules, systemV(o.DenySharedMemory)...)
	return Profile{Name: "workload", Rules: append(rules, refused()...)}
}

// makingSockets and connecting close, where noFiles asks for it, both ways to a
// socket file: connect, and the address that every message on a datagram socket may
// carry. Both addresses are in memory, where a filter cannot look. Without TCP no
// connect is needed at all; with it no AF_UNIX socket can be made but a pair, which
// is connected for good (unix(7): a stream's second connect fails with EISCONN).
func makingSockets(s Sockets, noFiles bool) []Rule {
	unix, ip := Value{"AF_UNIX", 1}, []Value{{"AF_INET", 2}, {"AF_INET6", 10}}
	domain := func(in ...Value) *When { return &When{Arg: 0, What: "domain is", Mask: ^uint32(0), In: in} }
	only := Rule{Class: "making sockets", Verdict: Allow, Else: Deny, ElseIs: "socket_non_AF_UNIX",
		Why:      "every other family is a way out of the box or rarely used kernel code",
		Syscalls: calls(`socket socketpair`), When: domain(unix)}
	if noFiles {
		only.Why += "; datagrams could be sent to a socket file of the host"
		only.When.More = []More{{Of: []Value{unix}, Arg: 1, What: "type is", Mask: 0xf, In: []Value{{"SOCK_STREAM", 1}, {"SOCK_SEQPACKET", 5}}}}
	}
	if s == UnixSockets || s == AnySocket && noFiles {
		return []Rule{only}
	}
	pairs, made := only, only
	pairs.Class, pairs.Syscalls = "socket pairs", calls(`socketpair`)
	made.Syscalls = calls(`socket`)
	if s == TCPSockets {
		domains := append([]Value{unix}, ip...)
		made.Why = "TCP reaches the policy's endpoints; every other protocol and family is a way out or rarely used kernel code"
		if noFiles {
			domains = ip
			made.Why += "; an AF_UNIX socket could connect to a socket file of the host"
		}
		made.When, made.ElseIs = domain(domains...), "socket_non_AF_UNIX_or_TCP"
		made.When.More = []More{
			// A type carries flags in its upper bits. MPTCP and SCTP are streams too.
			{Of: ip, Arg: 1, What: "type is", Mask: 0xf, In: []Value{{"SOCK_STREAM", 1}}},
			{Of: ip, Arg: 2, What: "protocol is", Mask: ^uint32(0), In: []Value{{"0", 0}, {"IPPROTO_TCP", 6}}},
		}
	} else {
		made = Rule{Class: "AF_VSOCK", Verdict: Deny, Else: Allow, Syscalls: made.Syscalls, When: domain(Value{"AF_VSOCK", 40}),
			Why: "the policy leaves sockets to the network namespace, which does not divide this family"}
	}
	return []Rule{pairs, made}
}

// ownConfinement: a set of rules holds 128 K ports or any number of files, and a
// process as many sets as descriptors.
func ownConfinement(deny bool) Rule {
	r := Rule{Class: "own confinement", Syscalls: calls(`landlock_create_ruleset landlock_add_rule landlock_restrict_self`), Verdict: Allow,
		Why: "Landlock rules can only take rights away from the process that adds them; they count as memory of the job"}
	if deny {
		r.Class, r.Verdict = "landlock_rules", Missing
		r.Why = "memory is only limited per process here, and rules are the kernel's: one process could fill 40 MiB of it a second"
	}
	return r
}

func affinity(deny bool) Rule {
	r := Rule{Class: "affinity", Syscalls: calls(`sched_setaffinity`), Verdict: Allow,
		Why: "programs pin their threads to cpus; the cpu rate holds wherever they run"}
	if deny {
		r.Verdict = Deny
		r.Why = "being bound to one cpu stands in for the cpu rate here, and this call would undo it"
	}
	return r
}

func connecting(o Options) Rule {
	r := Rule{Class: "connecting", Syscalls: calls(`connect`), Verdict: Allow, Why: "to sockets of the box, the only ones whose files it can see"}
	switch {
	case o.DenySocketFiles && o.Sockets == TCPSockets:
		r.Why = "to the policy's endpoints; no socket that could connect to a file can be made"
	case o.DenySocketFiles:
		r.Class, r.Verdict = "unix_connect", Deny
		r.Why = "a directory of the host is shown live, and a read-only mount does not keep a program from a socket in it"
	}
	return r
}

// coreLimit holds where the resource in arg is RLIMIT_CORE and, if set is not 0,
// the pointer to a new value in that argument is not NULL.
func coreLimit(arg, set int) *When {
	return &When{Arg: arg, What: "resource is", Mask: ^uint32(0), In: []Value{{"RLIMIT_CORE", 4}}, NonNull: set}
}

// mappings keeps huge pages of the host's pool from the box, since memory.max does
// not count them; where memory is only limited per process, shared pages too.
func mappings(denyShared bool) Rule {
	const (
		shared = 0x21    // MAP_SHARED|MAP_ANONYMOUS; MAP_SHARED_VALIDATE has the bit of MAP_SHARED
		huge   = 0x40000 // MAP_HUGETLB
	)
	r := Rule{Class: "huge_pages", Syscalls: calls(`mmap`), Verdict: Deny, Else: Allow,
		Why:  "pages of the host's huge page pool are in no memory limit; all other mappings are bounded by it",
		When: &When{Arg: 3, What: "flags hold", Mask: huge, In: []Value{{"MAP_HUGETLB", huge}}}}
	if denyShared {
		r.Class = "shared_memory"
		r.Why = "memory is only limited per process here, and shared or huge pages outlive their mapping unseen"
		r.When.Mask |= shared
		r.When.In = []Value{{"MAP_SHARED|MAP_ANONYMOUS", shared}, {"MAP_HUGETLB", huge},
			{"MAP_HUGETLB|MAP_SHARED", huge | 0x1}, {"MAP_HUGETLB|MAP_ANONYMOUS", huge | 0x20}, {"all three", huge | shared}}
	}
	return r
}

// socketBuffers and pipeSize are about memory that no process's own limit counts,
// so they matter where only that limit is there.
func socketBuffers(deny bool) Rule {
	r := Rule{Class: "socket options", Syscalls: calls(`setsockopt`), Verdict: Allow, Why: "options of unix sockets; buffers count as memory of the job"}
	if deny {
		r.Class, r.Verdict, r.Else = "socket_buffers", Pretend, Allow
		r.Why = "memory is only limited per process here, and buffers are the kernel's; the default size has to do"
		r.When = &When{Arg: 2, What: "option is", Mask: ^uint32(0), In: []Value{{"SO_SNDBUF", 7}, {"SO_RCVBUF", 8}, {"SO_SNDBUFFORCE", 32}, {"SO_RCVBUFFORCE", 33}}}
	}
	return r
}

func pipeSize(deny bool) Rule {
	r := Rule{Class: "descriptors", Syscalls: calls(`fcntl`), Verdict: Allow, Why: "flags, locks and sizes of the process's own descriptors"}
	if deny {
		r.Class, r.Verdict, r.Else = "pipe_size", Deny, Allow
		r.Why = "memory is only limited per process here, and what a pipe holds is the kernel's"
		r.When = &When{Arg: 1, What: "command is", Mask: ^uint32(0), In: []Value{{"F_SETPIPE_SZ", 1031}}}
	}
	return r
}

func systemV(deny bool) []Rule {
	segment := Rule{Class: "huge_pages", Syscalls: calls(`shmget`), Verdict: Deny, Else: Allow,
		Why:  "a System V segment lives in the box's ipc namespace and counts as its memory, unless it is of the host's huge pages",
		When: &When{Arg: 2, What: "flags hold", Mask: 0o4000, In: []Value{{"SHM_HUGETLB", 0o4000}}}}
	rest := Rule{Class: "shared_memory", Syscalls: calls(`shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl`), Verdict: Allow,
		Why: "System V segments, semaphores and queues live in the box's ipc namespace and count as its memory"}
	if deny {
		rest.Verdict = Deny
		rest.Why = "memory is only limited per process here, and these belong to none: sets of semaphores alone could fill the host's"
		rest.Syscalls = append(rest.Syscalls, segment.Syscalls...)
		return []Rule{rest}
	}
	return []Rule{segment, rest}
}

func memfd(deny bool) Rule {
	r := Rule{Class: "memory files", Syscalls: calls(`memfd_create`), Verdict: Allow, Else: Deny, ElseIs: "executable_memfd",
		Why:  "a memory file that can never be executed, otherwise it is a way around noexec mounts, and not of huge pages, which no memory limit counts",
		When: &When{Arg: 1, What: "flags without MFD_HUGETLB hold", Mask: 0x8 | 0x4, In: []Value{{"MFD_NOEXEC_SEAL", 0x8}}}}
	if deny {
		return Rule{Class: "shared_memory_file", Syscalls: r.Syscalls, Verdict: Deny,
			Why: "memory is only limited per process here, and a memory file belongs to none"}
	}
	return r
}

// noNamespace holds where clone's flags ask for no namespace. CLONE_NEWTIME is not
// among them: its bit is part of the exit signal here and works in clone3 only.
func noNamespace() *When {
	return &When{Arg: 0, What: "flags lack", Mask: namespaceFlags, In: []Value{{"every CLONE_NEW*", 0}}}
}

// namespaceFlags are CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and
// NEWNET of linux/sched.h.
const namespaceFlags = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000

func personalityRule() Rule {
	return Rule{Class: "personality", Verdict: Allow, Else: Deny, ElseIs: "personality",
		Why:      "asking, and the ordinary Linux personalities; the others switch off address randomization or map page zero",
		Syscalls: calls(`personality`),
		When: &When{Arg: 0, What: "persona is", Mask: ^uint32(0), In: []Value{
			{"PER_LINUX", 0}, {"PER_LINUX32", 0x8}, {"UNAME26", 0x20000}, {"query", 0xffffffff}}}}
}

func prctlRule() Rule {
	return Rule{Class: "process attributes", Verdict: Allow,
		Why:      "names, death signals and self-hardening; an option not listed here is answered as unknown",
		Syscalls: calls(`prctl`),
		When: &When{Arg: 0, What: "option is", Mask: ^uint32(0), In: []Value{
			{"PR_SET_PDEATHSIG", 1}, {"PR_GET_PDEATHSIG", 2}, {"PR_GET_DUMPABLE", 3}, {"PR_SET_DUMPABLE", 4},
			{"PR_GET_KEEPCAPS", 7}, {"PR_SET_KEEPCAPS", 8}, {"PR_GET_TIMING", 13}, {"PR_SET_TIMING", 14},
			{"PR_SET_NAME", 15}, {"PR_GET_NAME", 16}, {"PR_GET_SECCOMP", 21}, {"PR_SET_SECCOMP", 22},
			{"PR_CAPBSET_READ", 23}, {"PR_CAPBSET_DROP", 24}, {"PR_GET_TSC", 25}, {"PR_SET_TSC", 26},
			{"PR_GET_SECUREBITS", 27}, {"PR_SET_SECUREBITS", 28}, {"PR_SET_TIMERSLACK", 29}, {"PR_GET_TIMERSLACK", 30},
			{"PR_MCE_KILL", 33}, {"PR_MCE_KILL_GET", 34}, {"PR_SET_CHILD_SUBREAPER", 36}, {"PR_GET_CHILD_SUBREAPER", 37},
			{"PR_SET_NO_NEW_PRIVS", 38}, {"PR_GET_NO_NEW_PRIVS", 39}, {"PR_GET_TID_ADDRESS", 40},
			{"PR_SET_THP_DISABLE", 41}, {"PR_GET_THP_DISABLE", 42}, {"PR_CAP_AMBIENT", 47},
			{"PR_GET_SPECULATION_CTRL", 52}, {"PR_SET_MDWE", 65}, {"PR_GET_MDWE", 66},
			{"PR_SET_VMA", 0x53564d41}, {"PR_SET_PTRACER", 0x59616d61}, {"PR_GET_AUXV", 0x41555856}}}}
}
