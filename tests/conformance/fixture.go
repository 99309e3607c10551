package conformance

import (
	"slices"
	"time"
)

// Verdict is how a fixture ended.
type Verdict string

// The verdicts. Only PASS shows anything; FAIL alone makes the exit status 1.
const (
	Pass          Verdict = "PASS"
	Fail          Verdict = "FAIL"
	Inconclusive  Verdict = "INCONCLUSIVE"
	SetupFailure  Verdict = "TEST_SETUP_FAILURE"
	NotApplicable Verdict = "NOT_APPLICABLE"
	Blocked       Verdict = "BLOCKED"
)

// Fixture is one row of the specification's tables.
type Fixture struct {
	ID      string // the specification's; B1 to B6 are those of its second document
	Title   string
	Profile string // a key of deadlines
	Quick   bool   // part of --quick: together below 30 s
	Attempt string // what is tried, and how often
	Shows   string // what a PASS shows
	Cannot  string // what it cannot establish
	Run     func(*Case)
}

// deadlines are the profiles' outer deadlines: how long one run of nsbox may
// take before the harness kills it and the fixture fails.
func deadlines() map[string]time.Duration {
	return map[string]time.Duration{
		"TP-PROD": 70 * time.Second, "TP-WALL": 8 * time.Second, "TP-CPU": 50 * time.Second, "TP-AGG": 40 * time.Second,
		"TP-MEM": 30 * time.Second, "TP-PID": 15 * time.Second, "TP-FD": 15 * time.Second, "TP-LOG": 25 * time.Second, "TP-SCR": 30 * time.Second,
	}
}

// Profiles lists the profiles' names in order.
func Profiles() []string {
	names := make([]string, 0, len(deadlines()))
	for name := range deadlines() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// All is every fixture in the specification's order.
func All() []Fixture {
	return slices.Concat(fileFixtures(), limitFixtures(), neighbourFixtures(), exportFixtures(), reachFixtures(), waitFixtures(), identityFixtures(), privilegeFixtures(), backendFixtures())
}

// Outcome is one fixture's verdict with its evidence: a row of the bundle.
type Outcome struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Profile  string     `json:"profile"`
	Verdict  Verdict    `json:"verdict"`
	Reason   string     `json:"reason,omitempty"` // why it is not PASS
	Attempt  string     `json:"attempt"`
	Shows    string     `json:"shows"`
	Cannot   string     `json:"cannot_establish"`
	Controls []string   `json:"controls"` // positive controls that held
	Evidence []Evidence `json:"evidence"`
	Runs     []RunOf    `json:"runs"`
	Problems []string   `json:"problems"`
	Millis   int64      `json:"duration_ms"`
}

// Evidence is one observed fact.
type Evidence struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// RunOf is one run of nsbox exec within a fixture.
type RunOf struct {
	Attempt  string   `json:"attempt"`
	Workload string   `json:"workload"`
	Artifact string   `json:"artifact"`
	Cleanup  string   `json:"cleanup"`
	Delivery string   `json:"delivery"`
	Exit     int      `json:"exit_status"`
	Degraded []string `json:"degraded"`
	Result   string   `json:"result,omitempty"` // file of the bundle
}
