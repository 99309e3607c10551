package cgroupv2

import (
	"errors"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Location says where the version 2 hierarchy and the caller's own group are.
type Location struct {
	Mount string // mount point of the hierarchy
	Self  string // own group as the kernel names it, e.g. "/user.slice/…"
	Dir   string // directory of the own group; empty if no mount shows it
}

// Locate finds the hierarchy from the caller's mounts and the text of
// /proc/self/cgroup. It is pure. The Location is useful even beside an error of
// kind Escapes: the hierarchy is mounted, only the own group is out of sight.
func Locate(mounts []*mountinfo.Info, selfCgroup string) (Location, error) {
	self, ok := selfPath(selfCgroup)
	var loc Location
	for _, m := range mounts {
		if m.FSType != "cgroup2" || !path.IsAbs(m.Mountpoint) {
			continue
		}
		dir := ""
		if ok {
			dir = below(m, self)
		}
		// A later mount hides an earlier one at the same place; a mount that
		// shows the own group beats one that does not.
		if loc.Mount == "" || dir != "" && loc.Dir == "" || m.Mountpoint == loc.Mount {
			loc = Location{Mount: m.Mountpoint, Self: self, Dir: dir}
		}
	}
	switch {
	case loc.Mount == "":
		return loc, &Error{Kind: NoV2Mount, Path: "/proc/self/mountinfo", Op: "look for cgroup2 in"}
	case !ok:
		return loc, &Error{Kind: Gone, Path: "/proc/self/cgroup", Op: "find the own group in"}
	case loc.Dir == "":
		return loc, &Error{Kind: Escapes, Path: loc.Mount, Op: "find own group " + self + " below",
			Err: errors.New("it lies outside of what is mounted here")}
	}
	return loc, nil
}

// selfPath returns the path of the line "0::PATH". A group that was removed
// under its member is marked by the kernel and does not count.
func selfPath(selfCgroup string) (string, bool) {
	for line := range strings.Lines(selfCgroup) {
		p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		if !strings.HasPrefix(p, "/") || strings.HasSuffix(p, " (deleted)") {
			return "", false
		}
		return p, true
	}
	return "", false
}

// below returns the directory in which mount m shows group self, or "". Both
// m.Root and self are relative to the cgroup namespace; one that begins with
// "/.." lies outside of it.
func below(m *mountinfo.Info, self string) string {
	if outside(self) || outside(m.Root) {
		if self == m.Root {
			return m.Mountpoint
		}
		return ""
	}
	rel, ok := cutTree(self, path.Clean(m.Root))
	if !ok {
		return ""
	}
	return path.Join(m.Mountpoint, rel)
}

func outside(p string) bool { return p == "/.." || strings.HasPrefix(p, "/../") }

// cutTree returns p relative to top, and whether p is top or lies below it.
func cutTree(p, top string) (string, bool) {
	if p == top {
		return "", true
	}
	if top != "/" {
		top += "/"
	}
	return strings.CutPrefix(p, top)
}

// commonAncestor returns the deepest directory that holds both a and b, which
// are clean absolute paths.
func commonAncestor(a, b string) string {
	for {
		if _, ok := cutTree(b, a); ok || a == "/" {
			return a
		}
		a = path.Dir(a)
	}
}
