package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/seccompgen/filter"
)

// finalizer ends an attempt. It runs exactly once on every path, and each of its
// parts refuses to begin before the one it rests on is done.
type finalizer struct {
	res   *Result
	plan  *Plan
	att   *attempt
	group *cgroupv2.Group
	root  *cgroupv2.Root // where the exporter gets a group of its own; nil: nowhere
	self  int
	init  filter.Program
	cache string
	cpu   int // for the exporter

	stopBy   time.Time // end of the stop budget; it began with the kill
	deadline time.Time // of the whole attempt

	broken bool   // a record could not be written: nothing that rests on one is done any more
	staged string // inputs' directory, or empty
	held   int    // /out, or -1
	copied copies // the exporter's
	store  *outSlot
	wiping wiping
}

// stopProof shows that no process of the box is left: pid 1 was reaped (its pid
// namespace ends with it) and, where there is a job cgroup, the kernel says populated 0.
func (f *finalizer) stopProof(gone bool) bool {
	f.record(journal.StopIntent, nil)
	if !gone {
		f.unknown()
		return f.quarantine(reason.New(reason.StopUnproven, "the box of attempt "+f.att.id, "did not end within its stop budget", "nothing was deleted; look for a process in state D, then run nsbox again"))
	}
	if f.group != nil {
		ctx, cancel := context.WithDeadline(context.Background(), f.stopBy)
		defer cancel()
		f.group.Kill()
		if err := f.group.WaitEmpty(ctx); err != nil {
			f.unknown()
			return f.quarantine(reason.Wrap(reason.StopUnproven, f.group.Path(), "is not empty", "nothing was deleted; look at its cgroup.procs", err))
		}
	}
	f.record(journal.StopProved, nil)
	return !f.broken
}

// unknown takes back what was said about the program's end: while something of
// it may still run, it has not ended. The terminal event stays as it was decided.
func (f *finalizer) unknown() {
	w := &f.res.Workload
	*w = WorkloadResult{Outcome: Unknown, Detail: "ended as " + w.Outcome + ", but its stop is not proven"}
}

// seal and export: only a program that exited 0 has something to hand over.
// An exporter is never cancelled: the program's own end came first, and what
// follows it is bounded.
func (f *finalizer) export() bool {
	if f.held < 0 {
		f.res.Artifact.Outcome = ArtifactNotExported // there is no /out
		return true
	}
	f.record(journal.SealIntent, nil)
	if f.broken {
		return false
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(f.held, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		f.res.Artifact.Outcome = ArtifactSealFailed
		return f.quarantine(reason.Wrap(reason.ExportFailed, "/out", "is no longer the tmpfs that was made for it", "nothing was exported", err))
	}
	f.record(journal.Sealed, nil)
	if f.broken {
		return false
	}
	if used := st.Files - st.Ffree; used == 1 {
		// Only the root itself uses an inode: nothing to examine, and this is known
		// without opening anything below /out.
		f.res.Artifact.Outcome = ArtifactEmpty
		f.res.Attestation = append(f.res.Attestation, attest.Compare("out-empty", "1", fmt.Sprint(used), "fstatfs of the held /out: inodes in use", attest.KernelRead))
		return true
	}
	x := export{root: f.root, cpu: f.cpu, plan: f.plan, att: f.att, held: f.held, self: f.self, init: f.init, cache: f.cache, staged: f.copied}
	out := x.run(context.Background(), endOfBudget(min(f.plan.Limits.Exporter.Wall, f.plan.Limits.Attempt.ExporterLifecycle), f.deadline))
	for name, d := range out.phases {
		f.res.DurationsMS["export-"+name] = ms(d)
	}
	f.res.Artifact = out.artifact
	f.res.Untrusted.Findings, f.res.Untrusted.Omitted = append([]exporter.Finding{}, out.findings...), out.omitted
	f.res.Attestation = append(f.res.Attestation, out.rows...)
	if out.failure != nil {
		f.fail(out.failure)
	}
	if !out.stopped || !settles(out.artifact.Outcome) {
		return f.quarantine(out.failure)
	}
	return true
}

// destroy removes everything the attempt created but its own record, and then
// looks whether it is gone.
func (f *finalizer) destroy() {
	deadline := endOfBudget(f.plan.Limits.Attempt.Cleanup, f.deadline)
	f.noCredentials()
	if f.held >= 0 {
		unix.Close(f.held) // the last reference to the tmpfs
		f.held = -1
	}
	var err error
	for try := 0; try < max(1, f.plan.Lifecycle.CleanupRetries); try++ {
		f.record(journal.DestroyIntent, nil)
		if f.broken {
			return
		}
		if err = f.destroyOnce(deadline); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err == nil {
		f.record(journal.Destroyed, nil)
		err = f.verify()
	}
	if err == nil && time.Now().After(deadline) {
		err = fmt.Errorf("clean-up took longer than its budget of %s, or than the attempt may", f.plan.Limits.Attempt.Cleanup)
	}
	if err != nil {
		f.res.Cleanup.Leftover = append(f.res.Cleanup.Leftover, err.Error())
		f.quarantine(reason.Wrap(reason.CleanupUnverified, "attempt "+f.att.id, "left something behind", "look at the leftovers named in the result", err))
		return
	}
	f.record(journal.CleanupVerified, nil)
	if !f.broken {
		f.res.Cleanup.Outcome = CleanupVerified
	}
}

// noCredentials asserts the empty credential set: nothing was handed in that
// could have to be revoked. What it looked at is in the record.
func (f *finalizer) noCredentials() {
	names := make([]string, 0, len(f.plan.Box.Command.Env))
	for _, e := range f.plan.Box.Command.Env {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	f.record(journal.CredentialsEmpty, map[string]string{"env": strings.Join(names, " "), "passed_files": "0", "keyring": "own and empty"})
}

func (f *finalizer) destroyOnce(deadline time.Time) error {
	var errs []error
	if f.staged != "" {
		errs = append(errs, rootfs.RemoveStaged(f.staged))
	}
	if f.group != nil {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		errs = append(errs, f.group.Remove(ctx))
		cancel()
	}
	if f.store != nil {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		errs = append(errs, f.store.empty(ctx, f.wiping))
		cancel()
	}
	return errors.Join(append(errs, f.copied.remove(f.kept()))...)
}

// kept is how many of the copies hold accepted files: the first ones.
func (f *finalizer) kept() int {
	switch a := f.res.Artifact; {
	case a.Outcome != ArtifactAccepted:
		return 0
	case f.copied.several():
		return len(a.Files)
	}
	return 1
}

// verify looks again, independently of what the removals returned.
func (f *finalizer) verify() error {
	var left []error
	gone := func(path string) {
		if path == "" {
			return
		}
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			left = append(left, fmt.Errorf("%s is still there", path))
		}
	}
	gone(f.staged)
	if f.group != nil {
		gone(f.group.Path())
		gone(f.group.Path() + "-export")
	}
	for _, path := range f.copied.beyond(f.kept()) {
		gone(path)
	}
	if f.store != nil {
		row := attest.Compare("out-emptied", "0 entries, 0 pages, as provisioned", cmp.Or(f.store.left(), "0 entries, 0 pages, as provisioned"), "fstatfs of "+f.store.mount.Path, attest.KernelRead)
		f.res.Attestation = append(f.res.Attestation, row)
		if row.Status == attest.Mismatch {
			left = append(left, fmt.Errorf("%s still has %s", f.store.mount.Path, row.Shown))
		}
	}
	return errors.Join(left...)
}

// quarantine keeps everything as it is; delivery is blocked.
func (f *finalizer) quarantine(why *reason.Error) bool {
	f.fail(why)
	f.res.Cleanup.Outcome = CleanupQuarantined
	f.record(journal.Quarantined, nil)
	return false
}

// record appends to the journal. A journal that cannot be written quarantines
// the attempt by a marker file, since nothing else would be found afterwards.
func (f *finalizer) record(e journal.Event, data map[string]string) {
	if err := f.att.record(e, data); err != nil {
		f.broken = true
		f.fail(reason.Of(err))
		os.WriteFile(f.att.dir+"/QUARANTINE", []byte(string(e)+": the journal could not be written\n"), 0o600)
		f.res.Cleanup.Outcome = CleanupQuarantined
	}
}

// fail keeps the first reason: the first failing step is the reported cause.
func (f *finalizer) fail(e *reason.Error) {
	if f.res.Reason == nil && e != nil {
		f.res.Reason = asReason(e)
	}
}

func asReason(e *reason.Error) *Reason {
	why := e.Why
	if e.Err != nil {
		if why != "" {
			why += ": "
		}
		why += e.Err.Error()
	}
	return &Reason{ID: e.ID, What: e.What, Why: why, Next: e.Next}
}
