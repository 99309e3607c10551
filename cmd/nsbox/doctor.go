package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

type doctorFlags struct {
	JSON     bool `name:"json"`
	Evidence string
	Cgroup   string
	StateDir string
}

func doctorWording(texts map[string]words) {
	for key, w := range map[string]words{
		"doctor":             {"", "", "Find out by trying what this host can enforce."},
		"doctor --json":      {groupOut, "", "Print one JSON document."},
		"doctor --evidence":  {groupOut, "FILE", "Make test runs too, and write all that was found to this file."},
		"doctor --cgroup":    {groupEnforced, "DIR", "Ask about this delegated cgroup v2 directory, as for exec."},
		"doctor --state-dir": {groupEnforced, "DIR", "Ask about this state directory, as for exec."},
	} {
		texts[key] = w
	}
}

const doctorUsage = "nsbox doctor [--json] [--evidence FILE] [--state-dir DIR]"

func doctorDetails() string {
	return `
Each row was found by trying the thing in a throw-away child, or says that only
a setting was read. An answer is yes, no, or unknown, which counts as no. Every
other answer than yes comes with its next step. No program is run in a box
unless --evidence asks for it: that makes seven short runs of cp, ln, sleep, dd
and sha256sum, and a file that a policy can be confirmed with.

Exit status 0 means that boxes can be made here, whatever has to be degraded;
125 that they cannot, or that a test run did not end as it must.

Example:
  nsbox doctor --evidence evidence.json
  nsbox policy confirm --evidence evidence.json my-policy.json >confirmed.json
`
}

// showDoctor is `nsbox doctor`.
func showDoctor(c *console, f doctorFlags, run runner) (int, error) {
	if f.Evidence != "" {
		if err := publishable(reason.OutputFile, f.Evidence); err != nil {
			return launcher.ExitRefused, err
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := watchSignals(cancel, c, true)
	defer cancel(nil)
	defer stop()
	req := launcher.DoctorRequest{StateDir: f.StateDir, Cgroup: f.Cgroup}
	x := launcher.Examine(ctx, req)
	status := launcher.ExitOK
	if !x.Ready() {
		status = launcher.ExitRefused
	}
	var runs []launcher.TestRun
	if f.Evidence != "" {
		var err error
		if runs, err = launcher.MakeRuns(ctx, req, launcher.Runner(run)); err != nil {
			return launcher.ExitRefused, err
		}
		data, err := x.Evidence(runs, version, time.Now())
		if err == nil {
			err = publish(reason.OutputFile, f.Evidence, data)
		}
		if err != nil {
			return launcher.ExitRefused, err
		}
		for _, r := range runs {
			if !r.Passed {
				status = launcher.ExitRefused
			}
		}
	}
	if ctx.Err() != nil {
		return launcher.ExitRefused, reason.New(reason.Usage, "doctor", context.Cause(ctx).Error(), "")
	}
	if f.JSON {
		return status, c.document(x)
	}
	c.text(doctorText(x, runs))
	return status, c.closed()
}

// doctorText is the examination for people.
func doctorText(x *launcher.Examination, runs []launcher.TestRun) string {
	var b strings.Builder
	area := ""
	third := func(text string) string {
		return strings.Join(wrap(visible(text), helpWidth-30), "\n"+strings.Repeat(" ", 32))
	}
	// What a reader can do something about first.
	for _, f := range x.Findings {
		if f.Answer == probe.Yes {
			continue
		}
		if area == "" {
			area = "not here"
			fmt.Fprintf(&b, "%s\n", area)
		}
		fmt.Fprintf(&b, "  %-8s %-18s %s\n", f.Answer, f.Name, third(f.Shown))
		fmt.Fprintf(&b, "%30s%s\n", "", third(f.Area+", needed for "+f.Serves+"; tried: "+f.How))
		if f.Next != "" {
			fmt.Fprintf(&b, "%30s%s\n", "", third("next: "+f.Next))
		}
	}
	for _, f := range x.Findings {
		if f.Answer != probe.Yes {
			continue
		}
		if f.Area != area {
			area = f.Area
			fmt.Fprintf(&b, "%s\n", area)
		}
		fmt.Fprintf(&b, "  %-8s %-18s %s\n", f.Answer, f.Name, third(f.Shown))
	}
	if len(runs) > 0 {
		b.WriteString("test runs\n")
	}
	for _, r := range runs {
		word := "failed"
		if r.Passed {
			word = "passed"
		}
		fmt.Fprintf(&b, "  %-8s %-18s %s\n%30s%s\n", word, r.Name, third(r.Want), "", third(r.Shown))
	}
	if len(runs) > 0 {
		b.WriteString("open questions of the policy document\n")
	}
	for _, q := range x.Blockers {
		if len(runs) == 0 {
			break // without evidence they cannot be answered
		}
		fmt.Fprintf(&b, "  %-4s %s: %s\n%30s%s\n", q.ID, q.Question, q.State, "", third(q.By))
	}
	if x.Ready() {
		b.WriteString("\nboxes can be made here; `nsbox plan` says what has to be degraded for a run\n")
	} else {
		b.WriteString("\nno box can be made here: see the first rows, needed for every box\n")
	}
	return b.String()
}
