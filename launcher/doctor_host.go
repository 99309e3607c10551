package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

func itoa(n int) string { return strconv.Itoa(n) }

// hostFindings are the rows that the survey answers. Each refusal of
// probe.Check is asked under the name of what it is about, so that a finding is
// a no exactly if exec would refuse for it. It is pure.
func hostFindings(h *probe.Host) []Finding {
	stands := probe.Check(h)
	row := func(area, name, serves, how, shown string, ids ...reason.ID) Finding {
		f := yesFinding(area, name, serves, how, shown)
		for _, e := range stands {
			if slices.Contains(ids, e.ID) {
				f.Answer, f.Shown, f.ID, f.Next = probe.No, e.Error(), e.ID, e.Next
				if e.ID == reason.UsernsUnknown {
					f.Answer = probe.Unknown
				}
			}
		}
		return f
	}
	setting := func(v *int64) string {
		if v == nil {
			return "this kernel has no such setting"
		}
		return strconv.FormatInt(*v, 10)
	}
	out := []Finding{
		row("kernel", "release", everyBox, "uname", h.Kernel, reason.KernelTooOld),
		row("namespaces", "limit", everyBox, "user.max_user_namespaces was read", strconv.FormatInt(h.MaxUserNS, 10), reason.UsernsDisabled, reason.UsernsUnknown),
		row("namespaces", "sysctl", everyBox, "kernel.unprivileged_userns_clone was read", setting(h.UnprivilegedUsernsClone), reason.UsernsSysctl),
		row("namespaces", "apparmor", everyBox, "kernel.apparmor_restrict_unprivileged_userns and the own label were read",
			strings.TrimSuffix(setting(h.AppArmorRestrictUserns)+", label "+h.AppArmorLabel, ", label "), reason.UsernsApparmor),
		row("mounts", "proc-unmasked", everyBox, "/proc/self/mountinfo was read", "nothing is mounted over parts of /proc", reason.ProcMasked),
		row("launcher", "binary-readable", everyBox, "the mode of /proc/self/exe", h.SelfExe.Path, reason.LauncherExeUnreadable),
		row("launcher", "binary-static", everyBox, "the program headers of /proc/self/exe", h.SelfExe.Path, reason.LauncherNotStatic),
		landlockFinding(h),
	}
	return append(out, launcherFindings(h)...)
}

// landlockLacks says what each ABI from 1 on cannot hold, landlock(7). The box
// uses what is there; more than the newest listed is not used yet.
var landlockLacks = []string{
	"no rule for moving files between directories (denied), truncate, TCP, ioctl of devices, abstract sockets, signals",
	"no rule for truncate, TCP, ioctl of devices, abstract sockets, signals",
	"no rule for TCP, ioctl of devices, abstract sockets, signals",
	"no rule for ioctl of devices, abstract sockets, signals",
	"no rule for abstract sockets, signals",
	"nothing that nsbox uses",
}

func landlockFinding(h *probe.Host) Finding {
	f := Finding{Area: "landlock", Name: "abi", Serves: "landlock", How: "landlock_create_ruleset was asked for its version"}
	if e := h.LandlockRefusal(); e != nil {
		f.Answer, f.Shown, f.ID, f.Next = probe.No, e.Error(), e.ID, e.Next
		if h.Landlock == probe.Unknown {
			f.Answer = probe.Unknown
		}
		return f
	}
	f.Answer = probe.Yes
	f.Shown = fmt.Sprintf("ABI %d lacks %s", h.LandlockABI, landlockLacks[min(max(h.LandlockABI, 1), len(landlockLacks))-1])
	return f
}

// launcherFindings tell what this process brings along.
func launcherFindings(h *probe.Host) []Finding {
	who := Finding{Area: "launcher", Name: "account", Serves: "launcher_identity", How: "/proc/self/status and /etc/group were read", Answer: probe.Yes,
		Shown: fmt.Sprintf("uid %d without further rights", h.UID)}
	if powers := h.Powers(); len(powers) > 0 {
		who.Answer, who.Shown, who.ID = probe.No, strings.Join(powers, "; "), reason.DegradedNotAllowed
		who.Next = "run nsbox as a dedicated user without these: sudo useradd --create-home --shell /usr/sbin/nologin nsbox-run"
	}
	nnp := Finding{Area: "launcher", Name: "no-new-privs", Serves: everyBox, How: "/proc/self/status was read", Answer: probe.Yes, Shown: "not set"}
	if h.NoNewPrivs {
		nnp.Shown = "set; root needs no set-uid helper"
		if h.UID != 0 {
			nnp.Answer, nnp.ID, nnp.Shown = probe.No, reason.NoNewPrivsSet, "set, so newuidmap and newgidmap have no power"
			nnp.Next = "start nsbox from a shell or service without it (systemd: NoNewPrivileges=no)"
		}
	}
	outer := Finding{Area: "launcher", Name: "outer-seccomp", Serves: "information", How: "/proc/self/status was read", Answer: probe.Yes, Shown: "no filter around nsbox"}
	if h.SeccompMode != 0 {
		outer.Answer, outer.Shown = probe.No, fmt.Sprintf("mode %d: a filter from outside is in force and may refuse what a box needs", h.SeccompMode)
		outer.Next = "run nsbox outside of the surrounding container if another row says no"
	}
	groups := Finding{Area: "launcher", Name: "groups", Serves: "information", How: "/proc/self/status and /etc/group were read", Answer: probe.Yes}
	var names []string
	for _, g := range h.Groups {
		names = append(names, strings.TrimSuffix(itoa(g.ID)+" "+g.Name, " "))
	}
	groups.Shown = strings.Join(names, ", ")
	return []Finding{who, nnp, outer, groups}
}

// identityFindings are the ranges, the helpers, and what was chosen of them.
func identityFindings(h *probe.Host, id probe.Identity, err error) []Finding {
	var out []Finding
	if h.UID != 0 {
		for _, x := range []struct {
			name string
			h    probe.Helper
		}{{"newuidmap", h.UIDMapHelper}, {"newgidmap", h.GIDMapHelper}} {
			f := Finding{Area: "ids", Name: x.name, Serves: everyBox, How: "owner, mode, mount and capabilities of the file", Answer: probe.Yes, Shown: x.h.Path}
			if !x.h.OK {
				f.Answer, f.ID, f.Shown = probe.No, reason.IdmapHelperMissing, x.h.Path+": "+x.h.Why
				f.Next = "sudo apt install uidmap (elsewhere the package is shadow-utils or shadow)"
			}
			out = append(out, f)
		}
	}
	for _, p := range h.Problems {
		out = append(out, Finding{Area: "ids", Name: "left-out", Serves: "information", How: "the account files were read", Answer: probe.No, Shown: p, Next: "correct the line"})
	}
	const how = "/etc/subuid, /etc/subgid and the own id maps were read"
	if err != nil {
		f := failedFinding("ids", "range", everyBox, how, err)
		if _, single := probe.ChooseSingle(h, err); single == nil {
			f.Next += "; or, weaker, run under the own id alone: --allow-degraded " + policy.DimIdentity
		}
		return append(out, f)
	}
	return append(out, yesFinding("ids", "range", everyBox, how,
		fmt.Sprintf("%s: uids %d:%d, gids %d:%d of %s, %d boxes at once", id.Kind, id.UID.Start, id.UID.Count, id.GID.Start, id.GID.Count, id.Source, id.Slots())))
}
