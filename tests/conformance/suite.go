package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"nsbox/tests/harness"
)

// Suite runs fixtures as one caller and fills one bundle.
type Suite struct {
	Nsbox    string            // the nsbox under test
	Progress func(line string) // told what runs now; nil: nobody
	Done     func(Outcome)     // told each outcome; nil: nobody
	caller   harness.Caller
	bundle   *bundle
}

// Select picks fixtures by id, profile and quickness; an empty value asks for
// nothing. Unknown ids and profiles are errors, and so is an empty selection.
func Select(all []Fixture, ids []string, profile string, quick bool) ([]Fixture, error) {
	known := func(id string) bool {
		return slices.ContainsFunc(all, func(f Fixture) bool { return strings.EqualFold(f.ID, id) })
	}
	for _, id := range ids {
		if !known(id) {
			return nil, fmt.Errorf("there is no fixture %q; known are %s", id, strings.Join(idsOf(all), ", "))
		}
	}
	if _, ok := deadlines()[profile]; profile != "" && !ok {
		return nil, fmt.Errorf("there is no profile %q; known are %s", profile, strings.Join(Profiles(), ", "))
	}
	var chosen []Fixture
	for _, f := range all {
		named := len(ids) == 0 || slices.ContainsFunc(ids, func(id string) bool { return strings.EqualFold(f.ID, id) })
		if named && (profile == "" || f.Profile == profile) && (!quick || f.Quick) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no fixture is left: --only, --profile and --quick exclude each other")
	}
	return chosen, nil
}

func idsOf(all []Fixture) (ids []string) {
	for _, f := range all {
		ids = append(ids, f.ID)
	}
	return ids
}

// Report is the whole run.
type Report struct {
	Schema   string          `json:"schema"`
	Started  time.Time       `json:"started"`
	Nsbox    string          `json:"nsbox_version"`
	Kernel   string          `json:"kernel"`
	System   string          `json:"system"`
	Caller   string          `json:"caller"`
	Command  string          `json:"command"`
	Counts   map[Verdict]int `json:"counts"`
	Outcomes []Outcome       `json:"outcomes"`
	Millis   int64           `json:"duration_ms"`
}

// ReportSchema names the report's format.
const ReportSchema = "nsbox.verify/1"

// Run runs the fixtures one after the other and writes the bundle into dir, an
// existing empty directory; empty keeps nothing.
func (s *Suite) Run(fixtures []Fixture, dir, command string) (Report, error) {
	began := time.Now()
	s.caller = harness.Caller{Name: "self", UID: os.Geteuid(), GID: os.Getegid()}
	s.bundle = &bundle{dir: dir}
	os.Setenv("NSBOX_BIN", s.Nsbox)
	// A variable of the operator's must not choose what the box is tested with.
	version, err := exec.Command(s.Nsbox, "version").Output()
	if err != nil {
		return Report{}, fmt.Errorf("%s version: %w", s.Nsbox, err)
	}
	r := Report{Schema: ReportSchema, Started: began.UTC(), Nsbox: strings.TrimSpace(string(version)), Kernel: read("/proc/sys/kernel/osrelease"), System: osName(),
		Caller: fmt.Sprintf("uid %d", os.Geteuid()), Command: command, Counts: map[Verdict]int{}, Outcomes: []Outcome{}}
	s.bundle.collect(s.Nsbox)
	for _, f := range fixtures {
		if s.Progress != nil {
			s.Progress(f.ID + " " + f.Title)
		}
		c := &Case{fixture: f, suite: s}
		o := c.run()
		r.Counts[o.Verdict]++
		r.Outcomes = append(r.Outcomes, o)
		if s.Done != nil {
			s.Done(o)
		}
	}
	harness.Forget()
	r.Millis = time.Since(began).Milliseconds()
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return r, err
	}
	s.bundle.add("report.json", append(data, '\n'))
	return r, s.bundle.finish(r)
}

// Failed tells whether any fixture is FAIL.
func (r Report) Failed() bool { return r.Counts[Fail] > 0 }

func read(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

func osName() string {
	for line := range strings.Lines(read("/etc/os-release")) {
		if rest, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(strings.TrimSpace(rest), `"`)
		}
	}
	return "unknown"
}
