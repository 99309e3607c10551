package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

type reconcileFlags struct {
	ID       string `arg:"" optional:"" name:"ID"`
	All      bool
	Slot     string
	DryRun   bool
	JSON     bool `name:"json"`
	StateDir string
}

type gcFlags struct {
	DryRun   bool
	JSON     bool `name:"json"`
	StateDir string
}

func cleanWording(texts map[string]words) {
	const stateDir = "The state directory; otherwise " + stateDefault + "."
	maps.Copy(texts, map[string]words{
		"reconcile":             {"", "", "Clean up quarantined attempts and what dead launchers left."},
		"reconcile ID":          {"", "", "One attempt, by its id or a beginning of it that no other has."},
		"reconcile --all":       {"", "", "Every attempt that needs it; the same as naming none."},
		"reconcile --slot":      {"", "DIR", "Empty this provisioned slot of /out, whose attempt's record is lost."},
		"reconcile --dry-run":   {"", "", "Say what would be done, and do nothing."},
		"reconcile --json":      {"", "", "Print one JSON document."},
		"reconcile --state-dir": {"", "DIR", stateDir},
		"gc":                    {"", "", "Remove records past their time: results after 14 days, audit lines after 90, or as lifecycle.retention of their policy says."},
		"gc --dry-run":          {"", "", "Say what would be removed, and remove nothing."},
		"gc --json":             {"", "", "Print one JSON document."},
		"gc --state-dir":        {"", "DIR", stateDir},
	})
}

const (
	reconcileUsage = "nsbox reconcile [ID | --all | --slot DIR] [--dry-run]"
	gcUsage        = "nsbox gc [--dry-run]"
)

func reconcileDetails() string {
	return `
It ends what is left of an attempt through its own job cgroup, proves that
nothing of it runs, and removes its staged inputs and half-made files. Journal,
streams, result and an accepted artifact stay until gc. No process is ended by
a stored number, no link is followed and no mount crossed. Nothing is run again.

A provisioned slot of /out that keeps what an attempt left, while no attempt of
this state directory answers for it, is named; --slot empties it.

Exit status 0 means that nothing needs it any more, 125 that something is left.
`
}

// reconcileDocument is the document of `reconcile --json`.
type reconcileDocument struct {
	Schema   string                    `json:"schema"`
	DryRun   bool                      `json:"dry_run"`
	Attempts []launcher.Reconciliation `json:"attempts"`
	Slots    []launcher.KeptSlot       `json:"slots"` // keep what an attempt left that is not recorded here
}

func reconcileAttempts(c *console, f reconcileFlags) error {
	if f.ID != "" && f.All || f.Slot != "" && (f.All || f.ID != "") {
		return reason.New(reason.Usage, "command line", "an ID, --all and --slot exclude each other", "nsbox reconcile --help")
	}
	if f.Slot != "" {
		return emptySlot(c, f)
	}
	all, err := launcher.Reconcile(context.Background(), launcher.ReconcileRequest{StateDir: f.StateDir, ID: f.ID, DryRun: f.DryRun})
	kept, keptErr := launcher.KeptSlots(f.StateDir)
	err = errors.Join(err, keptErr)
	if f.JSON {
		if printed := c.document(reconcileDocument{"nsbox.reconcile/1", f.DryRun, append([]launcher.Reconciliation{}, all...), append([]launcher.KeptSlot{}, kept...)}); printed != nil {
			return printed
		}
		return err
	}
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%s: was %s, is %s; stopped: %s\n", r.Attempt, r.Was, r.Now, dash(r.Proof))
		verb := ""
		if f.DryRun {
			verb = "would "
		}
		for _, d := range r.Done {
			fmt.Fprintf(&b, "  %s%s\n", verb, visible(d))
		}
		for _, l := range r.Left {
			fmt.Fprintf(&b, "  left: %s\n", visible(l))
		}
	}
	for _, k := range kept {
		fmt.Fprintf(&b, "%s: keeps what %s left (%s), and no attempt of this state directory answers for it\n  if its record is lost: nsbox reconcile --slot %s\n", k.Slot, attemptIn(k), k.Left, k.Slot)
	}
	if len(all)+len(kept) == 0 && err == nil {
		b.WriteString("nothing to reconcile\n")
	}
	c.text(b.String())
	return err
}

// emptySlot is `reconcile --slot`.
func emptySlot(c *console, f reconcileFlags) error {
	k, err := launcher.EmptySlot(context.Background(), f.StateDir, f.Slot, f.DryRun)
	if err != nil {
		return err
	}
	if f.JSON {
		return c.document(reconcileDocument{"nsbox.reconcile/1", f.DryRun, []launcher.Reconciliation{}, []launcher.KeptSlot{k}})
	}
	verb := "removed"
	switch {
	case k.Left == "":
		c.text(k.Slot + ": is empty\n")
		return nil
	case f.DryRun:
		verb = "would remove"
	}
	c.text(fmt.Sprintf("%s: %s what %s left (%s); no process has the slot's ids\n", k.Slot, verb, attemptIn(k), k.Left))
	return nil
}

func attemptIn(k launcher.KeptSlot) string {
	if k.Attempt == "" {
		return "an unnamed attempt"
	}
	return "attempt " + k.Attempt
}

// gcDocument is the document of `gc --json`.
type gcDocument struct {
	Schema string `json:"schema"`
	DryRun bool   `json:"dry_run"`
	launcher.Collected
}

func collect(c *console, f gcFlags) error {
	got, err := launcher.Collect(f.StateDir, time.Now(), f.DryRun)
	if f.JSON {
		if printed := c.document(gcDocument{"nsbox.gc/1", f.DryRun, got}); printed != nil {
			return printed
		}
		return err
	}
	verb := "removed"
	if f.DryRun {
		verb = "would remove"
	}
	c.text(fmt.Sprintf("%s %s, %s of the audit log, %s\n", verb, count(int64(len(got.Attempts)), "attempt"),
		count(int64(got.AuditLines), "line"), count(int64(len(got.Temporary)), "temporary file")))
	return err
}
