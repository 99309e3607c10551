package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/launcher/outslot"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// OutFacts is what was found of provisioned storage for /out.
type OutFacts struct {
	Ready bool          // a slot is free, empty, and as the policy asks
	Lacks *reason.Error // why none is; nil: this launcher has none at all
}

// outSlot is a provisioned slot that an attempt, or its cleaning, has locked.
type outSlot struct {
	mount outslot.Mount
	ids   probe.Slot
	boot  string
	lock  *os.File
}

// outCandidate is a slot of this launcher's, as it was seen.
type outCandidate struct {
	n     int // of the identity
	ids   probe.Slot
	mount outslot.Mount
	seen  outslot.Seen
}

// outCandidates are the slots whose owner is the workload of one of the
// identity's slots, lowest first. Others are somebody else's.
func outCandidates(mounts []outslot.Mount, id probe.Identity) []outCandidate {
	var out []outCandidate
	if id.Kind == probe.Single {
		return nil // no slot is made for a caller's own id
	}
	for _, m := range mounts {
		seen, err := outslot.Look(m.Path)
		if err != nil {
			continue // another account's directory
		}
		first, err := id.Map(0)
		if err != nil {
			return nil
		}
		n := int(seen.UID-first.Workload.UID) / probe.IDsPerSlot
		ids, err := id.Map(n)
		if err == nil && ids.Workload.UID == seen.UID {
			out = append(out, outCandidate{n, ids, m, seen})
		}
	}
	slices.SortFunc(out, func(a, b outCandidate) int { return cmp.Compare(a.n, b.n) })
	return out
}

// lacks says why the candidate cannot serve a policy that asks for these bounds.
func (c outCandidate) lacks(l policy.Limits, boot string) *reason.Error {
	want := outslot.Want{Bytes: l.Out.Bytes, Inodes: l.Out.Inodes, UID: c.ids.Workload.UID, GID: c.ids.Workload.GID}
	if d := c.mount.Differs(c.seen, want); d != "" {
		return reason.New(reason.OutSlotDiffers, "the slot "+c.mount.Path, d, "ask for the slot's numbers in the policy, or provision it anew: nsbox provision --undo, then --apply")
	}
	rec, err := outslot.ReadRecord(c.mount.Path)
	why := c.mount.Lifetime(rec, boot)
	if err != nil {
		why = "root's record of it cannot be used"
	}
	if why != "" {
		return reason.Wrap(reason.OutLifetimeUnknown, "how long the slot "+c.mount.Path+" lasts is unknown", why, "as root: nsbox provision --apply", err)
	}
	return nil
}

// outLeft refuses a slot that is not as an unused one.
func outLeft(path, left string) *reason.Error {
	return reason.New(reason.OutSlotsTaken, "the slot "+path, "keeps what an attempt left in it ("+left+")", "nsbox reconcile")
}

// lookForOut fills the facts without taking anything: what a plan shows.
func lookForOut(f *Facts, p *policy.Policy) {
	if p.OutStorage == policy.OutHeld || !p.Exports() {
		return
	}
	for _, c := range outCandidates(f.Host.OutMounts, f.Identity) {
		e := c.lacks(p.Limits(), f.Host.BootID)
		if left := c.seen.Left(); e == nil && left != "" {
			e = outLeft(c.mount.Path, left)
		}
		if e == nil && isLocked(outslot.LockPath(c.mount.Path)) {
			e = outBusy(c.mount.Path)
		}
		if e == nil {
			f.Out = OutFacts{Ready: true}
			return
		}
		f.Out.Lacks = worse(f.Out.Lacks, e)
	}
}

func outBusy(path string) *reason.Error {
	return reason.New(reason.OutSlotsTaken, "the slot "+path, "is in use by another attempt", "wait for it, or provision more slots")
}

// worse keeps the reason that waiting does not cure.
func worse(a, b *reason.Error) *reason.Error {
	if a == nil || a.ID == reason.OutSlotsTaken && b.ID != reason.OutSlotsTaken {
		return b
	}
	return a
}

// takeOut takes the ids and the storage of the first slot that has both free. It
// returns no slot where there is none; the facts then say why.
func (s *slots) takeOut(f *Facts, p *policy.Policy, attempt string) (*slot, *outSlot, error) {
	if p.OutStorage == policy.OutHeld || !p.Exports() {
		return nil, nil, nil
	}
	for _, c := range outCandidates(f.Host.OutMounts, f.Identity) {
		e := c.lacks(p.Limits(), f.Host.BootID)
		if e != nil {
			f.Out.Lacks = worse(f.Out.Lacks, e)
			continue
		}
		sl, err := s.try(c.n, c.ids)
		if err != nil {
			return nil, nil, err
		}
		if sl == nil {
			f.Out.Lacks = worse(f.Out.Lacks, outBusy(c.mount.Path))
			continue
		}
		out, e := lockOut(c.mount, c.ids, s.boot)
		if e == nil {
			// Looked at again now that nobody else can have it.
			seen, err := outslot.Look(c.mount.Path)
			if left := seen.Left(); err != nil {
				e = reason.Wrap(reason.OutSlotDiffers, c.mount.Path, "cannot be looked at", "as root: nsbox provision --check", err)
			} else if left != "" {
				e = outLeft(c.mount.Path, left)
			}
		}
		if e == nil {
			err = errors.Join(sl.write(attempt+" "+s.boot+"\n"), out.name(attempt))
			if err != nil {
				e = reason.Wrap(reason.OutSlotDiffers, outslot.LockPath(c.mount.Path), "cannot be written", "as root: nsbox provision --check", err)
			}
		}
		if e != nil {
			out.release()
			sl.release(true) // nothing was begun under these ids
			f.Out.Lacks = worse(f.Out.Lacks, e)
			continue
		}
		f.Out = OutFacts{Ready: true}
		return sl, out, nil
	}
	return nil, nil, nil
}

// lockOut locks a slot's storage. The lock lies beside the slot and not in the
// launcher's home: whoever shares the ids, or undoes the slot, comes to this file.
func lockOut(m outslot.Mount, ids probe.Slot, boot string) (*outSlot, *reason.Error) {
	path := outslot.LockPath(m.Path)
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, reason.Wrap(reason.OutSlotDiffers, path, "cannot be opened", "as root: nsbox provision --check", err)
	}
	locked, err := tryLock(f)
	if err == nil && locked {
		return &outSlot{m, ids, boot, f}, nil
	}
	f.Close()
	if err != nil {
		return nil, reason.Wrap(reason.OutSlotDiffers, path, "cannot be locked", "as root: nsbox provision --check", err)
	}
	return nil, outBusy(m.Path)
}

// name says in the lock's file whose content the slot has from now on; the name
// stays when the lock ends, as the content does.
func (o *outSlot) name(attempt string) error { return (&slot{file: o.lock}).write(attempt + "\n") }

// named is the attempt whose content the slot has.
func (o *outSlot) named() string { return strings.Join(words(o.lock), " ") }

func (o *outSlot) release() {
	if o != nil {
		o.lock.Close() // only closed, like every lock of nsbox's
	}
}

// rows attest the slot by the descriptor that the box itself handed out as its
// /out, and by root's record, both read while the program waits.
func (o *outSlot) rows(held int) ([]attest.Row, error) {
	seen, err := outslot.LookAt(held)
	if err != nil {
		return nil, err
	}
	rec, err := outslot.ReadRecord(o.mount.Path)
	if err != nil {
		return nil, err
	}
	want := outslot.Record{Boot: o.boot, Dev: seen.Dev}
	const by = "fstat and fstatfs of the box's /out"
	return []attest.Row{
		attest.Compare("out-device", o.mount.Dev, seen.Dev, by+"; "+o.mount.Path+" in mountinfo", attest.KernelRead),
		attest.Compare("out-owner", fmt.Sprintf("%d:%d 0700", o.ids.Workload.UID, o.ids.Workload.GID), fmt.Sprintf("%d:%d %04o", seen.UID, seen.GID, seen.Mode), by, attest.KernelRead),
		attest.Compare("out-unused", "0 entries, 0 pages", fmt.Sprintf("%d entries, %d pages", seen.Used, seen.Blocks), by, attest.KernelRead),
		attest.Compare("out-lifetime", "until root undoes it: "+want.String(), "until root undoes it: "+rec.String(), outslot.RecordPath(o.mount.Path)+", which root alone writes", attest.KernelRead),
	}, nil
}

// refusal is the word for a policy that takes nothing else.
func (o OutFacts) refusal() *reason.Error {
	if o.Lacks != nil {
		return o.Lacks
	}
	return reason.New(reason.OutNotProvisioned, "out_storage provisioned", "no slot of /out belongs to this launcher's subordinate ids", "as root: nsbox provision --apply; or remove the key from the policy")
}

func (o OutFacts) weakness() weakness {
	w := weakness{policy.DimOutStorage, reason.DegradedNotAllowed, "/out is held by the launcher, not provisioned by an operator",
		"a bounded tmpfs made inside the box and held by a descriptor of the launcher",
		"an artifact that is not exported yet when the launcher dies", ""}
	if o.Lacks != nil {
		w.id, w.cause, w.next = o.Lacks.ID, o.Lacks.Error(), o.Lacks.Next
	}
	return w
}

// outPrimitive is what bounds /out, and how long it lasts.
func outPrimitive(p *policy.Policy, o OutFacts) string {
	switch {
	case o.Ready:
		return "provisioned tmpfs of its own, size, nr_inodes; outlives nsbox"
	case p.OutStorage == policy.OutHeld:
		return "tmpfs size, nr_inodes; ends with nsbox, as the policy says"
	}
	return "tmpfs size, nr_inodes"
}

// provisioned reports whether the plan's /out is an operator's slot.
func (pl *Plan) provisioned() bool {
	return slices.ContainsFunc(pl.Box.Root, func(n nsexec.Node) bool { return n.Kind == nsexec.Storage })
}

// probed is how a plan's reader is told what was looked for.
func (o OutFacts) probed() string {
	switch {
	case o.Ready:
		return "the mount table has a free slot of this launcher's"
	case o.Lacks != nil:
		return o.Lacks.Error()
	}
	return "the mount table has no slot of this launcher's"
}

// takeSlot takes the ids of the attempt, and storage for /out with them where
// the host has some that the policy can use.
func (r *run) takeSlot(p *policy.Policy, id string) (err error) {
	f := &r.gathered.facts
	if r.slot, r.store, err = r.slots.takeOut(f, p, id); err == nil && r.slot == nil {
		r.slot, err = r.slots.take(f.Identity, id)
	}
	return err
}

// outFinding says whether this launcher has provisioned storage for the built-in
// policy. A slot that is taken just now is there all the same.
func outFinding(f Facts) Finding {
	out := Finding{Area: "storage", Name: "provisioned-out", Serves: policy.DimOutStorage, How: "the mount table was searched for slots of this launcher's ids; size, inodes, flags, owner and root's record were read"}
	p, _, err := policy.Load("sales-summary")
	if err != nil {
		return failedFinding(out.Area, out.Name, out.Serves, out.How, err)
	}
	var fit []string
	for _, c := range outCandidates(f.Host.OutMounts, f.Identity) {
		if e := c.lacks(p.Limits(), f.Host.BootID); e != nil {
			f.Out.Lacks = worse(f.Out.Lacks, e)
			continue
		}
		fit = append(fit, fmt.Sprintf("%s (tmpfs, %s; %s; of %d:%d)", c.mount.Path, c.mount.Options, c.mount.Super, c.seen.UID, c.seen.GID))
	}
	switch {
	case fit != nil:
		out.Answer, out.Shown = probe.Yes, strings.Join(fit, ", ")
	case f.Out.Lacks != nil:
		e := f.Out.Lacks
		out.Answer, out.ID, out.Shown, out.Next = probe.No, e.ID, e.Error(), e.Next
	default:
		out.Answer, out.Shown, out.Next = probe.No, "/out lives as long as the launcher holds it: no slot is mounted for this launcher's ids",
			"as root: nsbox provision --apply, then run as the account it makes; or allow it by name: --allow-degraded out_storage"
	}
	return out
}
