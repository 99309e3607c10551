package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/stage"
	"nsbox/nsexec"
	"nsbox/seccompgen"
	"nsbox/seccompgen/filter"
)

// helpers makes boxes for nsbox's own errands: reading an image, looking at
// wheels, running an installer, removing what such a box made. Each is like the
// workload's, without a network, and under ids of a slot that is locked while it
// lives: the last of the range, so that what the store holds always has one
// owner and attempts find the others free.
type helpers struct {
	facts   Facts
	state   *state
	ids     probe.Slot
	slot    *slot
	self    int // nsbox's stage
	filters struct{ init, work filter.Program }
}

// helperUser owns in its box what it makes. It is the exporter's number: the
// workload's ids own nothing of a root.
const helperUser = 20002

// helper is one such box.
type helper struct {
	what    string // for messages
	nodes   []nsexec.Node
	command nsexec.Command
	self    int // executable of pid 1, and of the command if it says so
	wall    time.Duration
	bytes   int64        // largest file
	memory  int64        // resident, sampled
	log     int64        // most bytes of each stream
	owner   probe.HostID // host ids behind helperUser; zero: the slot's
}

// helped is how a helper ended.
type helped struct {
	out, log []byte
	status   int
}

// openHelpers waits for the slot of the store.
func (s *state) openHelpers(ctx context.Context, f Facts, who string) (*helpers, error) {
	h := &helpers{facts: f, state: s, self: -1}
	all, err := openSlots(f.Host.BootID)
	if err != nil {
		return nil, err
	}
	last := f.Identity.Slots() - 1
	if h.ids, err = f.Identity.Map(last); err != nil {
		return nil, err
	}
	for pause := firstLook; h.slot == nil; pause = min(2*pause, lastLook) {
		if h.slot, err = all.try(last, h.ids); err != nil {
			return nil, err
		}
		if h.slot != nil {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, reason.Wrap(reason.StoreBusy, "the ids of the store", "are in use by another nsbox", "run again when it has ended", ctx.Err())
		}
	}
	if err = h.slot.write(who + " " + f.Host.BootID + "\n"); err == nil {
		if h.filters.init, _, err = seccompgen.Cached(s.cache(), seccompgen.Init()); err == nil {
			h.filters.work, _, err = seccompgen.Cached(s.cache(), seccompgen.Workload(seccompgen.Options{}))
		}
	}
	if err == nil {
		h.self, err = stage.Open(s.cache())
	}
	if err != nil {
		h.close(true)
		return nil, err
	}
	return h, nil
}

func (h *helpers) close(clean bool) {
	if h.self >= 0 {
		unix.Close(h.self)
	}
	h.slot.release(clean)
}

// run starts the box, holds it to its limits and waits for its end.
func (h *helpers) run(ctx context.Context, x helper) (helped, error) {
	failed := func(err error) (helped, error) {
		return helped{}, reason.Wrap(reason.HelperFailed, x.what, "its box did not do its work", "look at the cause; nothing of it was kept", err)
	}
	ctx, cancel := context.WithTimeout(ctx, x.wall)
	defer cancel()
	spec := h.spec(x)
	box, err := nsexec.Spawn(spec, nsexec.Files{Self: x.self, Cgroup: -1, Work: -1}, ctx.Done())
	if err != nil {
		return failed(boxFailure(err))
	}
	rows, err := inspect(box, spec, nil)
	if err == nil {
		err = attest.Check(rows)
	}
	if err != nil {
		return failed(errors.Join(err, box.Abort()))
	}
	over := make(chan string, 2)
	out := startCapture(x.what+" output", box.Stdout, io.Discard, x.log, over)
	log := startCapture(x.what+" log", box.Stderr, io.Discard, x.log, over)
	if err := box.Release(); err != nil {
		return failed(errors.Join(err, box.Abort()))
	}
	end, why := watchHelper(ctx, box, x, over)
	if why == errStillThere {
		return failed(why)
	}
	<-out.readDone
	<-log.readDone
	got := helped{out: out.bytes(), log: log.bytes()}
	switch {
	case why != nil:
	case end.ExecErr != nil:
		why = end.ExecErr
	case end.SetupErr != nil:
		why = end.SetupErr
	case !end.Reported || !end.Status.Exited():
		why = fmt.Errorf("ended with wait status %#x: %s", uint32(end.Status), strings.TrimSpace(textOf(got.log, false)))
	default:
		got.status = end.Status.ExitStatus()
		return got, nil
	}
	_, err = failed(why)
	return got, err
}

func watchHelper(ctx context.Context, box *nsexec.Box, x helper, over <-chan string) (nsexec.Exit, error) {
	s := sampler{init: box.InitPID}
	tick := time.NewTicker(samplePoll)
	defer tick.Stop()
	var why error
	for why == nil {
		select {
		case e := <-box.Done():
			return e, nil
		case <-ctx.Done():
			why = ctx.Err()
		case name := <-over:
			why = errors.New(name + " is longer than it may be")
		case <-tick.C:
			if _, rss := s.sample(); rss > x.memory {
				why = fmt.Errorf("used more than %d bytes of memory", x.memory)
			}
		}
	}
	box.Kill()
	select {
	case e := <-box.Done():
		return e, why
	case <-time.After(endGrace):
		return nsexec.Exit{}, errStillThere
	}
}

func (h *helpers) spec(x helper) *nsexec.Spec {
	both := func(name string, res int, v uint64) nsexec.Rlimit {
		return nsexec.Rlimit{Name: name, Resource: res, Soft: v, Hard: v}
	}
	owner := x.owner
	if owner == (probe.HostID{}) {
		owner = h.ids.Exporter
	}
	s := &nsexec.Spec{
		Hostname: hostname, StagingPoint: stagingPoint, Root: x.nodes,
		UID: helperUser, GID: helperUser, Umask: 0o022, Affinity: -1, LandlockABI: min(h.facts.Host.LandlockABI, maxLandlockABI),
		Rlimits: []nsexec.Rlimit{both("nofile", unix.RLIMIT_NOFILE, 256), both("fsize", unix.RLIMIT_FSIZE, uint64(x.bytes)),
			both("core", unix.RLIMIT_CORE, 0), both("nproc", unix.RLIMIT_NPROC, 64)},
		Command: x.command, Listable: -1, CapLast: h.facts.CapLast,
		Identity:   maps(h.facts, pair{0, 0, h.ids.ExportRoot}, pair{helperUser, helperUser, owner}),
		InitFilter: h.filters.init, Filter: h.filters.work, SharedVM: sharedVM,
	}
	if slices.ContainsFunc(x.nodes, func(n nsexec.Node) bool { return n.Kind == nsexec.Proc }) {
		s.MaskProc, s.MaskDirs = maskedProc(), maskedProcDirs()
	}
	return s
}
