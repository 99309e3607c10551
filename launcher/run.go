package launcher

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/broker"
	"nsbox/launcher/policy"
	"nsbox/nsexec"
	"nsbox/seccompgen/filter"
)

// Run executes one attempt to its end and always returns a Result, whatever
// happened; the only judge of success is Result.ExitStatus. Cancel ctx to
// cancel the attempt; a CancelCause as cause chooses the exit status.
func Run(ctx context.Context, req Request, s Streams) Result {
	r := newRun(req, s)
	r.res.Started = r.start.UTC()
	// What nsbox makes for itself is private, whatever umask the caller has; what
	// it delivers follows the caller's.
	r.umask = unix.Umask(0o077)
	defer unix.Umask(r.umask)
	r.whole(ctx)
	if r.res.Delivery.Outcome == "" {
		r.res.Delivery.Outcome = deliveryOf(r.res.Artifact.Outcome, r.res.Cleanup.Outcome)
	}
	r.res.ExitStatus = ExitStatus(r.res, req.Deliver != "", r.cancel)
	r.auditEnd()
	r.phase("total", r.start)
	r.keepResult()
	r.closeMark()
	return r.res
}

// newRun owns no descriptor yet: the finalizer of an attempt that fails early
// must not close number 0, which is somebody else's.
func newRun(req Request, s Streams) *run {
	return &run{req: req, streams: s, start: time.Now(), self: -1, held: -1, res: newResult()}
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
	waited  time.Duration // in line for a place: the attempt's own budgets begin after it
	res     Result
	cancel  syscall.Signal
	stopBy  time.Time // end of the stop budget, if nsbox ended the program

	umask      int // the caller's
	state      *state
	gathered   *gathered
	plan       *Plan
	planDigest func() (string, error) // nil until the inputs are staged, which it covers
	att        *attempt
	mark       *mark
	slots      *slots
	slot       *slot
	store      *outSlot // provisioned /out, or nil
	group      *cgroupv2.Group
	limitRows  []attest.Row // of the job cgroup, written and read back
	self       int
	filters    struct{ init, workload filter.Program }
	staged     string
	held       int
	out, err   *capture
	routes     []broker.Route // where the policy's destinations lead, one per listener
	broker     *broker.Broker // nil: none listed
}

// whole is the story: each phase either succeeds or names why not, and whatever
// exists by then is ended by the one finalizer.
func (r *run) whole(ctx context.Context) {
	id, err := newAttemptID(r.start)
	if err != nil {
		r.refuse(err)
		return
	}
	defer func() {
		r.store.release()
		r.slot.release(r.slotClean())
	}()
	if err := r.decide(ctx, id); err != nil {
		r.refuse(err)
		return
	}
	defer r.gathered.close()
	inLine := time.Now()
	lock, err := r.state.enter(ctx, id, r.plan.Lifecycle.Concurrency, r.req.Wait)
	r.waited = time.Since(inLine) + r.gathered.made
	if err != nil && ctx.Err() != nil {
		r.fail(ctx, err)
		return
	}
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
	m := marker{Boot: boot, IDs: r.ids(), Out: r.store.ref(), Deliver: r.req.Deliver}
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
	r.res.Cleanup.Outcome = CleanupQuarantined // until the finalizer has earned the other word
	box, err := r.setUp(ctx)
	if err != nil {
		r.fail(ctx, err)
		r.journalTerminal(r.res.Workload.Outcome)
		r.finish(!errors.Is(err, nsexec.ErrStays))
		return
	}
	e, gone := r.supervise(ctx, box)
	r.conclude(e)
	r.finish(gone)
	if gone {
		r.flushLive(ctx)
	}
}

// deadline is the end of the attempt; what is not done by then is not done.
func (r *run) deadline() time.Time {
	return r.start.Add(r.waited + r.plan.Limits.Attempt.Deadline)
}

// supervise says "go" and watches until the first terminal event.
func (r *run) supervise(ctx context.Context, box *nsexec.Box) (ending, bool) {
	over := make(chan string, 2)
	l := r.plan.Limits
	r.capture(box, over)
	if r.req.Weaker != nil {
		r.req.Weaker(r.plan.Degraded)
	}
	released := time.Now()
	if err := box.Release(); err != nil {
		stays := box.Abort()
		r.held = -1
		r.journalTerminal(SetupFailure)
		return ending{outcome: SetupFailure, detail: errors.Join(err, stays).Error()}, stays == nil
	}
	r.feed(box)
	m := &monitor{box: box, child: box.ChildPID, plan: r.plan, sampler: sampler{init: box.InitPID}, output: over,
		deadline: r.deadline().Add(-l.Attempt.StopProof - l.Attempt.ExporterLifecycle - l.Attempt.Cleanup), cpus: runtime.NumCPU(), watchMem: r.plan.degraded(policy.DimMemory), drained: r.drained, decide: r.journalTerminal}
	if r.group != nil {
		m.group = r.group
	}
	if r.plan.Box.Affinity >= 0 {
		m.cpus = 1
	}
	e, gone := m.run(ctx, released, l.Attempt.StopProof)
	if gone {
		r.drained() // a killed program's last bytes are still in the pipes
	}
	r.phase("run", released)
	return e, gone
}

// drained reads both streams to their end, which is certain to come once the
// tree is dead, and names one that passed its cap.
func (r *run) drained() string {
	r.out.ending()
	r.err.ending()
	<-r.out.readDone
	<-r.err.readDone
	for _, c := range []*capture{r.out, r.err} {
		if !c.endless && c.stream().Truncated {
			return c.name
		}
	}
	return ""
}

// capture begins to read what the program writes. A terminal is one stream for
// both; it is standard output's.
func (r *run) capture(box *nsexec.Box, over chan<- string) {
	l := r.plan.Limits
	from := box.Stdout
	if box.Terminal != nil {
		from = box.Terminal
	}
	r.out = newCapture("stdout", l.Log.Stdout, over, r.plan.LiveStdout || box.Terminal != nil).start(from, r.streams.Stdout)
	r.err = newCapture("stderr", l.Log.Stderr, over, r.plan.LiveStderr).start(box.Stderr, r.streams.Stderr)
}

// feed passes the caller's stdin on, where the box has one, and its terminal's size.
func (r *run) feed(box *nsexec.Box) {
	if box.Stdin != nil {
		go feed(box.Stdin, r.streams.Stdin)
	}
	if box.Terminal != nil {
		// The master is the reader's to close: its end is the end of the session.
		go io.Copy(box.Terminal, r.streams.Stdin)
		go func() {
			for size := range r.req.Terminal.Sizes {
				box.Resize(size)
			}
		}()
	}
}

// feed copies the caller's stdin into the box until either end closes.
func feed(to *os.File, from io.Reader) {
	io.Copy(to, from)
	to.Close()
}

func (r *run) phase(name string, since time.Time) time.Time {
	now := time.Now()
	r.res.DurationsMS[name] = ms(now.Sub(since))
	return now
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
