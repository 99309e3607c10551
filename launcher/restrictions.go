package launcher

import (
	"fmt"
	"slices"
	"strings"

	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// Restriction is one line of the plan: what is asked and by what it is held.
type Restriction struct {
	Name      string        `json:"name"`
	Dimension string        `json:"dimension,omitempty"` // that --allow-degraded takes; empty: never weaker
	Requested string        `json:"requested"`
	Primitive string        `json:"primitive"`
	Status    attest.Status `json:"status"`
	Note      string        `json:"note,omitempty"`
}

// weakness is one dimension that this host or this launcher cannot hold as asked.
type weakness struct {
	dimension  string
	id         reason.ID
	cause      string
	instead    string
	notCovered string
	next       string
}

// weaknesses is the table of degradable dimensions held against the facts, in
// the order in which a refusal names them.
func weaknesses(p *policy.Policy, f Facts) []weakness {
	var out []weakness
	if e := f.Identity.Cause; e != nil {
		out = append(out, weakness{policy.DimIdentity, e.ID, e.What + ": " + e.Why,
			"the caller's own id for all of the box, in a user namespace of its own and one more for the program",
			"a kernel that takes the program for the caller: modes of files that the box shows, the caller's supplementary groups", e.Next})
	}
	if e := f.lacks("memory"); e != nil {
		out = append(out, weakness{policy.DimMemory, e.ID, e.What + ": " + e.Why,
			addressText(p) + " and a sampled sum of the tree; shared memory denied",
			"memory that grows and is freed between two samples, shared anonymous mappings, tmpfs pages, what the kernel keeps for a program; swap", e.Next})
	}
	if e := f.lacks("cpu"); e != nil && !unreachableRate(p.Limits(), f.Host) {
		out = append(out, weakness{policy.DimCPURate, e.ID, e.What + ": " + e.Why,
			"pinned to one cpu, changing that is denied",
			"a rate below one whole cpu", e.Next})
	}
	if !f.Cgroup && !unreachableTotal(p.Limits(), f.Host) {
		cid, ccause := reason.NoV2Cgroup, "no cgroup v2 directory can be used"
		if e := probe.CgroupReason(f.CgroupErr); e != nil {
			cid, ccause = e.ID, e.What+": "+e.Why
		}
		out = append(out, weakness{policy.DimCPUTotal, cid, ccause,
			"sum sampled from the live processes and init's reaped children, on one cpu",
			"processes that end unreaped between two samples; bounded by one cpu times wall time", ""})
	}
	if who := launcherCause(f.Host); who != "" {
		out = append(out, weakness{policy.DimLauncherIdentity, reason.DegradedNotAllowed, who,
			"the workload's ids are still no ids of the launcher's",
			"what a kernel escape could reach with this launcher's rights", "run nsbox as a dedicated user without these rights"})
	}
	if p.Exports() && p.OutStorage != policy.OutHeld && !f.Out.Ready {
		out = append(out, f.Out.weakness())
	}
	const instead, notCovered = "mounts and modes alone decide on files", "a second layer below a fault in the mount table; a FIFO in what --ro or --rootfs-add shows can be written to"
	if e := f.Host.LandlockRefusal(); e != nil {
		out = append(out, weakness{policy.DimLandlock, e.ID, e.Why, instead, notCovered, e.Next})
	} else if !p.WantsLandlock() {
		out = append(out, weakness{policy.DimLandlock, reason.DegradedNotAllowed, "process_policy.mac is none", instead, notCovered, "write landlock"})
	}
	if !p.SocketsFiltered() {
		out = append(out, weakness{policy.DimSeccompNetwork, reason.DegradedNotAllowed, "seccomp.denied_classes has no class of sockets",
			"the network namespace, and Landlock for TCP ports, without the filter's rule on sockets", "kernel code of every socket family but AF_VSOCK", "add the class"})
	}
	return out
}

// whatRuns is process_policy.exec_allowlist for a reader of the plan.
func whatRuns(p *policy.Policy) string {
	if p.PythonOnly() {
		return "a Python interpreter only"
	}
	if p.AnyProgram() {
		return "any program of the root"
	}
	return "the named program only"
}

// whatRoot says what the root is made of.
func whatRoot(pl *Plan, p *policy.Policy) string {
	if h, ok := p.Root().(policy.HostRoot); ok {
		text := strings.Join(h.Directories, ", ") + " of the host"
		for _, b := range pl.Binds {
			text += ", " + b.Source
			if b.Target != b.Source {
				text += " at " + b.Target
			}
		}
		return text + ", read-only"
	}
	return rootText(p, pl.Box.Command.Path)
}

func rateHolder(l policy.Limits, f Facts) string {
	if !slices.Contains(f.Controllers, "cpu") && unreachableRate(l, f.Host) {
		return fmt.Sprintf("no more than the host's %d cpus", f.Host.CPUs)
	}
	return "cpu.max"
}

func streamText(kept int64, live bool) string {
	if live {
		return fmt.Sprintf("%d bytes kept of a stream without a cap", kept)
	}
	return fmt.Sprintf("%d bytes", kept)
}

// onlyRuns is what holds it.
func onlyRuns(p *policy.Policy) string {
	if p.AnyProgram() {
		return "Landlock and noexec mounts: no program outside of the root's own directories"
	}
	return "no other program is in the root"
}

// rootText is what the box's root is made of.
func rootText(p *policy.Policy, program string) string {
	text, from := "closure of "+program, ""
	if p.AnyProgram() {
		text = "all of the root"
	}
	switch r := p.Root().(type) {
	case policy.DirectoryRoot:
		from = " from the directory " + r.Digest
	case policy.OCIRoot:
		from = " from the image " + r.Digest
	}
	if x := p.Prepared(); x != nil {
		from += " with the packages " + x.Digest
	}
	return text + from + ", read-only"
}

// lacks says why a cgroup controller cannot be used for this attempt, or nil.
func (f Facts) lacks(controller string) *reason.Error {
	if slices.Contains(f.Controllers, controller) {
		return nil
	}
	if v1 := f.Host.CgroupV2.V1Controllers; slices.Contains(v1, controller) {
		// Named together: one boot setting cures them all.
		return reason.New(reason.ControllersBoundToV1, "controllers "+strings.Join(v1, ", "), "bound to cgroup v1 on this host", f.Host.ControllerRefusal(controller).Next)
	}
	if e := probe.CgroupReason(f.Lacks[controller]); e != nil {
		return e
	}
	if e := probe.CgroupReason(f.CgroupErr); e != nil {
		return e
	}
	if e := f.Host.ControllerRefusal(controller); e != nil {
		return e
	}
	return reason.New(reason.ControllerMissing, "cgroup controller "+controller, "it could not be enabled for the job cgroup", "start nsbox in a delegated group: systemd-run --user --scope -p Delegate=yes -- nsbox …")
}

func launcherCause(h *probe.Host) string {
	if powers := h.Powers(); len(powers) > 0 {
		return "the launcher has more than a plain user's rights: " + strings.Join(powers, ", ")
	}
	return ""
}

// restrictions lists what is held by what, whether the host or the launcher holds it.
func restrictions(pl *Plan, p *policy.Policy, f Facts) []Restriction {
	weak := map[string]Degradation{}
	for _, d := range pl.Degraded {
		weak[d.Dimension] = d
	}
	l := pl.Limits
	var out []Restriction
	add := func(name, requested, primitive, dimension string) {
		r := Restriction{Name: name, Dimension: dimension, Requested: requested, Primitive: primitive, Status: attest.Enforced}
		if d, ok := weak[dimension]; ok {
			r.Status, r.Primitive, r.Note = attest.Degraded, d.Instead, "not covered: "+d.NotCover
		}
		out = append(out, r)
	}
	add("root", whatRoot(pl, p), "mount namespace, pivot_root", "")
	add("exec", whatRuns(p), onlyRuns(p), "")
	add("ids", fmt.Sprintf("%d:%d inside", pl.Box.UID, pl.Box.GID), "user namespace, "+pl.Box.Identity.Kind+" id maps", policy.DimIdentity)
	add("launcher", "dedicated unprivileged user", "the caller's own account", policy.DimLauncherIdentity)
	add("network", string(p.Network.Mode), pl.Network.primitive(), policy.DimSeccompNetwork)
	add("mac", "Landlock", fmt.Sprintf("Landlock ABI %d", pl.Box.LandlockABI), policy.DimLandlock)
	add("system-calls", strings.Join(p.ProcessPolicy.Seccomp.DeniedClasses, " ")+" denied", "seccomp filter "+pl.Filters["workload"], "")
	add("memory", fmt.Sprintf("%d bytes, swap %d", l.Memory.Bytes, l.Memory.Swap), "memory.max", policy.DimMemory)
	add("cpu-rate", fmt.Sprintf("%d%% of one core", l.CPU.RatePercent), rateHolder(l, f), policy.DimCPURate)
	add("cpu-total", l.CPU.Total.String(), "cpu.stat usage_usec, monitor", policy.DimCPUTotal)
	tasks := "RLIMIT_NPROC of the box's user namespace"
	if slices.Contains(f.Controllers, "pids") {
		tasks = "pids.max, " + tasks
	}
	add("tasks", fmt.Sprint(l.Tasks), tasks, "")
	if n := pl.Network; n != nil {
		add("endpoints", n.list(), "listening sockets of the box, held by the launcher, which dials", "")
		add("connections", n.bounds(), "launcher, counted", "")
	}
	add("wall", l.Wall.String(), "launcher, CLOCK_MONOTONIC", "")
	add("stdout", streamText(l.Log.Stdout, pl.LiveStdout), "launcher, counted pipe", "")
	add("stderr", streamText(l.Log.Stderr, pl.LiveStderr), "launcher, counted pipe", "")
	add("scratch", fmt.Sprintf("%d bytes, %d inodes", l.Scratch.Bytes, l.Scratch.Inodes), "tmpfs size, nr_inodes", "")
	if p.Exports() {
		add("out", fmt.Sprintf("%d bytes, %d inodes", l.Out.Bytes, l.Out.Inodes), outPrimitive(p, f.Out), policy.DimOutStorage)
	} else {
		add("out", "nothing leaves", "there is no /out", "")
	}
	out = append(out, Restriction{Name: "io-write-rate", Requested: fmt.Sprintf("%d bytes per second", l.IOWriteRate), Primitive: "none", Status: attest.Blocked,
		Note: "tmpfs is outside of the io controller; the policy itself says BLOCKED"})
	return out
}

// degraded reports whether a dimension is weakened in this plan.
func (pl *Plan) degraded(dimension string) bool {
	for _, d := range pl.Degraded {
		if d.Dimension == dimension {
			return true
		}
	}
	return false
}

// attestation is the rows that are not read from the box: what the launcher
// enforces itself, what is degraded and what is blocked.
func (pl *Plan) attestation() []attest.Row {
	var rows []attest.Row
	for _, r := range pl.Restrictions {
		switch {
		case r.Status == attest.Degraded || r.Status == attest.Blocked:
			rows = append(rows, attest.Row{Restriction: r.Name, Requested: r.Requested, Shown: r.Primitive, Where: "plan", Grade: attest.None, Status: r.Status, Note: r.Note})
		case heldByLauncher(r.Name):
			rows = append(rows, attest.Row{Restriction: r.Name, Requested: r.Requested, Shown: r.Primitive, Where: "launcher", Grade: attest.Launcher, Status: r.Status, Note: r.Note})
		}
	}
	return rows
}

// heldByLauncher are the restrictions that nothing in the box can show: the
// launcher watches over them, or is itself what they speak of.
func heldByLauncher(name string) bool {
	return name == "launcher" || name == "wall" || name == "cpu-total" || name == "stdout" || name == "stderr" || name == "connections"
}
