package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/exporter/wipe"
	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/outslot"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/stage"
	"nsbox/nsexec"
	"nsbox/seccompgen"
	"nsbox/seccompgen/filter"
)

// wiping is what a box that empties a slot is made of. The launcher itself opens
// nothing in a slot: the names there are hostile, and belong to ids it is not.
type wiping struct {
	facts Facts // Host, Identity, CapLast, CPU
	self  int
	init  filter.Program
	cache string
}

// wipeUser is the workload's id inside the box that empties its slot; outside it
// is the id that the slot's content has.
const wipeUser = 10001

// left says what is in the slot that an unused one has not, or "".
func (o *outSlot) left() string {
	seen, err := outslot.Look(o.mount.Path)
	if err != nil {
		return "it cannot be looked at: " + err.Error()
	}
	if seen.Dev != o.mount.Dev {
		return "another device, " + seen.Dev
	}
	return seen.Left()
}

// empty brings the slot back to what root made. Whether it is empty is the
// kernel's word, before as after; an empty one costs no box.
func (o *outSlot) empty(ctx context.Context, w wiping) error {
	left := o.left()
	if left == "" {
		return nil
	}
	err := w.run(ctx, o)
	if left = o.left(); left == "" {
		return nil // whatever became of the box
	}
	return reason.Wrap(reason.OutWipeFailed, "the slot "+o.mount.Path, "still has "+left, "nsbox reconcile", err)
}

func (w wiping) run(ctx context.Context, o *outSlot) error {
	spec, err := w.spec(o)
	if err != nil {
		return err
	}
	box, err := nsexec.Spawn(spec, nsexec.Files{Self: w.self, Cgroup: -1, Work: -1}, ctx.Done())
	if err != nil {
		return boxFailure(err)
	}
	rows, err := inspect(box, spec, nil)
	if err == nil {
		err = attest.Check(rows)
	}
	if err != nil {
		return errors.Join(err, box.Abort())
	}
	over := make(chan string, 2)
	const most = 4096
	out := startCapture("wipe output", box.Stdout, io.Discard, most, over)
	log := startCapture("wipe log", box.Stderr, io.Discard, most, over)
	if err := box.Release(); err != nil {
		return errors.Join(err, box.Abort())
	}
	var end nsexec.Exit
	select {
	case end = <-box.Done():
	case <-ctx.Done():
		box.Kill()
		select {
		case <-box.Done():
			return ctx.Err()
		case <-time.After(endGrace):
			return errors.Join(ctx.Err(), errors.New("its box did not end when killed"))
		}
	}
	<-out.readDone
	<-log.readDone
	if !end.Reported || !end.Status.Exited() || end.Status.ExitStatus() != 0 {
		return fmt.Errorf("the stage ended with wait status %#x: %s", uint32(end.Status), strings.TrimSpace(string(log.bytes())))
	}
	return nil
}

// spec is an empty root with the slot in it, no proc, no device, no network.
func (w wiping) spec(o *outSlot) (*nsexec.Spec, error) {
	seen, err := outslot.Look(o.mount.Path)
	if err != nil {
		return nil, err
	}
	f, _, err := seccompgen.Cached(w.cache, seccompgen.Wipe())
	if err != nil {
		return nil, err
	}
	abi := min(w.facts.Host.LandlockABI, maxLandlockABI)
	if abi == 1 {
		abi = 0 // the first one forbids to move a directory, and the box has nothing else to reach
	}
	both := func(name string, res int, v uint64) nsexec.Rlimit {
		return nsexec.Rlimit{Name: name, Resource: res, Soft: v, Hard: v}
	}
	return &nsexec.Spec{
		Hostname: hostname, StagingPoint: stagingPoint,
		Root: []nsexec.Node{{Path: "/", Kind: nsexec.Dir, Mode: 0o755},
			{Path: wipe.At, Kind: nsexec.Storage, Source: o.mount.Path, Bytes: seen.Bytes, Inodes: seen.Inodes, Access: nsexec.Read | nsexec.List | nsexec.Write}},
		UID: wipeUser, GID: wipeUser, Umask: 0o077, Affinity: w.facts.CPU, LandlockABI: abi,
		Rlimits:  []nsexec.Rlimit{both("nofile", unix.RLIMIT_NOFILE, 32), both("fsize", unix.RLIMIT_FSIZE, 0), both("core", unix.RLIMIT_CORE, 0), both("nproc", unix.RLIMIT_NPROC, 8)},
		Command:  nsexec.Command{Self: true, Argv: []string{wipe.StageName}, Env: nsexec.StageEnv(), Dir: "/"},
		Listable: -1, CapLast: w.facts.CapLast, Identity: maps(w.facts, pair{0, 0, o.ids.ExportRoot}, pair{wipeUser, wipeUser, o.ids.Workload}),
		InitFilter: w.init, Filter: f, SharedVM: sharedVM,
	}, nil
}

// wiping prepares an emptying for a command that runs no attempt.
func (s *state) wiping() (wiping, func(), error) {
	w := wiping{cache: s.cache(), self: -1}
	var err error
	if w.facts.Host, err = probe.Survey(); err != nil {
		return w, nil, err
	}
	if w.facts.Identity, err = probe.ChooseIdentity(w.facts.Host); err != nil {
		return w, nil, err
	}
	w.facts.CapLast, w.facts.CPU = capLast(), firstCPU()
	if w.init, _, err = seccompgen.Cached(s.cache(), seccompgen.Init()); err != nil {
		return w, nil, err
	}
	if w.self, err = stage.Open(s.cache()); err != nil {
		return w, nil, err
	}
	return w, func() { unix.Close(w.self) }, nil
}

// outRef is how an attempt's record names its slot.
type outRef struct {
	Path string `json:"path"`
	Dev  string `json:"dev"`
}

func (o *outSlot) ref() *outRef {
	if o == nil {
		return nil
	}
	return &outRef{o.mount.Path, o.mount.Dev}
}

func (r *outRef) String() string {
	if r == nil {
		return ""
	}
	return r.Dev + " " + r.Path
}

func parseOutRef(text string) *outRef {
	dev, path, ok := strings.Cut(text, " ")
	if !ok {
		return nil
	}
	return &outRef{path, dev}
}

// mayBeWiping: a launcher that died here may have left a box that empties the
// slot, which is in no cgroup and comes after the recorded stop proof.
func (r *remains) mayBeWiping() bool {
	begun := func(intent, done journal.Event) bool { return r.state.Has(intent) && !r.state.Has(done) }
	return r.marker.Out != nil && (!r.intact || begun(journal.DestroyIntent, journal.Destroyed) || begun(journal.ReconcileIntent, journal.Reconciled))
}

// keepsOut is the attempt's slot if it keeps what the attempt left in it: the
// lock's file says whose content that is.
func (r *remains) keepsOut() *outSlot {
	if r.marker.Out == nil || r.marker.IDs == nil {
		return nil
	}
	mounts, err := outslot.Mounts()
	if err != nil {
		return nil // nsbox needs the mount table for everything, and says so there
	}
	for _, m := range mounts {
		if m.Path != r.marker.Out.Path || m.Dev != r.marker.Out.Dev {
			continue
		}
		name, err := readRegular(outslot.LockPath(m.Path), 64)
		o := &outSlot{mount: m, ids: *r.marker.IDs}
		if err == nil && strings.TrimSpace(string(name)) == r.marker.Attempt && o.left() != "" {
			return o
		}
	}
	return nil // undone, mounted anew, empty, or another attempt's by now
}

// emptyOut empties the slot that the attempt left full. Nobody can be given the
// slot meanwhile, and nobody else its ids.
func (s *state) emptyOut(ctx context.Context, p *prover, r *remains) error {
	full := r.keepsOut()
	if full == nil || p.slots == nil {
		return nil
	}
	o, e := lockOut(full.mount, full.ids, p.boot)
	if e != nil {
		return e
	}
	defer o.release()
	if o.named() != r.marker.Attempt {
		return nil
	}
	return s.emptyLocked(ctx, p, o, r.marker.Attempt)
}

// emptyLocked empties a slot whose storage is locked, in the name of the attempt.
func (s *state) emptyLocked(ctx context.Context, p *prover, o *outSlot, attempt string) error {
	w, done, err := s.wiping()
	if err != nil {
		return err
	}
	defer done()
	sl, err := p.slots.try(0, o.ids)
	if err == nil && sl == nil {
		err = outBusy(o.mount.Path)
	}
	if err != nil {
		return err
	}
	emptied := false
	defer func() { sl.release(emptied) }()
	if err := sl.write(attempt + " " + p.boot + "\n"); err != nil {
		return err
	}
	if err := o.empty(ctx, w); err != nil {
		return err
	}
	emptied = true
	return o.name("")
}
