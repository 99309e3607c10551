package main

import "time"

import "github.com/alecthomas/kong"

// grammar is the whole command line as kong reads it. What stands after `--`
// belongs to the program and is cut off before kong sees the arguments.
//
// The words for people are not in the tags but in wording: kong takes a tag
// apart letter by letter, and doing that for every run costs a quarter of a
// millisecond. They are put on for help and for errors only.
type grammar struct {
	Exec      execFlags       `cmd:""`
	Shell     execFlags       `cmd:""`
	Plan      planFlags       `cmd:""`
	Doctor    doctorFlags     `cmd:""`
	Policy    policyCommand   `cmd:""`
	Export    exportCommand   `cmd:""`
	Version   versionFlags    `cmd:""`
	Attempts  attemptsCommand `cmd:""`
	Reconcile reconcileFlags  `cmd:""`
	GC        gcFlags         `cmd:"" name:"gc"`
	Verify    verifyFlags     `cmd:""`
	Prep      prepFlags       `cmd:""`
	Store     storeCommand    `cmd:""`
	Provision provisionFlags  `cmd:""`

	Completion completionFlags `cmd:""`
	Man        manFlags        `cmd:""`
}

type execFlags struct {
	Policy    string   `default:"tool"`
	In        []string `sep:"none"`
	Stdin     bool
	Terminal  bool     `short:"t"`
	RO        []string `name:"ro" sep:"none"`
	RootfsAdd []string `sep:"none"`

	Deliver string
	Result  string
	JSON    bool `name:"json"`
	Quiet   bool `short:"q"`

	Limit         []string `sep:"none"`
	AllowDegraded []string
	Cgroup        string
	StateDir      string
	Wait          time.Duration

	Backend string
	Trace   string
	Plan    string
}

type policyCommand struct {
	Show    showFlags    `cmd:""`
	Lint    lintFlags    `cmd:""`
	Schema  schemaFlags  `cmd:""`
	Seccomp seccompFlags `cmd:""`
	Confirm confirmFlags `cmd:""`
}

type showFlags struct {
	Policy string `arg:"" name:"PRESET|FILE"`
}

type lintFlags struct {
	Policy string `arg:"" name:"FILE|PRESET"`
	JSON   bool   `name:"json"`
	Notes  bool
}

type schemaFlags struct{}

type seccompFlags struct {
	BPF string `name:"bpf"`
}

type versionFlags struct {
	JSON bool `name:"json"`
}

// execOnly is the part of grammar that a run needs; building the rest for it
// would be time spent for nothing.
type execOnly struct {
	Exec execFlags `cmd:""`
}

// shellOnly is the same for shell, which is exec -t with a program of its own.
type shellOnly struct {
	Shell execFlags `cmd:""`
}

// words is what a person reads about a command, a flag or an argument.
type words struct{ group, value, help string }

const (
	groupRuns     = "What runs:"
	groupOut      = "What comes out:"
	groupEnforced = "What is enforced:"
)

// stateDefault is where the state directory is if none is named.
const stateDefault = "/var/lib/nsbox for root, ~/.local/state/nsbox for others"

// wording is keyed by the command's words, then the flag or argument.
func wording() map[string]words {
	texts := map[string]words{
		"exec":                  {"", "", "Run one program in a fresh box, under a policy."},
		"exec --policy":         {groupRuns, "FILE|PRESET", "The policy to obey: a file, or a preset by name; without it the preset tool."},
		"exec --in":             {groupRuns, "PATH[:NAME]", "Copy a file to /in/BASENAME, or a directory's contents into /in; :NAME renames. Repeat for more. A PATH that exists is taken whole, colons included."},
		"exec --stdin":          {groupRuns, "", "Pass standard input to the program; otherwise it reads end of file."},
		"exec --terminal":       {groupRuns, "", "Give the program a terminal of its own, made inside the box. Standard input and output have to be a terminal; what the program prints reaches it as it is."},
		"exec --ro":             {groupRuns, "PATH[:PLACE]", "Show a directory or file of the host, live and read-only, at its own path or at PLACE. Unix sockets cannot be connected to then. Repeat for more."},
		"exec --rootfs-add":     {groupRuns, "DIR[:PLACE]", "Add a directory with programs, such as a virtual environment, to the root; its bin comes first in PATH. Repeat for more."},
		"exec --wait":           {groupRuns, "DURATION", "Wait this long (10s, 2m) for a place in the state directory; otherwise a second start is refused at once."},
		"exec --deliver":        {groupOut, "DIR", "Publish the accepted artifact in this directory; nothing there is overwritten."},
		"exec --result":         {groupOut, "FILE", "Write the JSON result to this file, atomically, for refusals too; one that is there is replaced."},
		"exec --json":           {groupOut, "", "Print the JSON result on standard output; the program's streams go to standard error."},
		"exec --quiet":          {groupOut, "", "Print no summary. Errors are printed all the same."},
		"exec --trace":          {groupOut, "FILE", "Write what was decided and what became of it, one JSON event a line."},
		"exec --plan":           {groupEnforced, "DIGEST", "Refuse unless the plan is this one, which nsbox plan showed."},
		"exec --backend":        {groupEnforced, "NAME", "namespaces, or simulated: decide, run nothing, touch nothing."},
		"exec --limit":          {groupEnforced, "KEY=VALUE,...", "Make limits of the policy tighter, for this run."},
		"exec --allow-degraded": {groupEnforced, "DIM", "Accept by name that a dimension is enforced more weakly here than the policy asks."},
		"exec --cgroup":         {groupEnforced, "DIR", "Use this delegated cgroup v2 directory; otherwise one is looked for."},
		"exec --state-dir":      {groupEnforced, "DIR", "Keep journal and staging here; otherwise in " + stateDefault + "."},

		"policy":                  {"", "", "Show, check and explain policies."},
		"policy show":             {"", "", "Print a policy as it is stored, ready to be edited."},
		"policy show PRESET|FILE": {"", "", "A preset's name or a file."},
		"policy lint":             {"", "", "List every fault of a policy, and what nsbox makes of it."},
		"policy lint FILE|PRESET": {"", "", "A file or a preset's name."},
		"policy lint --json":      {"", "", "Print one JSON document."},
		"policy lint --notes":     {"", "", "List the enforcement points and blockers of the document too."},
		"policy schema":           {"", "", "Print a JSON Schema of policies, for editors."},
		"policy seccomp":          {"", "", "Explain the system-call filter of the program."},
		"policy seccomp --bpf":    {"", "FILE", "Write the compiled filter (struct sock_filter, native order) to this file, and print its digest only."},

		"version":        {"", "", "Print the version."},
		"version --json": {"", "", "Print one JSON document."},
	}
	shellWording(texts)
	planWording(texts)
	doctorWording(texts)
	confirmWording(texts)
	exportWording(texts)
	attemptsWording(texts)
	cleanWording(texts)
	verifyWording(texts)
	storeWording(texts)
	provisionWording(texts)
	completionWording(texts)
	manWording(texts)
	return texts
}

// dress puts the words on kong's model.
func dress(node *kong.Node, path string, texts map[string]words) {
	if path != "" {
		node.Help = texts[path].help
		path += " "
	}
	for _, f := range node.Flags {
		w, ok := texts[path+"--"+f.Name]
		if !ok {
			continue // --help is kong's own
		}
		f.Help = w.help
		if w.value != "" {
			f.PlaceHolder = w.value
		}
		if w.group != "" {
			f.Group = &kong.Group{Key: w.group, Title: w.group}
		}
	}
	for _, p := range node.Positional {
		p.Help = texts[path+p.Name].help
	}
	for _, child := range node.Children {
		dress(child, path+child.Name, texts)
	}
}
