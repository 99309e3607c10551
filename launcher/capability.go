package launcher

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"nsbox/launcher/endpoint"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// Capabilities is everything a run asks for, said positively: what is not in it
// is not asked for and not given. Paths are those inside the box.
type Capabilities struct {
	Executable   string              `json:"executable"` // as named on the command line
	Argv         []string            `json:"argv"`       // with the program's own name first
	ReadPaths    []string            `json:"read_paths"`
	WritePaths   []string            `json:"write_paths"`
	Destinations []endpoint.Endpoint `json:"network_destinations"`
	Environment  []string            `json:"environment"` // names; values are nsbox's own
	MaxRuntimeMS int64               `json:"max_runtime_ms"`
}

// Normalised returns the one form in which two requests for the same thing are
// equal: sets are sorted, without doubles and, for paths, without what lies
// below another member; argv keeps its order. The error is a *reason.Error.
func (c Capabilities) Normalised() (Capabilities, error) {
	bad := func(what, why string) (Capabilities, error) {
		return Capabilities{}, reason.New(reason.CapabilityInvalid, what, why, "correct the request")
	}
	if c.Executable == "" || strings.ContainsRune(c.Executable, 0) {
		return bad("executable", "is empty or holds a NUL byte")
	}
	if path.IsAbs(c.Executable) {
		c.Executable = path.Clean(c.Executable)
	}
	if len(c.Argv) == 0 {
		return bad("argv", "is empty: it begins with the program's own name")
	}
	for _, a := range c.Argv {
		if strings.ContainsRune(a, 0) {
			return bad("argv", "holds a NUL byte")
		}
	}
	if c.MaxRuntimeMS <= 0 {
		return bad("max_runtime_ms", "is not positive: a run without an end is never asked for")
	}
	var err error
	if c.ReadPaths, err = pathSet(c.ReadPaths); err == nil {
		c.WritePaths, err = pathSet(c.WritePaths)
	}
	if err != nil {
		return Capabilities{}, err
	}
	for _, e := range c.Environment {
		if e == "" || strings.ContainsAny(e, "=\x00") {
			return bad("environment", "has an entry that is no variable's name")
		}
	}
	for _, e := range c.Destinations {
		if e == (endpoint.Endpoint{}) {
			return bad("network_destinations", "has an empty entry")
		}
	}
	c.Argv = append([]string{}, c.Argv...)
	c.Environment = set(c.Environment)
	c.Destinations = append([]endpoint.Endpoint{}, endpoint.Sorted(c.Destinations)...)
	return c, nil
}

// Canonical is the JSON of the normalised request: two equal requests give the
// same bytes, whoever wrote them.
func (c Capabilities) Canonical() ([]byte, error) {
	n, err := c.Normalised()
	if err != nil {
		return nil, err
	}
	return json.Marshal(n)
}

func set(list []string) []string {
	out := append([]string{}, list...)
	slices.Sort(out)
	return slices.Compact(out)
}

// pathSet wants absolute paths without "..", since what that means depends on
// links that only exist inside.
func pathSet(list []string) ([]string, error) {
	clean := make([]string, 0, len(list))
	for _, p := range list {
		if !path.IsAbs(p) || strings.ContainsRune(p, 0) || slices.Contains(strings.Split(p, "/"), "..") {
			return nil, reason.New(reason.CapabilityInvalid, "path "+quoted(p), "is not absolute, or has a part \"..\"", "name it as the program sees it inside the box")
		}
		clean = append(clean, path.Clean(p))
	}
	out := make([]string, 0, len(clean))
	// In order, so that a directory stands before what lies below it.
	for _, p := range set(clean) {
		if !slices.ContainsFunc(out, func(up string) bool { return underPath(p, up) }) {
			out = append(out, p)
		}
	}
	return out, nil
}

// underPath reports whether p is up or lies below it; both are clean.
func underPath(p, up string) bool {
	return p == up || up == "/" || strings.HasPrefix(p, up+"/")
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// Wanted is what a command line asks for under a policy: the box's own places,
// the policy's environment and wall time, and the destinations named beside it.
func Wanted(req Request, p *policy.Policy, destinations []endpoint.Endpoint) (Capabilities, error) {
	c := Capabilities{
		Argv: req.Argv, WritePaths: p.Filesystem.WritablePaths, Destinations: destinations,
		Environment: p.ProcessPolicy.EnvAllowlist, MaxRuntimeMS: p.Limits().Wall.Milliseconds(),
	}
	if len(req.Argv) > 0 {
		c.Executable = req.Argv[0]
	}
	if len(req.Inputs) > 0 {
		c.ReadPaths = p.Filesystem.InputPaths
	}
	return c.Normalised()
}

// executeCapability is the one whose refusal MakePlan words.
const executeCapability = "execute"

// Grant is one capability of a request held against the policy.
type Grant struct {
	Capability string `json:"capability"`
	Requested  string `json:"requested"`
	Allowed    bool   `json:"allowed"`
	Rule       string `json:"rule"` // the policy key that decides
}

// Granted decides each capability in a fixed order. allowed are the policy's own
// destinations; python says whether the executable was found to be a Python
// interpreter. c is normalised.
func Granted(c Capabilities, p *policy.Policy, allowed []endpoint.Endpoint, python bool) []Grant {
	var out []Grant
	add := func(capability, requested, rule string, ok bool) {
		out = append(out, Grant{capability, requested, ok, rule})
	}
	add(executeCapability, c.Executable, "process_policy.exec_allowlist", python || !p.PythonOnly())
	for _, r := range c.ReadPaths {
		add("read", r, "filesystem.input_paths", underAny(r, p.Filesystem.InputPaths))
	}
	for _, w := range c.WritePaths {
		add("write", w, "filesystem.writable_paths", underAny(w, p.Filesystem.WritablePaths))
	}
	for _, e := range c.Environment {
		add("environment", e, "process_policy.env_allowlist", slices.Contains(p.ProcessPolicy.EnvAllowlist, e))
	}
	add("runtime", p.Limits().Wall.String(), "resources.wall_workload", c.MaxRuntimeMS <= p.Limits().Wall.Milliseconds())
	for _, d := range c.Destinations {
		add("connect", d.String(), "network.allowed_destinations", slices.Contains(allowed, d))
	}
	return out
}

func underAny(p string, list []string) bool {
	return slices.ContainsFunc(list, func(up string) bool { return underPath(p, path.Clean(up)) })
}
