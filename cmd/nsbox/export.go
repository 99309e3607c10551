package main

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/exporter"
	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

type exportCommand struct {
	Check exportCheckFlags `cmd:""`
}

type exportCheckFlags struct {
	Path   string `arg:"" name:"DIR|FILE"`
	Policy string `default:"sales-summary"`
	As     string
	JSON   bool `name:"json"`
}

const (
	exportUsage      = "nsbox export COMMAND"
	exportCheckUsage = "nsbox export check DIR|FILE [--policy FILE|PRESET] [--as NAME] [--json]"
)

// exportWording is the part of wording for export.
func exportWording(texts map[string]words) {
	texts["export"] = words{"", "", "Check by hand what may leave a box."}
	texts["export check"] = words{"", "", "Run the exporter's checks on a directory or a file; nothing is copied or changed."}
	texts["export check DIR|FILE"] = words{"", "", "A directory is looked at like /out, its entries belonging to its owner; of a file only the file is looked at."}
	texts["export check --policy"] = words{"", "FILE|PRESET", "The policy whose names and limits hold; sales-summary if none is named."}
	texts["export check --as"] = words{"", "NAME", "Judge a file as if this were its name."}
	texts["export check --json"] = words{"", "", "Print one JSON document."}
}

func exportCheckDetails() string {
	return `
Exit status: 0 every check passed; 122 nothing of it would leave a box; 125 it
could not be examined. The checks run without a box, with your own rights.

Examples:
  nsbox export check out/
  nsbox export check report.csv --as summary.csv
`
}

// exportReport is the document of `export check --json`.
type exportReport struct {
	Schema  string           `json:"schema"`
	Path    string           `json:"path"`
	Policy  string           `json:"policy"`
	Digest  string           `json:"policy_digest"`
	Verdict string           `json:"verdict"` // empty: not examined
	Reasons []exportReason   `json:"reasons"`
	Omitted int              `json:"omitted"` // reasons beyond the listed ones
	Entries int              `json:"entries"`
	Files   []exporter.File  `json:"files"`
	Error   *launcher.Reason `json:"error"`
}

type exportReason struct {
	Code   string `json:"code"`
	Name   string `json:"name"`
	Detail string `json:"detail"`
	Means  string `json:"means"`
}

// checkExport returns the exit status.
func checkExport(c *console, f exportCheckFlags) int {
	doc := exportReport{Schema: "nsbox.export-check/1", Path: f.Path, Policy: f.Policy, Reasons: []exportReason{}, Files: []exporter.File{}}
	p, source, err := policy.Load(f.Policy)
	if source.Arg != "" {
		doc.Policy, doc.Digest = source.Arg, source.Digest
	}
	var r exporter.Report
	if err == nil {
		r, err = exporter.Check(f.Path, f.As, launcher.ExportBounds(p))
		err = exportFailure(f.Path, err)
	}
	doc.fill(r, err)
	if f.JSON {
		err = errors.Join(err, c.document(doc))
	} else if err == nil {
		c.text(doc.lines())
		err = c.closed()
	}
	switch {
	case err != nil:
		c.refusal(reasonOf(err), f.Policy, faultsOf(err))
		return launcher.ExitRefused
	case r.Verdict != exporter.Accepted:
		return launcher.ExitUndelivered
	}
	return launcher.ExitOK
}

func exportFailure(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return reason.Wrap(reason.InputMissing, path, "is not there to be checked", "name an existing directory or file", err)
	}
	return reason.Wrap(reason.InputUnreadable, path, "cannot be checked", "name a directory or file that you may read, and a plain file name after --as", err)
}

func (d *exportReport) fill(r exporter.Report, err error) {
	if err != nil {
		why := reasonOf(err)
		d.Error = &why
		return
	}
	d.Verdict, d.Omitted, d.Entries = r.Verdict, r.Omitted, r.Entries
	d.Files = append(d.Files, r.Files...)
	for _, x := range r.Reasons {
		d.Reasons = append(d.Reasons, exportReason{x.Code, x.Name, x.Detail, exporter.Explain(x.Code)})
	}
}

// lines is the verdict for people.
func (d exportReport) lines() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s under %s\n", visible(d.Path), d.Verdict, visible(d.Policy))
	for _, f := range d.Files {
		fmt.Fprintf(&b, "  %s: %s, %s", visible(f.Name), f.Type, count(f.Bytes, "byte"))
		if f.Rows > 0 {
			fmt.Fprintf(&b, ", %s", rows(f.Rows))
		}
		fmt.Fprintf(&b, ", %s\n", f.SHA256)
	}
	for _, x := range d.Reasons {
		what := x.Means
		if x.Name != "" {
			what = x.Name + ": " + what
		}
		if x.Detail != "" {
			what += " (" + x.Detail + ")"
		}
		fmt.Fprintf(&b, "  %s: %s\n", x.Code, visible(what))
	}
	if d.Omitted > 0 {
		fmt.Fprintf(&b, "  and %s more\n", count(int64(d.Omitted), "reason"))
	}
	return b.String()
}
