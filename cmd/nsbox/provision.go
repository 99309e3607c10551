package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/policy"
	"nsbox/launcher/provision"
	"nsbox/launcher/reason"
)

type provisionFlags struct {
	Apply bool `xor:"what"`
	Undo  bool `xor:"what"`
	Check bool `xor:"what"`

	User   string
	Dir    string
	Slots  int
	Policy string
	JSON   bool `name:"json"`
}

func provisionWording(texts map[string]words) {
	const groupDo, groupWhat = "What to do, besides printing:", "What is set up:"
	for key, w := range map[string]words{
		"provision":          {"", "", "Show, and as root make, what an operator sets up once: account, ids, storage for /out."},
		"provision --apply":  {groupDo, "", "Make what is missing, and read back each step."},
		"provision --undo":   {groupDo, "", "Take back what the directory's record says was made."},
		"provision --check":  {groupDo, "", "Say of each step whether the host shows it."},
		"provision --user":   {groupWhat, "NAME", "The launcher's account, made here; otherwise " + provision.DefaultUser + "."},
		"provision --dir":    {groupWhat, "DIR", "Where slots, home and record are; otherwise " + provision.DefaultDir + "."},
		"provision --slots":  {groupWhat, "N", fmt.Sprintf("How many attempts can have an /out at once; otherwise %d.", provision.DefaultSlots)},
		"provision --policy": {groupWhat, "FILE|PRESET", "Whose out_bytes and out_inodes a slot has; otherwise sales-summary."},
		"provision --json":   {"", "", "Print one JSON document."},
	} {
		texts[key] = w
	}
}

const provisionUsage = "nsbox provision [--apply | --undo | --check] [flags]"

func provisionDetails() string {
	return `
Without --apply or --undo nothing is changed: the commands are printed, as a
script that could be run instead. --apply runs the same commands, those that are
needed. It refuses what is there and was not made by it.

Example:
  sudo nsbox provision --apply
  sudo -u nsbox-run -H nsbox exec --policy sales-summary --in job.py \
      -- python3 /in/job.py
`
}

// provisionDocument is the document of `provision --json`.
type provisionDocument struct {
	Schema string           `json:"schema"`
	Config provision.Config `json:"config"`
	Steps  []provision.Step `json:"steps"`
}

func provisionHost(c *console, f provisionFlags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	cfg, err := provisionConfig(f)
	if err != nil {
		return err
	}
	var steps []provision.Step
	switch {
	case f.Apply:
		steps, err = provision.Apply(ctx, cfg)
	case f.Undo:
		steps, err = provision.Undo(ctx, cfg.Dir)
	default:
		steps, err = provision.Look(cfg)
	}
	if steps == nil {
		return err
	}
	if f.Check && err == nil {
		err = provisioned(cfg, steps)
	}
	if f.JSON {
		return errors.Join(c.document(provisionDocument{"nsbox.provision-report/1", cfg, steps}), err)
	}
	switch {
	case f.Apply, f.Undo, f.Check:
		c.text(provisionTable(steps, f.Undo))
	default:
		c.text(provisionScript(cfg, steps))
	}
	return err
}

// provisionConfig takes what was applied in the directory for whatever is not named.
func provisionConfig(f provisionFlags) (provision.Config, error) {
	dir, err := filepath.Abs(cmp.Or(f.Dir, provision.DefaultDir))
	if err != nil {
		return provision.Config{}, reason.Wrap(reason.ProvisionInvalid, f.Dir, "is no path", "name a directory with --dir", err)
	}
	have, err := provision.Recorded(dir)
	if err != nil {
		return provision.Config{}, err
	}
	cfg := provision.Config{Dir: dir, User: provision.DefaultUser, Slots: provision.DefaultSlots}
	if have != nil {
		cfg = *have
	} else if cfg.Binary, err = os.Executable(); err == nil {
		cfg.Binary, err = filepath.EvalSymlinks(cfg.Binary)
	}
	if err != nil {
		return cfg, reason.Wrap(reason.LauncherExeUnreadable, "nsbox's own binary", "cannot be found by its path", "install nsbox as /usr/local/bin/nsbox", err)
	}
	cfg.User, cfg.Slots = cmp.Or(f.User, cfg.User), cmp.Or(f.Slots, cfg.Slots)
	if have == nil || f.Policy != "" {
		p, _, err := policy.Load(cmp.Or(f.Policy, "sales-summary"))
		if err != nil {
			return cfg, err
		}
		cfg.Bytes, cfg.Inodes = p.Limits().Out.Bytes, p.Limits().Out.Inodes
	}
	return cfg, nil
}

// provisioned is the verdict of --check.
func provisioned(cfg provision.Config, steps []provision.Step) error {
	var bad []string
	for _, s := range steps {
		if s.State != provision.Done && s.State != provision.Unneeded {
			bad = append(bad, s.Name+" ("+string(s.State)+")")
		}
	}
	if bad == nil {
		return nil
	}
	return reason.New(reason.ProvisionIncomplete, cfg.Dir, "not everything is as provisioned: "+strings.Join(bad, ", "), "as root: nsbox provision --apply --dir "+cfg.Dir)
}

func provisionTable(steps []provision.Step, undone bool) string {
	var b strings.Builder
	for _, s := range steps {
		word := string(s.State)
		switch {
		case s.Did && undone:
			word = "undone"
		case s.Did:
			word = "made"
		}
		fmt.Fprintf(&b, "%-24s %-14s %s\n", visible(s.Name), word, visible(s.Shown))
	}
	return b.String()
}

// provisionScript is what --apply would run, for sh.
func provisionScript(cfg provision.Config, steps []provision.Step) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh -e\n# What nsbox provision --apply runs as root, for user %s in %s. Nothing was\n# changed. A step that this host has already is marked; running it again does\n# no harm.\numask 022\n", cfg.User, cfg.Dir)
	for _, s := range steps {
		fmt.Fprintf(&b, "\n# %s: %s\n# here: %s (%s)\n", visible(s.Name), visible(s.Why), s.State, visible(s.Shown))
		for _, line := range s.Commands {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}
