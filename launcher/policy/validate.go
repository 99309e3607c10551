package policy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// tell adds a fault for a path of the document unless that place has one.
func (d *decoder) tell(id reason.ID, path, what, next string) {
	if !d.faults.at(path) {
		d.faults.add(Fault{ID: id, Path: path, Line: d.lineOf(path), What: what, Next: next})
	}
}

// sound reports whether none of the paths is at fault, so that a rule about
// them says something true.
func (d *decoder) sound(paths ...string) bool {
	for _, p := range paths {
		if d.faults.at(p) {
			return false
		}
	}
	return true
}

// validate holds the document against what types cannot say.
func (d *decoder) validate(p *Policy) {
	if d.root.kind != object {
		return
	}
	d.identities(p)
	d.resources(p)
	d.paths(p)
	d.deniedMounts(p)
	d.network(p)
	d.process(p)
	d.rootfs(p)
	d.artifact(p)
	d.lifecycle(p)
	d.points(p)
	d.switches(p)
	d.evidence(p)
	d.storage(p)
	d.words(p)
	for i, name := range p.Degrade {
		if next := badDimension(name); next != "" {
			d.tell(reason.DegradeUnknown, at("degrade", i), strconv.QuoteToASCII(name)+" is no dimension that can be degraded", next)
		}
	}
	for _, id := range []struct{ path, text string }{{"policy_id", p.PolicyID}, {"policy_version", p.PolicyVersion}, {"workload_id", p.WorkloadID}} {
		if len(id.text) > maxIDText {
			d.tell(reason.PolicyInvalid, id.path, "is "+strconv.Itoa(len(id.text))+" bytes long", "keep it within "+strconv.Itoa(maxIDText)+" bytes")
		}
	}
}

// maxIDText bounds the names that every result and journal line repeats, in bytes.
const maxIDText = 128

func at(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// words holds every fixed word.
func (d *decoder) words(p *Policy) {
	for _, r := range p.wordRules() {
		if r.takes(*r.word) {
			continue
		}
		switch r.path {
		case "filesystem.export_scope":
			if !d.sound("artifact_export.allowed_names") {
				continue
			}
		case "artifact_export.validator":
			if !d.sound("execution_identity.exporter.uid") {
				continue
			}
		}
		if *r.word == "CONFIRMED" {
			if r.path == "isolation_backend.status" && p.Evidence != nil && p.IsolationBackend.Name == "nsbox-namespaces" {
				continue
			}
			d.confirmed(r.path)
			continue
		}
		d.tell(reason.PolicyUnenforceable, r.path, r.word.shown()+" cannot be obeyed: "+r.holds, "write "+quoted(r.accept))
	}
}

func (d *decoder) confirmed(path string) {
	d.tell(reason.PolicyConfirmedWithoutEvidence, path, "a policy cannot confirm itself", "write the policy with nsbox policy confirm --evidence FILE")
}

// switches holds the keys that are true or false and cannot be turned.
func (d *decoder) switches(p *Policy) {
	for _, s := range []struct {
		path       string
		have, want bool
		holds      string
	}{
		{"process_policy.no_new_privs", p.ProcessPolicy.NoNewPrivs, true, "no_new_privs is always set"},
		{"secrets_policy.model_visible_secrets", p.SecretsPolicy.ModelVisibleSecrets, false, "no secret enters the box"},
		{"secrets_policy.credential_set_must_be_empty", p.SecretsPolicy.CredentialSetMustBeEmpty, true, "the credential set is always empty"},
		{"lifecycle.auto_rerun_after_ambiguity", p.Lifecycle.AutoRerunAfterAmbiguity, false, "nothing is ever run again by itself"},
	} {
		if s.have != s.want {
			d.tell(reason.PolicyUnenforceable, s.path, fmt.Sprintf("%v cannot be obeyed: %s", s.have, s.holds), fmt.Sprintf("write %v", s.want))
		}
	}
}

// maxID is the largest id in a box; 65534 is nobody, what unmapped ids show as.
const maxID = 65533

func (d *decoder) identities(p *Policy) {
	const workload, exporter = "execution_identity.workload.", "execution_identity.exporter."
	w, e := &p.ExecutionIdentity.Workload, &p.ExecutionIdentity.Exporter
	for _, x := range []struct {
		path string
		id   int
	}{{workload + "uid", w.UID}, {workload + "gid", w.GID}, {exporter + "uid", e.UID}, {exporter + "gid", e.GID}} {
		if x.id == 0 {
			d.tell(reason.PolicyUnenforceable, x.path, "0 cannot be obeyed: neither the workload nor the exporter runs as root, not even of its own namespace", "write an id from 1 to "+strconv.Itoa(maxID))
		} else if x.id > maxID {
			d.tell(reason.PolicyInvalid, x.path, strconv.Itoa(x.id)+" is not within a box's ids", "write an id from 1 to "+strconv.Itoa(maxID))
		}
	}
	if w.UID == e.UID && d.sound(workload+"uid") {
		d.tell(reason.PolicyUnenforceable, exporter+"uid", "workload and exporter have one uid; the exporter's verdict has to be out of the workload's reach", "write two different uids")
	}
	if w.GID == e.GID && d.sound(workload+"gid") {
		d.tell(reason.PolicyUnenforceable, exporter+"gid", "workload and exporter have one gid; the exporter's verdict has to be out of the workload's reach", "write two different gids")
	}
	if len(w.SupplementaryGIDs) > 0 {
		d.tell(reason.PolicyUnenforceable, workload+"supplementary_gids", "the workload has no supplementary groups", "write []")
	}
	if p.ExecutionIdentity.Init.UID != 0 {
		d.tell(reason.PolicyUnenforceable, "execution_identity.init.uid", "init is uid 0 of the box's own user namespace", "write 0")
	}
	if l := p.ExecutionIdentity.HostLauncher.UID; l != nil && (*l == 0 || *l >= 1<<32-1) {
		d.tell(reason.PolicyUnenforceable, "execution_identity.host_launcher.uid", strconv.Itoa(*l)+" is no unprivileged host user", "write the launcher's uid, or null for any")
	}
}

func (d *decoder) resources(p *Policy) {
	for i, r := range p.Resources.all() {
		row := &resourceRows[i]
		if row.factor(r.Unit) == 0 {
			d.tell(reason.PolicyInvalid, "resources."+row.key+".unit", strconv.Quote(r.Unit)+" is not a unit of "+row.key, "write "+row.units())
		} else if n, ok := row.base(r); !ok {
			d.tell(reason.PolicyInvalid, "resources."+row.key+".value", "cannot be counted in "+r.Unit+": a fraction or too large", "write a whole number of "+r.Unit)
		} else if bad := row.outside(n); bad != "" {
			id := reason.PolicyInvalid
			if row.min == row.max {
				id = reason.PolicyUnenforceable
			}
			d.tell(id, "resources."+row.key+".value", row.show(n)+" "+bad, "write a value from "+row.show(row.min)+" to "+row.show(row.max))
		}
	}
	d.deadline(p)
	// After deadline, because the text of one scope names its sum.
	for i, r := range p.Resources.all() {
		row := &resourceRows[i]
		if r.Scope != row.scope && !(row.key == deadlineKey && r.Scope == p.deadlineScope()) && !(row.isStream() && r.Scope == liveScope) {
			d.tell(reason.PolicyUnenforceable, "resources."+row.key+".scope", strconv.Quote(r.Scope)+" cannot be obeyed: the value holds in one place", "write "+strconv.Quote(row.scope))
		}
	}
}

const deadlineKey = "attempt_hard_deadline"

// deadlineScope is the deadline's scope with this document's own sum.
func (p *Policy) deadlineScope() string {
	l := p.Limits()
	return "attempt_wide_must_be_gte_sum_" + strconv.FormatFloat(l.budgets().Seconds(), 'f', -1, 64)
}

// deadline holds the attempt's deadline against its five budgets.
func (d *decoder) deadline(p *Policy) {
	const r = "resources."
	if d.sound(r+deadlineKey, r+"budget_provision_boot", r+"wall_workload", r+"budget_stop_proof", r+"budget_exporter_lifecycle", r+"budget_cleanup") {
		if short := p.deadlineShort(); short != "" {
			d.tell(reason.PolicyInvalid, r+deadlineKey+".value", short, "raise the deadline or lower a budget")
		}
	}
}

// deadlineShort says that the deadline is below the budgets' sum, or returns "".
func (p *Policy) deadlineShort() string {
	l := p.Limits()
	sum := l.budgets()
	if l.Attempt.Deadline >= sum {
		return ""
	}
	return fmt.Sprintf("%v is below the sum of its budgets, %v (%v provision, %v workload, %v stop proof, %v exporter, %v clean-up)",
		l.Attempt.Deadline, sum, l.Attempt.ProvisionBoot, l.Wall, l.Attempt.StopProof, l.Attempt.ExporterLifecycle, l.Attempt.Cleanup)
}

// targets are the only places a box has for a job's files.
func (d *decoder) paths(p *Policy) {
	const in, out = "filesystem.input_paths", "filesystem.writable_paths"
	type place struct{ path, target string }
	var all []place
	for i, t := range p.Filesystem.InputPaths {
		all = append(all, place{at(in, i), t})
	}
	for i, t := range p.Filesystem.WritablePaths {
		all = append(all, place{at(out, i), t})
	}
	for i, a := range all {
		if !d.sound(a.path) {
			continue
		}
		if !cleanAbsolute(a.target) {
			d.tell(reason.PolicyInvalid, a.path, strconv.Quote(a.target)+" is no clean absolute path", "write it without //, . and ..")
			continue
		}
		for _, b := range all[:i] {
			if cleanAbsolute(b.target) && (below(a.target, b.target) || below(b.target, a.target)) {
				d.tell(reason.PolicyInvalid, a.path, strconv.Quote(a.target)+" collides with "+strconv.Quote(b.target)+" ("+b.path+")", "one path can be one thing only")
			}
		}
	}
	d.exactly(in, p.Filesystem.InputPaths, []string{"/in"}, "staged input stands at /in and nowhere else")
	d.writable(out, p)
}

// exactly holds a list to a set, in any order.
func (d *decoder) exactly(key string, have, want []string, holds string) {
	d.known(key, have, want, holds)
	d.complete(key, have, want, holds)
}

// known refuses what is not in the set or stands twice.
func (d *decoder) known(key string, have, set []string, holds string) {
	for i, x := range have {
		switch {
		case slices.Contains(have[:i], x):
			d.tell(reason.PolicyInvalid, at(key, i), strconv.Quote(x)+" stands twice", "keep one of them")
		case !slices.Contains(set, x):
			d.tell(reason.PolicyUnenforceable, at(key, i), strconv.Quote(x)+" cannot be obeyed: "+holds, didYouMean(x, set))
		}
	}
}

// complete refuses a list from which something of the set is missing.
func (d *decoder) complete(key string, have, set []string, holds string) {
	var missing []string
	for _, x := range set {
		if !slices.Contains(have, x) {
			missing = append(missing, strconv.Quote(x))
		}
	}
	if len(missing) > 0 {
		all := strings.Join(missing, ", ")
		d.tell(reason.PolicyUnenforceable, key, all+" missing: "+holds, "add "+all)
	}
}

// deniedMounts holds the list to words with a test and to clean paths that do
// not forbid the box's own places. An entry of the preset may be left out: it
// only widens what Denies lets pass, and the plan shows that.
func (d *decoder) deniedMounts(p *Policy) {
	const key = "filesystem.denied_mounts"
	list := p.Filesystem.DeniedMounts
	for i, entry := range list {
		if !d.sound(at(key, i)) {
			continue
		}
		switch {
		case slices.Contains(list[:i], entry):
			d.tell(reason.PolicyInvalid, at(key, i), strconv.Quote(entry)+" stands twice", "keep one of them")
		case !strings.HasPrefix(entry, "/"):
			if !slices.Contains(deniedWordNames(), entry) {
				d.tell(reason.PolicyUnenforceable, at(key, i), strconv.Quote(entry)+" is neither an absolute path nor a word nsbox can test", didYouMean(entry, deniedWordNames()))
			}
		case !cleanAbsolute(entry) || strings.ContainsRune(entry, '*'):
			d.tell(reason.PolicyInvalid, at(key, i), strconv.Quote(entry)+" is no clean absolute path", "write "+strconv.Quote(path.Clean(strings.ReplaceAll(entry, "*", ""))))
		default:
			for _, place := range []string{"/in", "/scratch", "/out", "/proc", "/dev"} {
				if below(place, entry) || below(entry, place) && place != "/proc" && place != "/dev" {
					d.tell(reason.PolicyInvalid, at(key, i), strconv.Quote(entry)+" collides with "+place+", which every box has", "remove it")
				}
			}
		}
	}
}

const maxRetries = 10

// maxConcurrency bounds the places of one state directory; each needs four subordinate ids.
const maxConcurrency = 64

func (d *decoder) lifecycle(p *Policy) {
	d.retention(p)
	l := &p.Lifecycle
	events := []string{"STOP_EXECUTION_PROVED", "SEAL_SOURCE_WITH_STORAGE_RETAINED", "VALIDATE_AND_EXPORT_INDEPENDENT_BYTES", "DESTROY_RUNTIME_AND_SOURCE", "VERIFY_CLEANUP", "DELIVER"}
	d.exactly("lifecycle.events", l.Events, events, "the end of an attempt has these six steps")
	if !slices.Equal(l.Events, events) {
		d.tell(reason.PolicyUnenforceable, "lifecycle.events", "the steps stand in another order", "write them as "+strings.Join(events, ", "))
	}
	if l.Concurrency < 1 || l.Concurrency > maxConcurrency {
		d.tell(reason.PolicyUnenforceable, "lifecycle.concurrency", strconv.Itoa(l.Concurrency)+" cannot be obeyed: want 1 to "+strconv.Itoa(maxConcurrency), "write 1 for one attempt at a time")
	}
	if l.CleanupRetries > maxRetries {
		d.tell(reason.PolicyInvalid, "lifecycle.cleanup_retries", strconv.Itoa(l.CleanupRetries)+" is more than clean-up can use within its budget", "write a number from 0 to "+strconv.Itoa(maxRetries))
	}
}

// evidence holds the reference's form; the launcher opens what it names.
func (d *decoder) evidence(p *Policy) {
	if p.Evidence == nil {
		return
	}
	if !cleanAbsolute(p.Evidence.File) {
		d.tell(reason.PolicyInvalid, "evidence.file", strconv.Quote(p.Evidence.File)+" is no clean absolute path", "write the path of the file that nsbox doctor --evidence wrote")
	}
	if !ValidDigest(p.Evidence.Digest) {
		d.tell(reason.PolicyInvalid, "evidence.digest", "is no sha256 digest", "copy the digest of the evidence file")
	}
}
