package probe

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/outslot"
	"nsbox/launcher/reason"
)

// Survey looks at the host and at this process. It fails, with a *reason.Error,
// only if /proc does not show what nsbox must know about itself; everything
// else that is missing is a fact in the Host.
func Survey() (*Host, error) {
	h := &Host{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), RLimits: hardLimits()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		h.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	h.BootID = setting("/proc/sys/kernel/random/boot_id")

	if err := h.surveyProcess(); err != nil {
		return nil, err
	}
	h.surveyAccounts(h.accountFile)
	if err := h.surveyMounts(); err != nil {
		return nil, err
	}
	h.MaxUserNS = untold
	if n := settingInt("/proc/sys/user/max_user_namespaces"); n != nil {
		h.MaxUserNS = *n
	}
	h.UnprivilegedUsernsClone = settingInt("/proc/sys/kernel/unprivileged_userns_clone")
	h.AppArmorRestrictUserns = settingInt("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if h.AppArmorRestrictUserns != nil {
		h.AppArmorLabel = setting("/proc/self/attr/current")
	}
	h.Landlock, h.LandlockABI, h.LandlockErrno = landlock()
	if h.UID != 0 {
		h.UIDMapHelper = findHelper("newuidmap", capSetuid)
		h.GIDMapHelper = findHelper("newgidmap", capSetgid)
	}
	h.SelfExe = selfExe()
	return h, nil
}

func (h *Host) surveyProcess() error {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return unreadable("/proc/self/status", err)
	}
	st, err := parseStatus(string(text))
	if err != nil {
		return unreadable("/proc/self/status", err)
	}
	h.UID, h.RealUID, h.GID, h.RealGID = st.euid, st.ruid, st.egid, st.rgid
	h.CapEff, h.NoNewPrivs, h.SeccompMode = st.capEff, st.noNewPrivs, st.seccomp
	for _, id := range slices.Compact(slices.Sorted(slices.Values(append(st.groups, st.egid)))) {
		h.Groups = append(h.Groups, Group{ID: id})
	}
	for _, m := range []struct {
		file string
		to   *[]Extent
	}{{"/proc/self/uid_map", &h.SelfUIDMap}, {"/proc/self/gid_map", &h.SelfGIDMap}} {
		text, err := os.ReadFile(m.file)
		if err == nil {
			*m.to, err = parseIDMap(string(text))
		}
		if err != nil {
			return unreadable(m.file, err)
		}
	}
	return nil
}

// surveyAccounts reads the files of accounts, groups and ranges by their paths.
func (h *Host) surveyAccounts(read func(path string) string) {
	bad := (*problems)(&h.Problems)
	users := parsePasswd(read("/etc/passwd"))
	groups := parseGroup(read("/etc/group"))
	uids := parseSubIDs("/etc/subuid", read("/etc/subuid"), bad)
	gids := parseSubIDs("/etc/subgid", read("/etc/subgid"), bad)

	h.User = users[int64(h.RealUID)]
	for i := range h.Groups {
		h.Groups[i].Name = groups.name[int64(h.Groups[i].ID)]
	}
	h.PrivilegedGroups = privilegedNames(h.Groups, h.User, groups)

	var userIDs, groupIDs []int64
	for id := range users {
		userIDs = append(userIDs, id)
	}
	for id := range groups.name {
		groupIDs = append(groupIDs, id)
	}
	h.SubUID = usable("/etc/subuid", uids, h.User, int64(h.RealUID), userIDs, bad)
	h.SubGID = usable("/etc/subgid", gids, h.User, int64(h.RealUID), groupIDs, bad)
	both := append(userIDs, groupIDs...)
	h.DefaultFree = free(Range{defaultBase, defaultCount}, both, uids, gids)
	if h.UID != 0 && (len(h.SubUID) == 0 || len(h.SubGID) == 0) {
		h.FreeSubID = freeStart(both, uids, gids)
	}
}

// Accounts is what a survey by the user uid would say of accounts, groups and
// subordinate ids, and nothing else. With -1 it is that of nobody: FreeSubID is
// where useradd would put a new account's range.
func Accounts(uid int) *Host {
	h := &Host{UID: uid, RealUID: uid, GID: -1, RealGID: -1}
	h.surveyAccounts(h.accountFile)
	return h
}

func (h *Host) surveyMounts() error {
	const file = "/proc/self/mountinfo"
	f, err := os.Open(file)
	if err != nil {
		return unreadable(file, err)
	}
	defer f.Close()
	mounts, err := mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(m.Mountpoint, "/proc") && m.FSType != "proc" && m.FSType != "cgroup2" && !outslot.Is(m), false
	})
	if err != nil {
		return unreadable(file, err)
	}
	h.ProcMasked, h.OutMounts = procMasks(mounts), outslot.Of(mounts)

	self := setting("/proc/self/cgroup")
	h.CgroupV2.V1Controllers = v1Bound(self)
	// An error means "not mounted" or "not visible", which the empty fields say.
	loc, _ := cgroupv2.Locate(mounts, self)
	h.CgroupV2.Mount, h.CgroupV2.Self, h.CgroupV2.Dir = loc.Mount, loc.Self, loc.Dir
	if dir := loc.Dir; dir != "" {
		h.CgroupV2.Controllers = strings.Fields(setting(dir + "/cgroup.controllers"))
	}
	return nil
}

// accountFile reads a file of /etc. One that does not exist names nobody.
func (h *Host) accountFile(file string) string {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		(*problems)(&h.Problems).add("%v", err)
		h.Unread = append(h.Unread, file)
	}
	return string(text)
}

// setting reads a small kernel file without its last newline, or gives "".
func setting(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimRight(string(text), "\n\x00")
}

// settingInt is nil where the kernel has no such setting, and untold where it
// has one that cannot be read.
func settingInt(file string) *int64 {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || bad != nil {
		n = untold
	}
	return &n
}

// untold is what a setting counts as that cannot be read; no setting here has a
// negative value.
const untold = -1

func unreadable(file string, err error) *reason.Error {
	return reason.Wrap(reason.HostFactsUnreadable, file, "nsbox cannot learn its own ids, powers and mounts",
		"run nsbox where /proc is mounted and readable", err)
}

// limits are the limits that a box may set, by the names of Host.RLimits.
var limits = []struct {
	name  string
	which int
}{
	{"nofile", unix.RLIMIT_NOFILE}, {"fsize", unix.RLIMIT_FSIZE}, {"cpu", unix.RLIMIT_CPU}, {"core", unix.RLIMIT_CORE},
	{"stack", unix.RLIMIT_STACK}, {"as", unix.RLIMIT_AS}, {"nproc", unix.RLIMIT_NPROC}, {"memlock", unix.RLIMIT_MEMLOCK}, {"sigpending", unix.RLIMIT_SIGPENDING},
}

// hardLimits leaves out a limit that cannot be read; one that is missing counts as 0.
func hardLimits() map[string]int64 {
	out := make(map[string]int64, len(limits))
	for _, x := range limits {
		var l unix.Rlimit
		switch err := unix.Getrlimit(x.which, &l); {
		case err != nil:
		case l.Max == unix.RLIM_INFINITY:
			out[x.name] = Unlimited
		default:
			out[x.name] = int64(min(l.Max, 1<<63-1))
		}
	}
	return out
}

// landlock asks for the ABI version. The name of the errno is kept because the
// causes differ: not in the kernel, not started, or forbidden to us.
func landlock() (Answer, int, string) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return answer(int(abi) > 0), int(abi), ""
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return No, 0, unix.ErrnoName(errno)
	}
	return Unknown, 0, unix.ErrnoName(errno)
}
