package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
	"nsbox/seccompgen"
	"nsbox/seccompgen/filter"
)

// The exporter's descriptors, besides its streams; its own package documents them.
// The allowed names follow the staging files.
const (
	exportDirFD     = 3
	exportStagingFD = 4
)

// export runs the second sandbox over the held /out. The launcher opens nothing
// below /out: it hands in the descriptor of its root and files of its own to
// write to, and believes only what it reads from those files itself.
//
// The box is made after the stop proof and not while the workload runs: it would
// be ready sooner, but a process with capabilities would wait beside hostile code
// for as long as that runs, take its processor time on a host with few, and still
// could open nothing of /out before the workload is proven gone.
type export struct {
	plan   *Plan
	att    *attempt
	held   int
	self   int
	init   filter.Program
	cache  string
	staged copies
	root   *cgroupv2.Root // nil: no group for the exporter
	group  *cgroupv2.Group
	cpu    int // one cpu: with two, the Go runtime of the stage may race into a fifth thread
}

// exported is the exporter's verdict after the launcher's re-hash.
type exported struct {
	artifact ArtifactResult
	rows     []attest.Row
	stopped  bool // the exporter's own stop proof
	findings []exporter.Finding
	omitted  int
	failure  *reason.Error
	phases   map[string]time.Duration // prepare, box, attest, run, digest: as far as it came
}

// run is over by the deadline, or ended then.
func (x *export) run(ctx context.Context, deadline time.Time) exported {
	out := exported{artifact: ArtifactResult{Outcome: ArtifactSealFailed, Reasons: []string{}}, stopped: true, phases: map[string]time.Duration{}}
	since := time.Now()
	phase := func(name string) {
		out.phases[name], since = time.Since(since), time.Now()
	}
	fail := func(err error) exported {
		out.failure = reason.Wrap(reason.ExportFailed, "the exporter", "did not give a verdict; nothing left /out", "nsbox attempts show "+x.att.id, err)
		return out
	}
	if err := x.att.record(journal.CopyIntent, map[string]string{"path": x.staged[0], "files": fmt.Sprint(len(x.staged))}); err != nil {
		return fail(err)
	}
	staging, err := x.staged.create()
	defer func() {
		for _, f := range staging {
			f.Close()
		}
	}()
	if err != nil {
		return fail(err)
	}
	spec, err := x.spec()
	if err != nil {
		return fail(err)
	}
	if err := x.att.record(journal.ExporterIntent, map[string]string{"cgroup": x.groupName()}); err != nil {
		return fail(err)
	}
	files := nsexec.Files{Self: x.self, Cgroup: -1, Work: -1, Pass: []nsexec.Pass{{From: x.held, To: exportDirFD}}}
	for i, f := range staging {
		files.Pass = append(files.Pass, nsexec.Pass{From: int(f.Fd()), To: exportStagingFD + i})
	}
	applied, err := x.confine(&files)
	defer x.release()
	if err != nil {
		x.att.record(journal.ExporterStopped, nil)
		return fail(err)
	}
	stop := make(chan struct{})
	timer := time.AfterFunc(time.Until(deadline), func() { close(stop) })
	defer timer.Stop()
	phase("prepare")
	box, err := nsexec.Spawn(spec, files, stop)
	if errors.Is(err, nsexec.ErrStays) {
		out.stopped = false
		return fail(boxFailure(err))
	}
	if err != nil {
		x.att.record(journal.ExporterStopped, nil) // Spawn reaps what it fails to start
		return fail(boxFailure(err))
	}
	phase("box")
	rows, err := inspect(box, spec, x.group)
	out.rows = prefixed("exporter/", append(rows, applied...))
	if err == nil {
		err = attest.Check(rows)
	}
	if err == nil {
		err = x.att.record(journal.ExporterUp, nil)
	}
	if err == nil {
		err = x.att.record(journal.ExportIntent, nil)
	}
	abort := func(err error) exported {
		if stays := box.Abort(); stays != nil {
			out.stopped = false
			return fail(errors.Join(err, stays))
		}
		x.att.record(journal.ExporterStopped, nil)
		return fail(err)
	}
	if err != nil {
		return abort(err)
	}
	phase("attest")
	over := make(chan string, 2)
	report := startCapture("exporter report", box.Stdout, io.Discard, exporter.MaxReport, over)
	log := startCapture("exporter log", box.Stderr, io.Discard, x.plan.Limits.Exporter.Log, over)
	if err := box.Release(); err != nil {
		return abort(err)
	}
	why := x.watch(ctx, box, deadline, over)
	if why == errStillThere {
		out.stopped = false
		return fail(why)
	}
	<-report.readDone
	<-log.readDone
	phase("run")
	text := log.bytes()
	if text = text[:min(int64(len(text)), max(0, x.plan.Limits.Log.Runtime-maxAuditLine))]; len(text) > 0 {
		os.WriteFile(x.att.dir+"/exporter.log", text, 0o600)
	}
	if why != nil {
		x.att.record(journal.ExporterStopped, nil)
		if said := firstWords(text); said != "" {
			why = fmt.Errorf("%w; it said: %s", why, said)
		}
		return fail(why)
	}
	out = x.judge(out, report.bytes(), fail)
	phase("digest")
	return out
}

// coreLimit is the plan's: a lower inherited limit is kept there as well.
func (x *export) coreLimit() nsexec.Rlimit {
	for _, l := range x.plan.Box.Rlimits {
		if l.Resource == unix.RLIMIT_CORE {
			return l
		}
	}
	return nsexec.Rlimit{Name: "core", Resource: unix.RLIMIT_CORE}
}

func (x *export) groupName() string { return x.att.id + "-export" }

// confine gives the exporter a cgroup of its own, where there is a place for one.
func (x *export) confine(files *nsexec.Files) ([]attest.Row, error) {
	if x.root == nil {
		return nil, nil
	}
	g, err := x.root.Create(x.groupName())
	if err != nil {
		return nil, err
	}
	x.group = g
	files.Cgroup, files.Work = g.BoxFD(), g.WorkFD()
	applied, err := g.Apply(exporterLimits(x.plan.Limits, x.root.Controllers()))
	return cgroupRows("", g.Path(), applied), err
}

// release removes the exporter's group; one that cannot be removed is found by
// the attempt's clean-up check.
func (x *export) release() {
	if x.group == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.plan.Limits.Attempt.StopProof)
	defer cancel()
	x.group.Kill()
	if x.group.WaitEmpty(ctx) == nil {
		x.group.Remove(ctx)
	}
	x.group.Close()
}

// firstWords is the beginning of what the exporter logged, fit to be shown: a Go runtime
// that gives up says why first; all of it is in exporter.log.
func firstWords(log []byte) string {
	const most = 200
	return strings.TrimSpace(textOf(log[:min(len(log), most)], false))
}

type exportError string

func (e exportError) Error() string { return string(e) }

const (
	errStillThere = exportError("the exporter's box did not end when killed")
	errExportWall = exportError("the exporter's time was up")
	errExportOver = exportError("the exporter wrote more than it may")
	errExportMem  = exportError("the exporter used more memory than it may")
	errExportCPU  = exportError("the exporter used more cpu time than it may")
	errCancelled  = exportError("cancelled")
)

// watch waits for the exporter's end and holds it to its limits.
func (x *export) watch(ctx context.Context, box *nsexec.Box, deadline time.Time, over <-chan string) error {
	s := sampler{init: box.InitPID}
	tick := time.NewTicker(samplePoll)
	defer tick.Stop()
	var why error
	for why == nil {
		select {
		case e := <-box.Done():
			switch {
			case e.ExecErr != nil:
				return e.ExecErr
			case e.SetupErr != nil:
				return e.SetupErr
			case e.CPUUsec >= x.plan.Limits.Exporter.CPU.Microseconds():
				return errExportCPU
			case !e.Reported || !e.Status.Exited() || e.Status.ExitStatus() != 0:
				return fmt.Errorf("the exporter ended with wait status %#x", uint32(e.Status))
			}
			return nil
		case <-over:
			why = errExportOver
		case <-ctx.Done():
			why = errCancelled
		case <-tick.C:
			var cpu, rss int64
			if x.group != nil {
				cpu, rss = usage(x.group, &s, true)
			} else {
				cpu, rss = s.sample()
			}
			switch {
			case time.Now().After(deadline):
				why = errExportWall
			case rss > x.plan.Limits.Exporter.Memory:
				why = errExportMem
			case cpu > x.plan.Limits.Exporter.CPU.Microseconds():
				why = errExportCPU
			}
		}
	}
	box.Kill()
	select {
	case <-box.Done():
		return why
	case <-time.After(x.plan.Limits.Attempt.StopProof):
		return errStillThere
	}
}

// spec is the exporter's box: an empty root, no proc, no device, no network.
func (x *export) spec() (*nsexec.Spec, error) {
	ep, l := x.plan.Exporter, x.plan.Limits.Exporter
	req := exporter.Request{Bounds: ep.Bounds, OwnerUID: uint32(x.plan.Box.UID), OwnerGID: uint32(x.plan.Box.GID)}
	if ep.Identity.Nested {
		req.OwnerUID, req.OwnerGID = uint32(ep.UID), uint32(ep.GID) // the one id there is, as this box numbers it
	}
	for i := range x.staged {
		req.Staging = append(req.Staging, exportStagingFD+i)
	}
	var open []nsexec.OpenBelow
	for i, name := range ep.Bounds.AllowedNames {
		fd := exportStagingFD + len(x.staged) + i
		open = append(open, nsexec.OpenBelow{Dir: exportDirFD, Name: name, To: fd})
		req.Names = append(req.Names, exporter.Handle{Name: name, FD: fd})
	}
	argv, err := req.Argv()
	if err != nil {
		return nil, err
	}
	f, _, err := seccompgen.Cached(x.cache, seccompgen.Exporter())
	if err != nil {
		return nil, err
	}
	both := func(name string, res int, v uint64) nsexec.Rlimit {
		return nsexec.Rlimit{Name: name, Resource: res, Soft: v, Hard: v}
	}
	return &nsexec.Spec{
		Hostname: hostname, StagingPoint: stagingPoint, Root: []nsexec.Node{{Path: "/", Kind: nsexec.Dir, Mode: 0o755}},
		UID: ep.UID, GID: ep.GID, Umask: 0o077, Affinity: x.cpu, LandlockABI: x.plan.Box.LandlockABI,
		Rlimits: []nsexec.Rlimit{
			both("nofile", unix.RLIMIT_NOFILE, uint64(l.FDs)),
			both("fsize", unix.RLIMIT_FSIZE, uint64(ep.Bounds.FileBytes)),
			both("cpu", unix.RLIMIT_CPU, uint64((l.CPU+time.Second-1)/time.Second)),
			x.coreLimit(),
			both("nproc", unix.RLIMIT_NPROC, uint64(l.Tasks)),
		},
		Command: nsexec.Command{Self: true, Argv: argv, Env: nsexec.StageEnv(), Dir: "/"},
		Open:    open, Listable: exportDirFD, CapLast: x.plan.Box.CapLast, Identity: ep.Identity,
		InitFilter: x.init, Filter: f, SharedVM: x.plan.Box.SharedVM,
	}, nil
}

// judge compares the report with the launcher's own reading of the staged copy.
func (x *export) judge(out exported, line []byte, fail func(error) exported) exported {
	rep, err := exporter.DecodeReport(line, x.plan.Exporter.Bounds)
	if err != nil {
		x.att.record(journal.ExporterStopped, nil)
		return fail(err)
	}
	for _, e := range []journal.Event{journal.Exported, journal.ExporterStopped} {
		data := map[string]string{}
		if e == journal.Exported {
			data["verdict"] = rep.Verdict
		}
		if err := x.att.record(e, data); err != nil {
			return fail(err)
		}
	}
	a := &out.artifact
	switch rep.Verdict {
	case exporter.Empty:
		a.Outcome = ArtifactEmpty
	case exporter.Rejected:
		a.Outcome, a.Reasons = ArtifactRejected, rep.Codes()
		out.findings, out.omitted = rep.Reasons, rep.Omitted
	case exporter.Accepted:
		files, err := x.staged.verify(rep.Files)
		if err != nil {
			a.Outcome = ArtifactUnverified
			out.failure = reason.Wrap(reason.ExportFailed, "the copy of the artifact", "cannot be relied on", "the attempt is quarantined; look at it before anything else", err)
			return out
		}
		if *a, err = x.accept(files); err != nil {
			return fail(err)
		}
	}
	verified := map[string]string{"artifact": a.Outcome, "sha256": a.SHA256}
	if a.Files != nil {
		verified["manifest"] = manifestName
	}
	if err := x.att.record(journal.CopyVerified, verified); err != nil {
		return fail(err)
	}
	return out
}

// accept tells verified files: one as itself, several by their manifest.
func (x *export) accept(files []ArtifactFile) (ArtifactResult, error) {
	a := ArtifactResult{Outcome: ArtifactAccepted, Reasons: []string{}}
	if !x.staged.several() {
		f := files[0]
		a.Name, a.Bytes, a.Rows, a.SHA256 = f.Name, f.Bytes, f.Rows, f.SHA256
		return a, nil
	}
	var err error
	a.Files = files
	for _, f := range files {
		a.Bytes += f.Bytes
	}
	a.SHA256, err = writeManifest(x.att.dir, files)
	return a, err
}

// hashFile reads the launcher's own file; digest has the "sha256:" prefix.
func hashFile(path string) (int64, string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, "sha256:" + hex.EncodeToString(h.Sum(nil)), err
}

func prefixed(p string, rows []attest.Row) []attest.Row {
	for i := range rows {
		rows[i].Restriction = p + rows[i].Restriction
	}
	return rows
}
