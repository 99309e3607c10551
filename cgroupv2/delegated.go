package cgroupv2

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// marked reports whether systemd wrote down that it leaves the inside of this
// directory to somebody else. Its word is needed because doing proves too much:
// under the user's manager every directory can be written by the user, and
// controllers enabled in one that systemd still manages may be switched off
// again by it in the middle of a run. Only the system's manager writes the mark
// (seen with 257), and before 251 for root only; see Search.Delegated.
func marked(dir string) bool { return yes(dir, "user.delegate") || yes(dir, "trusted.delegate") }

// launcherMark is set on the leaf that a launcher made for itself. The name of
// a directory alone would prove nothing about who made it and whether the one
// above is ours.
const launcherMark = "user.nsbox.launcher"

func yes(dir, attribute string) bool {
	var buf [8]byte
	n, err := unix.Getxattr(dir, attribute, buf[:])
	return err == nil && string(buf[:n]) == "1"
}

// unitOf returns the nearest directory, dir or above it but below mount, that
// has the name of a scope or service; "" if there is none. The manager of a
// user's session is none of them: what it got is for it alone.
func unitOf(dir, mount string) string {
	for d := dir; d != mount && d != "/" && d != "."; d = path.Dir(d) {
		base := path.Base(d)
		if strings.HasPrefix(base, "user@") && strings.HasSuffix(base, ".service") {
			return ""
		}
		if strings.HasSuffix(base, ".scope") || strings.HasSuffix(base, ".service") {
			return d
		}
	}
	return ""
}

// ownCandidates lists the directories of the caller that may be used, best
// first: its own group, and the top of the delegated unit it lives in when that
// is another one. The second is what makes a delegated session reusable, with
// its shell in a leaf and every nsbox beside it. ask is Search.Delegated.
func ownCandidates(loc Location, systemd bool, ask func(unit string) bool) []string {
	if loc.Dir == "" {
		return nil
	}
	own := loc.Dir
	if yes(own, launcherMark) && own != loc.Mount {
		own = path.Dir(own) // a child of a launcher, or its second look
	}
	if !systemd {
		return []string{own}
	}
	unit := unitOf(own, loc.Mount)
	if unit == "" {
		return nil
	}
	users := strings.Contains(unit, "/user@")
	if !marked(unit) && !(users && ask != nil && ask(path.Base(unit))) {
		return nil
	}
	return slices.Compact([]string{own, unit})
}

// boundToV1 lists the controllers that /proc/self/cgroup shows on version 1
// hierarchies.
func boundToV1(selfCgroup string) []string {
	var out []string
	for line := range strings.Lines(selfCgroup) {
		id, rest, _ := strings.Cut(line, ":")
		list, _, ok := strings.Cut(rest, ":")
		if !ok || id == "0" {
			continue
		}
		out = append(out, strings.Split(list, ",")...)
	}
	return out
}
