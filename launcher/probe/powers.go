package probe

import (
	"slices"
	"strconv"
	"strings"
)

// privilegedGroups make their members more than plain users: a member can
// become root, or read or write what only root should. Groups that only read
// logs (adm, systemd-journal) or open one device class (kvm, video) are left out.
var privilegedGroups = []struct{ name, why string }{
	{"sudo", "may run commands as root"},
	{"wheel", "may run commands as root"},
	{"admin", "may run commands as root on old Ubuntu"},
	{"root", "owns files of root's group"},
	{"docker", "the docker socket gives root"},
	{"lxd", "the lxd socket gives root"},
	{"incus-admin", "the incus socket gives root"},
	{"incus", "may start containers"},
	{"libvirt", "may define machines with host disks"},
	{"microk8s", "may start privileged pods"},
	{"disk", "may read and write raw disks"},
	{"kmem", "may read kernel memory"},
	{"shadow", "may read password hashes"},
	{"staff", "may write /usr/local on Debian, which is in root's PATH"},
}

// privilegedNames returns, in the order of the table, the groups that give the
// account power: those of the process and those that /etc/group lists it in,
// which it can enter at any time.
func privilegedNames(groups []Group, user string, file groupFile) []string {
	var out []string
	for _, p := range privilegedGroups {
		inProcess := slices.ContainsFunc(groups, func(g Group) bool {
			return g.Name == p.name || p.name == "root" && g.ID == 0
		})
		if inProcess || user != "" && slices.Contains(file.members[p.name], user) {
			out = append(out, p.name)
		}
	}
	return out
}

// Powers names everything that makes the launcher more than a dedicated plain
// user, one short phrase each; empty means that it is one. Anything here
// degrades the dimension launcher_identity.
func (h *Host) Powers() []string {
	var out []string
	if h.UID == 0 || h.RealUID == 0 {
		out = append(out, "runs as uid 0")
	} else if h.CapEff != 0 {
		out = append(out, "holds capabilities 0x"+strconv.FormatUint(h.CapEff, 16))
	}
	if len(h.PrivilegedGroups) > 0 {
		out = append(out, "is a member of "+strings.Join(h.PrivilegedGroups, ", "))
	}
	var unnamed []string
	for _, g := range h.Groups {
		if g.Name == "" {
			unnamed = append(unnamed, strconv.Itoa(g.ID))
		}
	}
	for _, file := range h.Unread {
		if file == "/etc/passwd" || file == "/etc/group" {
			out = append(out, "has groups that nobody can tell: "+file+" cannot be read")
		}
	}
	if len(unnamed) > 0 {
		out = append(out, "has groups without a name in /etc/group: "+strings.Join(unnamed, ", "))
	}
	return out
}
