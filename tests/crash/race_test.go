package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/journal"
)

// race runs a program that ends around the same instant as something else, and
// wants one terminal event, the same in result, journal, audit log, the list of
// attempts and exit status.
func (b *bench) race(code string, flags []string, cancelAfter time.Duration, fits map[string]int) (launcher.Result, bool) {
	b.t.Helper()
	result := filepath.Join(b.dir, "race.json")
	os.Remove(result)
	args := slices.Insert(b.exec("", code), 1, append([]string{"--result", result}, flags...)...)
	cmd := b.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if cancelAfter > 0 {
		time.Sleep(cancelAfter)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = cmd.Wait()
	var res launcher.Result
	data, err := os.ReadFile(result)
	if err != nil {
		return res, false // cancelled before there was a handler
	}
	if err := json.Unmarshal(data, &res); err != nil {
		b.t.Fatal(err)
	}
	outcome := res.Workload.Outcome
	want, fit := fits[outcome]
	if status := cmd.ProcessState.ExitCode(); !fit || status != want || res.ExitStatus != status || res.Cleanup.Outcome != launcher.CleanupVerified {
		b.t.Errorf("%s with status %d (result: %d, cleanup %s): %s", outcome, status, res.ExitStatus, res.Cleanup.Outcome, said.String())
	}
	if (res.Workload.ExitCode != nil) != (outcome == launcher.Exited) {
		b.t.Errorf("%s with the exit code %v", outcome, res.Workload.ExitCode)
	}
	if res.Attempt != "" {
		b.oneEnd(res)
	}
	return res, true
}

// oneEnd compares what the records say about the end of an attempt.
func (b *bench) oneEnd(res launcher.Result) {
	b.t.Helper()
	recs, _, err := journal.Read(filepath.Join(b.state, "attempts", res.Attempt, "journal"))
	if err != nil {
		b.t.Fatal(err)
	}
	told := map[string][]string{"result": {res.Workload.Outcome}}
	for _, r := range recs {
		switch r.Event {
		case journal.Terminal:
			told["journal, terminal"] = append(told["journal, terminal"], r.Data["outcome"])
		case journal.Outcome:
			told["journal, outcome"] = append(told["journal, outcome"], r.Data["workload"])
		}
	}
	log, err := os.ReadFile(b.state + "/audit.log")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		var l struct{ Event, Attempt, Workload string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Attempt == res.Attempt && l.Event != "policy" {
			told["audit log"] = append(told["audit log"], l.Workload)
		}
	}
	data, err := os.ReadFile(filepath.Join(b.state, "attempts", res.Attempt, "result.json"))
	var kept launcher.Result
	if err != nil || json.Unmarshal(data, &kept) != nil {
		b.t.Errorf("the kept result: %v", err)
	}
	told["kept result"] = []string{kept.Workload.Outcome}
	for _, where := range []string{"journal, terminal", "journal, outcome", "audit log", "kept result"} {
		if !slices.Equal(told[where], told["result"]) {
			b.t.Errorf("attempt %s: the result says %v, the %s %v", res.Attempt, told["result"], where, told[where])
		}
	}
}

// staircase finds the instant at which one of two ends wins and stays around it:
// each round moves towards the end that did not win, by ever smaller steps.
type staircase struct {
	at, step, least time.Duration
	last            string
}

func (s *staircase) next(outcome, later string) {
	if s.last != "" && outcome != s.last {
		s.step = max(s.step/2, s.least)
	}
	s.last = outcome
	if outcome == later {
		s.at += s.step
	} else {
		s.at = max(s.at-s.step, s.least)
	}
}

// TestRaces lets a program end around the instant of its wall limit, of a cancel
// and of its output limit.
func TestRaces(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		rounds := times(6, 500)
		both := func(other string, status int) map[string]int {
			return map[string]int{launcher.Exited: 0, other: status}
		}
		const short = "import time\ntime.sleep(0.01)"
		began := time.Now()
		b.race(short, nil, 0, both(launcher.Cancelled, 143))
		usual := time.Since(began)
		wall := (2 * usual).Round(time.Millisecond) // a program's start is part of it
		sleep := &staircase{at: usual, step: usual / 4, least: usual / 50}
		cancel := &staircase{at: usual, step: usual / 4, least: usual / 50}
		for name, run := range map[string]func(n int) string{
			"exit against timeout": func(int) string {
				res, _ := b.race(fmt.Sprintf("import time\ntime.sleep(%f)", sleep.at.Seconds()), []string{"--limit", "wall=" + wall.String()}, 0, both(launcher.TimeoutWall, 124))
				sleep.next(res.Workload.Outcome, launcher.Exited) // an exit makes the next one later
				return res.Workload.Outcome
			},
			"exit against cancel": func(int) string {
				res, there := b.race(short, nil, cancel.at, both(launcher.Cancelled, 143))
				outcome := res.Workload.Outcome
				if !there {
					outcome = launcher.Cancelled
				}
				cancel.next(outcome, launcher.Cancelled)
				return outcome
			},
			"exit against the output limit": func(n int) string {
				bytes := 4096 - 3 + n%7
				res, _ := b.race(fmt.Sprintf("import os\nos.write(1, b'x'*%d)\nos._exit(0)", bytes), []string{"--limit", "stdout=4096"}, 0, both(launcher.LimitExceededOutput, 124))
				if over := res.Workload.Outcome == launcher.LimitExceededOutput; over != (bytes > 4096) {
					t.Errorf("%d bytes of 4096: %s", bytes, res.Workload.Outcome)
				}
				return res.Workload.Outcome
			},
		} {
			tally := map[string]int{}
			for n := range rounds {
				tally[run(n*5)]++
			}
			if *long && len(tally) < 2 {
				t.Errorf("%s: no race, always %v", name, tally)
			}
			t.Logf("%s, %d times: %v", name, rounds, tally)
		}
	})
}
