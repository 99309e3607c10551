package launcher

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// stepReason is what a failing step of the set-up means to a person. The first
// row that matches names it; an empty errno list matches every errno.
type stepReason struct {
	step   string // name, or prefix ending in ':' or '-'
	errnos []unix.Errno
	id     reason.ID
	why    string
	next   string
}

const (
	apparmorNext     = "load an AppArmor profile that grants userns to nsbox, or see kernel.apparmor_restrict_unprivileged_userns"
	capabilitiesNext = "let the AppArmor profile that nsbox runs under grant it capability, mount and pivot_root; aa-status names the profile, the kernel log what it denied"
)

var stepReasons = []stepReason{
	{"clone", []unix.Errno{unix.ENOSPC}, reason.UsernsDisabled, "the number of namespaces allowed here is used up", "raise user.max_user_namespaces, or end other boxes"},
	{"clone", []unix.Errno{unix.EACCES}, reason.UsernsApparmor, "a security module refuses the user namespace", apparmorNext},
	{"clone", []unix.Errno{unix.EPERM}, reason.UsernsSysctl, "the kernel refuses the namespaces: a sysctl, an outer seccomp filter or a chroot forbids them", "check kernel.unprivileged_userns_clone, and run nsbox outside of surrounding containers and chroots"},
	{"clone", []unix.Errno{unix.EINVAL, unix.ENOSYS}, reason.KernelTooOld, "the kernel lacks a part of clone3", "nsbox needs Linux 5.14 or newer with all namespaces built in"},
	{"clone", []unix.Errno{unix.EAGAIN, unix.ENOMEM}, reason.SetupStep, "no process could be made", "raise the process limit (ulimit -u), or end other processes"},
	{"scope-capabilities", nil, reason.UsernsCapabilities, "the new user namespace gives no capabilities", capabilitiesNext},
	// The first steps that use one.
	{"bound-", []unix.Errno{unix.EPERM, unix.EACCES}, reason.UsernsCapabilities, "a security module denies the capabilities of the new user namespace", capabilitiesNext},
	{"private-mounts", []unix.Errno{unix.EPERM, unix.EACCES}, reason.UsernsCapabilities, "mounting is refused inside the new user namespace", capabilitiesNext},
	{"become-gid-0", nil, reason.UsernsCapabilities, "ids cannot be changed inside the new user namespace", capabilitiesNext},
	{"become-uid-0", nil, reason.UsernsCapabilities, "ids cannot be changed inside the new user namespace", capabilitiesNext},
	{"proc:", []unix.Errno{unix.EPERM, unix.EACCES}, reason.ProcMasked, "a fresh /proc is refused, as in a container that masks parts of its own", "run nsbox outside of the surrounding container, or let that one show /proc unmasked"},
	{"open:", []unix.Errno{unix.ENOENT}, reason.RootfsSourceChanged, "the source was there when the plan was made and is gone now", "run again when the package upgrade on this host is done"},
	{"init-exec", []unix.Errno{unix.EACCES}, reason.LauncherExeUnreadable, "nsbox's own binary may not be executed by the box's ids", "chmod a+rx the nsbox binary; it must not lie on a noexec mount"},
	{"landlock-ruleset", nil, reason.LandlockBlocked, "Landlock answered when it was asked and refuses now", "run nsbox outside of the surrounding sandbox"},
	{"pivot-root", []unix.Errno{unix.EINVAL}, reason.SetupStep, "the current root is no mount point, as in a chroot or an initramfs", "run nsbox from a root that is mounted"},
}

// boxFailure turns an error of Spawn into what a user is told. The step that
// failed first is the reported one.
func boxFailure(err error) *reason.Error {
	if e := reason.Of(err); e != nil {
		return e
	}
	var step *nsexec.StepError
	if errors.As(err, &step) {
		if capabilitiesDenied(step, apparmorLabel()) {
			return reason.Wrap(reason.UsernsCapabilities, "step "+step.Step, "the AppArmor profile that nsbox runs under denies the capabilities that come with a user namespace", capabilitiesNext, step)
		}
		for _, r := range stepReasons {
			if r.matches(step) {
				return reason.Wrap(r.id, "step "+step.Step, r.why, r.next, step)
			}
		}
		return reason.Wrap(reason.SetupStep, "step "+step.Step, "failed; what it is for: "+step.Why, "nothing was started; the kernel's answer says what is missing", step)
	}
	var m *nsexec.MapError
	if errors.As(err, &m) {
		return reason.Wrap(reason.IdMaps, "the box's id maps", "could not be written", "check /etc/subuid and /etc/subgid, and that newuidmap and newgidmap are setuid root", err)
	}
	if errors.Is(err, nsexec.ErrGone) {
		return reason.Wrap(reason.SetupGone, "the box", "was killed from outside before the program was started", "look for a memory killer or another process that kills", err)
	}
	return reason.Wrap(reason.SetupStep, "the box", "could not be made", "", err)
}

// capabilitiesDenied tells two answers apart that the kernel gives alike: EPERM
// from clone is a sysctl's or an outer filter's, unless a profile confines this
// process. One that denies the namespace itself answers EACCES, and one that
// denies capabilities is met here, since the other namespaces take one.
func capabilitiesDenied(step *nsexec.StepError, label string) bool {
	return step.Step == "clone" && step.Errno() == unix.EPERM && label != "" && label != "unconfined"
}

// apparmorLabel is the profile of this process, without its mode; empty where
// there is no AppArmor.
func apparmorLabel() string {
	data, err := os.ReadFile("/proc/self/attr/apparmor/current")
	if err != nil {
		return ""
	}
	label, _, _ := strings.Cut(strings.TrimSpace(strings.TrimRight(string(data), "\x00")), " (")
	return label
}

func (r stepReason) isPrefix() bool {
	return strings.HasSuffix(r.step, ":") || strings.HasSuffix(r.step, "-")
}

// surroundedFailure is boxFailure where something around nsbox may be the cause: a
// filter, which container engines load, answers clone3 as an old kernel or a
// sysctl would.
func surroundedFailure(h *probe.Host, err error) *reason.Error {
	var step *nsexec.StepError
	if h.SeccompMode == 2 && errors.As(err, &step) && step.Step == "clone" && (errors.Is(step, unix.EPERM) || errors.Is(step, unix.ENOSYS)) {
		return reason.Wrap(reason.OuterSeccomp, "step clone", "nsbox was started under a system-call filter (Seccomp: 2 in /proc/self/status), and new namespaces are refused", "run nsbox outside of the surrounding container, or give that one a filter that permits clone3 with CLONE_NEWUSER", step)
	}
	return boxFailure(err)
}

// onlyStays is ErrStays if err holds it: the finalizer must not take the box for gone.
func onlyStays(err error) error {
	if errors.Is(err, nsexec.ErrStays) {
		return nsexec.ErrStays
	}
	return nil
}

func (r stepReason) matches(s *nsexec.StepError) bool {
	if r.step != s.Step && !(r.isPrefix() && strings.HasPrefix(s.Step, r.step)) {
		return false
	}
	if r.errnos == nil {
		return true
	}
	for _, e := range r.errnos {
		if errors.Is(s, e) {
			return true
		}
	}
	return false
}

// execFailure is what a failed execve of the program means.
func execFailure(path string, s *nsexec.StepError) *reason.Error {
	switch s.Errno() {
	case unix.ENOENT:
		return reason.Wrap(reason.LoaderMissing, path, "it or its ELF loader is not in the box", "check the program with ldd on the host", s)
	case unix.EACCES, unix.EPERM, unix.ENOEXEC:
		return reason.Wrap(reason.ProgramNotExecutable, path, "cannot be executed in the box", "check its mode and format", s)
	}
	return reason.Wrap(reason.ProgramNotExecutable, path, "could not be executed", "the kernel's answer says why", s)
}
