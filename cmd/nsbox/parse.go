package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

// invocation is a parsed command line. helped means that help was printed and
// nothing is left to do.
type invocation struct {
	grammar
	command string   // "exec", "policy show", …
	argv    []string // after --, exec only
	helped  bool
}

// parse reads the arguments without the program's name. Help goes to out.
func parse(args []string, help helpTexts, out io.Writer) (*invocation, error) {
	inv, err := parseWith(args, io.Discard)
	if err == nil && !inv.helped {
		return inv, nil
	}
	return parseWith(args, out, kong.Help(help.print), kong.PostBuild(func(k *kong.Kong) error {
		dress(k.Model.Node, "", wording())
		return nil
	}))
}

func parseWith(args []string, out io.Writer, options ...kong.Option) (*invocation, error) {
	inv := &invocation{}
	front, program, dashes := splitProgram(args)
	var only execOnly
	target := any(&inv.grammar)
	var shell shellOnly
	switch {
	case len(args) > 0 && args[0] == "exec":
		target = &only
	case len(args) > 0 && args[0] == "shell":
		target = &shell
	}
	parser, err := kong.New(target, append(options,
		kong.Name("nsbox"),
		kong.Description("Run an untrusted program over real input in a box of Linux namespaces, without a daemon and without root."),
		kong.Writers(out, out),
		kong.Exit(func(int) { inv.helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{NoExpandSubcommands: true, WrapUpperBound: helpWidth}),
	)...)
	if err != nil {
		return nil, reason.Wrap(reason.Internal, "command line", "the grammar is broken", "report this as a fault of nsbox", err)
	}
	ctx, err := parser.Parse(front)
	if inv.helped {
		return inv, nil
	}
	if err != nil {
		return nil, usageError(kongText(err, front), front)
	}
	inv.command = commandWords(ctx)
	if err := onceAndNotEmpty(ctx, front); err != nil {
		return nil, err
	}
	if inv.command == "exec" {
		inv.Exec = only.Exec
		if !dashes {
			return nil, usageError("no `--` before the program; everything after it belongs to the program", front)
		}
		if len(program) == 0 || program[0] == "" {
			return nil, usageError("no program after `--`", front)
		}
		inv.argv = program
	}
	if inv.command == "shell" {
		// From here on it is exec.
		inv.Exec, inv.argv = shell.Shell, program
		inv.Exec.Terminal = true
		if !dashes {
			inv.argv = []string{defaultShell()}
		} else if len(program) == 0 || program[0] == "" {
			return nil, usageError("no program after `--`", front)
		}
	}
	if inv.Exec.Terminal && (inv.Exec.Stdin || inv.Exec.JSON) {
		return nil, usageError("a box with a terminal has it as standard input and output, so neither --stdin nor --json goes with it; --result FILE does", front)
	}
	return inv, nil
}

// asked turns the other common spellings of a question into ours.
func asked(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(append([]string{}, args[1:]...), "--help")
	case len(args) == 1 && (args[0] == "--version" || args[0] == "-V"):
		return []string{"version"}
	}
	return args
}

// splitProgram cuts an exec command line at its first "--".
func splitProgram(args []string) (front, program []string, dashes bool) {
	if len(args) == 0 || args[0] != "exec" && args[0] != "shell" {
		return args, nil, false
	}
	for i, a := range args {
		if a == "--" {
			return args[:i], args[i+1:], true
		}
	}
	return args, nil, false
}

func commandWords(ctx *kong.Context) string {
	var words []string
	for _, p := range ctx.Path {
		if p.Command != nil {
			words = append(words, p.Command.Name)
		}
	}
	return strings.Join(words, " ")
}

// onceAndNotEmpty refuses what kong lets pass: of two equal flags the last
// would win unseen, and an empty value would read as "not given".
func onceAndNotEmpty(ctx *kong.Context, front []string) error {
	seen := map[string]bool{}
	for _, p := range ctx.Path {
		switch {
		case p.Positional != nil && p.Positional.Target.String() == "":
			return usageError(p.Positional.Name+" is empty", front)
		case p.Flag == nil:
			continue
		case seen[p.Flag.Name] && !p.Flag.IsCumulative():
			return usageError("--"+p.Flag.Name+" is given twice", front)
		}
		seen[p.Flag.Name] = true
		if text, ok := p.Flag.Target.Interface().(string); ok && text == "" {
			return usageError("--"+p.Flag.Name+" is empty", front)
		}
		if list, ok := p.Flag.Target.Interface().([]string); ok {
			if len(list) == 0 {
				return usageError("--"+p.Flag.Name+" is empty", front)
			}
			for _, text := range list {
				if text == "" {
					return usageError("--"+p.Flag.Name+" has an empty part", front)
				}
			}
		}
	}
	return nil
}

// kongText makes kong's words read like ours.
func kongText(err error, front []string) string {
	text := err.Error()
	if len(front) == 0 {
		return "no command given: exec, shell, plan, doctor, policy, export, attempts, reconcile, gc, verify, prep, store, provision, completion, man or version"
	}
	if strings.HasPrefix(text, "unexpected argument ") && (front[0] == "exec" || front[0] == "shell") {
		return text + "; a program and its arguments stand after `--`"
	}
	return text
}

func usageError(why string, front []string) *reason.Error {
	next := "nsbox"
	if texts := helpTextsOf(); len(front) > 0 && texts.usage[front[0]] != "" {
		next += " " + front[0]
		if len(front) > 1 && texts.usage[front[0]+" "+front[1]] != "" {
			next += " " + front[1]
		}
	}
	return reason.New(reason.Usage, "command line", why, next+" --help")
}

// request turns the flags of exec into the launcher's request.
func (inv *invocation) request() (launcher.Request, error) {
	f := inv.Exec
	req := launcher.Request{
		PolicyArg: f.Policy, Argv: inv.argv, Deliver: f.Deliver, ResultFile: f.Result, Limits: f.Limit,
		AllowDegraded: f.AllowDegraded, Stdin: f.Stdin, StateDir: f.StateDir, Cgroup: f.Cgroup, Wait: f.Wait,
	}
	for _, arg := range f.In {
		in, err := inputArg(arg)
		if err != nil {
			return req, err
		}
		req.Inputs = append(req.Inputs, in)
	}
	for _, list := range []struct {
		flag string
		args []string
		root bool
		to   *[]launcher.Bind
	}{{"--ro", f.RO, false, &req.Live}, {"--rootfs-add", f.RootfsAdd, true, &req.RootAdd}} {
		for _, arg := range list.args {
			*list.to = append(*list.to, bindArg(arg, list.root))
		}
	}
	return req, nil
}

// bindArg reads PATH[:PLACE]. As with inputs, what exists whole is a path.
func bindArg(arg string, root bool) launcher.Bind {
	b := launcher.Bind{Source: arg, Root: root}
	if _, err := os.Lstat(arg); err == nil {
		return b
	}
	if cut := strings.LastIndex(arg, ":/"); cut > 0 {
		b.Source, b.Target = arg[:cut], arg[cut+1:]
	}
	return b
}

// inputArg reads PATH[:NAME]. A string that exists as a path is a path: a
// colon in a file's name must not rename another file into the box.
func inputArg(arg string) (launcher.Input, error) {
	if _, err := os.Lstat(arg); err == nil || !strings.Contains(arg, ":") {
		return launcher.Input{Path: arg}, nil
	}
	cut := strings.LastIndexByte(arg, ':')
	path, name := arg[:cut], arg[cut+1:]
	if path == "" || name == "" || strings.Contains(name, "/") {
		return launcher.Input{}, reason.New(reason.Usage, fmt.Sprintf("--in %s", arg),
			"neither an existing path nor PATH:NAME with a plain name", "nsbox exec --help")
	}
	return launcher.Input{Path: path, Name: name}, nil
}

// peek finds --result and --json among arguments that could not be parsed, so
// that a caller who asked for a machine-readable answer gets one. It stops at
// "--", behind which everything is the program's.
func peek(args []string) (resultFile string, json bool) {
	front, _, _ := splitProgram(args)
	for i, a := range front {
		switch {
		case a == "--json":
			json = true
		case a == "--result" && resultFile == "" && i+1 < len(front) && !strings.HasPrefix(front[i+1], "-"):
			resultFile = front[i+1]
		case strings.HasPrefix(a, "--result=") && resultFile == "":
			resultFile = strings.TrimPrefix(a, "--result=")
		}
	}
	return resultFile, json
}
