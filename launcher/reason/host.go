package reason

// What the host, its kernel and the caller's account must offer.
const (
	// HostFactsUnreadable means that /proc did not give what nsbox must know about its own process.
	HostFactsUnreadable ID = "host_facts_unreadable"
	// KernelTooOld means that the running kernel is older than 5.14 or does not say what it is.
	KernelTooOld ID = "kernel_too_old"

	// UsernsDisabled means that user.max_user_namespaces is 0.
	UsernsDisabled ID = "userns_disabled"
	// UsernsSysctl means that kernel.unprivileged_userns_clone forbids user namespaces to ordinary users.
	UsernsSysctl ID = "userns_sysctl"
	// UsernsApparmor means that kernel.apparmor_restrict_unprivileged_userns takes the capabilities from namespaces of unconfined programs.
	UsernsApparmor ID = "userns_apparmor"
	// UsernsCapabilities means that a user namespace can be made but a security module denies the capabilities that come with it.
	UsernsCapabilities ID = "userns_capabilities"
	// OuterSeccomp means that a system-call filter around nsbox, as a container engine loads one, refuses the new namespaces.
	OuterSeccomp ID = "outer_seccomp"
	// UsernsUnknown means that the limit on user namespaces could not be read, which is never taken for permission.
	UsernsUnknown ID = "userns_unknown"
	// ProcMasked means that parts of /proc are mounted over here, so that the kernel would refuse a fresh proc to the box.
	ProcMasked ID = "proc_masked"

	// LandlockNotBuilt means that the kernel does not know Landlock at all.
	LandlockNotBuilt ID = "landlock_missing_not_built"
	// LandlockDisabled means that the kernel has Landlock but was started without it.
	LandlockDisabled ID = "landlock_missing_disabled"
	// LandlockBlocked means that something around nsbox forbids the Landlock system calls.
	LandlockBlocked ID = "landlock_missing_blocked"
	// LandlockUnknown means that the kernel's answer about Landlock could not be understood.
	LandlockUnknown ID = "landlock_missing_unknown"

	// LauncherExeUnreadable means that the nsbox binary is not readable and executable by everybody.
	LauncherExeUnreadable ID = "launcher_exe_unreadable"
	// LauncherNotStatic means that the nsbox binary needs a dynamic loader, which does not exist inside the box.
	LauncherNotStatic ID = "launcher_not_static"
	// LauncherSetuid means that nsbox runs with an effective user or group id that is not its real one.
	LauncherSetuid ID = "launcher_setuid"
	// LauncherCapsMissing means that nsbox runs as root but without the capabilities to write id maps.
	LauncherCapsMissing ID = "launcher_caps_missing"

	// SubordinateRangeMissing means that no usable subordinate ids are assigned to the caller.
	SubordinateRangeMissing ID = "subordinate_range_missing"
	// SubuidNotMappedHere means that the subordinate ids do not exist in the user namespace that nsbox was started in.
	SubuidNotMappedHere ID = "subuid_not_mapped_here"
	// IdmapHelperMissing means that newuidmap or newgidmap is absent or not fit to be trusted.
	IdmapHelperMissing ID = "idmap_helper_missing"
	// NoNewPrivsSet means that nsbox was started with no_new_privs, under which newuidmap and newgidmap have no power.
	NoNewPrivsSet ID = "no_new_privs_set"
	// IdentitySlotsExhausted means that every group of four subordinate ids is taken by another attempt.
	IdentitySlotsExhausted ID = "identity_slots_exhausted"

	// ControllersBoundToV1 means that a cgroup controller the policy needs is bound to a version 1 hierarchy.
	ControllersBoundToV1 ID = "controllers_bound_to_v1"
	// ControllerMissing means that a cgroup controller the policy needs is not available in the delegated subtree.
	ControllerMissing ID = "controller_missing"
	// RlimitTooLow means that an inherited hard limit is below what the policy asks for.
	RlimitTooLow ID = "rlimit_too_low"

	// NoV2Cgroup means that no cgroup version 2 hierarchy is mounted.
	NoV2Cgroup ID = "no_v2_cgroup"
	// CgroupNotDelegated means that the cgroup directory is not the caller's to create groups in.
	CgroupNotDelegated ID = "cgroup_not_delegated"
	// CgroupReadonly means that the cgroup file system is mounted read-only.
	CgroupReadonly ID = "cgroupfs_readonly"
	// CgroupBusy means that processes or groups are left in a cgroup that must be empty.
	CgroupBusy ID = "cgroup_busy"
	// CgroupDenied means that an operation on a cgroup was forbidden.
	CgroupDenied ID = "cgroup_denied"
	// CgroupThreaded means that the cgroup subtree is threaded and cannot hold whole processes.
	CgroupThreaded ID = "cgroup_threaded"
	// CgroupSystemdOwnsRoot means that the top of the cgroup hierarchy is managed by systemd.
	CgroupSystemdOwnsRoot ID = "cgroup_systemd_owns_root"
	// NotACgroup means that the directory named as cgroup is none of version 2.
	NotACgroup ID = "not_a_cgroup"
	// CgroupEscapes means that a cgroup path or name leads out of the tree it must stay in.
	CgroupEscapes ID = "cgroup_escapes"
	// CgroupExists means that a cgroup of the attempt's name is already there.
	CgroupExists ID = "cgroup_exists"
	// CgroupFull means that the cgroup subtree may not hold another group.
	CgroupFull ID = "cgroup_full"
	// CgroupGone means that a cgroup or process vanished while it was in use.
	CgroupGone ID = "cgroup_gone"
	// CgroupBoundary means that groups can be made in a directory but no process may cross into it from where nsbox lives.
	CgroupBoundary ID = "cgroup_boundary"
	// CgroupInternalProcesses means that processes live in the cgroup directory itself, which keeps the kernel from limiting groups inside it.
	CgroupInternalProcesses ID = "cgroup_internal_processes"
	// LimitNotApplied means that a cgroup file does not show the limit that was written to it.
	LimitNotApplied ID = "limit_not_applied"
	// SwapUncounted means that swap is on and the kernel cannot limit it for a cgroup.
	SwapUncounted ID = "swap_uncounted"
	// LimitImpossible means that a limit is outside of what the kernel can take.
	LimitImpossible ID = "limit_impossible"
	// NoSystemdManager means that no systemd manager could be reached to ask for a delegated scope.
	NoSystemdManager ID = "no_systemd_manager"
	// ScopeRefused means that the systemd manager gave no delegated scope.
	ScopeRefused ID = "scope_refused"
	// CgroupFailed means that the kernel refused a cgroup operation for a reason that has no id of its own.
	CgroupFailed ID = "cgroup_failed"
)
