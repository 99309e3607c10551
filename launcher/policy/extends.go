package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// A document with "extends" is a few keys over another one: objects are merged
// key by key, everything else is replaced. It may only tighten what it extends.
// With "loosen": true it may do anything the base's own file could, if the base is
// a preset: whoever wrote a file decides what may come of it, and a preset is
// nobody's decision.

// maxExtends bounds a chain of files.
const maxExtends = 8

// overlay is a document that extends another.
type overlay struct {
	root   node
	base   string // preset's name or path as written
	loosen bool
}

// readOverlay returns the overlay that data is, or nil if it stands for itself.
func readOverlay(data []byte) (*overlay, Faults) {
	if !bytes.Contains(data, []byte(`"extends"`)) {
		return nil, nil // every other document is parsed once
	}
	var faults Faults
	root, ok := parse(data, &faults)
	if !ok || root.kind != object {
		return nil, nil // Decode says why
	}
	o := &overlay{}
	found := false
	rest := root.items[:0:0]
	for _, n := range root.items {
		switch n.key {
		case "extends":
			found = true
			if n.kind != text || n.text == "" {
				faults.add(Fault{ID: reason.PolicyInvalid, Path: "extends", Line: n.line, What: "is no name of a preset or a file", Next: `write for example "extends": "tool"`})
			}
			o.base = n.text
		case "loosen":
			if n.kind != boolean {
				faults.add(Fault{ID: reason.PolicyInvalid, Path: "loosen", Line: n.line, What: "is " + n.kind.String() + "; true or false is wanted", Next: "write true or false"})
			}
			o.loosen = n.text == "true"
		default:
			rest = append(rest, n)
		}
	}
	if !found {
		return nil, nil // a lone "loosen" is an unknown key
	}
	root.items = rest
	o.root = root
	return o, faults
}

// resolve turns an overlay into the policy it makes of its base.
func (o *overlay) resolve(name string, raw []byte, chain []string) (*Policy, string, error) {
	where := o.base
	if _, preset := PresetBytes(strings.TrimPrefix(where, presetPrefix)); !preset && !filepath.IsAbs(where) && !strings.HasPrefix(name, presetPrefix) {
		where = filepath.Join(filepath.Dir(name), where) // beside the file that names it
	}
	if slices.Contains(chain, where) || len(chain) >= maxExtends {
		return nil, "", reason.New(reason.PolicyInvalid, name, "extends "+strconv.QuoteToASCII(o.base)+", and so itself or more than "+strconv.Itoa(maxExtends)+" files", "extend a preset")
	}
	base, src, err := load(where, append(chain, where))
	if err != nil {
		return nil, "", err
	}
	whole, err := base.tree()
	if err != nil {
		return nil, "", err
	}
	var faults Faults
	p, decoded := decodeTree(merge(whole, o.root), &faults)
	if decoded {
		loose := Looser(base, p)
		switch _, preset := strings.CutPrefix(src.Arg, presetPrefix); {
		case len(loose) == 0 || o.loosen && preset:
		default:
			for _, l := range loose {
				next := "write what " + o.base + " has, or less"
				if preset {
					next += `; or "loosen": true, which a preset lets a file do`
				}
				faults.add(Fault{ID: reason.PolicyLoosens, Path: l, Line: lineIn(&o.root, l), What: "is looser than in " + o.base + ", which this file extends", Next: next})
			}
		}
	}
	if len(faults) > 0 {
		return nil, "", faults.wrap(name)
	}
	sum := sha256.Sum256(append(slices.Clone(raw), src.Digest...))
	return p, "sha256:" + hex.EncodeToString(sum[:]), nil
}

// tree is the policy's own document without lines: what a fault says of it is
// said of the file that extends it.
func (p *Policy) tree() (node, error) {
	data, err := json.Marshal(p)
	if err != nil {
		return node{}, err
	}
	var faults Faults
	root, ok := parse(data, &faults)
	if !ok {
		return node{}, faults.wrap("the policy that is extended")
	}
	clearLines(&root)
	return root, nil
}

func clearLines(n *node) {
	n.line = 0
	for i := range n.items {
		clearLines(&n.items[i])
	}
}

// merge puts over on base: members of objects one by one, all else whole.
func merge(base, over node) node {
	if base.kind != object || over.kind != object {
		over.key = base.key
		return over
	}
	out := base
	out.line = over.line
	out.items = slices.Clone(base.items)
	for _, n := range over.items {
		if i := slices.IndexFunc(out.items, func(x node) bool { return x.key == n.key }); i >= 0 {
			out.items[i] = merge(out.items[i], n)
		} else {
			out.items = append(out.items, n)
		}
	}
	return out
}

func lineIn(root *node, path string) int {
	d := decoder{root: *root}
	return d.lineOf(path)
}

// direction is how a key's value may change to be tighter.
type direction int

const (
	fixed  direction = iota // not at all: what nsbox does not know to compare
	free                    // names and remarks
	lower                   // numbers
	fewer                   // lists: a part of it
	more                    // lists: all of it and perhaps others
	ranked                  // words from loose to strict
	onceOK                  // null may become something
)

type tightening struct {
	path string
	how  direction
	rank []string
}

// tightenings is one row a key, or a prefix ending in a dot. What has no row is fixed.
func tightenings() []tightening {
	return []tightening{
		{"policy_id", free, nil}, {"policy_version", free, nil}, {"workload_id", free, nil}, {"blockers", free, nil}, {"enforcement_points", free, nil},
		{"advanced_controls.", free, nil}, {"execution_identity.host_launcher.note", free, nil}, {"evidence", free, nil}, {"isolation_backend.", free, nil},
		{"execution_identity.host_launcher.uid", onceOK, nil},
		{"filesystem.denied_mounts", more, nil}, {"filesystem.writable_paths", fewer, nil},
		{"filesystem.scratch_scope", ranked, []string{scratchExec, "per_job_tmpfs_noexec_nosuid_nodev_destroyed_at_cleanup_never_exported"}},
		{"filesystem.export_scope", free, nil}, // follows allowed_names, which are compared
		{"process_policy.seccomp.denied_classes", more, nil}, {"process_policy.env_allowlist", fewer, nil},
		{"process_policy.exec_allowlist", ranked, []string{AnyProgramInRoot, namedProgramOnly, "python_interpreter_only"}},
		{"artifact_export.allowed_names", fewer, nil}, {"artifact_export.csv_formula", ranked, []string{"", "allow", "reject"}},
		{"artifact_export.types", fewer, nil},
		{"lifecycle.concurrency", lower, nil}, {"lifecycle.cleanup_retries", lower, nil},
		{"degrade", fewer, nil}, {"rootfs.host.directories", fewer, nil}, {"network.allowed_destinations", fewer, nil}, {"endpoints", fewer, nil},
		{"resources.stdout_bytes.scope", ranked, []string{liveScope, "captured_stream"}}, {"resources.stderr_bytes.scope", ranked, []string{liveScope, "captured_stream"}},
	}
}

// Looser lists the keys in which p is looser than base, or different where
// nothing tells which is which.
func Looser(base, p *Policy) []string {
	var out []string
	a, b := base.Resources.all(), p.Resources.all()
	for i := range a {
		row := &resourceRows[i]
		x, _ := row.base(a[i])
		if y, _ := row.base(b[i]); y > x {
			out = append(out, "resources."+row.key+".value")
		}
	}
	have, want := base.values(), p.values()
	for path := range union(have, want) {
		if strings.HasPrefix(path, "resources.") && !strings.HasSuffix(path, "_bytes.scope") {
			continue // compared above; other scopes are fixed texts
		}
		if fmt.Sprint(have[path]) != fmt.Sprint(want[path]) && !tighter(path, have[path], want[path]) {
			out = append(out, path)
		}
	}
	sort.Strings(out)
	return out
}

func union(a, b map[string]any) map[string]bool {
	all := map[string]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// values are the document's scalars and lists by path.
func (p *Policy) values() map[string]any {
	out := map[string]any{}
	var doc any
	data, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil {
		return out
	}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, x := range m {
				walk(strings.TrimPrefix(path+"."+k, "."), x)
			}
			return
		}
		out[path] = v
	}
	walk("", doc)
	return out
}

func tighter(path string, was, is any) bool {
	var row *tightening
	for _, t := range tightenings() {
		if t.path == path || strings.HasSuffix(t.path, ".") && strings.HasPrefix(path, t.path) {
			row = &t
			break
		}
	}
	if row == nil {
		return false
	}
	switch row.how {
	case free:
		return true
	case onceOK:
		return was == nil
	case lower:
		x, ok := was.(float64)
		y, ok2 := is.(float64)
		return ok && ok2 && y <= x
	case fewer:
		return contains(was, is)
	case more:
		return contains(is, was)
	case ranked:
		x, _ := was.(string)
		y, _ := is.(string)
		i, j := slices.Index(row.rank, x), slices.Index(row.rank, y)
		return i >= 0 && j >= i
	}
	return false
}

// contains reports whether every element of part is in whole; nothing is an empty list.
func contains(whole, part any) bool {
	w, _ := whole.([]any)
	p, _ := part.([]any)
	return !slices.ContainsFunc(p, func(x any) bool {
		return !slices.ContainsFunc(w, func(y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) })
	})
}
