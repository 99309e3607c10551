package launcher

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nsbox/launcher/attest"
	"nsbox/launcher/endpoint"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// The two verdicts of a plan.
const (
	VerdictRun    = "RUN"
	VerdictRefuse = "REFUSE"
)

// Statuses that only a decision has; the others are those of an attestation.
const (
	Unsupported   attest.Status = "unsupported" // required, and not to be had here
	NotKnown      attest.Status = "unknown"     // could not be told, which counts as unsupported
	SimulatedOnly attest.Status = "simulated"   // played through, not enforced
)

// Want says how much a run depends on a restriction.
type Want int

const (
	Required Want = iota // the zero value: without it there is no run
	Optional             // weaker is accepted, by the operator's word
)

// MarshalText makes it a word in JSON.
func (w Want) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

func (w Want) String() string {
	if w == Optional {
		return "optional"
	}
	return "required"
}

// Decision is what nsbox decided before anything was started, and why. A
// refused one has the same rows.
type Decision struct {
	Schema       string        `json:"schema"`
	Backend      string        `json:"backend"`
	Verdict      string        `json:"decision"`
	Reasons      []Reason      `json:"reasons"`     // everything that stands against it; empty if RUN
	Digest       string        `json:"plan_digest"` // empty if refused
	Policy       PolicyRef     `json:"policy"`
	PolicyDigest string        `json:"policy_digest"`
	Request      Capabilities  `json:"request"`
	Inputs       []InputDigest `json:"inputs"` // as they were read; exec refuses a plan whose inputs have changed
	Grants       []Grant       `json:"grants"`
	Rows         []DecisionRow `json:"restrictions"`
	Degraded     []Degradation `json:"degraded"`
	Plan         *Plan         `json:"plan"` // null if refused

	policyFault bool // the policy itself could not be loaded
}

// DecisionRow is one restriction, what holds it, and how that is known here.
type DecisionRow struct {
	Restriction
	Want   Want   `json:"want"`
	Probed string `json:"probed"`
}

// PlanSchema names the document of `nsbox plan --json`.
const PlanSchema = "nsbox.plan/1"

// Consider decides as exec would and starts nothing. It always returns a
// Decision; what it could not find is a reason in it.
func Consider(b Backend, req Request, destinations []endpoint.Endpoint) *Decision {
	p, src, err := loadPolicy(req)
	d := newDecision(b, src)
	if err != nil {
		d.policyFault = true
		return d.refuse(err)
	}
	f, factsErr := b.survey(req, p)
	var inputsErr error
	if _, real := b.(namespaces); real {
		var files []rootfs.Staged
		files, inputsErr = rootfs.Foresee(context.Background(), req.toStage(), p.Limits().Input)
		f.Inputs = inputDigests(files)
	}
	d = decide(b, req, p, src, f, factsErr, destinations)
	if inputsErr != nil {
		d.refuse(inputsErr)
		d.Verdict, d.Digest, d.Plan = VerdictRefuse, "", nil
	}
	return d
}

func newDecision(b Backend, src policy.Source) *Decision {
	return &Decision{Schema: PlanSchema, Backend: b.Name(), Verdict: VerdictRefuse, Reasons: []Reason{}, Inputs: []InputDigest{}, Grants: []Grant{}, Rows: []DecisionRow{}, Degraded: []Degradation{},
		Request: Capabilities{Argv: []string{}, ReadPaths: []string{}, WritePaths: []string{}, Destinations: []endpoint.Endpoint{}, Environment: []string{}},
		Policy:  PolicyRef{Source: src.Arg}, PolicyDigest: src.Digest}
}

// refuse adds a reason once.
func (d *Decision) refuse(err error) *Decision {
	r := *asReason(toReason(err))
	if !slices.ContainsFunc(d.Reasons, func(o Reason) bool { return o.ID == r.ID && o.What == r.What }) {
		d.Reasons = append(d.Reasons, r)
	}
	return d
}

// decide is pure: request, policy and host in, decision out. factsErr is what
// kept the facts from being whole.
func decide(b Backend, req Request, p *policy.Policy, src policy.Source, f Facts, factsErr error, destinations []endpoint.Endpoint) *Decision {
	d := newDecision(b, src)
	d.Inputs = append(d.Inputs, f.Inputs...)
	d.Policy = PolicyRef{ID: p.PolicyID, Version: p.PolicyVersion, Workload: p.WorkloadID, Source: src.Arg}
	if b.Name() == SimulatedName {
		// Nothing is enforced, so nothing can be weaker.
		req.AllowDegraded = policy.Dimensions()
	}
	var listed []endpoint.Endpoint
	for _, x := range p.Destinations() {
		listed = append(listed, x.Endpoint)
	}
	// Every listed destination is opened for the box, asked for by name or not.
	c, err := Wanted(req, p, slices.Concat(destinations, listed))
	if err != nil {
		d.refuse(err)
	} else {
		d.Request = c
		d.Grants = Granted(c, p, listed, f.Closure != nil && f.Closure.Python != "")
		for _, g := range d.Grants {
			if !g.Allowed && g.Capability != executeCapability {
				d.refuse(reason.New(reason.CapabilityDenied, g.Capability+" "+g.Requested, g.Rule+" does not list it", "leave it out, or use a policy that lists it"))
			}
		}
	}
	if factsErr != nil {
		d.refuse(factsErr)
	}
	var pl *Plan
	if factsErr == nil {
		if pl, err = MakePlan(req, p, src, f); err != nil {
			d.refuse(err)
		}
	}
	d.rows(b, req, p, f, pl)
	if len(d.Reasons) > 0 {
		return d
	}
	pl.Box.SharedVM = sharedVM
	if d.Digest, err = pl.Digest(f.Inputs); err != nil {
		return d.refuse(err)
	}
	d.Verdict, d.Plan, d.Degraded = VerdictRun, pl, append(d.Degraded, pl.Degraded...)
	return d
}

// rows fills the table and adds what MakePlan, which stops at the first fault,
// did not come to.
func (d *Decision) rows(b Backend, req Request, p *policy.Policy, f Facts, pl *Plan) {
	surveyed := f.Host != nil
	if !surveyed {
		f.Host = &probe.Host{}
	}
	allowed := map[string]bool{}
	for _, name := range slices.Concat(p.Degrade, req.AllowDegraded) {
		allowed[name] = true
	}
	var stands []*reason.Error
	if surveyed {
		if f.Identity.Kind == "" {
			// The survey ended before it came to this; the choice is pure.
			id, err := probe.ChooseIdentity(f.Host)
			if err != nil {
				id, err = probe.ChooseSingle(f.Host, err)
			}
			if err != nil {
				d.refuse(err)
			}
			f.Identity = id
		}
	}
	weak := weaknesses(p, f)
	if surveyed {
		stands = probe.Check(f.Host)
		for _, e := range stands {
			d.refuse(e)
		}
		if err := refuseUnallowed(weak, allowed, req.AllowDegraded); err != nil {
			d.refuse(err)
		}
	}
	draft := pl
	if draft == nil {
		draft = draftPlan(p, f)
	}
	strict := *draft
	strict.Degraded = nil
	loose := strict
	for _, w := range weak {
		loose.Degraded = append(loose.Degraded, Degradation{Dimension: w.dimension, Instead: w.instead, NotCover: w.notCovered})
	}
	asked := restrictions(&strict, p, f)
	for i, r := range restrictions(&loose, p, f) {
		row := DecisionRow{Restriction: r, Probed: probed(r.Name, f, surveyed)}
		if r.Status != attest.Enforced {
			row.Want = Optional
		}
		switch {
		case !surveyed:
			row.Status, row.Note = NotKnown, "the host could not be looked at"
		case r.Status == attest.Blocked:
		case b.Name() == SimulatedName && slices.Contains(b.Matrix(), r.Name):
			row.Restriction = asked[i]
			row.Status, row.Note, row.Probed = SimulatedOnly, "", "not at all: simulated"
		case r.Status == attest.Degraded && !allowed[dimensionOf(r, weak)]:
			row.Restriction, row.Want = asked[i], Required
			row.Status, row.Note = Unsupported, "to be had only weaker: "+r.Primitive
		case r.Name == "ids" && f.Identity.Kind == "":
			row.Status, row.Note = Unsupported, "no ids that a box could use"
		case f.Closure == nil && (r.Name == "root" || r.Name == "exec"):
			row.Status, row.Note = NotKnown, "without the program nothing tells what the root must hold"
		case len(stands) > 0 && heldByKernel(r):
			row.Status, row.Note = Unsupported, stands[0].What+": "+stands[0].Why
		case !slices.Contains(b.Matrix(), r.Name):
			row.Status, row.Note = attest.Degraded, "the backend "+b.Name()+" cannot hold it"
			if row.Want == Required {
				row.Status = Unsupported
				d.refuse(reason.New(reason.BackendUnsupported, r.Name, "the backend "+b.Name()+" cannot hold it, and the policy requires it", "use another backend"))
			}
		}
		d.Rows = append(d.Rows, row)
	}
}

// dimensionOf finds the dimension behind a degraded row: what stands in its
// place is that dimension's own.
func dimensionOf(r Restriction, weak []weakness) string {
	for _, w := range weak {
		if w.instead == r.Primitive {
			return w.dimension
		}
	}
	return ""
}

func heldByKernel(r Restriction) bool {
	return r.Status == attest.Enforced && !heldByLauncher(r.Name) && r.Name != "launcher"
}

// draftPlan is as much of a plan as the facts allow, for its rows only.
func draftPlan(p *policy.Policy, f Facts) *Plan {
	id := p.ExecutionIdentity
	kind, program := f.Identity.Kind, "the program, which was not found"
	if kind == "" {
		kind = "no usable"
	}
	if f.Closure != nil {
		program = f.Closure.Program
	}
	return &Plan{
		Limits: p.Limits(), Document: p, Network: networkPlan(p, f),
		Filters: map[string]string{"workload": seccompgen.Workload(seccompgen.Options{}).Digest()},
		Box: nsexec.Spec{UID: id.Workload.UID, GID: id.Workload.GID, LandlockABI: min(f.Host.LandlockABI, maxLandlockABI),
			Command: nsexec.Command{Path: program}, Identity: nsexec.Identity{Kind: kind}},
	}
}

// probed says how it is known that a restriction can be held here. A setting
// can prove a no only; what only the box itself can show says so.
func probed(name string, f Facts, surveyed bool) string {
	if !surveyed {
		return "not at all"
	}
	h := f.Host
	const inBox = "by doing, in the box before \"go\""
	switch name {
	case "exec":
		return "the files of the program's closure"
	case "root", "network", "scratch", "tasks", "endpoints":
		return inBox
	case "ids":
		if f.Identity.Source == "" {
			return "account files: nothing usable"
		}
		return f.Identity.Source + "; the maps are written and read back before \"go\""
	case "launcher":
		return fmt.Sprintf("/proc/self/status and /etc/group: uid %d, %d groups", h.UID, len(h.Groups))
	case "mac":
		if h.LandlockABI > 0 {
			return fmt.Sprintf("landlock_create_ruleset answers ABI %d; effect probed before \"go\"", h.LandlockABI)
		}
		return "landlock_create_ruleset answers " + h.LandlockErrno
	case "system-calls":
		return fmt.Sprintf("nsbox itself is under seccomp mode %d; the effect is tried before \"go\"", h.SeccompMode)
	case "memory", "cpu-rate", "cpu-total":
		switch {
		case f.Cgroup && len(h.CgroupV2.V1Controllers) > 0:
			return "a leaf group was made and removed; on version 1: " + strings.Join(h.CgroupV2.V1Controllers, ", ")
		case f.Cgroup:
			return "a leaf group was made and removed; controllers: " + strings.Join(h.CgroupV2.Controllers, " ")
		case f.CgroupErr != nil:
			return "tried: " + probe.CgroupReason(f.CgroupErr).Error()
		}
		return "not tried"
	case "wall", "stdout", "stderr", "connections":
		return "nsbox's own clock and counters"
	case "out":
		return inBox + "; " + f.Out.probed()
	}
	return "nothing to probe"
}
