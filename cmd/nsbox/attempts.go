package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

// The commands that look at attempts; attempts_clean.go has those that remove.
type attemptsCommand struct {
	List attemptsListFlags `cmd:"" default:"withargs"`
	Show attemptsShowFlags `cmd:""`
	Logs attemptsLogsFlags `cmd:""`
}

type attemptsListFlags struct {
	JSON     bool `name:"json"`
	StateDir string
}

type attemptsShowFlags struct {
	ID       string `arg:"" name:"ID"`
	JSON     bool   `name:"json" xor:"form"`
	Attest   bool   `xor:"form"`
	StateDir string
}

type attemptsLogsFlags struct {
	ID       string `arg:"" name:"ID"`
	Stderr   bool
	StateDir string
}

func attemptsWording(texts map[string]words) {
	const stateDir = "The state directory; otherwise " + stateDefault + "."
	maps.Copy(texts, map[string]words{
		"attempts":                  {"", "", "List attempts, show one, or print what its program wrote."},
		"attempts list":             {"", "", "List every attempt, oldest first (this is `nsbox attempts`)."},
		"attempts list --json":      {"", "", "Print one JSON document."},
		"attempts list --state-dir": {"", "DIR", stateDir},
		"attempts show":             {"", "", "Show one attempt."},
		"attempts show ID":          {"", "", "The attempt's id, or a beginning of it that no other has."},
		"attempts show --json":      {"", "", "Print one JSON document with the attempt's result in it."},
		"attempts show --attest":    {"", "", "Print what the kernel showed of its box."},
		"attempts show --state-dir": {"", "DIR", stateDir},
		"attempts logs":             {"", "", "Print the kept standard output of an attempt's program: escaped on a terminal, exact bytes otherwise."},
		"attempts logs ID":          {"", "", "The attempt's id, or a beginning of it that no other has."},
		"attempts logs --stderr":    {"", "", "Print its standard error instead."},
		"attempts logs --state-dir": {"", "DIR", stateDir},
	})
}

const (
	attemptsUsage     = "nsbox attempts [--json]\n       nsbox attempts show ID | logs ID"
	attemptsListUsage = "nsbox attempts [--json]"
	attemptsShowUsage = "nsbox attempts show ID [--json | --attest]"
	attemptsLogsUsage = "nsbox attempts logs ID [--stderr]"
)

// attemptsDocument is the document of `attempts --json`.
type attemptsDocument struct {
	Schema   string                 `json:"schema"`
	Attempts []launcher.AttemptInfo `json:"attempts"`
}

func listAttempts(c *console, f attemptsListFlags) error {
	all, err := launcher.Attempts(f.StateDir)
	if err != nil {
		return err
	}
	if f.JSON {
		return c.document(attemptsDocument{"nsbox.attempts/1", append([]launcher.AttemptInfo{}, all...)})
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGE\tATTEMPT\tSTATE\tWORKLOAD\tRESULT")
	for _, a := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", age(time.Since(a.Started)), a.ID, a.State, dash(a.Workload), dash(resultWords(a)))
	}
	w.Flush()
	c.text(b.String())
	return nil
}

// resultWords is what came of an attempt in one word, whose it was if not the
// caller's, and what is out of the ordinary.
func resultWords(a launcher.AttemptInfo) string {
	words := []string{a.Artifact}
	if a.Delivery == launcher.Delivered {
		words[0] = a.Delivery
	} else if a.Artifact == launcher.ArtifactAccepted {
		words = append(words, a.Delivery)
	}
	if a.For != "" {
		words = append(words, "by "+a.For)
	}
	switch {
	case a.Reconciled:
		words = append(words, "reconciled")
	case a.Cleanup != launcher.CleanupVerified && a.Cleanup != a.State:
		words = append(words, a.Cleanup)
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), ", ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return visible(s)
}

// age is how long ago, in the two largest units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// attemptDocument is the document of `attempts show --json`.
type attemptDocument struct {
	Schema  string               `json:"schema"`
	Attempt launcher.AttemptInfo `json:"attempt"`
	Result  json.RawMessage      `json:"result"` // null if none was kept
}

func showAttempt(c *console, f attemptsShowFlags) error {
	info, result, err := launcher.Attempt(f.StateDir, f.ID)
	if err != nil {
		return err
	}
	if f.JSON {
		if result == nil {
			result = json.RawMessage("null")
		}
		return c.document(attemptDocument{"nsbox.attempt/1", info, result})
	}
	var res launcher.Result
	if result != nil {
		if err := json.Unmarshal(result, &res); err != nil {
			return reason.Wrap(reason.StateDir, info.Dir+"/result.json", "is not a result of this version", "nsbox attempts show "+f.ID+" --json", err)
		}
	}
	if f.Attest {
		return attestationOf(c, info, res)
	}
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, visible(value))
		}
	}
	line("attempt", info.ID)
	line("run by", info.For)
	line("state", info.State)
	line("started", info.Started.Format(time.RFC3339))
	if !info.Ended.IsZero() {
		line("ended", info.Ended.Format(time.RFC3339))
	}
	line("policy", strings.TrimSpace(res.Policy.ID+" "+info.Policy))
	if workload := workloadWords(res.Workload); result != nil && res.Workload.Outcome == info.Workload {
		line("workload", workload)
		line("exit", fmt.Sprint(res.ExitStatus))
	} else { // closed by another command than its own, or no result was kept
		line("workload", info.Workload)
	}
	line("artifact", strings.TrimSpace(info.Artifact+" "+info.SHA256))
	for _, text := range refusedArtifact(res) {
		line("", strings.TrimSpace(text))
	}
	line("cleanup", info.Cleanup)
	line("delivery", strings.TrimSpace(info.Delivery+" "+info.Path))
	line("unfinished", strings.Join(info.Open, ", "))
	if res.Reason != nil {
		line("reason", strings.Join([]string{string(res.Reason.ID), res.Reason.What, res.Reason.Why}, ": "))
		line("next", res.Reason.Next)
	}
	for _, d := range res.Degraded {
		line("degraded", d.Dimension+": "+d.Instead)
	}
	line("note", info.Note)
	line("directory", info.Dir)
	if info.State == launcher.AttemptQuarantined || info.State == launcher.AttemptLeftover {
		line("next", "nsbox reconcile "+info.ID)
	}
	c.text(b.String())
	return nil
}

func attestationOf(c *console, info launcher.AttemptInfo, res launcher.Result) error {
	if len(res.Attestation) == 0 {
		return reason.New(reason.AttemptUnknown, "attempt "+info.ID, "has no attestation: its box was never shown, or its launcher died before the result was kept", "nsbox attempts show "+info.ID)
	}
	data, err := encode(res.Attestation)
	if err != nil {
		return err
	}
	c.bytes(data)
	return nil
}

func printLog(c *console, f attemptsLogsFlags) error {
	log, err := launcher.AttemptLog(f.StateDir, f.ID, f.Stderr)
	if err != nil {
		return err
	}
	defer log.Close()
	w, finish := c.out.guarded()
	defer finish()
	if _, err := io.Copy(w, log); err != nil {
		return reason.Wrap(reason.StateDir, "attempt "+f.ID, "its kept output cannot be read", "", err)
	}
	return nil
}
