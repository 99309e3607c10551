// Command nsbox-verify is what `nsbox verify` runs: the specification's fixtures
// against the nsbox beside it. It is a program of its own, so that nothing made
// for tests is part of nsbox.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"nsbox/tests/conformance"
)

type options struct {
	Only    []string `placeholder:"ID" help:"Run these fixtures only, for example S2,A1a."`
	Profile string   `placeholder:"NAME" help:"Run the fixtures of this profile only."`
	Quick   bool     `help:"Run the subset that takes less than half a minute."`
	Out     string   `placeholder:"DIR" help:"Write the bundle here: report, results, evidence and one page to read offline. Must be new or empty."`
	JSON    bool     `name:"json" help:"Print the report as one JSON document."`
	List    bool     `help:"List the fixtures and run none."`
	Nsbox   string   `hidden:"" help:"The nsbox to test."`
}

// Exit codes: 0 no FAIL, 1 some FAIL, 125 nothing was run.
const (
	failed  = 1
	refused = 125
)

func main() { os.Exit(run()) }

func run() int {
	var o options
	parser, err := kong.New(&o, kong.Name("nsbox verify"), kong.Description("Run the specification's fixtures on this host, each with its positive controls, in a disposable directory, and say what was shown. Exit status 1 if any of them is FAIL."))
	if err != nil {
		return refuse(err)
	}
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		return refuse(err)
	}
	fixtures, err := conformance.Select(conformance.All(), o.Only, o.Profile, o.Quick)
	if err != nil {
		return refuse(err)
	}
	if o.List {
		for _, f := range fixtures {
			fmt.Printf("%-5s %-8s %s\n", f.ID, f.Profile, f.Title)
		}
		return 0
	}
	if o.Nsbox == "" {
		self, err := os.Executable()
		if err != nil {
			return refuse(err)
		}
		o.Nsbox = filepath.Join(filepath.Dir(self), "nsbox")
	}
	if o.Nsbox, err = filepath.Abs(o.Nsbox); err != nil {
		return refuse(err)
	}
	if err := freshDir(&o.Out); err != nil {
		return refuse(err)
	}
	s := &conformance.Suite{Nsbox: o.Nsbox}
	terminal := term.IsTerminal(int(os.Stderr.Fd()))
	if terminal {
		s.Progress = func(line string) { fmt.Fprintf(os.Stderr, "\r\x1b[K%s …", line) }
	}
	s.Done = func(out conformance.Outcome) {
		if terminal {
			fmt.Fprint(os.Stderr, "\r\x1b[K")
		}
		if !o.JSON {
			fmt.Print(line(out))
		}
	}
	report, err := s.Run(fixtures, o.Out, "nsbox verify "+strings.Join(os.Args[1:], " "))
	if err != nil {
		return refuse(err)
	}
	if o.JSON {
		data, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return refuse(err)
		}
		fmt.Println(string(data))
	} else {
		var counts []string
		for _, v := range []conformance.Verdict{conformance.Pass, conformance.Fail, conformance.Inconclusive, conformance.SetupFailure, conformance.Blocked, conformance.NotApplicable} {
			if n := report.Counts[v]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", n, v))
			}
		}
		fmt.Printf("%s in %.1f s\n", strings.Join(counts, ", "), float64(report.Millis)/1000)
		if o.Out != "" {
			fmt.Printf("bundle: %s\n", filepath.Join(o.Out, "report.html"))
		}
	}
	if report.Failed() {
		return failed
	}
	return 0
}

func line(o conformance.Outcome) string {
	text := fmt.Sprintf("%-5s %-18s %s\n", o.ID, o.Verdict, o.Title)
	if o.Verdict == conformance.Pass {
		return text + fmt.Sprintf("      shows: %s\n      not: %s\n", o.Shows, o.Cannot)
	}
	text += fmt.Sprintf("      %s\n", o.Reason)
	for _, p := range o.Problems {
		text += "      problem: " + strings.ReplaceAll(p, "\n", "\n        ") + "\n"
	}
	return text
}

// freshDir makes the bundle's directory absolute and wants it new or empty.
func freshDir(dir *string) error {
	if *dir == "" {
		return nil
	}
	path, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("--out %s is not empty: name a new directory", *dir)
	}
	*dir = path
	return err
}

func refuse(err error) int {
	fmt.Fprintf(os.Stderr, "nsbox: verify: %v\n", err)
	return refused
}
