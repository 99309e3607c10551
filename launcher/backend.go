package launcher

import (
	"context"
	"path"
	"strings"
	"time"

	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
)

// SimulatedName is the backend that has no effects. It stands in every event
// and result that it makes.
const SimulatedName = "simulated-no-effects"

// Simulated is the workload outcome of a run that was only played through.
const Simulated = "SIMULATED"

// Backend is one way to hold a plan. The interface is sealed: whoever could add
// one could claim enforcement that nobody checks.
type Backend interface {
	Name() string
	// Matrix names the restrictions that the backend can hold, as the rows of a
	// plan name them. What is not in it is unsupported.
	Matrix() []string
	// survey finds what a plan depends on. What could not be found is left
	// empty beside the error that says why.
	survey(req Request, p *policy.Policy) (Facts, error)
	execute(ctx context.Context, req Request, s Streams) Result
}

// Runner executes one attempt: Run, or a stand-in.
type Runner func(context.Context, Request, Streams) Result

// BackendByName is the backend that --backend names; run executes what the
// namespaces backend is asked to.
func BackendByName(name string, run Runner) (Backend, error) {
	switch name {
	case "", "namespaces", BackendName:
		return namespaces{run}, nil
	case "simulated", SimulatedName:
		return simulated{}, nil
	}
	return nil, reason.New(reason.BackendUnknown, quoted(name), "is no backend of nsbox", "write namespaces or simulated")
}

// namespaces is the real one: Run.
type namespaces struct{ run Runner }

func (namespaces) Name() string { return BackendName }

func (namespaces) Matrix() []string {
	return []string{"root", "exec", "ids", "launcher", "network", "mac", "system-calls", "memory", "cpu-rate", "cpu-total", "tasks", "endpoints", "connections",
		"wall", "stdout", "stderr", "scratch", "out"}
}

// survey goes the way of exec, so that plan and exec see one host.
func (namespaces) survey(req Request, p *policy.Policy) (Facts, error) {
	st, err := openState(req.StateDir)
	if err != nil {
		return Facts{}, err
	}
	g, err := gather(context.Background(), req, p, st, false)
	defer g.close()
	if err == nil {
		lookForOut(&g.facts, p)
	}
	return g.facts, err
}

func (n namespaces) execute(ctx context.Context, req Request, s Streams) Result {
	return n.run(ctx, req, s)
}

// simulated plays a run through without a process, a file or a look at the host.
type simulated struct{}

func (simulated) Name() string { return SimulatedName }

func (simulated) Matrix() []string { return namespaces{}.Matrix() }

// survey makes a host up on which nothing stands in the way. The result says
// simulated everywhere, so that nobody takes it for a fact.
func (simulated) survey(req Request, _ *policy.Policy) (Facts, error) {
	whole := []probe.Extent{{Count: 1<<32 - 1}}
	h := &probe.Host{
		Kernel: "6.0.0-simulated", BootID: "simulated", Arch: "amd64", CPUs: 4, UID: 1000, GID: 1000, RealUID: 1000, RealGID: 1000, User: "simulated",
		SubUID: []probe.Range{{Start: 100000, Count: 65536}}, SubGID: []probe.Range{{Start: 100000, Count: 65536}},
		UIDMapHelper: probe.Helper{Path: "/usr/bin/newuidmap", OK: true}, GIDMapHelper: probe.Helper{Path: "/usr/bin/newgidmap", OK: true},
		SelfUIDMap: whole, SelfGIDMap: whole, MaxUserNS: 1000, Landlock: probe.Yes, LandlockABI: maxLandlockABI, RLimits: map[string]int64{},
		SelfExe: probe.SelfExe{Path: "nsbox", WorldReadable: probe.Yes, Static: probe.Yes},
	}
	h.RLimits["as"] = probe.Unlimited // set later than the others, and only where memory is degraded
	for _, l := range rlimits(policy.Limits{}, h, false) {
		h.RLimits[l.Name] = probe.Unlimited
	}
	id, err := probe.ChooseIdentity(h)
	name := path.Base(path.Clean("/" + req.Argv[0]))
	program := "/usr/bin/" + name
	c := &rootfs.Closure{Command: program, Program: program, Real: program, Digest: "simulated", Nodes: []nsexec.Node{
		{Path: "/usr", Kind: nsexec.Dir, Mode: 0o755}, {Path: "/usr/bin", Kind: nsexec.Dir, Mode: 0o755},
		{Path: program, Kind: nsexec.BindFile, Source: program, Access: nsexec.Read | nsexec.Execute},
	}}
	if strings.HasPrefix(name, "python") {
		c.Python = "simulated"
	}
	return Facts{Host: h, Identity: id, Closure: c, Cgroup: true, CapLast: 40, Certificates: rootfs.Certificates{Path: "simulated", SHA256: "simulated"}}, err
}

func (simulated) execute(context.Context, Request, Streams) Result {
	res := newResult()
	res.Backend = SimulatedName
	res.Workload = WorkloadResult{Outcome: Simulated, Detail: "nothing was executed: the backend is " + SimulatedName}
	res.Delivery.Outcome = DeliveryNoArtifact
	res.Untrusted.Note = "empty: nothing was executed"
	return res
}

// Start is the only door to execution: a decision other than RUN never reaches
// the backend.
func Start(ctx context.Context, b Backend, d *Decision, req Request, s Streams) Result {
	begun := time.Now().UTC()
	if d.Verdict != VerdictRun || d.Backend != b.Name() {
		res := newResult()
		res.Backend, res.Policy, res.Digests.Policy = b.Name(), d.Policy, d.PolicyDigest
		res.Started, res.Workload.Detail = begun, "refused before anything was started"
		if d.policyFault {
			res.Workload.Outcome = RefusedPolicy
		}
		res.Delivery.Outcome = DeliveryNoArtifact
		res.Reason = &Reason{ID: reason.Internal, What: "the plan", Why: "is of another backend, or was refused without a reason", Next: "report this as a fault of nsbox"}
		if len(d.Reasons) > 0 {
			res.Reason = &d.Reasons[0]
		}
		res.ExitStatus = ExitStatus(res, req.Deliver != "", 0)
		return res
	}
	res := b.execute(ctx, req, s)
	if b.Name() == SimulatedName {
		res.Policy, res.Digests.Policy, res.Digests.Plan, res.Degraded = d.Policy, d.PolicyDigest, d.Digest, d.Degraded
		res.Started, res.ExitStatus = begun, ExitOK
		if req.Deliver != "" {
			res.ExitStatus = ExitUndelivered
		}
	}
	return res
}
