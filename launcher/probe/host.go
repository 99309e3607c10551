package probe

import "nsbox/launcher/outslot"

// Unlimited stands for RLIM_INFINITY in Host.RLimits.
const Unlimited int64 = -1

// Host is what Survey found. Every field is a fact about this process on this
// machine at one moment.
type Host struct {
	Kernel string `json:"kernel"`  // release, as uname gives it
	BootID string `json:"boot_id"` // /proc/sys/kernel/random/boot_id
	Arch   string `json:"arch"`    // as Go names it
	CPUs   int    `json:"cpus"`    // in the affinity mask of this process

	UID              int      `json:"uid"` // effective
	GID              int      `json:"gid"`
	RealUID          int      `json:"real_uid"`
	RealGID          int      `json:"real_gid"`
	User             string   `json:"user"` // name of the real uid, or empty
	Groups           []Group  `json:"groups"`
	PrivilegedGroups []string `json:"privileged_groups"` // by kernel id or by /etc/group; see powers.go
	CapEff           uint64   `json:"cap_eff"`           // effective capabilities, a bit per number
	NoNewPrivs       bool     `json:"no_new_privs"`
	SeccompMode      int      `json:"seccomp_mode"` // 2: a filter from outside is in force

	SubUID      []Range  `json:"sub_uid"` // usable ranges of this user, largest first
	SubGID      []Range  `json:"sub_gid"`
	FreeSubID   int64    `json:"free_sub_id"` // first start at which 65536 ids belong to nobody; 0: none
	DefaultFree bool     `json:"default_free"`
	Unread      []string `json:"unread"`   // files of accounts that are there and cannot be read
	Problems    []string `json:"problems"` // lines and ranges that were left out, and why

	UIDMapHelper Helper   `json:"uid_map_helper"`
	GIDMapHelper Helper   `json:"gid_map_helper"`
	SelfUIDMap   []Extent `json:"self_uid_map"`
	SelfGIDMap   []Extent `json:"self_gid_map"`

	MaxUserNS               int64  `json:"max_user_ns"`               // -1: could not be read
	UnprivilegedUsernsClone *int64 `json:"unprivileged_userns_clone"` // nil: this kernel has no such setting
	AppArmorRestrictUserns  *int64 `json:"apparmor_restrict_userns"`
	AppArmorLabel           string `json:"apparmor_label"` // of this process; empty if not confined by AppArmor or unreadable

	Landlock      Answer   `json:"landlock"`
	LandlockABI   int      `json:"landlock_abi"`
	LandlockErrno string   `json:"landlock_errno"` // e.g. "ENOSYS"; empty if there is an ABI
	ProcMasked    []string `json:"proc_masked"`    // mounts because of which a fresh proc would be refused
	CgroupV2      CgroupV2 `json:"cgroup_v2"`

	OutMounts []outslot.Mount `json:"out_mounts,omitempty"` // provisioned slots of /out, whoever's they are

	RLimits map[string]int64 `json:"rlimits"` // hard limits by name: nofile, fsize, cpu, core, stack, as, nproc, memlock, sigpending
	SelfExe SelfExe          `json:"self_exe"`
}

// Group is one group of the process. Name is empty if /etc/group has none.
type Group struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

// Range is Count consecutive ids.
type Range struct {
	Start int64 `json:"start"`
	Count int64 `json:"count"`
}

func (r Range) end() int64 { return r.Start + r.Count } // one past the last

func (r Range) overlaps(o Range) bool { return r.Start < o.end() && o.Start < r.end() }

// Extent is one line of a uid_map or gid_map.
type Extent struct {
	Inside  int64 `json:"inside"`
	Outside int64 `json:"outside"`
	Count   int64 `json:"count"`
}

// Helper is a program that writes id maps on behalf of an ordinary user.
type Helper struct {
	Path string `json:"path"`
	OK   bool   `json:"ok"`
	Why  string `json:"why"` // what is wrong with it; empty if OK
}

// CgroupV2 is where the version 2 hierarchy is; whether groups can be made there
// is for cgroupv2.Find to try.
type CgroupV2 struct {
	Mount         string   `json:"mount"` // empty: not mounted
	Self          string   `json:"self"`  // own group, as the kernel names it
	Dir           string   `json:"dir"`   // its directory; empty: not visible
	Controllers   []string `json:"controllers"`
	V1Controllers []string `json:"v1_controllers"` // of memory, pids, cpu: those bound to version 1
}

// SelfExe is the running binary.
type SelfExe struct {
	Path          string `json:"path"`
	WorldReadable Answer `json:"world_readable"` // readable and executable by everybody
	Static        Answer `json:"static"`
}
