package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/journal"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// conclude writes the ending into the result.
func (r *run) conclude(e ending) {
	r.cancel, r.stopBy = e.cancel, e.stopBy
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
		path := r.att.dir + "/" + name
		if err := os.WriteFile(path, c.bytes(), 0o600); err != nil && r.res.Reason == nil {
			r.res.Reason = asReason(reason.Wrap(reason.StateDir, path, "the kept output could not be written", "free space in the state directory", err))
		}
	}
}

// finish is the one way out of an attempt that exists.
func (r *run) finish(gone bool) {
	r.stopBroker()
	if r.planDigest != nil {
		r.res.Digests.Plan, _ = r.planDigest() // its error has stopped the run before "go"
	}
	f := &finalizer{store: r.store, wiping: wiping{r.gathered.facts, r.self, r.filters.init, r.state.cache()}, root: r.gathered.cgroup, cpu: r.gathered.facts.CPU, res: &r.res, plan: r.plan, att: r.att, group: r.group, self: r.self, init: r.filters.init, cache: r.state.cache(), staged: r.staged, held: r.held, copied: copiesIn(r.att.dir, r.plan.Exporter.Bounds.Slots()), deadline: r.deadline()}
	t := time.Now()
	if f.stopBy = r.stopBy; f.stopBy.IsZero() {
		f.stopBy = endOfBudget(r.plan.Limits.Attempt.StopProof, f.deadline)
	}
	ok := f.stopProof(gone)
	t = r.phase("stop", t)
	if ok {
		if w := r.res.Workload; w.Outcome == Exited && w.ExitCode != nil && *w.ExitCode == 0 {
			ok = f.export()
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
	if r.res.Delivery.Outcome = deliveryOf(r.res.Artifact.Outcome, r.res.Cleanup.Outcome); r.res.Delivery.Outcome == "" {
		r.deliver(f)
	}
	if err := r.att.journal.Close(); err != nil {
		f.fail(reason.Wrap(reason.JournalWrite, r.att.dir+"/journal", "could not be closed", "", err))
	}
	if r.group != nil {
		r.group.Close()
	}
	if r.self >= 0 {
		unix.Close(r.self)
	}
}

func (r *run) deliver(f *finalizer) {
	t := time.Now()
	if r.req.Deliver == "" {
		// Nobody named a directory: what was accepted stays in the attempt's.
		r.res.Delivery = f.copied.delivery(f.copied[0], r.res.Artifact)
		return
	}
	dir, err := filepath.Abs(r.req.Deliver) // recovery has another working directory
	if err != nil {
		f.fail(reason.Wrap(reason.DeliverDir, r.req.Deliver, "has no absolute path", "run nsbox in a directory that exists", err))
		r.res.Delivery.Outcome = DeliveryBlocked
		return
	}
	r.res.Delivery.Outcome = DeliveryBlocked // until it is there; the accepted copy stays in the attempt's directory
	name := r.res.Artifact.Name
	if f.copied.several() {
		name = r.att.id
	}
	f.record(journal.DeliverIntent, map[string]string{"dir": dir, "name": name})
	if f.broken {
		return
	}
	if err := r.att.journal.Sync(); err != nil {
		f.fail(reason.Wrap(reason.JournalWrite, r.att.dir+"/journal", "could not be made durable before delivery", "", err))
		return
	}
	private := unix.Umask(r.umask)
	var path string
	if f.copied.several() {
		path, err = deliverSeveral(f.copied, r.res.Artifact.Files, r.req.Deliver)
	} else {
		path, err = deliver(f.copied[0], r.req.Deliver, name, r.res.Artifact.SHA256)
	}
	unix.Umask(private)
	if err != nil {
		f.fail(reason.Of(err))
	}
	if path == "" {
		f.record(journal.DeliverAbandoned, nil)
		return
	}
	path = filepath.Join(dir, name) // whoever reads the result has another working directory
	f.record(journal.Delivered, map[string]string{"path": path})
	r.res.Delivery = f.copied.delivery(path, r.res.Artifact)
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
		err = renameio.WriteFile(r.att.dir+"/result.json", SafeJSON(data), 0o600, renameio.WithTempDir(r.att.dir))
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
