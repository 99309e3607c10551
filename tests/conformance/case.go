package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"nsbox/tests/harness"
	"nsbox/tests/programs"
)

// Case is one fixture being run. It implements harness.T: a failed expectation
// of the harness is a problem of the case, in the phase it happens in.
type Case struct {
	*harness.Site

	fixture  Fixture
	suite    *Suite
	outcome  Outcome
	inputs   map[string]string // fingerprints of what runs were given, by path
	mu       sync.Mutex
	control  bool
	cleanups []func()
	setup    bool // a problem came from a control
	failed   bool
}

// Helper is part of harness.T; a case has no line numbers to hide.
func (c *Case) Helper() {}

// Log and Logf add evidence without a name.
func (c *Case) Log(args ...any) { c.Note("log", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

// Logf is part of harness.T.
func (c *Case) Logf(format string, args ...any) { c.Note("log", fmt.Sprintf(format, args...)) }

// Error and Errorf record a problem; the case goes on.
func (c *Case) Error(args ...any) { c.problem(strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }

// Errorf is part of harness.T.
func (c *Case) Errorf(format string, args ...any) { c.problem(fmt.Sprintf(format, args...)) }

// Fatal and Fatalf record a problem and end the case.
func (c *Case) Fatal(args ...any) { c.Error(args...); runtime.Goexit() }

// Fatalf is part of harness.T.
func (c *Case) Fatalf(format string, args ...any) { c.Errorf(format, args...); runtime.Goexit() }

// Cleanup runs f at the end of the case, last one first.
func (c *Case) Cleanup(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cleanups = append(c.cleanups, f)
}

func (c *Case) problem(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.Problems = append(c.outcome.Problems, what)
	if c.control {
		c.setup = true
	} else {
		c.failed = true
	}
}

// Control runs a positive control. If it does not hold the case ends there: an
// attempt without its control would show nothing.
func (c *Case) Control(what string, check func()) {
	c.control = true
	check()
	c.control = false
	if c.setup {
		runtime.Goexit()
	}
	c.outcome.Controls = append(c.outcome.Controls, what)
}

// Stop ends the case without PASS, whatever was seen so far.
func (c *Case) Stop(v Verdict, why string) {
	c.outcome.Verdict, c.outcome.Reason = v, why
	runtime.Goexit()
}

// Note adds evidence.
func (c *Case) Note(name string, value any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcome.Evidence = append(c.outcome.Evidence, Evidence{name, fmt.Sprint(value)})
}

// Program is a job that runs one of tests/programs under the fixture's profile.
func (c *Case) Program(name string, args ...string) harness.Job {
	dir := filepath.Join(c.Dir, "programs")
	if _, err := os.Stat(dir); err != nil {
		if err := os.Mkdir(dir, 0o755); err != nil {
			c.Fatal(err)
		}
		if err := programs.WriteTo(dir); err != nil {
			c.Fatal(err)
		}
	}
	return harness.Job{Script: filepath.Join(dir, name), Args: args, Policy: c.Profile(c.fixture.Profile)}
}

// Do runs a job within the profile's outer deadline and keeps its result.
func (c *Case) Do(j harness.Job) *harness.Run {
	return c.Keep(c.Begin(j).Wait())
}

// Begin starts a job within the profile's outer deadline; Keep must follow Wait.
func (c *Case) Begin(j harness.Job) *harness.Live {
	if j.Within == 0 {
		j.Within = deadlines()[c.fixture.Profile]
	}
	if j.Policy == nil && j.PolicyArg == "" {
		j.Policy = c.Profile(c.fixture.Profile)
	}
	for _, path := range inputs(j) {
		c.inputs[path] = harness.Fingerprint(c, path)
	}
	live := c.Start(j)
	// A case that ends early must not be taken for a box that does not.
	c.Cleanup(func() {
		if live.Cmd.ProcessState == nil {
			live.Signal(syscall.SIGTERM)
			live.Wait()
		}
	})
	return live
}

// Keep puts a run's result document into the bundle.
func (c *Case) Keep(r *harness.Run) *harness.Run {
	c.sameInputs()
	of := RunOf{Attempt: r.Result.Attempt, Workload: r.Result.Workload.Outcome, Artifact: string(r.Result.Artifact.Outcome), Cleanup: r.Result.Cleanup.Outcome, Delivery: r.Result.Delivery.Outcome, Exit: r.Status, Degraded: []string{}}
	for _, d := range r.Result.Degraded {
		of.Degraded = append(of.Degraded, d.Dimension)
	}
	if r.HasResult {
		of.Result = fmt.Sprintf("%s/result-%d.json", c.fixture.ID, len(c.outcome.Runs)+1)
		if data, err := os.ReadFile(r.ResultFile); err != nil {
			c.Error(err)
		} else {
			c.suite.bundle.add(of.Result, data)
		}
	}
	c.outcome.Runs = append(c.outcome.Runs, of)
	return r
}

// Want compares entries of a program's report; each may be any of its values.
func (c *Case) Want(report map[string]string, want map[string][]string) {
	for name, values := range want {
		if got, tried := report[name]; !tried || !slices.Contains(values, got) {
			c.Errorf("%s: %q, want one of %q", name, got, values)
		}
	}
	if data, err := json.Marshal(report); err == nil {
		c.Note("report", string(data))
	}
}

// Absent wants a string nowhere in what a run left behind or printed.
func (c *Case) Absent(r *harness.Run, secret string, more ...string) {
	if places := r.Holding(secret, more...); places != nil {
		c.Errorf("%s stands in %q", secret, places)
	}
}

// Degraded ends the case where the run held a dimension only in a weaker form.
func (c *Case) Degraded(r *harness.Run, dimension, needs string) {
	for _, d := range r.Result.Degraded {
		if d.Dimension == dimension {
			c.Stop(Blocked, needs+"; instead: "+d.Instead)
		}
	}
}

// run runs the fixture on a goroutine of its own, which Fatal and Stop may end.
func (c *Case) run() Outcome {
	began := time.Now()
	f := c.fixture
	c.outcome = Outcome{ID: f.ID, Title: f.Title, Profile: f.Profile, Attempt: f.Attempt, Shows: f.Shows, Cannot: f.Cannot,
		Controls: []string{}, Evidence: []Evidence{}, Runs: []RunOf{}, Problems: []string{}}
	protected := func(what func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if p := recover(); p != nil {
					c.problem(fmt.Sprint("the fixture itself failed: ", p))
				}
			}()
			what()
		}()
		<-done
	}
	protected(func() {
		c.control = true // until HIC-1's first half stands, a failure is one of set-up
		c.Site, c.inputs = harness.NewSite(c, c.suite.caller), map[string]string{}
		before := c.integrity()
		c.control = false
		c.Cleanup(func() { c.compare(before) })
		f.Run(c)
	})
	c.control = false
	for i := len(c.cleanups) - 1; i >= 0; i-- {
		protected(c.cleanups[i])
	}
	c.outcome.Verdict, c.outcome.Reason = c.verdict()
	c.outcome.Millis = time.Since(began).Milliseconds()
	return c.outcome
}

// verdict weighs what happened: a failure outside a control always counts.
func (c *Case) verdict() (Verdict, string) {
	first := ""
	if len(c.outcome.Problems) > 0 {
		first, _, _ = strings.Cut(c.outcome.Problems[0], "\n")
	}
	switch {
	case c.failed:
		return Fail, first
	case c.setup:
		return SetupFailure, first
	case c.outcome.Verdict != "":
		return c.outcome.Verdict, c.outcome.Reason
	case len(c.outcome.Controls) == 0:
		return SetupFailure, "no positive control was made"
	}
	return Pass, ""
}
