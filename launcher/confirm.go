package launcher

import (
	"slices"
	"strings"

	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// Confirmed is the status that only recorded evidence can give.
const Confirmed = "CONFIRMED"

// pointRule says what an enforcement point of the policy document rests on.
// The same rule decides over evidence and over the attestation of each run that
// is made under a policy that calls the point CONFIRMED.
type pointRule struct {
	id    string
	rows  []string // attestation rows that must be there and enforced
	grade attest.Grade
	whole []string // rows of the plan that must not be degraded or blocked
	runs  []string // evidence runs that must have passed; a run itself cannot show them
	never string   // why nothing confirms it
}

func pointRules() []pointRule {
	spaces := []string{}
	for _, n := range namespaceNames() {
		spaces = append(spaces, "namespace-"+n)
	}
	return []pointRule{
		{id: "EP1", rows: append(spaces, "uid_map", "gid_map", "mount /", "mount /proc", "nested-user-namespaces"), whole: []string{"root", "ids", "mac"}},
		{id: "EP2", rows: []string{"work/memory.max", "work/memory.swap.max", "work/pids.max", "work/cpu.max", "box/cgroup.procs", "work/cgroup.procs"}, grade: attest.KernelRead, whole: []string{"memory", "cpu-rate"}},
		{id: "EP3", rows: []string{"wall", "cpu-total", "stdout", "stderr"}, whole: []string{"cpu-total"}, runs: []string{"wall-limit", "cpu-limit", "output-limit"}},
		{id: "EP4", rows: []string{"no-new-privs", "seccomp-mode", "seccomp-filters", "seccomp-program", "seccomp-effect",
			"capabilities-CapInh", "capabilities-CapPrm", "capabilities-CapEff", "capabilities-CapBnd", "capabilities-CapAmb"}, whole: []string{"system-calls"}},
		{id: "EP5", rows: []string{"namespace-net", "network-interfaces", "network-addresses"}, whole: []string{"network"}},
		{id: "EP6", runs: []string{"export-accepted", "export-link"}},
		{id: "EP7", runs: []string{"export-accepted", "export-link", "wall-limit"}},
		{id: "EP8", rows: []string{"mount /out"}, whole: []string{"out"}, runs: []string{"out-control", "out-bound"}},
		{id: "EP9", never: "nothing throttles I/O: tmpfs is outside of the io controller"},
	}
}

// shownBy says what the rows of a box do not show of the point, or "".
func (r pointRule) shownBy(rows []attest.Row) string {
	if r.never != "" {
		return r.never
	}
	for _, name := range r.rows {
		i := slices.IndexFunc(rows, func(x attest.Row) bool { return x.Restriction == name && (r.grade == "" || x.Grade == r.grade) })
		switch {
		case i < 0:
			return "the attestation has no row " + name + strings.TrimSuffix(" of grade "+string(r.grade), " of grade ")
		case rows[i].Status != attest.Enforced:
			return name + " is " + string(rows[i].Status)
		}
	}
	for _, x := range rows {
		if slices.Contains(r.whole, x.Restriction) && x.Status != attest.Enforced {
			return x.Restriction + " is " + string(x.Status) + ": " + x.Shown
		}
	}
	return ""
}

// Point is what evidence says about one enforcement point.
type Point struct {
	ID        string `json:"id"`
	Confirmed bool   `json:"confirmed"`
	By        string `json:"by"` // the rows and runs that show it, or what is missing
}

// pointsOf holds every enforcement point against a box and the runs.
func pointsOf(rows []attest.Row, runs []TestRun) []Point {
	var out []Point
	for _, r := range pointRules() {
		p := Point{ID: r.id}
		missing := r.shownBy(rows)
		for _, name := range r.runs {
			if run := findRun(runs, name); missing == "" && !run.Passed {
				missing = "run " + name + " did not pass: " + run.Shown
			}
		}
		if p.Confirmed = missing == ""; p.Confirmed {
			p.By = strings.Join(slices.Concat(r.rows, r.runs), ", ")
		} else {
			p.By = missing
		}
		out = append(out, p)
	}
	return out
}

// backendPoints are those that a CONFIRMED backend stands for. I/O throttling is
// not among them: the policy itself calls it blocked.
func backendPoints() []string {
	return []string{"EP1", "EP2", "EP3", "EP4", "EP5", "EP6", "EP7", "EP8"}
}

// claimed lists the points that a policy calls CONFIRMED, itself or through its backend.
func claimed(p *policy.Policy) []string {
	var ids []string
	for _, e := range p.EnforcementPoints {
		if e.ImplementationStatus == Confirmed {
			ids = append(ids, e.ID)
		}
	}
	if p.IsolationBackend.Status == Confirmed {
		ids = append(ids, backendPoints()...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// confirmedRows adds to an attestation one row for each point that the policy
// calls CONFIRMED; it is a mismatch, which stops the run before "go", unless
// this very box shows the point too.
func confirmedRows(p *policy.Policy, rows []attest.Row) []attest.Row {
	var out []attest.Row
	for _, r := range pointRules() {
		if !slices.Contains(claimed(p), r.id) {
			continue
		}
		row := attest.Row{Restriction: "confirmed-" + r.id, Requested: Confirmed, Shown: Confirmed, Where: "the rows above", Grade: attest.KernelRead, Status: attest.Enforced}
		if len(r.rows) == 0 {
			row.Where, row.Grade, row.Note = "evidence", attest.None, "shown by recorded runs only"
		}
		if missing := r.shownBy(rows); missing != "" {
			row.Shown, row.Status = missing, attest.Mismatch
		}
		out = append(out, row)
	}
	return out
}

// checkClaims refuses a policy that calls CONFIRMED what the evidence does not
// confirm, or whose evidence speaks of something else than this run.
func checkClaims(ids []string, e *Evidence, now Binding) error {
	if what := e.Binding.differs(now); what != "" {
		return reason.New(reason.EvidenceStale, "the evidence of the policy", what, "make new evidence with nsbox doctor --evidence, and confirm the policy again")
	}
	for _, id := range ids {
		i := slices.IndexFunc(e.Points, func(p Point) bool { return p.ID == id })
		if i < 0 || !e.Points[i].Confirmed {
			why := "the evidence does not speak of it"
			if i >= 0 {
				why = e.Points[i].By
			}
			return reason.New(reason.EvidenceInsufficient, id+" "+Confirmed, why, "write the policy with nsbox policy confirm")
		}
	}
	return nil
}

// ConfirmPolicy writes the policy anew with CONFIRMED at the points that the
// evidence shows, and with UNVERIFIED at those that claimed it without. It
// names the evidence by file and digest, and ends in a newline.
func ConfirmPolicy(p *policy.Policy, e *Evidence, file string) ([]byte, error) {
	doc := *p
	doc.EnforcementPoints = slices.Clone(p.EnforcementPoints)
	all := true
	for _, point := range e.Points {
		for i := range doc.EnforcementPoints {
			ep := &doc.EnforcementPoints[i]
			switch {
			case ep.ID != point.ID:
			case point.Confirmed:
				ep.ImplementationStatus = Confirmed
			case ep.ImplementationStatus == Confirmed:
				ep.ImplementationStatus = "UNVERIFIED"
			}
		}
	}
	for _, id := range backendPoints() {
		i := slices.IndexFunc(e.Points, func(p Point) bool { return p.ID == id })
		all = all && i >= 0 && e.Points[i].Confirmed
	}
	if all {
		doc.IsolationBackend.Name, doc.IsolationBackend.Status = BackendName, Confirmed
	}
	doc.Evidence = &policy.EvidenceRef{File: file, Digest: e.Digest}
	return indented(&doc)
}

// checkPolicyEvidence refuses a policy that calls something CONFIRMED unless its
// evidence is whole, is the one it names, speaks of this run, and shows it.
func checkPolicyEvidence(p *policy.Policy, h *probe.Host) error {
	ids := claimed(p)
	if len(ids) == 0 {
		return nil
	}
	if p.Evidence == nil {
		return reason.New(reason.PolicyConfirmedWithoutEvidence, strings.Join(ids, ", "), "are called CONFIRMED and no evidence is named", "write the policy with nsbox policy confirm")
	}
	e, err := ReadEvidence(p.Evidence.File)
	if err != nil {
		return err
	}
	if e.Digest != p.Evidence.Digest {
		return reason.New(reason.EvidenceInvalid, p.Evidence.File, "is whole, but not the one that the policy names", "confirm the policy again")
	}
	now, err := bindingOf(h)
	if err != nil {
		return err
	}
	return checkClaims(ids, e, now)
}
