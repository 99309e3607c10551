package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

// Run is how one command ended.
type Run struct {
	Status         int            // nsbox's exit status; -1 if a signal ended it
	Killed         syscall.Signal // that signal, or 0
	Stdout, Stderr []byte         // of nsbox
	Took           time.Duration
	CPU            time.Duration // of nsbox and everything below it, if Job.Meter; 0: could not be counted
	ResultFile     string
	Result         launcher.Result // zero if there is none
	HasResult      bool

	t    T
	site *Site
}

func (r *Run) status(p *os.ProcessState) {
	r.Status = p.ExitCode()
	if ws, ok := p.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Killed = ws.Signal()
	}
}

func (r *Run) decode() {
	r.t.Helper()
	if r.ResultFile == "" {
		return
	}
	data, err := os.ReadFile(r.ResultFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.Result, r.HasResult = DecodeResult(r.t, data), true
}

// DecodeResult wants exactly one document without unknown keys.
func DecodeResult(t T, data []byte) launcher.Result {
	t.Helper()
	var res launcher.Result
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&res); err != nil {
		t.Fatalf("the result: %v\n%s", err, data)
	}
	if rest := bytes.TrimSpace(data[d.InputOffset():]); len(rest) > 0 {
		t.Fatalf("after the result stands %q", rest)
	}
	return res
}

// Want compares outcome and exit status and shows everything if they differ.
func (r *Run) Want(outcome string, status int) *Run {
	r.t.Helper()
	if !r.HasResult {
		r.t.Errorf("there is no result; want %s, status %d; got status %d\n%s", outcome, status, r.Status, r.story())
		return r
	}
	if r.Result.Workload.Outcome != outcome || r.Status != status {
		r.t.Errorf("got %s, status %d; want %s, status %d\n%s", r.Result.Workload.Outcome, r.Status, outcome, status, r.story())
	}
	if r.Result.ExitStatus != r.Status {
		r.t.Errorf("the result says exit status %d, nsbox exited with %d", r.Result.ExitStatus, r.Status)
	}
	return r
}

// story is what a failed expectation shows.
func (r *Run) story() string {
	const most = 1200
	tail := func(b []byte) []byte { return b[max(0, len(b)-most):] }
	return fmt.Sprintf("detail: %s\nreason: %+v\nstandard output: %s\nstandard error: %s", r.Result.Workload.Detail, r.Result.Reason, tail(r.Stdout), tail(r.Stderr))
}

// WantOK is Want for a program that exited 0 with nothing left over.
func (r *Run) WantOK() *Run {
	r.t.Helper()
	r.Want(launcher.Exited, launcher.ExitOK)
	if c := r.Result.Cleanup; c.Outcome != launcher.CleanupVerified {
		r.t.Errorf("cleanup %s, left over: %q", c.Outcome, c.Leftover)
	}
	return r
}

// WantReason compares the reason id.
func (r *Run) WantReason(id reason.ID) *Run {
	r.t.Helper()
	if r.Result.Reason == nil || r.Result.Reason.ID != id {
		r.t.Errorf("want reason %s\n%s", id, r.story())
	}
	return r
}

// Report decodes what testdata/attempt.py printed: what was tried, and "ok",
// "ok VALUE" or the name of the error.
func (r *Run) Report() map[string]string {
	r.t.Helper()
	report := map[string]string{}
	if err := json.Unmarshal(bytes.TrimSpace(r.Stdout), &report); err != nil {
		r.t.Fatalf("the script printed no report: %v\n%s", err, r.story())
	}
	return report
}

// NotShown logs that a dimension was degraded, so that the test shows what
// stands in its place and not the limit itself.
func (r *Run) NotShown(dimension string) {
	r.t.Helper()
	for _, d := range r.Result.Degraded {
		if d.Dimension == dimension {
			r.t.Logf("%s is degraded for this caller and counts as not shown; instead: %s", dimension, d.Instead)
		}
	}
}

// buffer collects a stream that is read while it is written.
type buffer struct {
	mu   sync.Mutex
	data []byte
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	return len(p), nil
}

func (b *buffer) copy() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.data)
}

func (b *buffer) holds(text string) bool { return bytes.Contains(b.copy(), []byte(text)) }
