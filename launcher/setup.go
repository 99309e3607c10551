package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/launcher/stage"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// decide reads everything and makes the plan; nothing exists yet.
func (r *run) decide(ctx context.Context, id string) error {
	t := time.Now()
	p, src, err := loadPolicy(r.req)
	r.res.Policy.Source, r.res.Digests.Policy = src.Arg, src.Digest
	if err != nil {
		r.res.Workload.Outcome = RefusedPolicy
		return err
	}
	r.res.Policy = PolicyRef{ID: p.PolicyID, Version: p.PolicyVersion, Workload: p.WorkloadID, Source: src.Arg}
	t = r.phase("policy", t)
	if err := policy.CheckDimensions(r.req.AllowDegraded); err != nil {
		return err
	}
	if err := deliverable(r.req.Deliver, deliveredNames(p)); err != nil {
		return err
	}
	if r.state, err = openState(r.req.StateDir); err != nil {
		return err
	}
	if r.gathered, err = gather(ctx, r.req, p, r.state, true); err != nil {
		r.gathered.close()
		return err
	}
	if r.gathered.facts.Identity.Kind != probe.Single { // which has nothing to lock
		r.slots, err = openSlots(r.gathered.facts.Host.BootID)
	}
	if err == nil {
		err = r.takeSlot(p, id)
	}
	if err != nil {
		r.gathered.close()
		return err
	}
	r.gathered.facts.Slot = r.slot.n
	if err := checkPolicyEvidence(p, r.gathered.facts.Host); err != nil {
		r.gathered.close()
		r.res.Workload.Outcome = RefusedPolicy
		return err
	}
	t = r.phase("probe", t)
	if r.plan, err = MakePlan(r.req, p, src, r.gathered.facts); err != nil {
		r.gathered.close()
		return err
	}
	r.plan.Box.SharedVM = sharedVM
	r.res.Degraded = append(r.res.Degraded, r.plan.Degraded...)
	r.phase("plan", t)
	return nil
}

// setUp creates what the attempt needs, each intent journaled first, and
// returns a box that waits for "go" and shows what the plan asked for.
func (r *run) setUp(ctx context.Context) (*nsexec.Box, error) {
	t := time.Now()
	if err := killable(ownOOMScore); err != nil {
		return nil, err
	}
	deadline := r.start.Add(r.waited + r.plan.Limits.Attempt.ProvisionBoot)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	a := r.att
	begun := map[string]string{"attempt": a.id, "policy": r.res.Digests.Policy, "boot": r.gathered.facts.Host.BootID,
		"nonce": r.mark.Nonce, "dir": r.mark.Dir.String(), "ids": slotText(*r.mark.IDs), "out": r.store.ref().String(), "deliver": r.req.Deliver,
		keepResults: strconv.Itoa(r.plan.Lifecycle.Retention.ResultsDays), keepAudit: strconv.Itoa(r.plan.Lifecycle.Retention.AuditDays)}
	if r.req.For != "" {
		begun[forWhom] = r.req.For
	}
	if err := a.record(journal.Attempt, begun); err != nil {
		return nil, err
	}
	if err := r.canSample(); err != nil {
		return nil, err
	}
	if err := r.loadFilters(); err != nil {
		return nil, err
	}
	if r.plan.UseCgroup {
		if err := a.record(journal.CgroupIntent, map[string]string{"root": r.gathered.cgroup.Path(), "name": a.id}); err != nil {
			return nil, err
		}
		g, err := r.gathered.cgroup.Create(a.id)
		if err != nil {
			return nil, err
		}
		r.group = g
		if err := a.record(journal.CgroupMade, map[string]string{"path": g.Path(), "id": fmt.Sprint(g.ID())}); err != nil {
			return nil, err
		}
		applied, err := g.Apply(r.plan.Cgroup)
		r.limitRows = cgroupRows("", g.Path(), applied)
		if err != nil {
			return nil, err
		}
	}
	if err := r.stage(ctx); err != nil {
		return nil, err
	}
	// Marshalling the plan takes as long as some namespaces; it is joined before "go".
	r.planDigest = sync.OnceValues(func() (string, error) { return r.plan.Digest(r.res.Digests.Inputs) })
	go r.planDigest()
	t = r.phase("stage", t)
	if err := r.route(ctx); err != nil {
		return nil, err
	}
	if err := a.record(journal.BoxIntent, r.routeRecord()); err != nil {
		return nil, err
	}
	// The disk works while the kernel builds the box; both are joined before "go".
	synced := make(chan error, 1)
	go func() { synced <- a.journal.Sync() }()

	box, err := r.spawn(ctx)
	if err != nil {
		return nil, errors.Join(err, <-synced)
	}
	r.held = box.Held
	for k, v := range box.Phases {
		r.res.DurationsMS["box-"+k] = ms(v)
	}
	t = r.phase("box", t)
	if err := r.attest(box); err != nil {
		err = errors.Join(err, box.Abort())
		r.held = -1
		<-synced
		return nil, err
	}
	if err := r.startBroker(box); err != nil {
		err = errors.Join(err, box.Abort())
		r.held = -1
		<-synced
		return nil, err
	}
	t = r.phase("attest", t)
	err = <-synced
	digest, digestErr := r.planDigest()
	if want := r.req.ExpectPlan; digestErr == nil && want != "" && digest != want {
		digestErr = reason.New(reason.PlanChanged, "the plan", "policy, command, inputs or host changed since it was shown: "+digest+" is not "+want, "look at nsbox plan again")
	}
	err = errors.Join(digestErr, err)
	for _, e := range []journal.Event{journal.BoxUp, journal.Go} {
		if err == nil {
			err = a.record(e, map[string]string{"plan": digest})
		}
	}
	r.phase("journal", t)
	if err != nil {
		if reason.Of(err) == nil {
			err = reason.Wrap(reason.JournalWrite, a.dir+"/journal", "could not be made durable before the program was started", "free space in the state directory", err)
		}
		err = errors.Join(err, box.Abort())
		r.held = -1
		return nil, err
	}
	return box, nil
}

// canSample refuses where a degraded dimension rests on sampling and the kernel
// does not list a task's children (CONFIG_PROC_CHILDREN): a sampler that sees
// nothing would never reach a limit.
func (r *run) canSample() error {
	if !r.plan.degraded(policy.DimMemory) && !r.plan.degraded(policy.DimCPUTotal) {
		return nil
	}
	if _, err := os.ReadFile("/proc/thread-self/children"); err != nil {
		return reason.Wrap(reason.HostFactsUnreadable, "/proc/PID/task/TID/children", "this kernel does not list children, so nothing can be sampled", "use a delegated cgroup", err)
	}
	return nil
}

func (r *run) loadFilters() error {
	var err error
	if r.filters.workload, _, err = seccompgen.Cached(r.state.cache(), r.plan.workload); err == nil {
		r.filters.init, _, err = seccompgen.Cached(r.state.cache(), seccompgen.Init())
	}
	if err != nil {
		return reason.Wrap(reason.FilterCompile, "the system call filter", "could not be compiled", "report this as a fault of nsbox", err)
	}
	r.res.Digests.Filter = r.filters.workload.Digest()
	if r.self, err = stage.Open(r.state.cache()); err != nil {
		return reason.Wrap(reason.LauncherExeUnreadable, "nsbox's stage program", "cannot be opened", "check the free space and the mode of "+r.state.cache(), err)
	}
	return nil
}

func (r *run) stage(ctx context.Context) error {
	if len(r.req.Inputs) == 0 {
		return nil
	}
	dst := r.att.dir + "/in"
	if err := r.att.record(journal.StagingIntent, map[string]string{"path": dst}); err != nil {
		return err
	}
	r.staged = dst
	files, err := r.tellingStage(ctx, dst, r.req.toStage())
	if err != nil {
		return err
	}
	r.res.Digests.Inputs = inputDigests(files)
	return r.att.record(journal.StagingMade, map[string]string{"files": fmt.Sprint(len(files))})
}

// tellingStage copies, and says how far that has come where somebody listens.
func (r *run) tellingStage(ctx context.Context, dst string, in []rootfs.Input) ([]rootfs.Staged, error) {
	if r.req.Staging == nil {
		return rootfs.Stage(ctx, dst, in, r.plan.Limits.Input)
	}
	var copied atomic.Int64
	tick := time.NewTicker(time.Second)
	done, quiet := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(quiet)
		for {
			select {
			case <-tick.C:
				r.req.Staging(copied.Load())
			case <-done:
				return
			}
		}
	}()
	defer func() { tick.Stop(); close(done); <-quiet }()
	return rootfs.StageCounted(ctx, dst, in, r.plan.Limits.Input, &copied)
}

func (r *run) spawn(ctx context.Context) (*nsexec.Box, error) {
	spec := r.plan.Box
	spec.Root = append([]nsexec.Node{}, spec.Root...)
	for i := range spec.Root {
		switch spec.Root[i].Source {
		case stagedPlaceholder:
			spec.Root[i].Source = r.staged
		case certificatesPlaceholder:
			spec.Root[i].Source = r.gathered.facts.Certificates.Path
		case outPlaceholder:
			spec.Root[i].Source = r.store.mount.Path
		}
	}
	spec.Filter, spec.InitFilter = r.filters.workload, r.filters.init
	if t := r.req.Terminal; t != nil {
		spec.Terminal = &t.Size
	}
	files := nsexec.Files{Self: r.self, Cgroup: -1, Work: -1}
	if r.group != nil {
		files.Cgroup, files.Work = r.group.BoxFD(), r.group.WorkFD()
	}
	box, err := nsexec.Spawn(&spec, files, ctx.Done())
	if err != nil {
		stays := onlyStays(err)
		if errors.Is(err, nsexec.ErrGone) && ctx.Err() != nil {
			return nil, errors.Join(ctx.Err(), stays)
		}
		return nil, errors.Join(surroundedFailure(r.gathered.facts.Host, err), stays)
	}
	return box, nil
}

// attest reads what the kernel shows; a mismatch stops the run before "go".
func (r *run) attest(box *nsexec.Box) error {
	spec := r.plan.Box
	spec.Filter = r.filters.workload
	if r.plan.degraded(policy.DimMemory) {
		// Set from outside at the last moment: the set-up itself may need more.
		limit := uint64(r.plan.AddressSpace)
		if err := box.SetRlimit(unix.RLIMIT_AS, limit, limit); err != nil {
			return reason.Wrap(reason.SetupStep, "RLIMIT_AS", "could not be set on the waiting child", "", err)
		}
		spec.Rlimits = append(spec.Rlimits[:len(spec.Rlimits):len(spec.Rlimits)], nsexec.Rlimit{Name: "as", Resource: unix.RLIMIT_AS, Soft: limit, Hard: limit})
	}
	rows, err := inspect(box, &spec, r.group)
	if err == nil && r.store != nil {
		var stored []attest.Row
		stored, err = r.store.rows(box.Held)
		rows = append(rows, stored...)
	}
	if err != nil {
		return reason.Wrap(reason.AttestUnreadable, "what the kernel shows of the box", "could not be read", "nothing was started", err)
	}
	rows = append(append(rows, r.limitRows...), r.plan.attestation()...)
	rows = append(rows, confirmedRows(r.plan.Document, rows)...)
	r.res.Attestation = rows
	if err := attest.Check(rows); err != nil {
		return reason.Wrap(reason.AttestMismatch, "the box", "is not what the plan asked for, so the program was not started", "report this with the result's attestation", err)
	}
	return nil
}
