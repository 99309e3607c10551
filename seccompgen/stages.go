package seccompgen

// Init returns the profile of nsbox-init, process 1 of a box: a small Go program
// that reaps, reports over one inherited socket and exits. It is installed before
// the execveat that starts the stage.
func Init() Profile {
	return stage("init", Rule{Class: "reaping", Verdict: Allow,
		Why:      "process 1 waits for every process of the box and may end them",
		Syscalls: calls(`wait4 waitid kill pidfd_open pidfd_send_signal`)})
}

// Exporter returns the profile of nsbox-export, which judges the files of a sealed
// output folder by descriptors it was handed and copies one of them.
func Exporter() Profile {
	return stage("exporter", Rule{Class: "copying", Verdict: Allow,
		Why: "reads and lists below the sealed folder and writes the staging file it was handed; openat2's flags cannot be seen, the mount is read-only",
		Syscalls: calls(`openat2 pwrite64 preadv pwritev fsync fdatasync ftruncate fchmod
			fallocate fadvise64 copy_file_range sendfile fstatfs flock`)})
}

// Wipe returns the profile of nsbox-wipe, which empties a slot of /out that was
// provisioned for boxes, under the id that filled it.
func Wipe() Profile {
	return stage("wipe", Rule{Class: "removing", Verdict: Allow,
		Why:      "takes a directory tree apart; the one writable mount of its box is the slot",
		Syscalls: calls(`unlinkat renameat2 fchmodat flistxattr fremovexattr`)})
}

// stage is what a static Go program with cgo needs from its first instruction on:
// found by tracing one that links the same packages, plus what the Go runtime and
// its packages may call on other kernels.
func stage(name string, own Rule) Profile {
	rules := []Rule{
		{Class: "start", Verdict: Allow,
			Why:      "the filter is installed before the stage's own exec",
			Syscalls: calls(`execve execveat arch_prctl set_tid_address set_robust_list rseq brk uname readlink readlinkat access`)},
		{Class: "memory", Verdict: Allow, Why: "the Go heap and thread stacks",
			Syscalls: calls(`mmap munmap mprotect mremap madvise mincore`)},
		{Class: "threads", Verdict: Allow, Else: Deny, ElseIs: "fork",
			Why:      "the Go runtime starts threads; a stage starts no process",
			Syscalls: calls(`clone`),
			When: &When{Arg: 0, What: "flags are", Mask: namespaceFlags | cloneThread,
				In: []Value{{"CLONE_THREAD without CLONE_NEW*", cloneThread}}}},
		{Class: "runtime", Verdict: Allow, Why: "the Go scheduler, its signals and its clock",
			Syscalls: calls(`futex sched_yield sched_getaffinity gettid getpid getppid tgkill rt_sigaction rt_sigprocmask
				rt_sigreturn sigaltstack rt_sigtimedwait timer_create timer_settime timer_delete setitimer nanosleep
				clock_nanosleep clock_gettime clock_getres gettimeofday restart_syscall getrandom membarrier exit exit_group
				getrusage sysinfo prlimit64 getrlimit setrlimit`)},
		{Class: "identity", Verdict: Allow, Why: "a stage checks that it holds no privilege",
			Syscalls: calls(`getuid geteuid getgid getegid getresuid getresgid getgroups capget`)},
		{Class: "descriptors", Verdict: Allow, Why: "reading, writing and waiting on what the stage was handed",
			Syscalls: calls(`read write readv writev pread64 close close_range dup dup2 dup3 fcntl fstat newfstatat statx
				getdents64 lseek umask pipe2 poll
				ppoll epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 sendmsg recvmsg sendto recvfrom
				shutdown getsockopt setsockopt getsockname getpeername`)},
		{Class: "reading files", Verdict: Allow, Else: Deny, ElseIs: "writing_files",
			Why:      "the runtime and package inits read /sys and /proc; nothing is created or opened for writing",
			Syscalls: calls(`openat`),
			When:     &When{Arg: 2, What: "flags are", Mask: openForWriting, In: []Value{{"read-only", 0}}}},
		{Class: "socket_non_AF_UNIX", Verdict: Deny, Why: "a stage uses the socket it was handed and makes none",
			Syscalls: calls(`socket socketpair connect bind listen accept accept4`)},
		{Class: "fork", Verdict: Deny, Why: "a stage starts no process", Syscalls: calls(`fork vfork`)},
		own,
		prctlRule(),
	}
	return Profile{Name: name, Rules: append(rules, refused()...)}
}

const (
	cloneThread = 0x00010000 // CLONE_THREAD of linux/sched.h
	// O_WRONLY, O_RDWR, O_CREAT, O_TRUNC and the own bit of O_TMPFILE, asm-generic/fcntl.h
	openForWriting = 0x1 | 0x2 | 0x40 | 0x200 | 0x400000
)
