package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
)

// DoctorStage is the name under which nsbox starts itself for one trial.
const DoctorStage = "nsbox-doctor"

// trial is one thing to try in a throw-away child, which is started as uid 0 of
// a user namespace of its own and inside the namespaces of flags; those of the
// area kernel need none.
type trial struct {
	area, name string
	flags      uintptr
	serves     string
	how        string
	next       string // if the kernel refuses
	try        func(parents string) (probe.Answer, string)
}

const (
	usernsNext    = "see the rows limit, sysctl and apparmor; inside a container: let that one allow user namespaces"
	containerNext = "run nsbox outside of the surrounding container, or let that one allow this namespace"
)

// trials in the order in which they are shown. A function, as nothing is built
// before main.
func trials() []trial {
	const box = everyBox
	return []trial{
		{"namespaces", "user", 0, box, "clone with CLONE_NEWUSER, id maps written, capget", usernsNext, tryCapabilities},
		{"namespaces", "mount", unix.CLONE_NEWNS, box, "clone with CLONE_NEWNS, every mount made private", containerNext, tryPrivateMounts},
		{"namespaces", "pid", unix.CLONE_NEWPID, box, "clone with CLONE_NEWPID, getpid", containerNext, tryPID},
		{"namespaces", "net", unix.CLONE_NEWNET, box, "clone with CLONE_NEWNET, /proc/self/net/dev", containerNext, tryNet},
		{"namespaces", "ipc", unix.CLONE_NEWIPC, box, "clone with CLONE_NEWIPC, /proc/self/ns/ipc compared", containerNext, tryOther("ipc")},
		{"namespaces", "uts", unix.CLONE_NEWUTS, box, "clone with CLONE_NEWUTS, sethostname", containerNext, tryHostname},
		{"namespaces", "cgroup", unix.CLONE_NEWCGROUP, box, "clone with CLONE_NEWCGROUP, /proc/self/ns/cgroup compared", containerNext, tryOther("cgroup")},
		{"namespaces", "nested-refused", 0, box, "user.max_user_namespaces set to 0 inside, then clone with CLONE_NEWUSER", "boot a kernel of 5.14 or newer", tryNested},
		{"mounts", "tmpfs", unix.CLONE_NEWNS, box, "a tmpfs of 64 KiB and 8 inodes was mounted and filled both ways", "run nsbox outside of the surrounding container", tryTmpfs},
		{"mounts", "proc", unix.CLONE_NEWNS | unix.CLONE_NEWPID, box, "a fresh proc was mounted and showed the child as pid 1", "run nsbox outside of the surrounding container, or let that one show /proc unmasked", tryProc},
		{"mounts", "pivot-root", unix.CLONE_NEWNS, box, "pivot_root to a tmpfs", "run nsbox from a root that is mounted, not from a chroot or an initramfs", tryPivot},
		{"kernel", "pidfd", 0, box, "pidfd_open of the own process, pidfd_send_signal 0", "boot a kernel of 5.14 or newer", tryPidfd},
		{"kernel", "close-range", 0, box, "close_range of no descriptor", "boot a kernel of 5.14 or newer", tryCloseRange},
	}
}

// trialWithin bounds one child.
const trialWithin = 10 * time.Second

// childFindings runs every trial as a re-exec of this binary.
func childFindings(ctx context.Context, h *probe.Host, id probe.Identity) []Finding {
	var out []Finding
	if len(os.Args) > 0 && os.Args[0] == DoctorStage {
		return nil // a program that does not look at its name would start itself for ever
	}
	for _, t := range trials() {
		f := Finding{Area: t.area, Name: t.name, Serves: t.serves, How: t.how}
		f.Answer, f.Shown = t.run(ctx, h, id)
		if f.Answer != probe.Yes {
			f.Next = t.next
		}
		out = append(out, f)
	}
	return out
}

// verdict is what a child says about its trial.
type verdict struct {
	Answer string `json:"answer"`
	Shown  string `json:"shown"`
}

func (t trial) run(ctx context.Context, h *probe.Host, id probe.Identity) (probe.Answer, string) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	uid, gid := h.UID, h.GID
	switch {
	case t.area == "kernel": // asks the kernel alone, wherever it is asked
	case h.UID == 0:
		// As in a box, host root is not mapped, not even for a moment. The last slot
		// is the one that an attempt would take last.
		slot, err := id.Map(id.Slots() - 1)
		if err != nil {
			return probe.Unknown, "root has no ids to give away"
		}
		uid, gid = int(slot.Root.UID), int(slot.Root.GID)
		attr.Credential = &syscall.Credential{NoSetGroups: true}
		fallthrough
	default:
		attr.Cloneflags = unix.CLONE_NEWUSER | t.flags
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	ctx, cancel := context.WithTimeout(ctx, trialWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	parents, _ := os.Readlink("/proc/self/ns/" + t.name) // only some trials are named after one
	cmd.Args, cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{DoctorStage, t.name, parents}, []string{}, "/", attr
	cmd.WaitDelay = time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return probe.Unknown, "no answer within " + trialWithin.String()
	case err != nil && cmd.ProcessState == nil:
		return refused(err), "the child could not be started: " + err.Error()
	case err != nil:
		return probe.Unknown, strings.TrimSpace(fmt.Sprintf("the child ended without an answer: %v %.200s", err, errs.String()))
	}
	var v verdict
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		return probe.Unknown, "the child's answer cannot be read"
	}
	switch v.Answer {
	case "yes":
		return probe.Yes, v.Shown
	case "no":
		return probe.No, v.Shown
	}
	return probe.Unknown, v.Shown
}

// refused tells a kernel that says no from a trial that could not be made, as
// when processes or memory have run out.
func refused(err error) probe.Answer {
	for _, no := range []unix.Errno{unix.EPERM, unix.EACCES, unix.EINVAL, unix.ENOSYS, unix.ENOSPC, unix.EUSERS, unix.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return probe.No
		}
	}
	return probe.Unknown
}

// RunDoctorTrial is the child's main: it tries what args names and says what came
// of it.
func RunDoctorTrial(args []string) int {
	if len(args) != 3 {
		return 2
	}
	for _, t := range trials() {
		if t.name != args[1] {
			continue
		}
		a, shown := t.try(args[2])
		data, err := json.Marshal(verdict{a.String(), shown})
		if err == nil {
			_, err = syscall.Write(1, data)
		}
		if err != nil {
			return 1
		}
		return 0
	}
	return 2
}

// said is the answer to a trial whose only question is whether the kernel lets it.
func said(err error, shown string) (probe.Answer, string) {
	if err != nil {
		return refused(err), err.Error()
	}
	return probe.Yes, shown
}

func step(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// atRoot is the directory a trial mounts over, in its own mount namespace.
const atRoot = stagingPoint

func tryCapabilities(string) (probe.Answer, string) {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return probe.Unknown, err.Error()
	}
	st := parseStatus(data)
	eff := st.field("CapEff")
	switch {
	case eff == absent:
		return probe.Unknown, "CapEff is not shown"
	case strings.Trim(eff, "0") == "":
		return probe.No, "a user namespace is made, but it gives no capabilities: a security module takes them"
	}
	// A full set on paper is not enough: AppArmor lets the set stand and refuses its use.
	if err := unix.Setresgid(0, 0, 0); err != nil {
		return probe.No, "setresgid inside: " + err.Error()
	}
	return probe.Yes, "capabilities " + eff
}

func tryPrivateMounts(string) (probe.Answer, string) {
	return said(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), "mount lets every mount be made private")
}

func tryPID(string) (probe.Answer, string) {
	if n := os.Getpid(); n != 1 {
		return probe.No, fmt.Sprintf("the child's pid is %d", n)
	}
	return probe.Yes, "the child is pid 1"
}

func tryNet(string) (probe.Answer, string) {
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return probe.Unknown, err.Error()
	}
	if got := strings.Join(parseInterfaces(data), " "); got != "lo" {
		return probe.No, "interfaces: " + got
	}
	return probe.Yes, "interfaces: lo"
}

// tryOther compares a namespace with the one of the process that asked, which
// hands in its own link: the child, in another user namespace, could not read it.
func tryOther(kind string) func(string) (probe.Answer, string) {
	return func(parents string) (probe.Answer, string) {
		own, err := os.Readlink("/proc/self/ns/" + kind)
		switch {
		case err != nil:
			return probe.Unknown, err.Error()
		case parents == "":
			return probe.Unknown, "the launcher's own link could not be read"
		case own == parents:
			return probe.No, "the child is in the launcher's, " + own
		}
		return probe.Yes, own + ", the launcher's is " + parents
	}
}

func tryHostname(string) (probe.Answer, string) {
	return said(unix.Sethostname([]byte(hostname)), "sethostname inside")
}

func tryNested(string) (probe.Answer, string) {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return refused(err), err.Error()
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = []string{DoctorStage, "close-range", ""}, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	switch err := cmd.Run(); {
	case errors.Is(err, unix.ENOSPC):
		return probe.Yes, "refused with ENOSPC"
	case err == nil:
		return probe.No, "a second user namespace was made"
	default:
		return probe.Unknown, "refused, but not by the limit: " + err.Error()
	}
}

func tryTmpfs(string) (probe.Answer, string) {
	err := step("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err == nil {
		err = step("mount tmpfs", unix.Mount("tmpfs", atRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=64k,nr_inodes=8,mode=0700"))
	}
	if err != nil {
		return refused(err), err.Error()
	}
	err = os.WriteFile(atRoot+"/control", make([]byte, 32<<10), 0o600)
	if err != nil {
		return probe.Unknown, "the control file was not written: " + err.Error()
	}
	if err := os.WriteFile(atRoot+"/large", make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		return probe.No, fmt.Sprintf("96 KiB in 64 KiB gave %v", err)
	}
	for i := range 8 {
		if err = os.Mkdir(fmt.Sprintf("%s/d%d", atRoot, i), 0o700); err != nil {
			break
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		return probe.No, fmt.Sprintf("11 entries in 8 inodes gave %v", err)
	}
	return probe.Yes, "both limits answered ENOSPC"
}

func tryProc(string) (probe.Answer, string) {
	err := step("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err == nil {
		err = step("mount proc", unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=invisible"))
	}
	if err != nil {
		return refused(err), err.Error()
	}
	self, err := os.Readlink("/proc/self")
	if err != nil || self != "1" {
		return probe.No, fmt.Sprintf("/proc/self leads to %q, %v", self, err)
	}
	return probe.Yes, "/proc/self leads to 1"
}

func tryPivot(string) (probe.Answer, string) {
	err := step("private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err == nil {
		err = step("mount tmpfs", unix.Mount("tmpfs", atRoot, "tmpfs", 0, "size=64k"))
	}
	if err == nil {
		err = step("chdir", unix.Chdir(atRoot))
	}
	if err == nil {
		err = step("pivot_root", unix.PivotRoot(".", "."))
	}
	if err == nil {
		err = step("detach", unix.Unmount(".", unix.MNT_DETACH))
	}
	if err != nil {
		return refused(err), err.Error()
	}
	if names, err := os.ReadDir("/"); err != nil || len(names) != 0 {
		return probe.No, fmt.Sprintf("the new root holds %d entries, %v", len(names), err)
	}
	return probe.Yes, "the new root is empty"
}

func tryPidfd(string) (probe.Answer, string) {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err == nil {
		err = unix.PidfdSendSignal(fd, 0, nil, 0)
	}
	return said(err, "both")
}

func tryCloseRange(string) (probe.Answer, string) {
	return said(unix.CloseRange(1<<20, 1<<20, 0), "close_range")
}
