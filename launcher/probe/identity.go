package probe

import (
	"fmt"
	"strconv"

	"nsbox/launcher/reason"
)

// The ways to get ids for a box; single.go has the third, without any range.
const (
	Subordinate = "subordinate" // the operator's range, written by newuidmap and newgidmap
	Privileged  = "privileged"  // started by root, written directly
)

// Identity says which ids of this host a box may use. None of them is id 0, the
// caller's own id or that of an account.
type Identity struct {
	Kind   string `json:"kind"` // Subordinate, Privileged or Single
	UID    Range  `json:"uid"`
	GID    Range  `json:"gid"`
	Source string `json:"source"` // where the ranges come from, for the attestation

	Cause *reason.Error `json:"-"` // of Single: why there is no range
}

// HostID is a user and a group id as this process's user namespace numbers them.
type HostID struct {
	UID int64 `json:"uid"`
	GID int64 `json:"gid"`
}

// Slot is the set of ids of one attempt. No two slots share an id, so whoever
// runs under one belongs to one attempt.
type Slot struct {
	Root       HostID `json:"root"`        // id 0 of the box
	Workload   HostID `json:"workload"`    // id 10001, in the box and in the exporter's
	ExportRoot HostID `json:"export_root"` // id 0 of the exporter's box
	Exporter   HostID `json:"exporter"`    // id 20002 of the exporter's box
}

// Shared: another attempt may have the same ids, so that they show nothing.
func (s Slot) Shared() bool { return s.Root == s.Workload }

// Slots is how many attempts can run at once with ids of their own.
func (i Identity) Slots() int { return int(min(i.UID.Count, i.GID.Count) / IDsPerSlot) }

// Map returns the ids of slot number slot, counted from 0. The error is a
// *reason.Error with IdentitySlotsExhausted.
func (i Identity) Map(slot int) (Slot, error) {
	if own := (HostID{i.UID.Start, i.GID.Start}); i.Kind == Single {
		return Slot{own, own, own, own}, nil
	}
	if slot < 0 || slot >= i.Slots() {
		return Slot{}, reason.New(reason.IdentitySlotsExhausted, "identity slot "+strconv.Itoa(slot),
			fmt.Sprintf("the ranges of %s hold %d slots of %d ids", i.Source, i.Slots(), IDsPerSlot),
			"wait for running attempts, or assign a larger subordinate range")
	}
	at := func(k int64) HostID {
		off := int64(slot)*IDsPerSlot + k
		return HostID{UID: i.UID.Start + off, GID: i.GID.Start + off}
	}
	return Slot{Root: at(0), Workload: at(1), ExportRoot: at(2), Exporter: at(3)}, nil
}

// ChooseIdentity decides under which ids boxes run. It is pure; the error is
// always a *reason.Error. For uid 0 the sources are root's own range and 65536 ids
// from 1879048192, which systemd's conventions assign to nobody and which are used
// only while no account and no range has one of them. The range of another
// account is never a source, whatever its name: that account's launcher holds its
// locks in a place of its own, so both could give out the same ids at once.
func ChooseIdentity(h *Host) (Identity, error) {
	if h.UID != h.RealUID || h.GID != h.RealGID {
		return Identity{}, reason.New(reason.LauncherSetuid, h.SelfExe.Path,
			fmt.Sprintf("it runs with effective ids %d:%d and real ids %d:%d, and nsbox is not written to be set-uid", h.UID, h.GID, h.RealUID, h.RealGID),
			"remove the set-uid and set-gid bits: chmod ug-s "+h.SelfExe.Path)
	}
	if h.UID == 0 {
		return privileged(h)
	}
	return subordinate(h)
}

func privileged(h *Host) (Identity, error) {
	const need = 1<<capSetuid | 1<<capSetgid
	if h.CapEff&need != need {
		return Identity{}, reason.New(reason.LauncherCapsMissing, "uid 0",
			"CAP_SETUID or CAP_SETGID is missing, without which root cannot write id maps",
			"grant both capabilities, or run nsbox as an ordinary user with a subordinate range")
	}
	sources := []Identity{}
	add := func(name string, uids, gids []Range) {
		if len(uids) > 0 && len(gids) > 0 {
			sources = append(sources, Identity{Kind: Privileged, UID: uids[0], GID: gids[0], Source: name})
		}
	}
	add("/etc/subuid and /etc/subgid of root", h.SubUID, h.SubGID)
	if h.DefaultFree {
		d := []Range{{defaultBase, defaultCount}}
		add("the built-in default", d, d)
	}
	for _, s := range sources {
		if id, ok := mappedHere(h, s); ok {
			return id, nil
		}
	}
	if len(sources) > 0 {
		return Identity{}, notMapped(h, sources[0])
	}
	return Identity{}, reason.New(reason.SubordinateRangeMissing, "subordinate ids of root",
		fmt.Sprintf("root has none, and ids from %d are in use%s", defaultBase, firstProblem(h)),
		"assign ranges that nobody has to root in /etc/subuid and /etc/subgid")
}

func subordinate(h *Host) (Identity, error) {
	if h.NoNewPrivs {
		return Identity{}, reason.New(reason.NoNewPrivsSet, "no_new_privs",
			"nsbox was started with it, so newuidmap and newgidmap cannot act for you",
			"start nsbox from a shell or service without it (systemd: NoNewPrivileges=no)")
	}
	for _, m := range []struct {
		file   string
		ranges []Range
	}{{"/etc/subuid", h.SubUID}, {"/etc/subgid", h.SubGID}} {
		if len(m.ranges) == 0 {
			return Identity{}, reason.New(reason.SubordinateRangeMissing, m.file+": "+account(h),
				fmt.Sprintf("no usable range of %d ids and more is assigned%s", IDsPerSlot, firstProblem(h)),
				assignCommand(h))
		}
	}
	for _, x := range []Helper{h.UIDMapHelper, h.GIDMapHelper} {
		if !x.OK {
			return Identity{}, reason.New(reason.IdmapHelperMissing, x.Path, x.Why,
				"install it from your distribution: sudo apt install uidmap (elsewhere the package is shadow-utils or shadow)")
		}
	}
	id := Identity{Kind: Subordinate, UID: h.SubUID[0], GID: h.SubGID[0], Source: "/etc/subuid and /etc/subgid of " + account(h)}
	if here, ok := mappedHere(h, id); ok {
		return here, nil
	}
	return Identity{}, notMapped(h, id)
}

// mappedHere cuts the ranges to what exists in the user namespace of this
// process.
func mappedHere(h *Host, i Identity) (Identity, bool) {
	i.UID, i.GID = mapped(i.UID, h.SelfUIDMap), mapped(i.GID, h.SelfGIDMap)
	return i, i.Slots() > 0
}

func notMapped(h *Host, i Identity) error {
	return reason.New(reason.SubuidNotMappedHere,
		fmt.Sprintf("uids %d:%d and gids %d:%d of %s", i.UID.Start, i.UID.Count, i.GID.Start, i.GID.Count, i.Source),
		fmt.Sprintf("they do not exist in this user namespace, which has uids %s and gids %s", extents(h.SelfUIDMap), extents(h.SelfGIDMap)),
		"run nsbox outside of the surrounding container or namespace, or give that one a larger id map")
}

func extents(m []Extent) string {
	s := ""
	for _, e := range m {
		s += fmt.Sprintf(",%d:%d", e.Inside, e.Count)
	}
	if s == "" {
		return "none"
	}
	return s[1:]
}

func account(h *Host) string {
	if h.User != "" {
		return "user " + h.User
	}
	return "uid " + strconv.Itoa(h.RealUID)
}

func assignCommand(h *Host) string {
	first := h.FreeSubID
	switch {
	case first == 0:
		return fmt.Sprintf("assign %d ids that nobody has to %s in /etc/subuid and /etc/subgid", subCount, account(h))
	case h.User == "":
		return fmt.Sprintf("echo %d:%d:%d | sudo tee -a /etc/subuid /etc/subgid", h.RealUID, first, subCount)
	}
	return fmt.Sprintf("sudo usermod --add-subuids %d-%d --add-subgids %d-%d %s", first, first+subCount-1, first, first+subCount-1, h.User)
}

func firstProblem(h *Host) string {
	if len(h.Problems) == 0 {
		return ""
	}
	return " (left out: " + h.Problems[0] + ")"
}
