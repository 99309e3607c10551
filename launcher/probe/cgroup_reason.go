package probe

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"nsbox/cgroupv2"
	"nsbox/launcher/reason"
)

// probePrefix begins the name of a group that cgroupv2 makes and removes to see
// whether it can.
const probePrefix = "nsbox-probe-"

const (
	noV2Next     = "sudo mount -t cgroup2 cgroup2 on a directory, or boot with systemd.unified_cgroup_hierarchy=1"
	v1Next       = "boot with systemd.unified_cgroup_hierarchy=1, or cgroup_no_v1=all where there is no systemd"
	delegateNext = "start nsbox in a delegated group: systemd-run --user --scope -p Delegate=yes -- nsbox …"
)

// cgroupReasons turns what package cgroupv2 found into what a user is told.
var cgroupReasons = []struct {
	kind      cgroupv2.Kind
	id        reason.ID
	why, next string
	hint      func(*cgroupv2.Error) string // a next step made of the error's data; nil or "": next
}{
	{cgroupv2.NoV2Mount, reason.NoV2Cgroup, "no cgroup version 2 hierarchy is mounted", noV2Next, nil},
	{cgroupv2.NotDelegated, reason.CgroupNotDelegated, "this cgroup is not yours to create groups in, or processes may not be moved there", delegateNext, nil},
	{cgroupv2.ReadOnly, reason.CgroupReadonly, "the cgroup file system is mounted read-only", "mount it read-write, or start the surrounding container with a writable cgroup of its own", nil},
	{cgroupv2.Busy, reason.CgroupBusy, "processes or groups are left in it", "look at its cgroup.procs; for a new attempt, start nsbox in a delegated group of its own", nil},
	{cgroupv2.Denied, reason.CgroupDenied, "the kernel forbids it", "check the owner and the mode of the directory, and the rules of a security module", nil},
	{cgroupv2.Threaded, reason.CgroupThreaded, "the subtree is threaded and cannot hold whole processes", "name a directory whose cgroup.type is domain", nil},
	{cgroupv2.SystemdOwnsRoot, reason.CgroupSystemdOwnsRoot, "systemd manages the top of the hierarchy", "start nsbox in a delegated group: systemd-run --scope -p Delegate=yes -- nsbox …", nil},
	{cgroupv2.NotACgroup, reason.NotACgroup, "it is not a directory of a cgroup version 2 file system", "name a directory below the mount point of cgroup2; findmnt -t cgroup2 shows it", nil},
	{cgroupv2.Escapes, reason.CgroupEscapes, "it leads out of the tree that nsbox may use", "name an absolute path without symbolic links, inside the own cgroup namespace", nil},
	{cgroupv2.Exists, reason.CgroupExists, "a group of this name is already there", "run nsbox again: each attempt has a name of its own", nil},
	{cgroupv2.Full, reason.CgroupFull, "the subtree may not hold another group", "raise cgroup.max.descendants or cgroup.max.depth, or remove groups that are left over", nil},
	{cgroupv2.Gone, reason.CgroupGone, "the group or the process no longer exists", "look for what removed it; only nsbox may write in its groups", nil},
	{cgroupv2.Boundary, reason.CgroupBoundary, "groups can be made below, but the kernel lets no process of yours cross over from where nsbox was started",
		delegateNext, nil},
	{cgroupv2.InternalProcesses, reason.CgroupInternalProcesses, "processes live in it, and while they do the kernel limits no group inside",
		"move them to a leaf of the directory, or " + delegateNext, emptyIt},
	{cgroupv2.ControllerOnV1, reason.ControllersBoundToV1, "it is bound to a version 1 hierarchy on this host", v1Next, nil},
	{cgroupv2.ControllerMissing, reason.ControllerMissing, "it is not handed down to this directory", "enable it in cgroup.subtree_control of every directory above", handDown},
	{cgroupv2.LimitNotApplied, reason.LimitNotApplied, "the kernel does not show the limit that was written", "report the message with the output of uname -r; the limit cannot be trusted here", nil},
	{cgroupv2.SwapUncounted, reason.SwapUncounted, "swap is on, and this kernel does not count it for a cgroup", "sudo swapoff -a, or boot without swapaccount=0 and cgroup.memory=noswap", nil},
	{cgroupv2.BadLimit, reason.LimitImpossible, "the kernel takes no such value", "change the limit in the policy", nil},
	{cgroupv2.NoManager, reason.NoSystemdManager, "no systemd manager of yours answers, which sudo -u, su, cron and containers have in common",
		"sudo loginctl enable-linger for this user, or log in as the user (ssh, machinectl shell); in a container name a delegated directory with --cgroup", nil},
	{cgroupv2.ScopeRefused, reason.ScopeRefused, "systemd gave nsbox no delegated scope", delegateNext, nil},
	{cgroupv2.Failed, reason.CgroupFailed, "the kernel refuses it", "report the message; it has no known cause", nil},
}

// CgroupReason turns an error of package cgroupv2 into a reason, nil into nil.
// The original stays reachable by errors.As.
func CgroupReason(err error) *reason.Error {
	if err == nil {
		return nil
	}
	e := &cgroupv2.Error{Kind: cgroupv2.Failed, Path: "cgroup"}
	errors.As(err, &e)
	for _, r := range cgroupReasons {
		if r.kind != e.Kind {
			continue
		}
		next := r.next
		if r.hint != nil {
			if made := r.hint(e); made != "" {
				next = made
			}
		}
		what := e.Path
		if strings.HasPrefix(path.Base(what), probePrefix) {
			what = path.Dir(what) // the group was only tried; nobody knows its name
		}
		if e.Controller != "" {
			what = "cgroup controller " + e.Controller
		}
		return reason.Wrap(r.id, what, r.why, next, answered{e, err})
	}
	return reason.Wrap(reason.CgroupFailed, e.Path, "the kernel refuses it", "report the message; it has no known cause", err)
}

// answered shows of a cgroup error what a reason's own words do not: what was
// tried and the kernel's answer, without kind and path.
type answered struct {
	e   *cgroupv2.Error
	all error
}

func (a answered) Unwrap() error { return a.all }

func (a answered) Error() string {
	s := strings.TrimSuffix(a.e.Op, " of")
	if len(a.e.PIDs) > 0 {
		s += " " + fmt.Sprint(a.e.PIDs)
	}
	if a.e.Wanted != "" {
		s += fmt.Sprintf(" wanted %q, shown %q", a.e.Wanted, a.e.Shown)
	}
	if a.e.Err != nil {
		s += ": " + a.e.Err.Error()
	}
	return s
}

// emptyIt is the command that makes room for controllers. A process that the
// caller's pid namespace does not show cannot be moved by the caller.
func emptyIt(e *cgroupv2.Error) string {
	var pids []string
	for _, n := range e.PIDs {
		if n <= 0 {
			return ""
		}
		pids = append(pids, strconv.Itoa(n))
	}
	if len(pids) == 0 || len(pids) > 16 {
		return ""
	}
	return fmt.Sprintf("mkdir -p %[1]s/shell && for p in %[2]s; do echo $p > %[1]s/shell/cgroup.procs; done, or %[3]s",
		e.Path, strings.Join(pids, " "), delegateNext)
}

// handDown names systemd's own setting where the directory is a user's.
func handDown(e *cgroupv2.Error) string {
	if !strings.Contains(e.Path, "/user@") {
		return ""
	}
	return "sudo systemctl edit user@.service with [Service] Delegate=cpu memory pids, then log in again"
}
