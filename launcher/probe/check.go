package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

const (
	minMajor, minMinor = 5, 14

	capSysAdmin uint = 21
)

// Check names everything that stands against any box on this host, in the order
// in which it would be met; empty means that nothing is known against it. What
// depends on the policy is asked by the Refusal methods.
func Check(h *Host) []*reason.Error {
	var out []*reason.Error
	refuse := func(id reason.ID, what, why, next string) { out = append(out, reason.New(id, what, why, next)) }

	if major, minor, ok := parseRelease(h.Kernel); !ok || major < minMajor || major == minMajor && minor < minMinor {
		refuse(reason.KernelTooOld, "kernel "+strconv.Quote(h.Kernel),
			fmt.Sprintf("nsbox needs Linux %d.%d for cgroup.kill and task limits per user namespace", minMajor, minMinor),
			"boot a newer kernel")
	}
	switch {
	case h.MaxUserNS < 0:
		refuse(reason.UsernsUnknown, "user.max_user_namespaces", "it cannot be read, so nothing shows that a user namespace may be made",
			"mount /proc with its sys directory, on a kernel built with CONFIG_USER_NS")
	case h.MaxUserNS == 0:
		refuse(reason.UsernsDisabled, "user.max_user_namespaces = 0", "no user namespace can be made",
			"sudo sysctl -w user.max_user_namespaces=10000, and keep it in /etc/sysctl.d")
	}
	if h.BootID == "" {
		refuse(reason.HostFactsUnreadable, "/proc/sys/kernel/random/boot_id", "without it nobody could tell later whether what a run left is of this boot",
			"run nsbox where /proc is mounted and readable")
	}
	plain := h.CapEff>>capSysAdmin&1 == 0
	if n := h.UnprivilegedUsernsClone; plain && n != nil && *n == 0 {
		refuse(reason.UsernsSysctl, "kernel.unprivileged_userns_clone = 0", "ordinary users may not make user namespaces",
			"sudo sysctl -w kernel.unprivileged_userns_clone=1, and keep it in /etc/sysctl.d")
	}
	if n := h.UnprivilegedUsernsClone; plain && n != nil && *n < 0 {
		refuse(reason.UsernsUnknown, "kernel.unprivileged_userns_clone", "it is there and cannot be read, so nothing shows that a user namespace may be made",
			"run nsbox where /proc/sys is readable")
	}
	if n := h.AppArmorRestrictUserns; plain && n != nil && *n != 0 && (h.AppArmorLabel == "" || h.AppArmorLabel == "unconfined") {
		refuse(reason.UsernsApparmor, "kernel.apparmor_restrict_unprivileged_userns = "+strconv.FormatInt(*n, 10),
			"AppArmor takes the capabilities from user namespaces of programs without a profile, and nsbox runs without one",
			"load an AppArmor profile that grants userns to "+h.SelfExe.Path)
	}
	if len(h.ProcMasked) > 0 {
		refuse(reason.ProcMasked, strings.Join(h.ProcMasked, ", "), "with parts of /proc mounted over, the kernel refuses a fresh proc to the box",
			"run nsbox outside of the surrounding container, or let that one show /proc unmasked")
	}
	if h.SelfExe.WorldReadable != Yes {
		refuse(reason.LauncherExeUnreadable, h.SelfExe.Path, "not everybody may read and execute it, so the kernel would hide the box's processes from their own launcher",
			"chmod a+rx "+h.SelfExe.Path)
	}
	if h.SelfExe.Static != Yes {
		refuse(reason.LauncherNotStatic, h.SelfExe.Path, "it is not shown to be statically linked, and inside the box there is no dynamic loader for it",
			"build it with make build")
	}
	return out
}

// LandlockRefusal says why Landlock cannot be used, or returns nil.
func (h *Host) LandlockRefusal() *reason.Error {
	if h.Landlock == Yes && h.LandlockABI > 0 {
		return nil
	}
	what, filter := "Landlock", ""
	if h.SeccompMode == 2 {
		filter = "; a seccomp filter from outside is in force and may be the one who answers"
	}
	switch h.LandlockErrno {
	case "ENOSYS":
		return reason.New(reason.LandlockNotBuilt, what, "the kernel does not know it (ENOSYS)"+filter, "boot a kernel built with CONFIG_SECURITY_LANDLOCK")
	case "EOPNOTSUPP":
		return reason.New(reason.LandlockDisabled, what, "the kernel has it but was started without it (EOPNOTSUPP)"+filter,
			"add landlock to the lsm= list of the kernel's command line and boot again")
	case "EPERM", "EACCES":
		return reason.New(reason.LandlockBlocked, what, "something around nsbox forbids it ("+h.LandlockErrno+")"+filter,
			"run nsbox outside of the surrounding sandbox, or allow the landlock_* system calls there")
	}
	return reason.New(reason.LandlockUnknown, what, "the kernel's answer was "+strconv.Quote(h.LandlockErrno)+filter,
		"report this answer with the output of uname -r")
}

// RlimitRefusal says why the limit, named as in RLimits, cannot be set to want,
// or returns nil. Unlimited as want is met by an unlimited hard limit only.
func (h *Host) RlimitRefusal(name string, want int64) *reason.Error {
	hard, known := h.RLimits[name]
	if known && (hard == Unlimited || want != Unlimited && want <= hard) {
		return nil
	}
	why := "the hard limit is not known"
	if known {
		why = fmt.Sprintf("the policy asks for %s, the inherited hard limit is %d", limitText(want), hard)
	}
	return reason.New(reason.RlimitTooLow, "rlimit "+name, why, "raise the hard limit of the session (limits.conf, LimitXXX= of the service), or lower it in the policy")
}

func limitText(n int64) string {
	if n == Unlimited {
		return "no limit"
	}
	return strconv.FormatInt(n, 10)
}

// ControllerRefusal says why a cgroup controller cannot be had in the caller's
// own group, or returns nil. For a group found elsewhere, ask its Controllers.
func (h *Host) ControllerRefusal(name string) *reason.Error {
	switch {
	case slices.Contains(h.CgroupV2.Controllers, name):
		return nil
	case slices.Contains(h.CgroupV2.V1Controllers, name):
		return reason.New(reason.ControllersBoundToV1, "cgroup controller "+name, "it is bound to a version 1 hierarchy on this host",
			"boot with systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=all where there is no systemd")
	case h.CgroupV2.Mount == "":
		return reason.New(reason.NoV2Cgroup, "cgroup controller "+name, "no cgroup version 2 hierarchy is mounted", noV2Next)
	}
	return reason.New(reason.ControllerMissing, "cgroup controller "+name,
		"it is not among those of "+h.CgroupV2.Dir+": "+strconv.Quote(strings.Join(h.CgroupV2.Controllers, " ")), delegateNext)
}
