package main

import (
	"fmt"
	"strings"

	"nsbox/launcher"
	"nsbox/launcher/endpoint"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

type planFlags struct {
	Policy string   `default:"tool"`
	In     []string `sep:"none"`
	Argv   []string `arg:"" name:"CMD"`

	Connect []string `sep:"none"`

	Limit         []string `sep:"none"`
	AllowDegraded []string
	Backend       string
	Cgroup        string
	StateDir      string
	JSON          bool `name:"json"`
}

func planWording(texts map[string]words) {
	for key, w := range map[string]words{
		"plan":                  {"", "", "Say what exec would enforce, how, and whether it would run; run nothing."},
		"plan CMD":              {"", "", "The program and its arguments."},
		"plan --policy":         {groupRuns, "FILE|PRESET", "The policy to hold the run against; without it the preset tool."},
		"plan --in":             {groupRuns, "PATH[:NAME]", "An input, as for exec: read and hashed, not copied."},
		"plan --connect":        {groupRuns, "HOST:PORT", "Ask for this network destination too. Repeat for more."},
		"plan --json":           {groupOut, "", "Print one JSON document."},
		"plan --limit":          {groupEnforced, "KEY=VALUE,...", "Make limits of the policy tighter, as for exec."},
		"plan --allow-degraded": {groupEnforced, "DIM", "Accept by name that a dimension is enforced more weakly."},
		"plan --backend":        {groupEnforced, "NAME", "namespaces, or simulated: a plan without a look at this host."},
		"plan --cgroup":         {groupEnforced, "DIR", "Use this delegated cgroup v2 directory, as for exec."},
		"plan --state-dir":      {groupEnforced, "DIR", "Look up and keep what nsbox knows of programs here, as for exec."},
	} {
		texts[key] = w
	}
}

const planUsage = "nsbox plan [--policy FILE|PRESET] [--in PATH[:NAME]]... [flags]\n" +
	"                  -- CMD [ARG...]"

func planDetails() string {
	return `
The decision is made by the code that exec runs, over the same facts. Nothing
is executed and no box is made; like exec, plan tries whether a cgroup can be
created. A restriction is enforced, degraded by your word, unsupported, unknown
(which counts as unsupported) or blocked by the policy itself. The plan's digest
covers the bytes of the inputs: exec --plan DIGEST refuses once policy, command,
inputs or host have changed. With --backend simulated no input is read.

Exit status 0 means RUN, 125 REFUSE.

Example:
  nsbox plan --policy sales-summary --in data.csv -- python3 /in/job.py
`
}

// showPlan is `nsbox plan`.
func showPlan(c *console, f planFlags) (int, error) {
	d, err := considered(f)
	if err != nil {
		return launcher.ExitRefused, err
	}
	if f.JSON {
		err = c.document(d)
	} else {
		c.text(planText(d))
		err = c.closed()
	}
	if d.Verdict != launcher.VerdictRun || err != nil {
		if d.Policy.ID == "" && !f.JSON {
			if source, list := (outputs{policy: f.Policy, limits: f.Limit}).faults(); len(list) > 1 {
				c.faults(source, list)
			}
		}
		return launcher.ExitRefused, err
	}
	return launcher.ExitOK, nil
}

func considered(f planFlags) (*launcher.Decision, error) {
	if f.Argv[0] == "" {
		return nil, usageError("no program after `--`", []string{"plan"})
	}
	b, err := launcher.BackendByName(f.Backend, nil)
	if err != nil {
		return nil, err
	}
	if err := policy.CheckDimensions(f.AllowDegraded); err != nil {
		return nil, err
	}
	req := launcher.Request{PolicyArg: f.Policy, Argv: f.Argv, Limits: f.Limit, AllowDegraded: f.AllowDegraded, StateDir: f.StateDir, Cgroup: f.Cgroup}
	for _, arg := range f.In {
		in, err := inputArg(arg)
		if err != nil {
			return nil, err
		}
		req.Inputs = append(req.Inputs, in)
	}
	var destinations []endpoint.Endpoint
	for i, text := range f.Connect {
		e, err := endpoint.Parse(text)
		if err != nil {
			// The text itself may hold a secret, as a query string does.
			return nil, reason.New(reason.EndpointInvalid, fmt.Sprintf("--connect number %d", i+1), err.Error(), "write HOST:PORT, and an IPv6 address in brackets")
		}
		destinations = append(destinations, e)
	}
	return launcher.Consider(b, req, destinations), nil
}

// planText is the plan for people: every restriction, everything asked for, the
// decision.
func planText(d *launcher.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.Join(wrap(commandWord(d), helpWidth-4), "\n    "))
	fmt.Fprintf(&b, "under policy %s %s (%s)\nbackend %s\n", visible(d.Policy.ID), visible(d.Policy.Version), visible(d.Policy.Source), d.Backend)
	if len(d.Rows) > 0 {
		fmt.Fprintf(&b, "\n%-13s%-15s%s\n", "STATUS", "RESTRICTION", "REQUESTED / held by / how that is known here")
	}
	for _, r := range d.Rows {
		fmt.Fprintf(&b, "%-13s%-15s%s\n", r.Status, r.Name, hanging(r.Requested))
		rest := []string{"by " + r.Primitive, "known: " + r.Probed}
		if r.Note != "" {
			rest = append(rest, r.Note)
		}
		for _, line := range rest {
			fmt.Fprintf(&b, "%28s%s\n", "", hanging(line))
		}
	}
	if len(d.Grants) > 0 {
		fmt.Fprintf(&b, "\n%-13s%-15s%s\n", "POLICY", "ASKED FOR", "WHAT / by which rule")
	}
	for _, g := range d.Grants {
		word := "denied"
		if g.Allowed {
			word = "allowed"
		}
		fmt.Fprintf(&b, "%-13s%-15s%s\n", word, g.Capability, hanging(g.Requested+" / "+g.Rule))
	}
	for _, in := range d.Inputs {
		fmt.Fprintf(&b, "%-13s%-15s%s\n", "read", "input", hanging(fmt.Sprintf("/in/%s / %s, %s", in.Name, count(in.Bytes, "byte"), in.SHA256)))
	}
	fmt.Fprintf(&b, "\n%s\n", d.Verdict)
	for _, r := range d.Reasons {
		text := strings.ReplaceAll(strings.Trim(r.What+": "+r.Why, ": "), "\n", "; ")
		for i, line := range wrap(visible(fmt.Sprintf("%s (reason %s)", text, r.ID)), helpWidth-4) {
			fmt.Fprintf(&b, "%s%s\n", []string{"  ", "    "}[min(i, 1)], line)
		}
		if r.Next != "" {
			for i, line := range wrap(visible("next: "+r.Next), helpWidth-10) {
				fmt.Fprintf(&b, "%s%s\n", []string{"    ", "          "}[min(i, 1)], line)
			}
		}
	}
	if d.Digest != "" {
		fmt.Fprintf(&b, "plan %s\n", d.Digest)
	}
	return b.String()
}

// commandWord is the command line of the plan, each argument recognisable as one.
func commandWord(d *launcher.Decision) string {
	if len(d.Request.Argv) == 0 {
		return visible(d.Request.Executable)
	}
	var words []string
	for i, a := range d.Request.Argv {
		if i == 0 {
			a = d.Request.Executable
		}
		if a = visible(a); a == "" || strings.ContainsAny(a, " '\"\\") {
			a = "'" + a + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

// hanging wraps text for the third column.
func hanging(text string) string {
	return strings.Join(wrap(visible(text), helpWidth-28), "\n"+strings.Repeat(" ", 30))
}
