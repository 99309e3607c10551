package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/exporter"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// Facts are what the host showed; with request and policy they are all that a
// plan depends on.
type Facts struct {
	Host        *probe.Host
	Identity    probe.Identity
	Closure     *rootfs.Closure
	Store       string           // nsbox's own directory of roots, which denied_mounts does not speak of
	Cgroup      bool             // a job cgroup can be made
	CgroupErr   error            // why not
	Controllers []string         // enabled for job cgroups, of memory, pids, cpu
	Lacks       map[string]error // why another one is not
	CapLast     int              // highest capability the kernel knows
	CPU         int              // lowest cpu this process may run on

	Certificates rootfs.Certificates // only where the policy lists destinations

	// Slot is which of Identity's; the launcher holds its lock.
	Slot int
	Out  OutFacts // provisioned storage for /out

	// Inputs are what /in will hold, sorted by name. Only a plan that is shown has
	// them before they are staged.
	Inputs []InputDigest
}

// Plan is what will be done, decided before anything is. It is never changed;
// its digest is in the result. Paths that only exist during the attempt are not
// part of it.
type Plan struct {
	Policy       PolicyRef         `json:"policy"`
	PolicyDigest string            `json:"policy_digest"`
	Document     *policy.Policy    `json:"document"` // every key, obeyed or only carried
	Restrictions []Restriction     `json:"restrictions"`
	Degraded     []Degradation     `json:"degraded"`
	Limits       policy.Limits     `json:"limits"`
	Box          nsexec.Spec       `json:"box"`
	DeniedPaths  []string          `json:"denied_mounts"`
	Filters      map[string]string `json:"filters"` // profile digests by stage
	Exporter     ExporterPlan      `json:"exporter"`
	Lifecycle    LifecyclePlan     `json:"lifecycle"`
	UseCgroup    bool              `json:"use_cgroup"`
	Cgroup       cgroupv2.Limits   `json:"cgroup"`            // of the job cgroup; 0: not limited by it
	Network      *NetworkPlan      `json:"network,omitempty"` // nil: none
	ClosureHash  string            `json:"closure"`
	LiveStdout   bool              `json:"live_stdout,omitempty"` // goes on beyond what is kept
	LiveStderr   bool              `json:"live_stderr,omitempty"`
	Binds        []rootfs.Bind     `json:"binds,omitempty"`         // of the host, live and read-only
	AddressSpace int64             `json:"address_space,omitempty"` // bytes per process, where memory is degraded

	workload seccompgen.Profile
	// The id maps as slot 0 has them, which the digest is of.
	firstBox, firstExporter nsexec.Identity
}

// ExporterPlan bounds the second sandbox.
type ExporterPlan struct {
	UID      int             `json:"uid"`
	GID      int             `json:"gid"`
	Identity nsexec.Identity `json:"identity"`
	Bounds   exporter.Bounds `json:"bounds"`
	Reject   []string        `json:"reject"`
}

// LifecyclePlan is the order and the patience of the finalizer.
type LifecyclePlan struct {
	Events         []string `json:"events"`
	Concurrency    int      `json:"concurrency"`
	CleanupRetries int      `json:"cleanup_retries"`

	Retention policy.Retention `json:"retention"` // obeyed by gc
}

// maskedProc is covered in the box's /proc: keys of the caller, addresses and
// timers of the kernel, and what tells one host from another. Each costs some
// 20 microseconds of every start, so what only root reads or tells little is left.
func maskedProc() []string {
	return strings.Fields(`keys key-users kallsyms kcore timer_list sysrq-trigger sched_debug cmdline partitions
		diskstats interrupts iomem locks modules vmallocinfo sys/kernel/random/boot_id`)
}

// maskedProcDirs are covered by an empty directory each.
func maskedProcDirs() []string { return []string{"bus", "fs"} }

// hostname is the box's own.
const hostname = "nsbox"

// MakePlan decides everything from its arguments alone: no I/O, no clock. The
// error is a *reason.Error.
func MakePlan(req Request, p *policy.Policy, src policy.Source, f Facts) (*Plan, error) {
	allowed := map[string]bool{}
	for _, list := range [][]string{p.Degrade, req.AllowDegraded} {
		if err := policy.CheckDimensions(list); err != nil {
			return nil, err
		}
		for _, d := range list {
			allowed[d] = true
		}
	}
	if want := p.ExecutionIdentity.HostLauncher.UID; want != nil && *want != f.Host.UID {
		return nil, reason.New(reason.PolicyUnenforceable, "execution_identity.host_launcher.uid", fmt.Sprintf("the policy names uid %d as launcher and this is uid %d", *want, f.Host.UID), "run nsbox as that user, or set the key to null")
	}
	if p.PythonOnly() && f.Closure.Python == "" {
		return nil, reason.New(reason.ExecNotAllowed, f.Closure.Command, "process_policy.exec_allowlist lets only a Python interpreter run, and this is none", "start a script with python3, or use a policy whose exec_allowlist is named_program_only")
	}
	l := p.Limits()
	pl := &Plan{
		Policy:       PolicyRef{ID: p.PolicyID, Version: p.PolicyVersion, Workload: p.WorkloadID, Source: src.Arg},
		PolicyDigest: src.Digest,
		Document:     p,
		Limits:       l,
		DeniedPaths:  p.Filesystem.DeniedMounts,
		UseCgroup:    f.Cgroup,
		ClosureHash:  f.Closure.Digest,
		Lifecycle:    LifecyclePlan{Events: p.Lifecycle.Events, Concurrency: p.Lifecycle.Concurrency, CleanupRetries: p.Lifecycle.CleanupRetries, Retention: p.Retention()},
	}
	if f.CapLast < minCapLast || f.CapLast > maxCapLast || f.CPU < 0 {
		return nil, reason.New(reason.HostFactsUnreadable, "/proc/sys/kernel/cap_last_cap or the cpu mask", "shows no number that can be", "run nsbox where /proc is mounted")
	}
	if stands := probe.Check(f.Host); len(stands) > 0 {
		return nil, stands[0]
	}
	if p.OutStorage == policy.OutProvisioned && p.Exports() && !f.Out.Ready {
		return nil, f.Out.refusal()
	}
	weak := weaknesses(p, f)
	if err := refuseUnallowed(weak, allowed, req.AllowDegraded); err != nil {
		return nil, err
	}
	for _, w := range weak {
		pl.Degraded = append(pl.Degraded, Degradation{Dimension: w.dimension, Instead: w.instead, NotCover: w.notCovered})
	}
	isWeak := func(d string) bool {
		for _, w := range weak {
			if w.dimension == d {
				return true
			}
		}
		return false
	}
	pl.workload = seccompgen.Workload(seccompgen.Options{DenyAffinity: isWeak(policy.DimCPURate), DenySharedMemory: isWeak(policy.DimMemory), Sockets: sockets(p), DenySocketFiles: liveBinds(req)})
	pl.Filters = map[string]string{"workload": pl.workload.Digest(), "init": seccompgen.Init().Digest(), "exporter": seccompgen.Exporter().Digest()}
	pl.Cgroup = jobLimits(l, f.Controllers)
	pl.Binds = f.Closure.Binds
	if isWeak(policy.DimMemory) {
		pl.AddressSpace = l.Memory.Bytes * addressFactor(p)
	}
	pl.Network = networkPlan(p, f)
	if err := pl.box(req, p, f, isWeak); err != nil {
		return nil, err
	}
	pl.exporterPlan(p, f)
	pl.Restrictions = restrictions(pl, p, f)
	return pl, nil
}

// box is the workload's sandbox; the staged inputs' directory is filled in by Run.
func (pl *Plan) box(req Request, p *policy.Policy, f Facts, isWeak func(string) bool) error {
	id, l := p.ExecutionIdentity, pl.Limits
	in := ""
	if len(req.Inputs) > 0 {
		in = stagedPlaceholder
	}
	out := ""
	if f.Out.Ready {
		out = outPlaceholder
	}
	nodes, err := rootfs.Layout(f.Closure, rootfs.Options{
		StagedIn: in, ScratchBytes: l.Scratch.Bytes, ScratchInodes: l.Scratch.Inodes,
		OutBytes: l.Out.Bytes, OutInodes: l.Out.Inodes, OutSource: out, NoOut: !p.Exports(), ScratchExec: p.ScratchExec(), Tmp: p.Writable("/tmp"), Shm: p.Writable("/dev/shm"), Everyday: hasTerminals(p),
		WorkloadUID: id.Workload.UID, WorkloadGID: id.Workload.GID, ExporterUID: id.Exporter.UID,
		Names: pl.Network.names(), Certificates: pl.Network.certificates(),
	})
	if err != nil {
		return err
	}
	pl.Network.bring(nodes)
	denial := p.Denial()
	for i := range nodes {
		if nodes[i].Path == "/in" {
			nodes[i].NoExec = true
		}
		if err := deniedBy(denial, f.Store, nodes[i]); err != nil {
			return err
		}
	}
	slot, err := f.Identity.Map(f.Slot)
	if err != nil {
		return err
	}
	first, err := f.Identity.Map(0)
	if err != nil {
		return err
	}
	pl.firstBox = maps(f, pair{0, 0, first.Root}, pair{id.Workload.UID, id.Workload.GID, first.Workload})
	abi := f.Host.LandlockABI
	if isWeak(policy.DimLandlock) {
		abi = 0
	}
	affinity, cpus := -1, f.Host.CPUs
	if isWeak(policy.DimCPURate) || isWeak(policy.DimCPUTotal) {
		affinity, cpus = f.CPU, 1
	}
	argv := append(append([]string{req.Argv[0]}, f.Closure.Args...), req.Argv[1:]...)
	pl.Box = nsexec.Spec{
		Hostname: hostname, StagingPoint: stagingPoint, Root: nodes, MaskProc: maskedProc(), MaskDirs: maskedProcDirs(),
		UID: id.Workload.UID, GID: id.Workload.GID, Rlimits: rlimits(l, f.Host, slices.Contains(f.Controllers, "pids")), Umask: 0o022,
		Affinity: affinity, LandlockABI: min(abi, maxLandlockABI),
		Command: nsexec.Command{Path: f.Closure.Program, Argv: argv, Env: environ(req, p, f.Closure, cpus), Dir: "/scratch"},
		Stdin:   req.Stdin, Hold: "/out", Listable: -1, CapLast: f.CapLast,
		Identity: maps(f, pair{0, 0, slot.Root}, pair{id.Workload.UID, id.Workload.GID, slot.Workload}),
	}
	pl.Box.Listen, pl.Box.AnySocket, pl.Box.NoUnixPaths = pl.Network.listen(), !p.SocketsFiltered(), liveBinds(req)
	if !p.Exports() {
		pl.Box.Hold = ""
	}
	if req.Terminal != nil {
		if !hasTerminals(p) {
			return reason.New(reason.TerminalRefused, "-t", "this policy's box has no terminals", "use a policy whose exec_allowlist is "+policy.AnyProgramInRoot+", such as tool")
		}
		pl.Box.Terminal = &nsexec.Terminal{} // its size is a fact of the attempt
	}
	pl.LiveStdout, pl.LiveStderr = p.LiveStreams()
	return rlimitsPossible(pl.Box.Rlimits, f.Host)
}

const (
	maxEntries        = 4096 // of /out that the exporter looks at, whatever out_inodes allows
	stagedPlaceholder = "/staged-inputs-of-the-attempt"
	outPlaceholder    = "/slot-of-the-attempt"
	// stagingPoint is mounted over in the box's own mount namespace only, and
	// nothing is created in it. A host without /dev/null could not start a box anyway.
	stagingPoint = "/dev"
	// The highest capability that kernels of nsbox's age know, and that 64 bits hold.
	minCapLast, maxCapLast = 37, 63
	// maxLandlockABI is the newest one whose rights nsexec knows by name.
	maxLandlockABI = 6
)

// hasTerminals reports whether the box gets terminals and the devices beside
// them: where any program may run, unless denied_mounts keeps devices out.
func hasTerminals(p *policy.Policy) bool {
	_, denied := p.Denies("/dev/tty")
	return p.AnyProgram() && !denied
}

// deniedBy holds the policy's denied_mounts against one node: as a target, and
// as a source unless it is nsbox's own staging or store.
func deniedBy(d policy.Denial, store string, n nsexec.Node) error {
	refuse := func(what, rule string) error {
		return reason.New(reason.PolicyUnenforceable, what, "filesystem.denied_mounts forbids it by "+rule, "run a program that does not need it, or remove the entry from the policy")
	}
	switch n.Kind {
	case nsexec.BindDir, nsexec.BindFile, nsexec.Device, nsexec.Tmpfs, nsexec.Part, nsexec.Storage:
		if rule, denied := d.DeniesTarget(n.Path, n.Kind == nsexec.Tmpfs || n.Kind == nsexec.Part || n.Kind == nsexec.Storage); denied {
			return refuse(n.Path, rule)
		}
	}
	own := n.Source == stagedPlaceholder || n.Source == certificatesPlaceholder || store != "" && strings.HasPrefix(n.Source, store+"/")
	if own || (n.Kind != nsexec.BindDir && n.Kind != nsexec.BindFile && n.Kind != nsexec.Device) {
		return nil
	}
	if rule, denied := d.Denies(path.Clean(n.Source)); denied {
		return refuse(n.Source, rule)
	}
	return nil
}

// rlimits are the per-process limits; each is set hard, so it cannot be raised.
func rlimits(l policy.Limits, h *probe.Host, pids bool) []nsexec.Rlimit {
	both := func(name string, res int, v uint64) nsexec.Rlimit {
		return nsexec.Rlimit{Name: name, Resource: res, Soft: v, Hard: v}
	}
	// Values that nsbox chose itself give way to a lower inherited limit: stricter is fine.
	own := func(name string, res int, v uint64) nsexec.Rlimit {
		if hard, ok := h.RLimits[name]; ok && hard != probe.Unlimited {
			v = min(v, uint64(hard))
		}
		return both(name, res, v)
	}
	nproc := uint64(l.Tasks)
	if pids && h.RlimitRefusal("nproc", int64(nproc+1)) == nil {
		// Where pids.max is in force it must be met first, since only it counts what
		// it denies; fork asks the rlimit before the cgroup. One more stays as the backstop.
		nproc++
	}
	cpu := uint64(l.CPU.PerProcess.Seconds())
	kill := own("cpu", unix.RLIMIT_CPU, cpu+1).Hard
	return []nsexec.Rlimit{
		both("nofile", unix.RLIMIT_NOFILE, uint64(l.FDs)),
		both("fsize", unix.RLIMIT_FSIZE, uint64(l.FileSize)),
		// SIGXCPU at the soft limit, SIGKILL a second later for who ignores it.
		{Name: "cpu", Resource: unix.RLIMIT_CPU, Soft: cpu, Hard: max(kill, cpu)},
		// 1, not 0: the kernel takes 1 as "never start a core-pipe handler", core(5).
		own("core", unix.RLIMIT_CORE, 1),
		both("nproc", unix.RLIMIT_NPROC, nproc),
		own("stack", unix.RLIMIT_STACK, 8<<20),
		own("memlock", unix.RLIMIT_MEMLOCK, 64<<10),
		both("msgqueue", unix.RLIMIT_MSGQUEUE, 0),
		// Queued signals and timers; they count against the operator's limit as well.
		own("sigpending", unix.RLIMIT_SIGPENDING, 256),
		both("rtprio", unix.RLIMIT_RTPRIO, 0),
		both("nice", unix.RLIMIT_NICE, 0),
	}
}

// rlimitsPossible refuses a limit above what the caller inherited: in the box
// nobody could raise it, and a lower one than asked for would be another policy.
func rlimitsPossible(want []nsexec.Rlimit, h *probe.Host) error {
	for _, w := range want {
		if w.Hard == 0 {
			continue // always possible
		}
		if e := h.RlimitRefusal(w.Name, int64(w.Hard)); e != nil {
			return e
		}
	}
	return nil
}

// pair is one id of a box with the host's ids behind it.
type pair struct {
	uid, gid int
	host     probe.HostID
}

// maps is the identity of a box: its id maps and who writes them. The first pair
// is that of the box's 0.
func maps(f Facts, pairs ...pair) nsexec.Identity {
	id := nsexec.Identity{Kind: f.Identity.Kind}
	if id.Kind == probe.Subordinate {
		id.UIDHelper, id.GIDHelper = f.Host.UIDMapHelper.Path, f.Host.GIDMapHelper.Path
	}
	if id.Kind == probe.Single {
		id.Nested, pairs = true, pairs[:1] // the box's 0; see nsexec/nested.go
	}
	for _, p := range pairs {
		id.UIDs = append(id.UIDs, nsexec.MapEntry{Inside: p.uid, Host: int(p.host.UID), Count: 1})
		id.GIDs = append(id.GIDs, nsexec.MapEntry{Inside: p.gid, Host: int(p.host.GID), Count: 1})
	}
	return id
}

// exporterPlan bounds what may leave.
func (pl *Plan) exporterPlan(p *policy.Policy, f Facts) {
	id := p.ExecutionIdentity
	slot, _ := f.Identity.Map(f.Slot) // box asked for the same and succeeded
	first, _ := f.Identity.Map(0)
	pl.firstExporter = maps(f, pair{0, 0, first.ExportRoot}, pair{id.Workload.UID, id.Workload.GID, first.Workload}, pair{id.Exporter.UID, id.Exporter.GID, first.Exporter})
	pl.Exporter = ExporterPlan{
		UID: id.Exporter.UID, GID: id.Exporter.GID, Identity: maps(f, pair{0, 0, slot.ExportRoot}, pair{id.Workload.UID, id.Workload.GID, slot.Workload}, pair{id.Exporter.UID, id.Exporter.GID, slot.Exporter}), Reject: p.ArtifactExport.Reject,
		Bounds: ExportBounds(p),
	}
}

// ExportBounds is what may leave under p.
func ExportBounds(p *policy.Policy) exporter.Bounds {
	l, a := p.Limits(), p.ArtifactExport
	b := exporter.Bounds{
		FileBytes: l.Out.FileBytes, FileCount: l.Out.Files, MaxLine: l.Exporter.MaxLine, MaxRows: l.Exporter.MaxRows,
		MaxEntries: int(min(l.Out.Inodes, maxEntries)), AllowedNames: a.AllowedNames, CSVFormula: a.CSVFormula, AllowBOM: a.ByteOrderMark == "allow",
	}
	for _, t := range a.Types {
		if b.Rules == nil {
			b.Rules = map[string]exporter.Rule{}
		}
		r := exporter.Rule{Type: t.Type}
		if t.Bytes != nil {
			r.Bytes = min(int64(*t.Bytes), b.FileBytes) // --limit may have made that smaller
		}
		b.Rules[t.Name] = r
	}
	return b
}

// Digest is "sha256:" and the digest of the JSON of the plan and of the inputs that
// /in holds, sorted by name. It is canonical: struct order is fixed and maps are
// sorted. The host ids in it are those of slot 0: which slot is free is a fact of
// the attempt, as its paths are, and its journal and attestation name the real ones.
func (pl *Plan) Digest(inputs []InputDigest) (string, error) {
	c := *pl
	c.Box.Identity, c.Exporter.Identity = pl.firstBox, pl.firstExporter
	data, err := json.Marshal(struct {
		*Plan
		Inputs []InputDigest `json:"inputs"`
	}{&c, append([]InputDigest{}, inputs...)})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// refuseUnallowed names every dimension that lacks the operator's word at once,
// those with the same cause together. The list to type next repeats what was named
// already, so that it can take the place of the one given.
func refuseUnallowed(weak []weakness, allowed map[string]bool, named []string) error {
	var names, causes []string
	var first *weakness
	byCause := map[string][]string{}
	for i, w := range weak {
		if !allowed[w.dimension] || slices.Contains(named, w.dimension) {
			names = append(names, w.dimension)
		}
		if allowed[w.dimension] {
			continue
		}
		if first == nil {
			first = &weak[i]
		}
		if byCause[w.cause] == nil {
			causes = append(causes, w.cause)
		}
		byCause[w.cause] = append(byCause[w.cause], w.dimension)
	}
	if first == nil {
		return nil
	}
	for i, c := range causes {
		causes[i] = strings.Join(byCause[c], " and ") + " (" + c + ")"
	}
	next := "allow them by name with --allow-degraded " + strings.Join(names, ",")
	if first.next != "" {
		next = first.next + "; or " + next
	}
	return reason.New(first.id, "this host cannot enforce "+strings.Join(causes, ", "), "the policy asks for it, and nobody allowed less", next)
}
