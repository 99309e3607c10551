package probe

import (
	"errors"

	"nsbox/cgroupv2"
	"nsbox/launcher/reason"
)

const (
	noV2Next     = "sudo mount -t cgroup2 cgroup2 on a directory, or boot with systemd.unified_cgroup_hierarchy=1"
	delegateNext = "start nsbox in a delegated group: systemd-run --user --scope -p Delegate=yes -- nsbox …"
)

// cgroupReasons turns what package cgroupv2 found into what a user is told.
var cgroupReasons = []struct {
	kind      cgroupv2.Kind
	id        reason.ID
	why, next string
}{
	{cgroupv2.NoV2Mount, reason.NoV2Cgroup, "no cgroup version 2 hierarchy is mounted", noV2Next},
	{cgroupv2.NotDelegated, reason.CgroupNotDelegated, "this cgroup is not yours to create groups in, or processes may not be moved there", delegateNext},
	{cgroupv2.ReadOnly, reason.CgroupReadonly, "the cgroup file system is mounted read-only", "mount it read-write, or start the surrounding container with a writable cgroup of its own"},
	{cgroupv2.Busy, reason.CgroupBusy, "processes or groups are left in it", "look at its cgroup.procs; for a new attempt, start nsbox in a delegated group of its own"},
	{cgroupv2.Denied, reason.CgroupDenied, "the kernel forbids it", "check the owner and the mode of the directory, and the rules of a security module"},
	{cgroupv2.Threaded, reason.CgroupThreaded, "the subtree is threaded and cannot hold whole processes", "name a directory whose cgroup.type is domain"},
	{cgroupv2.SystemdOwnsRoot, reason.CgroupSystemdOwnsRoot, "systemd manages the top of the hierarchy", "start nsbox in a delegated group: systemd-run --scope -p Delegate=yes -- nsbox …"},
	{cgroupv2.NotACgroup, reason.NotACgroup, "it is not a directory of a cgroup version 2 file system", "name a directory below the mount point of cgroup2; findmnt -t cgroup2 shows it"},
	{cgroupv2.Escapes, reason.CgroupEscapes, "it leads out of the tree that nsbox may use", "name an absolute path without symbolic links, inside the own cgroup namespace"},
	{cgroupv2.Exists, reason.CgroupExists, "a group of this name is already there", "run nsbox again: each attempt has a name of its own"},
	{cgroupv2.Full, reason.CgroupFull, "the subtree may not hold another group", "raise cgroup.max.descendants or cgroup.max.depth, or remove groups that are left over"},
	{cgroupv2.Gone, reason.CgroupGone, "the group or the process no longer exists", "look for what removed it; only nsbox may write in its groups"},
	{cgroupv2.Failed, reason.CgroupFailed, "the kernel refuses it", "report the message; it has no known cause"},
}

// CgroupReason turns an error of package cgroupv2 into a reason, nil into nil.
// The original stays reachable by errors.As.
func CgroupReason(err error) *reason.Error {
	if err == nil {
		return nil
	}
	kind, what := cgroupv2.Failed, "cgroup"
	var e *cgroupv2.Error
	if errors.As(err, &e) {
		kind, what = e.Kind, e.Path
	}
	for _, r := range cgroupReasons {
		if r.kind == kind {
			return reason.Wrap(r.id, what, r.why, r.next, err)
		}
	}
	return reason.Wrap(reason.CgroupFailed, what, "the kernel refuses it", "report the message; it has no known cause", err)
}
