package main

import (
	"fmt"
	"path/filepath"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

type confirmFlags struct {
	Evidence string `required:""`
	Output   string
	Policy   string `arg:"" name:"FILE|PRESET"`
}

func confirmWording(texts map[string]words) {
	for key, w := range map[string]words{
		"policy confirm":             {"", "", "Write CONFIRMED where recorded evidence shows it."},
		"policy confirm --evidence":  {"", "FILE", "What nsbox doctor --evidence wrote."},
		"policy confirm --output":    {"", "FILE", "Write the policy to this file; otherwise it is printed."},
		"policy confirm FILE|PRESET": {"", "", "A file or a preset's name."},
	} {
		texts[key] = w
	}
}

const confirmUsage = "nsbox policy confirm --evidence FILE [--output FILE] FILE|PRESET"

func confirmDetails() string {
	return `
The new policy names the evidence file and its digest. exec refuses it on
another kernel, with another binary or account, and whenever the box of that
run does not show what the policy calls CONFIRMED. What the evidence does not
show stays as it is, and is listed on standard error.

Example:
  nsbox policy confirm --evidence evidence.json sales-summary >confirmed.json
`
}

// confirmPolicy is `nsbox policy confirm`.
func confirmPolicy(c *console, f confirmFlags) error {
	file, err := filepath.Abs(f.Evidence)
	if err != nil {
		return reason.Wrap(reason.EvidenceInvalid, f.Evidence, "is no path", "name the file that nsbox doctor --evidence wrote", err)
	}
	e, err := launcher.ReadEvidence(file)
	if err != nil {
		return err
	}
	p, _, err := policy.Load(f.Policy)
	if err != nil {
		return err
	}
	data, err := launcher.ConfirmPolicy(p, e, file)
	if err != nil {
		return err
	}
	if f.Output == "" {
		c.bytes(data)
	} else if err := publish(reason.OutputFile, f.Output, data); err != nil {
		return err
	}
	for _, point := range e.Points {
		word := "not confirmed: " + point.By
		if point.Confirmed {
			word = "confirmed by " + point.By
		}
		c.note("%s", fmt.Sprintf("%s %s", point.ID, word))
	}
	return nil
}
