package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"nsbox/launcher"
	"nsbox/launcher/policy"
)

// helpWidth is fixed, so that help reads the same in a pipe and in a test.
const helpWidth = 80

// helpTexts is what help says beyond the flags, by command.
type helpTexts struct {
	usage   map[string]string
	details map[string]func() string
}

func helpTextsOf() helpTexts {
	return helpTexts{
		usage: map[string]string{
			"":      "nsbox COMMAND",
			"shell": shellUsage,
			"exec": "nsbox exec [--policy FILE|PRESET] [--in PATH[:NAME]]... [--deliver DIR]\n" +
				"                  [flags] -- CMD [ARG...]",
			"plan":           planUsage,
			"doctor":         doctorUsage,
			"policy confirm": confirmUsage,
			"export":         exportUsage,
			"export check":   exportCheckUsage,
			"attempts":       attemptsUsage,
			"attempts list":  attemptsListUsage,
			"attempts show":  attemptsShowUsage,
			"attempts logs":  attemptsLogsUsage,
			"reconcile":      reconcileUsage,
			"gc":             gcUsage,
			"verify":         verifyUsage,
			"prep":           prepUsage,
			"store":          storeUsage,
			"store list":     "nsbox store list [--json]",
			"store verify":   "nsbox store verify [--json]",
			"store gc":       "nsbox store gc [--dry-run]",
			"store rm":       "nsbox store rm NAME|DIGEST",
			"store add":      "nsbox store add LAYOUT DIGEST",
			"store digest":   "nsbox store digest DIR",
			"provision":      provisionUsage,
			"completion":     completionUsage,
			"man":            manUsage,
			"policy":         "nsbox policy COMMAND",
			"policy show":    "nsbox policy show PRESET|FILE",
			"policy lint":    "nsbox policy lint FILE|PRESET [--json | --notes]",
			"policy schema":  "nsbox policy schema",
			"policy seccomp": "nsbox policy seccomp [--bpf FILE]",
			"version":        "nsbox version [--json]",
		},
		details: map[string]func() string{
			"":               topDetails,
			"exec":           execDetails,
			"shell":          shellDetails,
			"plan":           planDetails,
			"doctor":         doctorDetails,
			"policy confirm": confirmDetails,
			"export":         func() string { return "" },
			"export check":   exportCheckDetails,
			"verify":         verifyDetails,
			"reconcile":      reconcileDetails,
			"provision":      provisionDetails,
			"completion":     completionDetails,
			"man":            manDetails,
			"policy":         policyDetails,
			"prep":           prepDetails,
			"store":          storeDetails,
			"policy show":    showDetails,
			"policy lint":    lintDetails,
			"policy schema":  schemaDetails,
			"policy seccomp": seccompDetails,
			"version":        func() string { return "" },
		},
	}
}

// print is kong's help printer: our usage line, kong's flags, our details.
func (h helpTexts) print(options kong.HelpOptions, ctx *kong.Context) error {
	out := ctx.Stdout
	var b bytes.Buffer
	ctx.Stdout = &b
	err := kong.DefaultHelpPrinter(options, ctx)
	ctx.Stdout = out
	if err != nil {
		return err
	}
	command := commandWords(ctx)
	_, rest, _ := strings.Cut(b.String(), "\n")
	text := "Usage: " + h.usage[command] + "\n" + rest
	if command == "" {
		text = strings.Replace(text, "\nRun \"nsbox <command> --help\" for more information on a command.\n", "", 1)
	}
	if details := h.details[command]; details != nil {
		text += details()
	}
	_, err = fmt.Fprint(out, text)
	return err
}

func topDetails() string {
	return `
Try:
  nsbox exec --policy sales-summary --in data.csv --in job.py --deliver out \
      -- python3 /in/job.py

Every command has its own help with examples: nsbox exec --help
`
}

func execDetails() string {
	return `
Examples:
  A script over a file; what it writes to /out/summary.csv lands in ./out:
    nsbox exec --policy sales-summary --in data.csv --in job.py --deliver out \
        -- python3 /in/job.py
  The same with less time and memory, and the result for a machine:
    nsbox exec --policy sales-summary --limit wall=5s,memory=128M --json \
        --in data.csv --in job.py -- python3 /in/job.py
  A program from standard input:
    nsbox exec --policy sales-summary --stdin -- python3 - <job.py

In the box: /in is read-only, /scratch is the working directory, /out is what
may leave. There is no network. Of the host, sales-summary shows the
interpreter only; tool shows the programs of /usr and has no /out. Your own
files are in neither: name them with --in.

Presets: ` + strings.Join(policy.Presets(), ", ") + `

Limits (--limit KEY=VALUE, only ever tighter than the policy's):
` + limitLines() + `  Time: 500ms, 5s, 2m.  Size: 65536, 64K, 128M, 1G (powers of 1024).

Dimensions that --allow-degraded may name:
` + wrapWords(policy.Dimensions()) + `
Exit status:
` + exitLines()
}

func policyDetails() string {
	return "\nPresets: " + strings.Join(policy.Presets(), ", ") + "\n"
}

func showDetails() string {
	return policyDetails() + `
Example: take a preset as the start of a policy of your own:
  nsbox policy show sales-summary >my-policy.json
`
}

func lintDetails() string {
	return `
Every fault is listed at once, with its line. Exit status 0 means that exec
would accept the policy, 125 that it would not.

Example:
  nsbox policy lint my-policy.json
`
}

func seccompDetails() string {
	return `
Examples:
  nsbox policy seccomp | less
  nsbox policy seccomp --bpf filter.bpf    for a simulator or disassembler
`
}

// exitLines is the exit-code table as help shows it.
func exitLines() string {
	var b strings.Builder
	for _, row := range launcher.ExitTable() {
		lines := wrap(row.When, helpWidth-10)
		fmt.Fprintf(&b, "  %-6s  %s\n", row.Status, lines[0])
		for _, l := range lines[1:] {
			fmt.Fprintf(&b, "          %s\n", l)
		}
	}
	return b.String()
}

func wrapWords(words []string) string {
	var b strings.Builder
	for _, l := range wrap(strings.Join(words, ", "), helpWidth-2) {
		fmt.Fprintf(&b, "  %s\n", l)
	}
	return b.String()
}

// wrap breaks text at spaces into lines of at most width bytes; a longer word
// stands alone.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

func limitLines() string {
	var b strings.Builder
	for _, l := range policy.LimitNames() {
		fmt.Fprintf(&b, "  %-15s %-20s %s\n", l.Name, l.Example, l.Value)
	}
	b.WriteString("  of all connections together, where the policy lists destinations; network.time\n  and network.dial_time are each connection's:\n")
	for _, l := range policy.ConnectionLimitNames() {
		fmt.Fprintf(&b, "  %-36s %s\n", l.Example, l.Value)
	}
	return b.String()
}
