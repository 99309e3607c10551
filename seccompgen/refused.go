package seccompgen

import "slices"

// refused returns the rules that name dangerous calls. They stand in every
// profile, so that what is refused does not depend on who runs.
func refused() []Rule {
	return []Rule{
		{Class: "mount", Verdict: Deny, Why: "the box's tree is finished before the program starts and must not change",
			Syscalls: calls(`mount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr`)},
		{Class: "chroot", Verdict: Deny, Why: "a second root helps a program that has escaped half-way, and nobody else",
			Syscalls: calls(`chroot`)},
		{Class: "unshare", Verdict: Deny, Why: "new namespaces give power over kernel code meant for root",
			Syscalls: calls(`unshare`)},
		{Class: "setns", Verdict: Deny, Why: "the only namespaces a program needs are those it was born in",
			Syscalls: calls(`setns`)},
		{Class: "ptrace", Verdict: Deny, Why: "reading or steering another process's memory and descriptors crosses every other rule",
			Syscalls: calls(`ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp
				move_pages migrate_pages`)},
		{Class: "keyctl", Verdict: Deny, Why: "kernel keyrings are not divided by namespaces and hold the operator's secrets",
			Syscalls: calls(`add_key request_key keyctl`)},
		{Class: "bpf", Verdict: Deny, Why: "programs in the kernel; its verifier is among the most attacked code",
			Syscalls: calls(`bpf`)},
		{Class: "perf_event_open", Verdict: Deny, Why: "counters and traces leak what other processes do",
			Syscalls: calls(`perf_event_open`)},
		{Class: "userfaultfd", Verdict: Deny, Why: "lets a program stop the kernel at a page fault of its choice, which makes races certain",
			Syscalls: calls(`userfaultfd`)},
		{Class: "module", Verdict: Deny, Why: "kernel modules",
			Syscalls: calls(`init_module finit_module delete_module create_module query_module get_kernel_syms`)},
		{Class: "kexec", Verdict: Deny, Why: "loads another kernel", Syscalls: calls(`kexec_load kexec_file_load`)},
		{Class: "reboot", Verdict: Deny, Why: "stops the machine", Syscalls: calls(`reboot`)},
		{Class: "swap", Verdict: Deny, Why: "changes the machine's memory set-up", Syscalls: calls(`swapon swapoff`)},
		{Class: "acct", Verdict: Deny, Why: "process accounting of the whole machine", Syscalls: calls(`acct`)},
		{Class: "quota", Verdict: Deny, Why: "disk quotas of whole filesystems", Syscalls: calls(`quotactl quotactl_fd`)},
		{Class: "clock", Verdict: Deny, Why: "sets or steers the machine's clock",
			Syscalls: calls(`settimeofday clock_settime clock_adjtime adjtimex`)},
		{Class: "hostname", Verdict: Deny, Why: "the box's names are fixed", Syscalls: calls(`sethostname setdomainname`)},
		{Class: "port_io", Verdict: Deny, Why: "direct access to hardware ports", Syscalls: calls(`iopl ioperm`)},
		{Class: "file_handle", Verdict: Deny, Why: "opens inodes by number, past every directory on the way",
			Syscalls: calls(`name_to_handle_at open_by_handle_at`)},
		{Class: "fanotify", Verdict: Deny, Why: "watches or blocks the file accesses of a whole mount",
			Syscalls: calls(`fanotify_init fanotify_mark`)},
		{Class: "syslog", Verdict: Deny, Why: "the kernel log holds addresses and other people's events", Syscalls: calls(`syslog`)},
		{Class: "terminal", Verdict: Deny, Why: "hangs up the terminal of a session", Syscalls: calls(`vhangup`)},
		{Class: "obsolete", Verdict: Deny, Why: "left-overs of old kernels that only an attack would try",
			Syscalls: calls(`lookup_dcookie nfsservctl uselib`)},
		{Class: "terminal_injection", Verdict: Deny, Else: Allow,
			Why:      "types into the operator's terminal, or loads a line discipline; every other request is for the device to judge",
			Syscalls: calls(`ioctl`), When: &When{Arg: 1, What: "request is", Mask: ^uint32(0), In: []Value{
				{"TIOCSTI", 0x5412}, {"TIOCLINUX", 0x541c}, {"TIOCSETD", 0x5423}}}},
		{Class: "prctl", Verdict: Deny,
			Why:      "moves the memory layout the kernel reports, steers page merging, scheduling cookies and mitigations across processes",
			Syscalls: calls(`prctl`), When: &When{Arg: 0, What: "option is", Mask: ^uint32(0), In: []Value{
				{"PR_TASK_PERF_EVENTS_DISABLE", 31}, {"PR_TASK_PERF_EVENTS_ENABLE", 32}, {"PR_SET_MM", 35},
				{"PR_SET_SPECULATION_CTRL", 53}, {"PR_SET_IO_FLUSHER", 57}, {"PR_SET_SYSCALL_USER_DISPATCH", 59},
				{"PR_SCHED_CORE", 62}, {"PR_SET_MEMORY_MERGE", 67}}}},
		{Class: "io_uring", Verdict: Missing, Why: "a second system call interface that no filter sees; programs fall back",
			Syscalls: calls(`io_uring_setup io_uring_enter io_uring_register`)},
		{Class: "clone3", Verdict: Missing, Why: "its flags lie in memory, where no filter can look; the C library falls back to clone",
			Syscalls: calls(`clone3`)},
		{Class: "aio", Verdict: Missing, Why: "old asynchronous io; large, rarely used, and every user has a fallback",
			Syscalls: calls(`io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel`)},
		{Class: "ldt", Verdict: Missing, Why: "segments for 16-bit programs, a repeated source of kernel faults",
			Syscalls: calls(`modify_ldt`)},
		{Class: "hidden_memory", Verdict: Missing, Why: "memory that nobody can inspect", Syscalls: calls(`memfd_secret`)},
	}
}

// DeniedClasses maps each class a policy can name to what Workload refuses for it:
// a system call by name, or a call with the condition under which it is refused.
func DeniedClasses() map[string][]string {
	m := map[string][]string{}
	for _, r := range Workload(Options{}).Rules {
		if r.Verdict != Allow {
			for _, name := range r.Syscalls {
				if r.When != nil {
					name += ": " + r.When.String()
				}
				m[r.Class] = append(m[r.Class], name)
			}
		}
		if r.Else == Deny {
			for _, name := range r.Syscalls {
				m[r.ElseIs] = append(m[r.ElseIs], name+": unless "+r.When.String())
			}
		}
	}
	m["AF_VSOCK"] = []string{"socket: domain is AF_VSOCK", "socketpair: domain is AF_VSOCK"}
	for _, list := range m {
		slices.Sort(list)
	}
	return m
}
