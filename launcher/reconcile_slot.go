package launcher

import (
	"context"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"nsbox/launcher/outslot"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// KeptSlot is a provisioned slot of this launcher's that keeps what an attempt
// left in it and that no attempt of the state directory answers for: the attempt's
// record is in another one, or lost. Nobody is given such a slot.
type KeptSlot struct {
	Slot    string `json:"slot"`
	Attempt string `json:"attempt"` // as the slot's lock names it; "": it names none
	Left    string `json:"left"`
}

// KeptSlots lists them, and changes nothing. A caller without ids has none.
func KeptSlots(stateDir string) ([]KeptSlot, error) {
	s, err := existingState(stateDir)
	if err != nil {
		return nil, err
	}
	own, err := ownSlots()
	if err != nil {
		return nil, nil
	}
	var kept []KeptSlot
	for _, c := range own {
		left := c.seen.Left()
		if left == "" || isLocked(outslot.LockPath(c.mount.Path)) {
			continue
		}
		k := KeptSlot{Slot: c.mount.Path, Attempt: nameIn(c.mount.Path), Left: left}
		if !s.answersFor(k.Attempt) {
			kept = append(kept, k)
		}
	}
	return kept, nil
}

// EmptySlot is the operator's word that what is in a slot may go, though no record
// says what it is: the attempt's own reconcile would have done it. It refuses while
// somebody has the slot, while an attempt of the state directory answers for it, and
// while a process has the slot's ids. The error is a *reason.Error.
func EmptySlot(ctx context.Context, stateDir, path string, dry bool) (KeptSlot, error) {
	k := KeptSlot{Slot: path}
	c, err := ownSlot(path)
	if err != nil {
		return k, err
	}
	s, err := openState(stateDir) // which may be what was lost
	if err != nil {
		return k, err
	}
	p, err := hostProver()
	if err != nil {
		return k, err
	}
	if p.slots == nil {
		_, err := openSlots(p.boot)
		return k, err
	}
	o, e := lockOut(c.mount, c.ids, p.boot)
	if e != nil {
		return k, e
	}
	defer o.release()
	k.Attempt, k.Left = nameIn(path), o.left()
	if k.Left == "" {
		return k, nil
	}
	if s.answersFor(k.Attempt) {
		return k, reason.New(reason.OutSlotsTaken, "the slot "+path, "keeps what attempt "+k.Attempt+" left, whose record is in this state directory", "nsbox reconcile "+k.Attempt)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcileCleanup)
	defer cancel()
	since := bootTicks()
	short, stop := context.WithTimeout(ctx, endGrace)
	defer stop()
	if err := awaitGone(short, dyingGrace, func() ([]holder, error) { return holders(idSet(c.ids), since) }); err != nil {
		return k, reason.Wrap(reason.StopUnproven, "the slot "+path, "is not proven to be at rest; everything is kept", "end what is named, then the same command again", err)
	}
	if dry {
		return k, nil
	}
	if err := s.emptyLocked(ctx, p, o, k.Attempt); err != nil {
		return k, err
	}
	_ = s.audit(maxAuditLine, auditLine{Event: "slot", Attempt: k.Attempt, Path: path, Note: "emptied without a record of the attempt: " + k.Left})
	return k, nil
}

// answersFor: an attempt of that name is recorded here and not closed, so that its
// own launcher or its own reconcile empties what it left. There may be no state.
func (s *state) answersFor(id string) bool {
	return s != nil && id != "" && !missing(s.path(id)) && s.info(id).State != AttemptClosed
}

// nameIn is the attempt that the slot's lock names; what is no id is none.
func nameIn(slot string) string {
	text, err := readRegular(outslot.LockPath(slot), 64)
	if part := string(text); err == nil && len(part) > 1 && validID(part[:len(part)-1]) {
		return part[:len(part)-1]
	}
	return ""
}

// ownSlots are the slots of the caller's ids.
func ownSlots() ([]outCandidate, error) {
	h, err := probe.Survey()
	if err != nil {
		return nil, err
	}
	id, err := probe.ChooseIdentity(h)
	if err != nil {
		return nil, err
	}
	return outCandidates(h.OutMounts, id), nil
}

func ownSlot(path string) (outCandidate, error) {
	own, err := ownSlots()
	if err != nil {
		return outCandidate{}, err
	}
	for _, c := range own {
		if c.mount.Path == path {
			return c, nil
		}
	}
	next := "nsbox provision --check --dir DIR names the slots that are"
	if name := accountOf(path); name != "" {
		next = "as root: setpriv --reuid " + name + " --regid " + name + " --clear-groups nsbox reconcile --slot " + path
	}
	return outCandidate{}, reason.New(reason.OutSlotForeign, "the slot "+path, "is not mounted, or does not belong to the subordinate ids of uid "+strconv.Itoa(os.Getuid()), next)
}

// accountOf is the launcher's account that a slot was made for, which has the name
// of the group that may lock it, or "".
func accountOf(slot string) string {
	st, err := os.Lstat(outslot.LockPath(slot))
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	g, err := user.LookupGroupId(strconv.FormatUint(uint64(sys.Gid), 10))
	if err != nil {
		return ""
	}
	return g.Name
}
