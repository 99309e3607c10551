package launcher

import (
	"fmt"
	"strings"

	"nsbox/launcher/probe"
)

// The three states of a blocker.
const (
	Answered = "answered"            // by evidence, which By names
	Open     = "open"                // no evidence yet
	Operator = "operator's decision" // no evidence can take it over
)

// Blocker is one of the thirteen open questions of the policy document.
type Blocker struct {
	ID       string `json:"id"`
	Question string `json:"question"`
	State    string `json:"state"`
	By       string `json:"by"` // which findings or runs, or what the operator has to decide
}

// blockers holds every question of the document against what was found. runs is
// nil where no evidence run was made; what only they can show is then open.
func blockers(x *Examination, runs []TestRun) []Blocker {
	var out []Blocker
	add := func(id, question, state, by string) {
		out = append(out, Blocker{ID: id, Question: question, State: state, By: by})
	}
	// found is answered if every finding is a yes, else open with the first that is not.
	found := func(id, question string, names ...string) {
		var by []string
		for _, n := range names {
			f := x.find(n)
			if f.Answer != probe.Yes {
				add(id, question, Open, fmt.Sprintf("%s: %s (%s)", n, f.Answer, f.Shown))
				return
			}
			by = append(by, n+": "+f.Shown)
		}
		add(id, question, Answered, strings.Join(by, "; "))
	}
	ran := func(id, question string, names ...string) {
		var by []string
		for _, n := range names {
			r := findRun(runs, n)
			if !r.Passed {
				why := "run it with --evidence"
				if r.Name != "" {
					why = r.Shown
				}
				add(id, question, Open, n+": "+why)
				return
			}
			by = append(by, n+": "+r.Shown)
		}
		add(id, question, Answered, strings.Join(by, "; "))
	}
	decide := func(id, question, by string) { add(id, question, Operator, by) }

	found("B1", "cgroup v2 delegation and kernel version", "release", "delegation", "controller-memory", "controller-pids", "controller-cpu")
	switch who := x.find("account"); {
	case who.Answer == probe.Yes:
		found("B2", "runtime identity and rootless status", "account", "range")
	default:
		add("B2", "runtime identity and rootless status", Open, "account: "+who.Shown)
	}
	ran("B3", "id maps, and /out readable by the exporter", "export-accepted")
	found("B4", "seccomp, AppArmor and user namespace policy", "limit", "sysctl", "apparmor", "user", "nested-refused", "seccomp", "landlock-effect")
	found("B5", "operator-provisioned bounded /out", "provisioned-out")
	decide("B6", "attacker trust and a shared kernel", "whether hostile code may share this kernel; a bug in it reaches the launcher's account")
	decide("B7", "meaning of the 30 s deadline", "nsbox takes resources.wall_workload as the program's own wall time; the attempt has attempt_hard_deadline")
	add("B8", "I/O throttling", Open, "nothing enforces it: tmpfs is outside of the io controller")
	ran("B9", "cumulative CPU monitor and kill latency", "cpu-limit", "wall-limit")
	decide("B10", "Python version and pins", "which interpreter and libraries are meant; every result carries the digest of the closure that ran")
	ran("B11", "immutability of the export", "export-accepted", "export-link")
	found("B12", "stop proof", "stop-proof", "pidfd")
	decide("B13", "what else is on this machine", "nsbox does not look at the account's files; a kernel bug would")
	return out
}
