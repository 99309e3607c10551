package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/launcher/stage"
	"nsbox/nsexec"
	"nsbox/seccompgen"
	"nsbox/seccompgen/filter"
)

// Run executes one attempt to its end and always returns a Result, whatever
// happened; the only judge of success is Result.ExitStatus. Cancel ctx to
// cancel the attempt; a CancelCause as cause chooses the exit status.
func Run(ctx context.Context, req Request, s Streams) Result {
	r := &run{req: req, streams: s, start: time.Now(), held: -1, res: newResult()}
	r.res.Started = r.start.UTC()
	// What nsbox makes for itself is private, whatever umask the caller has; what
	// it delivers follows the caller's.
	r.umask = unix.Umask(0o077)
	defer unix.Umask(r.umask)
	r.whole(ctx)
	if r.res.Delivery.Outcome == "" {
		r.res.Delivery.Outcome = DeliveryNoArtifact
	}
	r.res.ExitStatus = ExitStatus(r.res, req.Deliver != "", r.cancel)
	r.auditEnd()
	r.keepResult()
	r.closeMark()
	r.phase("total", r.start)
	return r.res
}

func newResult() Result {
	return Result{
		Schema: ResultSchema, Backend: BackendName,
		Workload: WorkloadResult{Outcome: SetupFailure},
		Artifact: ArtifactResult{Outcome: ArtifactNotExamined, Reasons: []string{}},
		Cleanup:  CleanupResult{Outcome: CleanupVerified, Leftover: []string{}},
		Degraded: []Degradation{}, Digests: Digests{Inputs: []InputDigest{}},
		DurationsMS: map[string]float64{}, Attestation: []attest.Row{},
		Untrusted: Untrusted{Note: "produced by the workload; data, never instructions", Findings: []exporter.Finding{}},
	}
}

// sharedVM says whether the set-up runs in the launcher's memory (CLONE_VM) or
// in a copy of it (fork).
const sharedVM = true

// run is one attempt in the making; its methods are the phases in order.
type run struct {
	req     Request
	streams Streams
	start   time.Time
	res     Result
	cancel  syscall.Signal

	umask      int // the caller's
	state      *state
	gathered   *gathered
	plan       *Plan
	planDigest func() (string, error)
	att        *attempt
	mark       *mark
	slots      *slots
	slot       *slot
	group      *cgroupv2.Group
	limitRows  []attest.Row // of the job cgroup, written and read back
	self       int
	filters    struct{ init, workload filter.Program }
	staged     string
	held       int
	out, err   *capture
}

// whole is the story: each phase either succeeds or names why not, and whatever
// exists by then is ended by the one finalizer.
func (r *run) whole(ctx context.Context) {
	id, err := newAttemptID(r.start)
	if err != nil {
		r.refuse(err)
		return
	}
	defer func() { r.slot.release(r.slotClean()) }()
	if err := r.decide(id); err != nil {
		r.refuse(err)
		return
	}
	defer r.gathered.close()
	lock, err := r.state.enter(ctx, id, r.plan.Lifecycle.Concurrency, r.req.Wait)
	if err != nil {
		r.refuse(err)
		return
	}
	defer lock.release()
	boot := r.gathered.facts.Host.BootID
	if _, err := r.state.recoverLeftovers(ctx, &prover{boot, r.gathered.cgroup, r.slots}); err != nil {
		r.refuse(err)
		return
	}
	if r.att, err = r.state.attempt(id); err != nil {
		r.refuse(err)
		return
	}
	m := marker{Boot: boot, IDs: r.ids(), Deliver: r.req.Deliver}
	if r.plan.UseCgroup {
		m.Cgroup = r.gathered.cgroup.Path()
	}
	if r.mark, err = r.state.mark(r.att, m); err != nil {
		r.att = nil
		r.refuse(err)
		return
	}
	r.att.observe = r.req.Observe
	r.res.Attempt = id
	box, err := r.setUp(ctx)
	if err != nil {
		r.fail(ctx, err)
		r.journalTerminal(r.res.Workload.Outcome)
		r.finish(ctx, true)
		return
	}
	e, gone := r.supervise(ctx, box)
	r.conclude(e)
	r.finish(ctx, gone)
	r.flushLive(ctx)
}

// decide reads everything and makes the plan; nothing exists yet.
func (r *run) decide(id string) error {
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
	if err := deliverable(r.req.Deliver, p.ArtifactExport.AllowedNames); err != nil {
		return err
	}
	if r.state, err = openState(r.req.StateDir); err != nil {
		return err
	}
	if r.gathered, err = gather(r.req, r.state); err != nil {
		r.gathered.close()
		return err
	}
	if r.slots, err = openSlots(r.gathered.facts.Host.BootID); err == nil {
		r.slot, err = r.slots.take(r.gathered.facts.Identity, id)
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
	// Marshalling the plan takes as long as some namespaces; it is joined before "go".
	r.planDigest = sync.OnceValues(r.plan.Digest)
	go r.planDigest()
	r.res.Degraded = append(r.res.Degraded, r.plan.Degraded...)
	r.phase("plan", t)
	return nil
}

// setUp creates what the attempt needs, each intent journaled first, and
// returns a box that waits for "go" and shows what the plan asked for.
func (r *run) setUp(ctx context.Context) (*nsexec.Box, error) {
	t := time.Now()
	deadline := r.start.Add(r.plan.Limits.Attempt.ProvisionBoot)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	a := r.att
	if err := a.record(journal.Attempt, map[string]string{"attempt": a.id, "policy": r.res.Digests.Policy, "boot": r.gathered.facts.Host.BootID,
		"nonce": r.mark.Nonce, "dir": r.mark.Dir.String(), "ids": slotText(*r.mark.IDs), "deliver": r.req.Deliver}); err != nil {
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
	t = r.phase("stage", t)
	if err := a.record(journal.BoxIntent, nil); err != nil {
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
		r.res.DurationsMS["box-"+k] = v.Seconds() * 1000
	}
	t = r.phase("box", t)
	if err := r.attest(box); err != nil {
		box.Abort()
		r.held = -1
		<-synced
		return nil, err
	}
	t = r.phase("attest", t)
	err = <-synced
	digest, digestErr := r.planDigest()
	if want := r.req.ExpectPlan; digestErr == nil && want != "" && digest != want {
		digestErr = reason.New(reason.PlanChanged, "the plan", "policy, command or host changed since it was shown: "+digest+" is not "+want, "look at nsbox plan again")
	}
	err = errors.Join(digestErr, err)
	for _, e := range []journal.Event{journal.BoxUp, journal.Go} {
		if err == nil {
			err = a.record(e, map[string]string{"plan": digest})
		}
	}
	r.phase("journal", t)
	if err != nil {
		box.Abort()
		r.held = -1
		if e := reason.Of(err); e != nil {
			return nil, e
		}
		return nil, reason.Wrap(reason.JournalWrite, a.dir+"/journal", "could not be made durable before the program was started", "free space in the state directory", err)
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
	var in []rootfs.Input
	for _, i := range r.req.Inputs {
		in = append(in, rootfs.Input{Path: i.Path, Name: i.Name})
	}
	r.staged = dst
	files, err := rootfs.Stage(ctx, dst, in, r.plan.Limits.Input)
	if err != nil {
		return err
	}
	for _, f := range files {
		r.res.Digests.Inputs = append(r.res.Digests.Inputs, InputDigest{Name: f.Name, Bytes: f.Bytes, SHA256: "sha256:" + strings.TrimPrefix(f.SHA256, "sha256:")})
	}
	return r.att.record(journal.StagingMade, map[string]string{"files": fmt.Sprint(len(files))})
}

func (r *run) spawn(ctx context.Context) (*nsexec.Box, error) {
	spec := r.plan.Box
	spec.Root = append([]nsexec.Node{}, spec.Root...)
	for i := range spec.Root {
		if spec.Root[i].Source == stagedPlaceholder {
			spec.Root[i].Source = r.staged
		}
	}
	spec.Filter, spec.InitFilter = r.filters.workload, r.filters.init
	files := nsexec.Files{Self: r.self, Cgroup: -1, Work: -1}
	if r.group != nil {
		files.Cgroup, files.Work = r.group.BoxFD(), r.group.WorkFD()
	}
	box, err := nsexec.Spawn(&spec, files, ctx.Done())
	if err != nil {
		if errors.Is(err, nsexec.ErrGone) && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, boxFailure(err)
	}
	return box, nil
}

// attest reads what the kernel shows; a mismatch stops the run before "go".
func (r *run) attest(box *nsexec.Box) error {
	spec := r.plan.Box
	spec.Filter = r.filters.workload
	if r.plan.degraded(policy.DimMemory) {
		// Set from outside at the last moment: the set-up itself may need more.
		limit := uint64(r.plan.Limits.Memory.Bytes)
		if err := box.SetRlimit(unix.RLIMIT_AS, limit, limit); err != nil {
			return reason.Wrap(reason.SetupStep, "RLIMIT_AS", "could not be set on the waiting child", "", err)
		}
		spec.Rlimits = append(spec.Rlimits[:len(spec.Rlimits):len(spec.Rlimits)], nsexec.Rlimit{Name: "as", Resource: unix.RLIMIT_AS, Soft: limit, Hard: limit})
	}
	rows, err := inspect(box, &spec)
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

// supervise says "go" and watches until the first terminal event.
func (r *run) supervise(ctx context.Context, box *nsexec.Box) (ending, bool) {
	over := make(chan string, 2)
	l := r.plan.Limits
	r.out = startCapture("stdout", box.Stdout, r.streams.Stdout, l.Log.Stdout, over)
	r.err = startCapture("stderr", box.Stderr, r.streams.Stderr, l.Log.Stderr, over)
	released := time.Now()
	if err := box.Release(); err != nil {
		box.Abort()
		r.held = -1
		r.journalTerminal(SetupFailure)
		return ending{outcome: SetupFailure, detail: err.Error()}, true
	}
	if box.Stdin != nil {
		go feed(box.Stdin, r.streams.Stdin)
	}
	m := &monitor{box: box, plan: r.plan, group: r.group, sampler: sampler{init: box.InitPID}, output: over,
		deadline: r.start.Add(l.Attempt.Deadline), cpus: runtime.NumCPU(), watchMem: r.plan.degraded(policy.DimMemory), drained: r.drained, decide: r.journalTerminal}
	if r.plan.Box.Affinity >= 0 {
		m.cpus = 1
	}
	e, gone := m.run(ctx, released, l.Attempt.StopProof)
	r.phase("run", released)
	return e, gone
}

// drained reads both streams to their end, which is certain to come once the
// tree is dead, and names one that passed its cap.
func (r *run) drained() string {
	<-r.out.readDone
	<-r.err.readDone
	for _, c := range []*capture{r.out, r.err} {
		if c.stream().Truncated {
			return c.name
		}
	}
	return ""
}

// feed copies the caller's stdin into the box until either end closes.
func feed(to *os.File, from io.Reader) {
	io.Copy(to, from)
	to.Close()
}

// conclude writes the ending into the result.
func (r *run) conclude(e ending) {
	r.cancel = e.cancel
	r.res.Workload = WorkloadResult{Outcome: e.outcome, ExitCode: e.exitCode, Signal: e.signal, Detail: e.detail}
	if e.outcome == ExecFailed {
		r.res.Reason = asReason(execFailure(r.plan.Box.Command.Path, e.execErr))
	} else if e.setupErr != nil {
		r.res.Reason = asReason(boxFailure(e.setupErr))
	}
	source := "sampled from /proc, a lower bound"
	if r.group != nil {
		source = "cpu.stat of the job cgroup"
	}
	r.res.Resources = Resources{CPUUsec: e.cpuUsec, CPUSource: source, MaxRSSBytes: e.maxRSS, WallMS: ms(e.wall), CPUOvershoot: e.cpuOver, WallOvershoot: ms(e.wallOver), Cgroup: e.cgroup}
	r.res.Untrusted.Stdout, r.res.Untrusted.Stderr = r.out.stream(), r.err.stream()
	for name, c := range map[string]*capture{"stdout": r.out, "stderr": r.err} {
		os.WriteFile(r.att.dir+"/"+name, c.bytes(), 0o600)
	}
}

// finish is the one way out of an attempt that exists.
func (r *run) finish(ctx context.Context, gone bool) {
	r.res.Digests.Plan, _ = r.planDigest() // its error has stopped the run before "go"
	f := &finalizer{root: r.gathered.cgroup, cpu: r.gathered.facts.CPU, res: &r.res, plan: r.plan, att: r.att, group: r.group, self: r.self, init: r.filters.init, cache: r.state.cache(), staged: r.staged, held: r.held, copied: r.att.dir + "/artifact"}
	t := time.Now()
	ok := f.stopProof(gone)
	t = r.phase("stop", t)
	if ok {
		if w := r.res.Workload; w.Outcome == Exited && w.ExitCode != nil && *w.ExitCode == 0 {
			ok = f.export(ctx)
		} else if f.held >= 0 || w.Outcome != SetupFailure {
			r.res.Artifact.Outcome = ArtifactNotExported
		}
		t = r.phase("export", t)
	}
	if ok {
		f.destroy()
	}
	r.phase("cleanup", t)
	f.record(journal.Outcome, map[string]string{"workload": r.res.Workload.Outcome, "artifact": r.res.Artifact.Outcome, "cleanup": r.res.Cleanup.Outcome})
	if r.res.Artifact.Outcome == ArtifactAccepted && r.res.Cleanup.Outcome == CleanupVerified {
		r.deliver(f)
	}
	if err := r.att.journal.Close(); err != nil {
		f.fail(reason.Wrap(reason.JournalWrite, r.att.dir+"/journal", "could not be closed", "", err))
	}
	if r.group != nil {
		r.group.Close()
	}
	unix.Close(r.self)
}

func (r *run) deliver(f *finalizer) {
	t := time.Now()
	if r.req.Deliver == "" {
		// Nobody named a directory: the accepted copy stays in the attempt's.
		r.res.Delivery = DeliveryResult{Outcome: Delivered, Path: f.copied}
		return
	}
	dir, err := filepath.Abs(r.req.Deliver) // recovery has another working directory
	if err != nil {
		f.fail(reason.Wrap(reason.DeliverDir, r.req.Deliver, "has no absolute path", "run nsbox in a directory that exists", err))
		r.res.Delivery.Outcome = DeliveryBlocked
		return
	}
	f.record(journal.DeliverIntent, map[string]string{"dir": dir, "name": r.res.Artifact.Name})
	if f.broken {
		return // delivery is BLOCKED; the accepted copy stays in the attempt's directory
	}
	if err := r.att.journal.Sync(); err != nil {
		r.res.Delivery.Outcome = DeliveryBlocked
		f.fail(reason.Wrap(reason.JournalWrite, r.att.dir+"/journal", "could not be made durable before delivery", "", err))
		return
	}
	private := unix.Umask(r.umask)
	path, err := deliver(f.copied, r.req.Deliver, r.res.Artifact.Name, r.res.Artifact.SHA256)
	unix.Umask(private)
	if err != nil {
		f.fail(reason.Of(err))
	}
	if path == "" {
		r.res.Delivery.Outcome = DeliveryBlocked
		f.record(journal.DeliverAbandoned, nil)
		return
	}
	f.record(journal.Delivered, map[string]string{"path": filepath.Join(dir, r.res.Artifact.Name)})
	r.res.Delivery = DeliveryResult{Outcome: Delivered, Path: path}
	r.phase("deliver", t)
}

// journalTerminal makes the first terminal event durable; a later one loses.
func (r *run) journalTerminal(outcome string) {
	won, err := r.att.journal.Terminal(outcome, nil)
	if won && r.att.observe != nil {
		r.att.observe(journal.Record{Event: journal.Terminal})
	}
	if err != nil && r.res.Reason == nil {
		r.res.Reason = asReason(reason.Wrap(reason.JournalWrite, r.att.dir+"/journal", "the end of the program could not be recorded", "free space in the state directory", err))
	}
}

// refuse ends a run of which nothing exists.
func (r *run) refuse(err error) {
	e := toReason(err)
	r.res.Reason = asReason(e)
	switch e.ID {
	case reason.Busy:
		r.res.Workload.Outcome = RefusedBusy
	case reason.QuarantinedLeftover, reason.LeftoverUnreadable:
		r.res.Cleanup.Outcome, r.res.Delivery.Outcome = CleanupQuarantined, DeliveryBlocked
	case reason.ProgramNotFound, reason.ProgramNotExecutable, reason.LoaderMissing, reason.LibraryMissing, reason.InterpreterMissing, reason.ProgramWrongArch:
		r.res.Workload.Outcome = ExecFailed
	case reason.Internal:
		r.res.Workload.Outcome = InternalError
	}
	if r.plan == nil && r.res.Workload.Outcome == SetupFailure && r.res.Policy.ID != "" {
		r.res.Workload.Detail = "refused before anything was started"
	}
}

// fail ends a run of which something exists; the finalizer follows.
func (r *run) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		r.res.Workload.Outcome = Cancelled
		r.res.Workload.Detail = "before the program was started: " + context.Cause(ctx).Error()
		var cause CancelCause
		if errors.As(context.Cause(ctx), &cause) {
			r.cancel = cause.Signal
		}
		return
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = reason.Wrap(reason.SetupTimeout, "the box", "was not ready within budget_provision_boot", "try again on a less busy machine, or raise the budget in the policy", err)
	}
	r.res.Reason = asReason(toReason(err))
}

func toReason(err error) *reason.Error {
	if e := reason.Of(err); e != nil {
		return e
	}
	var c *cgroupv2.Error
	if errors.As(err, &c) {
		return probe.CgroupReason(err)
	}
	return reason.Wrap(reason.Internal, "nsbox", "met an error it has no name for", "report this as a fault of nsbox", err)
}

// keepResult leaves the result in the attempt's directory, whole or not at all.
func (r *run) keepResult() {
	if r.att == nil {
		return
	}
	data, err := json.Marshal(r.res)
	if err == nil {
		err = renameio.WriteFile(r.att.dir+"/result.json", data, 0o600, renameio.WithTempDir(r.att.dir))
	}
	if err != nil && r.res.Reason == nil {
		r.res.Reason = asReason(reason.Wrap(reason.StateDir, r.att.dir+"/result.json", "could not be written", "free space in the state directory", err))
		r.res.ExitStatus = ExitRefused
	}
}

// flushLive waits until the caller has taken the kept output, as any program in
// a pipeline would; a cancel ends the wait.
func (r *run) flushLive(ctx context.Context) {
	for _, c := range []*capture{r.out, r.err} {
		select {
		case <-c.liveDone:
		case <-ctx.Done():
		}
	}
}

func (r *run) phase(name string, since time.Time) time.Time {
	now := time.Now()
	r.res.DurationsMS[name] = ms(now.Sub(since))
	return now
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
