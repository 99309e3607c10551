package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/seccompgen"
)

// version is set by the linker; see the Makefile.
var version = "dev"

// runner is launcher.Run, or a test's stand-in.
type runner func(context.Context, launcher.Request, launcher.Streams) launcher.Result

// commandLine runs one command and returns nsbox's exit status. args is
// without the program's name.
func commandLine(args []string, c *console, run runner) (status int) {
	defer func() {
		// A trace helps nobody who runs nsbox; the one line and its id do.
		if p := recover(); p != nil {
			status = crash(args, c, reason.New(reason.Internal, "nsbox", fmt.Sprint(p), "report this as a fault of nsbox: "+place(debug.Stack())))
		}
	}()
	if len(args) > 0 && args[0] == completeName {
		for _, line := range completions(args[1:]) {
			c.text(line + "\n")
		}
		return launcher.ExitOK
	}
	args = asked(args)
	inv, err := parse(args, helpTextsOf(), c.out)
	if err != nil {
		return refuse(args, c, err)
	}
	if inv.helped {
		return launcher.ExitOK
	}
	switch inv.command {
	case "exec", "shell":
		return execute(args, inv, c, chosen(inv.Exec, c, run))
	case "plan":
		if status, err = showPlan(c, inv.Plan); err == nil {
			return status
		}
	case "doctor":
		if status, err = showDoctor(c, inv.Doctor, run); err == nil {
			return status
		}
	case "policy confirm":
		err = confirmPolicy(c, inv.Policy.Confirm)
	case "policy show":
		err = showPolicy(c, inv.Policy.Show.Policy)
	case "policy lint":
		err = lintPolicy(c, inv.Policy.Lint)
	case "policy schema":
		err = showSchema(c)
	case "policy seccomp":
		err = showFilter(c, inv.Policy.Seccomp)
	case "export check":
		return checkExport(c, inv.Export.Check)
	case "attempts list":
		err = listAttempts(c, inv.Attempts.List)
	case "attempts show":
		err = showAttempt(c, inv.Attempts.Show)
	case "attempts logs":
		err = printLog(c, inv.Attempts.Logs)
	case "reconcile":
		err = reconcileAttempts(c, inv.Reconcile)
	case "gc":
		err = collect(c, inv.GC)
	case "verify":
		err = verify(inv.Verify)
	case "prep":
		err = prepare(c, inv.Prep)
	case "store list":
		err = listStore(c, inv.Store.List)
	case "store verify":
		err = verifyStore(c, inv.Store.Verify)
	case "store gc":
		err = collectStore(c, inv.Store.GC)
	case "store rm":
		err = removeStored(c, inv.Store.Rm)
	case "store add":
		err = addToStore(c, inv.Store.Add)
	case "store digest":
		err = digestDirectory(c, inv.Store.Digest)
	case "provision":
		err = provisionHost(c, inv.Provision)
	case "completion":
		err = showCompletion(c, inv.Completion.Shell)
	case "man":
		err = showMan(c, inv.Man)
	case "version":
		err = showVersion(c, inv.Version.JSON)
	default:
		err = reason.New(reason.Internal, inv.command, "a command without code", "report this as a fault of nsbox")
	}
	if err == nil {
		err = c.closed()
	}
	if err != nil {
		c.refusal(reasonOf(err), inv.Policy.Show.Policy+inv.Policy.Lint.Policy+inv.Policy.Confirm.Policy, faultsOf(err))
		return launcher.ExitRefused
	}
	return launcher.ExitOK
}

// place returns the first line of a stack trace that names our own code.
func place(stack []byte) string {
	_, below, _ := strings.Cut(string(stack), "panic(")
	for _, line := range strings.Split(below, "\n") {
		if _, at, ok := strings.Cut(line, "/cmd/nsbox/"); ok {
			return "cmd/nsbox/" + strings.Fields(at)[0]
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "nsbox/") {
			return strings.SplitN(strings.Fields(line)[0], ":", 2)[0]
		}
	}
	return "no place found"
}

func showPolicy(c *console, arg string) error {
	_, source, err := policy.Load(arg)
	if err != nil {
		return err
	}
	c.bytes(source.Raw)
	return nil
}

// lintReport is the document of `policy lint --json`.
type lintReport struct {
	Schema string           `json:"schema"`
	Source string           `json:"source"`
	Digest string           `json:"digest"`
	Error  *launcher.Reason `json:"error"`
	Faults []lintFault      `json:"faults"`
	Notes  []lintNote       `json:"notes"`
}

type lintFault struct {
	ID   reason.ID `json:"id"`
	Path string    `json:"path"`
	Line int       `json:"line"`
	What string    `json:"what"`
	Next string    `json:"next"`
}

type lintNote struct {
	Path string `json:"path"`
	Text string `json:"text"`
	Warn bool   `json:"warn"`
}

func lintPolicy(c *console, f lintFlags) error {
	p, source, err := policy.Load(f.Policy)
	faults := faultsOf(err)
	var notes []policy.Note
	if err == nil {
		notes = policy.Lint(p)
	}
	if f.JSON {
		report := lintReport{Schema: "nsbox.lint/1", Source: f.Policy, Digest: source.Digest, Faults: []lintFault{}, Notes: []lintNote{}}
		if source.Arg != "" {
			report.Source = source.Arg
		}
		if err != nil {
			r := reasonOf(err)
			report.Error = &r
		}
		for _, x := range faults {
			report.Faults = append(report.Faults, lintFault(x))
		}
		for _, n := range notes {
			report.Notes = append(report.Notes, lintNote(n))
		}
		return errors.Join(c.document(report), err)
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: no faults, %s\n%s\n", visible(source.Arg), count(int64(len(notes)), "note"), source.Digest)
	folded := map[string]int64{}
	for _, n := range notes {
		// Status words that stand in the document itself would bury the rest.
		if part, _, found := strings.Cut(n.Path, "["); found && !n.Warn && !f.Notes && (part == "enforcement_points" || part == "blockers") {
			folded[part]++
			continue
		}
		kind := "note"
		if n.Warn {
			kind = "warning"
		}
		for i, line := range wrap(visible(strings.TrimPrefix(n.Path+": "+n.Text, ": ")), helpWidth-len(kind)-2) {
			fmt.Fprintf(&b, "%s%s\n", []string{kind + ": ", "    "}[min(i, 1)], line)
		}
	}
	if len(folded) > 0 {
		fmt.Fprintf(&b, "note: %s and %s of the document; --notes lists them\n", count(folded["enforcement_points"], "enforcement point"), count(folded["blockers"], "blocker"))
	}
	c.text(b.String())
	return nil
}

func showSchema(c *console) error {
	data, err := policy.Schema()
	if err == nil {
		c.text(string(data) + "\n")
	}
	return err
}

func showFilter(c *console, f seccompFlags) error {
	profile := seccompgen.Workload(seccompgen.Options{})
	if f.BPF == "" {
		c.text(seccompgen.Explain(profile))
		return nil
	}
	program, err := seccompgen.Compile(profile)
	if err != nil {
		return err
	}
	if err := publish(reason.OutputFile, f.BPF, program); err != nil {
		return err
	}
	c.text(fmt.Sprintf("%s: %s, %s\n", visible(f.BPF), count(int64(program.Len()), "instruction"), program.Digest()))
	return nil
}

func showVersion(c *console, asJSON bool) error {
	if !asJSON {
		c.text(fmt.Sprintf("nsbox %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
		return nil
	}
	return c.document(struct {
		Schema  string `json:"schema"`
		Version string `json:"version"`
		Result  string `json:"result_schema"`
		Backend string `json:"backend"`
		Go      string `json:"go"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
	}{"nsbox.version/1", version, launcher.ResultSchema, launcher.BackendName, runtime.Version(), runtime.GOOS, runtime.GOARCH})
}

func faultsOf(err error) policy.Faults {
	var f policy.Faults
	errors.As(err, &f)
	return f
}
