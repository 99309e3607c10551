package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"nsbox/launcher/outslot"
	"nsbox/launcher/probe"
)

// host is what the table depends on, looked up once. Checks look anew.
type host struct {
	ids      probe.Range // that the account has or is to get
	boot     string
	apparmor bool
	abi4     string // the file that lets a profile speak of user namespaces, or ""
	systemd  bool
}

// lookAround finds the facts. Without a record the ids are the ones that useradd
// would give next.
func lookAround(c Config, r *record) host {
	h := host{boot: line("/proc/sys/kernel/random/boot_id"), apparmor: line("/sys/module/apparmor/parameters/enabled") == "Y"}
	if exists("/etc/apparmor.d/abi/4.0") {
		h.abi4 = "/etc/apparmor.d/abi/4.0"
	}
	st, err := os.Stat("/run/systemd/system")
	h.systemd = err == nil && st.IsDir()
	if r != nil {
		h.ids = r.IDs
	} else {
		h.ids = probe.Range{Start: probe.Accounts(-1).FreeSubID, Count: idCount}
	}
	return h
}

// idCount is what useradd gives an account.
const idCount = 65536

func line(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func ownerOf(st os.FileInfo) int64 {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return int64(s.Uid)
	}
	return -1
}

// workload is the host id that has slot n; uid and gid are the same number.
func (h host) workload(n int) int64 {
	s, err := probe.Identity{UID: h.ids, GID: h.ids}.Map(n)
	if err != nil {
		return -1
	}
	return s.Workload.UID
}

// cannot sorts an error of looking: gone, or not for this caller to see.
func cannot(err error) (State, string) {
	if errors.Is(err, fs.ErrNotExist) {
		return Missing, "is not there"
	}
	if errors.Is(err, fs.ErrPermission) {
		return Unknown, "only root may look"
	}
	return Differs, err.Error()
}

func (host) directory(dir string) (State, string) {
	st, err := os.Lstat(dir)
	if err != nil {
		return cannot(err)
	}
	if !st.IsDir() || ownerOf(st) != 0 || st.Mode().Perm() != 0o755 {
		return Differs, fmt.Sprintf("%s is %v of uid %d, not a directory of root's with mode 0755", dir, st.Mode(), ownerOf(st))
	}
	return Done, dir
}

func (host) account(c Config) (State, string) {
	u, err := user.Lookup(c.User)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if _, err := user.LookupGroup(c.User); err == nil {
			return Differs, "a group " + c.User + " is there without the user"
		}
		return Missing, "there is no user " + c.User
	}
	if err != nil {
		return Differs, err.Error()
	}
	uid, _ := strconv.Atoi(u.Uid)
	groups, err := u.GroupIds()
	own, groupErr := user.LookupGroup(c.User)
	st, homeErr := os.Lstat(c.home())
	switch {
	case err != nil || groupErr != nil || own.Gid != u.Gid || len(slices.Compact(slices.Sorted(slices.Values(groups)))) != 1:
		return Differs, fmt.Sprintf("user %s has groups %v besides or instead of its own", c.User, groups)
	case uid == 0:
		return Differs, "user " + c.User + " is uid 0"
	case u.HomeDir != c.home():
		return Differs, "the home of " + c.User + " is " + u.HomeDir
	case homeErr != nil:
		return cannot(homeErr)
	case !st.IsDir() || ownerOf(st) != int64(uid) || st.Mode().Perm() != 0o700:
		return Differs, fmt.Sprintf("%s is %v of uid %d", c.home(), st.Mode(), ownerOf(st))
	}
	return Done, fmt.Sprintf("user %s, uid %d, no other group", c.User, uid)
}

// range_ wants exactly the range: with another, larger one the boxes would take
// their ids from there, and no slot would be theirs.
func (h host) range_(c Config) (State, string) {
	u, err := user.Lookup(c.User)
	if err != nil {
		return Missing, "there is no user " + c.User
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return Differs, err.Error()
	}
	a := probe.Accounts(uid)
	if len(a.SubUID)+len(a.SubGID) == 0 {
		return Missing, "no usable range in /etc/subuid and /etc/subgid"
	}
	if len(a.SubUID) == 0 || len(a.SubGID) == 0 || a.SubUID[0] != h.ids || a.SubGID[0] != h.ids {
		return Differs, fmt.Sprintf("uids %v, gids %v, and %v was given", a.SubUID, a.SubGID, h.ids)
	}
	return Done, fmt.Sprintf("%d ids from %d", h.ids.Count, h.ids.Start)
}

func (h host) slot(c Config, n int) (State, string) {
	path, owner := c.slot(n), h.workload(n)
	mounts, err := outslot.Mounts()
	if err != nil {
		return cannot(err)
	}
	i := slices.IndexFunc(mounts, func(m outslot.Mount) bool { return m.Path == path })
	if i < 0 {
		return Missing, path + " is not mounted"
	}
	seen, err := outslot.Look(path)
	if err != nil {
		return cannot(err)
	}
	m := mounts[i]
	if d := m.Differs(seen, outslot.Want{Bytes: c.Bytes, Inodes: c.Inodes, UID: owner, GID: owner}); d != "" {
		return Differs, path + " " + d
	}
	rec, err := outslot.ReadRecord(path)
	if why := m.Lifetime(rec, h.boot); err != nil || why != "" {
		return Missing, fmt.Sprintf("%s has no record of this boot: %s%v", path, why, err)
	}
	st, err := os.Lstat(outslot.LockPath(path))
	if err != nil {
		return cannot(err)
	}
	g, err := user.LookupGroup(c.User)
	sys, ok := st.Sys().(*syscall.Stat_t)
	if err != nil || !ok || !st.Mode().IsRegular() || sys.Uid != 0 || st.Mode().Perm() != 0o660 || strconv.Itoa(int(sys.Gid)) != g.Gid {
		return Differs, fmt.Sprintf("%s is %v, not a file of root's that group %s may write", outslot.LockPath(path), st.Mode(), c.User)
	}
	shown := fmt.Sprintf("%s: tmpfs %s, %d bytes, %d inodes, of %d:%d", path, m.Options, seen.Bytes, seen.Inodes, seen.UID, seen.GID)
	if left := seen.Left(); left != "" {
		shown += "; has " + left
	}
	return Done, shown
}

func (h host) profile(name, path, text string) (State, string) {
	have, err := os.ReadFile(path)
	if err != nil {
		return cannot(err)
	}
	if string(have) != text {
		return Differs, path + " holds something else"
	}
	loaded, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	if err != nil {
		return Unknown, path + " is there; only root, with securityfs mounted, can see whether it is loaded"
	}
	for l := range strings.Lines(string(loaded)) {
		if strings.HasPrefix(l, name+" (") {
			return Done, path + ", loaded: " + strings.TrimSpace(l)
		}
	}
	return Missing, path + " is there and not loaded"
}

func (host) bootUnit(c Config, text string) (State, string) {
	have, err := os.ReadFile(c.unitPath())
	if err != nil {
		return cannot(err)
	}
	if string(have) != text {
		return Differs, c.unitPath() + " holds something else"
	}
	if !exists("/etc/systemd/system/multi-user.target.wants/" + c.unit()) {
		return Missing, c.unit() + " is not enabled"
	}
	return Done, c.unit() + " is enabled"
}
