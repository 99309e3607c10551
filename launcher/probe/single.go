package probe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// Single is the way without a range, as in most containers: every id of a box is
// the caller's own to the kernel. It is weaker, so it takes the operator's word.
const Single = "single"

// ChooseSingle decides whether a caller for whom ChooseIdentity failed with cause
// could have boxes of its own id. It is pure; the error is cause, with what
// stands in the way of this as well. The host's 0 is never given to a box: uid 0
// of a surrounding namespace may be, since it is somebody else outside. Groups
// that give power outside of the box may not stay with the program, and a process
// without capabilities cannot lay them down.
func ChooseSingle(h *Host, cause error) (Identity, error) {
	e := reason.Of(cause)
	curable := []reason.ID{reason.SubordinateRangeMissing, reason.SubuidNotMappedHere, reason.IdmapHelperMissing, reason.NoNewPrivsSet, reason.LauncherCapsMissing}
	if e == nil || !slices.Contains(curable, e.ID) {
		return Identity{}, cause
	}
	if outside(h.SelfUIDMap, h.UID) <= 0 || outside(h.SelfGIDMap, h.GID) <= 0 {
		return Identity{}, cause
	}
	if left := lingering(h); len(left) > 0 {
		return Identity{}, reason.New(e.ID, e.What, e.Why+"; and with the caller's own id alone the program would keep "+strings.Join(left, ", "), e.Next)
	}
	own := Range{int64(h.UID), 1}
	return Identity{Kind: Single, UID: own, GID: Range{int64(h.GID), 1}, Cause: e,
		Source: fmt.Sprintf("the caller's own ids, %d:%d", h.UID, h.GID)}, nil
}

// outside is the id behind an id of this process's user namespace, -1 for none.
func outside(m []Extent, id int) int64 {
	for _, e := range m {
		if n := int64(id) - e.Inside; n >= 0 && n < e.Count {
			return e.Outside + n
		}
	}
	return -1
}

// lingering are the groups that must not stay with a program: those of the table
// in powers.go, and such as nobody can tell. The caller's first group may be
// without a name, as where a container's user is a mere number.
func lingering(h *Host) []string {
	var out []string
	all := h.Groups
	if !slices.ContainsFunc(all, func(g Group) bool { return g.ID == h.GID }) {
		all = append([]Group{{ID: h.GID}}, all...)
	}
	for _, g := range all {
		own := g.ID == h.GID
		switch {
		case own && g.ID == 0: // the host's was ruled out above
		case slices.ContainsFunc(privilegedGroups, func(p struct{ name, why string }) bool { return p.name == g.Name }):
			out = append(out, "the group "+g.Name)
		case !own && (g.Name == "" || g.ID == overflowID || g.ID == 0):
			out = append(out, "a group of unknown power, "+strconv.Itoa(g.ID))
		}
	}
	return out
}
