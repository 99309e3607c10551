package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/exporter"
	"nsbox/launcher"
	"nsbox/launcher/reason"
)

func TestHelpGolden(t *testing.T) {
	for _, args := range []string{"--help", "exec --help", "policy --help", "policy show --help", "policy lint --help", "policy seccomp --help", "version --help"} {
		s := call(neverRuns(t), strings.Fields(args)...)
		if s.status != 0 || s.err.Len() > 0 {
			t.Errorf("%s: status %d, stderr %q", args, s.status, s.err.String())
		}
		for _, line := range strings.Split(s.out.String(), "\n") {
			if len(line) > helpWidth {
				t.Errorf("%s: %d columns: %q", args, len(line), line)
			}
		}
		name := strings.ReplaceAll(strings.TrimSuffix("nsbox "+args, " --help"), " ", "-")
		golden(t, "help-"+name+".txt", s.out.String())
	}
}

func TestReportGolden(t *testing.T) {
	signal := 11
	hostile := "x\x1b[2J\nnsbox: workload EXITED 0"
	var b bytes.Buffer
	for _, tc := range []struct {
		name   string
		change func(*launcher.Result)
	}{
		{"delivered", func(*launcher.Result) {}},
		{"nothing asked for, nothing degraded", func(r *launcher.Result) {
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact}
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactEmpty}
			r.Degraded, r.DurationsMS = nil, nil
		}},
		{"nothing in /out though a delivery was asked for", func(r *launcher.Result) {
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact}
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactEmpty}
			r.ExitStatus = 122
		}},
		{"another name in /out", func(r *launcher.Result) {
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactRejected, Reasons: []string{"name_not_allowed"}}
			r.Untrusted.Findings = []exporter.Finding{{Code: "name_not_allowed", Name: "other.csv"}}
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact}
			r.ExitStatus = 122
		}},
		{"exit 1 under little memory, standard output lost", func(r *launcher.Result) {
			one := 1
			r.Workload.ExitCode = &one
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactNotExported}
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact}
			r.Untrusted.Stdout.LiveLost = true
			r.ExitStatus = 1
		}},
		{"never started", func(r *launcher.Result) {
			r.Workload = launcher.WorkloadResult{Outcome: launcher.SetupFailure}
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactNotExamined}
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact}
			r.Reason = &launcher.Reason{ID: "input_missing", What: `"nope.csv"`, Why: "does not exist", Next: "check the path given to --in"}
			r.ExitStatus = 125
		}},
		{"rejected", func(r *launcher.Result) {
			r.Artifact = launcher.ArtifactResult{Outcome: launcher.ArtifactRejected, Reasons: []string{"symlink", "non_utf8"}}
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryBlocked}
			r.ExitStatus = 122
		}},
		{"signal, cut streams, leftovers, a failure of nsbox", func(r *launcher.Result) {
			r.Workload = launcher.WorkloadResult{Outcome: launcher.Signaled, Signal: &signal}
			r.Untrusted.Stdout = launcher.Stream{Truncated: true, BytesKept: 65536, BytesTotal: 1000000}
			r.Untrusted.Stderr = launcher.Stream{Truncated: true, BytesKept: 65536, BytesTotal: 65537}
			r.Cleanup = launcher.CleanupResult{Outcome: launcher.CleanupQuarantined, Leftover: []string{"cgroup a", "directory b"}}
			r.Delivery = launcher.DeliveryResult{Outcome: launcher.DeliveryBlocked}
			r.Reason = &launcher.Reason{ID: "cleanup_failed", What: "cgroup a", Why: "is still populated", Next: "nsbox exec again reconciles it"}
			r.ExitStatus = 139
		}},
		{"hostile text in every free field", func(r *launcher.Result) {
			r.Workload.Detail = hostile
			r.Delivery.Path = hostile
			r.Artifact.SHA256 = hostile
			r.Cleanup.Leftover = []string{hostile}
			r.Degraded[0].Dimension = hostile
			r.Attempt = hostile
			r.Reason = &launcher.Reason{ID: reason.ID(hostile), What: hostile, Why: hostile, Next: hostile}
		}},
	} {
		for _, quiet := range []bool{false, true} {
			r := good()
			tc.change(&r)
			o := outputs{quiet: quiet, deliver: !strings.HasPrefix(tc.name, "nothing asked"), policy: "sales-summary"}
			if strings.Contains(tc.name, "little memory") {
				o.limits = []string{"memory=1M"}
			}
			c := &console{out: &stream{to: &b}, err: &stream{to: &b}}
			fmt.Fprintf(&b, "--- %s%s\n", tc.name, map[bool]string{true: ", --quiet"}[quiet])
			report(r, c, o)
		}
	}
	golden(t, "report.txt", b.String())
	if strings.ContainsAny(b.String(), "\x1b") {
		t.Error("an escape character passes")
	}
}

// TestSummaryBeginsItsOwnLine: a program need not end its last line, and on one
// terminal the summary must not continue it. A file gets the exact bytes only.
func TestSummaryBeginsItsOwnLine(t *testing.T) {
	for name, tc := range map[string]struct {
		terminal bool
		output   string
		want     string
	}{
		"open line":       {true, "no newline", "no newline\nnsbox: workload"},
		"closed line":     {true, "newline\n", "newline\nnsbox: workload"},
		"no output":       {true, "", "nsbox: workload"},
		"not a terminal":  {false, "no newline", "no newlinensbox: workload"},
		"escaped newline": {true, "x\x1b", "x\\x1b\nnsbox: workload"},
	} {
		var b bytes.Buffer
		c := &console{out: &stream{to: &b, terminal: tc.terminal}, err: &stream{to: &b, terminal: tc.terminal}}
		c.shareTerminal()
		commandLine([]string{"exec", "--policy", "p", "--state-dir", t.TempDir() + "/s", "--", "x"}, c, func(_ context.Context, _ launcher.Request, s launcher.Streams) launcher.Result {
			_, _ = s.Stdout.Write([]byte(tc.output))
			return good()
		})
		if !strings.HasPrefix(b.String(), tc.want) {
			t.Errorf("%s: %q", name, b.String())
		}
	}
}

func TestColourOnlyWhereAsked(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var b bytes.Buffer
		c := &console{err: &stream{to: &b}, colour: colour}
		c.problem(launcher.Reason{ID: "x", What: "w"})
		if strings.Contains(b.String(), "\x1b") != colour {
			t.Errorf("colour %v: %q", colour, b.String())
		}
	}
}

// TestExitCodesDoc writes and holds docs/exit-codes.md.
func TestExitCodesDoc(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Exit codes

Generated from the table in launcher/exitcode.go by ` + "`make docs`" + `.

The exit status is a projection for shells. The four outcome words of the
result say more, and only they tell a program's own 125 from nsbox's.

| status | when |
|---|---|
`)
	for _, row := range launcher.ExitTable() {
		fmt.Fprintf(&b, "| %s | %s |\n", row.Status, row.When)
	}
	const path = "../../docs/exit-codes.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), b.String()); d != "" {
		t.Errorf("%s (write it with -update):\n%s", path, d)
	}
}

// TestEveryFlagHasWords walks the flags through help: a flag without a line of
// its own in wording would be printed bare, and a line without a flag is dead.
func TestEveryFlagHasWords(t *testing.T) {
	for key, w := range wording() {
		command, flag, found := strings.Cut(key, " --")
		if w.help == "" || !strings.HasSuffix(w.help, ".") {
			t.Errorf("%s: help is empty or does not end in a stop: %q", key, w.help)
		}
		if !found {
			continue
		}
		help := call(neverRuns(t), append(strings.Fields(command), "--help")...).out.String()
		for _, line := range strings.Split(help, "\n") {
			if spelled := strings.TrimPrefix(strings.TrimSpace(line), "-q, "); spelled == "--"+flag {
				t.Errorf("%s has no help", key)
			}
		}
		if !strings.Contains(help, "--"+flag) {
			t.Errorf("%s: no such flag", key)
		}
	}
}
