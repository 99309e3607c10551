package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/reason"
)

// edited returns the manifest with values put at JSON paths; a path that ends
// in [+] appends, and the value remove{} takes a member away.
func edited(t testing.TB, edits map[string]any) []byte {
	t.Helper()
	var doc any
	if err := json.Unmarshal(manifest(t), &doc); err != nil {
		t.Fatal(err)
	}
	for path, value := range edits {
		doc = put(t, doc, steps(path), value)
	}
	out, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type remove struct{}

func steps(path string) []string {
	return strings.FieldsFunc(strings.ReplaceAll(path, "[", "."), func(r rune) bool { return r == '.' || r == ']' })
}

func put(t testing.TB, v any, path []string, value any) any {
	t.Helper()
	if len(path) == 0 {
		return value
	}
	switch v := v.(type) {
	case map[string]any:
		if _, gone := value.(remove); gone && len(path) == 1 {
			delete(v, path[0])
		} else {
			v[path[0]] = put(t, v[path[0]], path[1:], value)
		}
		return v
	case []any:
		if path[0] == "+" {
			return append(v, value)
		}
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(v) {
			t.Fatalf("no element %q", path[0])
		}
		if _, gone := value.(remove); gone && len(path) == 1 {
			return append(v[:i:i], v[i+1:]...)
		}
		v[i] = put(t, v[i], path[1:], value)
		return v
	}
	t.Fatalf("nothing at %v", path)
	return nil
}

// leaf is a scalar of the manifest or an empty list.
type leaf struct {
	path  string
	value any
}

func leavesOf(prefix string, v any) []leaf {
	var all []leaf
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			all = append(all, leavesOf(strings.TrimPrefix(prefix+"."+k, "."), x)...)
		}
	case []any:
		for i, x := range v {
			all = append(all, leavesOf(prefix+"["+strconv.Itoa(i)+"]", x)...)
		}
		if len(v) == 0 {
			all = append(all, leaf{prefix, v})
		}
	default:
		all = append(all, leaf{prefix, v})
	}
	return all
}

// expectation says what has to happen when a leaf is changed.
type expectation struct {
	to   any            // the new value; nil: changed by its type
	with map[string]any // further edits, where two keys speak of one thing
	id   reason.ID      // refused with this id
	// obeyed shows the part of the policy's effect that has to differ.
	obeyed func(*Policy) any
	// carried shows the decoded value that has to differ; nil together with
	// obeyed and id means the whole decoded policy.
	carried bool
}

func change(v any) any {
	switch v := v.(type) {
	case string:
		return v + "x"
	case float64:
		return v + 1
	case bool:
		return !v
	case []any:
		return []any{"x"}
	}
	return nil // null stays: it needs a value of its own
}

const (
	unenforceable = reason.PolicyUnenforceable
	invalid       = reason.PolicyInvalid
)

// expectations is keyed by path with list indices left out; a key that ends in
// .* holds for everything below that has none of its own.
func expectations() map[string]expectation {
	refused := expectation{id: unenforceable}
	carried := expectation{carried: true}
	limits := expectation{obeyed: func(p *Policy) any { return p.Limits() }}
	ids := expectation{obeyed: func(p *Policy) any {
		w, e := p.ExecutionIdentity.Workload, p.ExecutionIdentity.Exporter
		return []int{w.UID, w.GID, e.UID, e.GID}
	}}
	exporterUID := ids
	exporterUID.with = map[string]any{"artifact_export.validator": "exporter_container_uid_20003_no_network"}
	m := map[string]expectation{
		"policy_id": carried, "policy_version": carried, "workload_id": carried, "blockers[]": carried,
		"isolation_backend.name": refused, "isolation_backend.status": refused,
		"execution_identity.workload.uid": ids, "execution_identity.workload.gid": ids,
		"execution_identity.workload.supplementary_gids": {to: []any{4}, id: unenforceable},
		"execution_identity.exporter.uid":                exporterUID, "execution_identity.exporter.gid": ids,
		"execution_identity.host_launcher.uid": {to: 1000, obeyed: func(p *Policy) any {
			if u := p.ExecutionIdentity.HostLauncher.UID; u != nil {
				return *u
			}
			return "any"
		}},
		"execution_identity.host_launcher.note": carried,
		"execution_identity.init.setup_caps":    {to: "all", id: unenforceable},
		"execution_identity.*":                  refused,
		"filesystem.denied_mounts[]":            {to: "/srv/other", obeyed: mountTests},
		"filesystem.*":                          refused,
		"network.allowed_destinations": {to: []any{"a.example:443"}, with: map[string]any{"network.mode": exactEndpoints, "process_policy.seccomp.denied_classes": append(requiredClasses(), unixOrTCP)},
			obeyed: func(p *Policy) any { return fmt.Sprint(p.Destinations()) }},
		"network.*":                      refused,
		"process_policy.env_allowlist[]": {to: "HOME", obeyed: func(p *Policy) any { return p.Environ(1) }},
		"process_policy.exec_allowlist":  {to: namedProgramOnly, obeyed: func(p *Policy) any { return p.PythonOnly() }},
		"process_policy.*":               refused,
		"secrets_policy.*":               refused,
		"artifact_export.allowed_names[]": {to: "a.csv", with: map[string]any{"filesystem.export_scope": "per_job_host_dir_bound_at_/out_single_file_a.csv_on_operator_provisioned_bounded_tmpfs"},
			obeyed: func(p *Policy) any { return p.ArtifactExport.AllowedNames }},
		"artifact_export.source_storage_lifetime":    {to: "forever", id: unenforceable},
		"artifact_export.*":                          refused,
		"lifecycle.concurrency":                      {obeyed: func(p *Policy) any { return p.Lifecycle.Concurrency }},
		"lifecycle.cleanup_retries":                  {obeyed: func(p *Policy) any { return p.Lifecycle.CleanupRetries }},
		"lifecycle.*":                                refused,
		"enforcement_points[].implementation_status": {to: "UNKNOWN", carried: true},
		"enforcement_points[].*":                     refused,
		"advanced_controls.A1.reason":                carried,
		"advanced_controls.A2.reason":                carried,
		"advanced_controls.A3.reason":                carried,
		"advanced_controls.A4.reason":                carried,
		"advanced_controls.A5.reason":                carried,
		"advanced_controls.*":                        refused,
		"resources.memory_swap.value":                refused,
		"resources.out_file_count_accept.value":      {with: map[string]any{"filesystem.export_scope": severalFiles}, obeyed: func(p *Policy) any { return p.Limits().Out.Files }},
		"resources.attempt_hard_deadline.value":      limits,
	}
	for _, row := range resourceRows {
		for key, e := range map[string]expectation{".value": limits, ".unit": {id: invalid}, ".scope": refused, ".provisional": carried} {
			if _, ok := m["resources."+row.key+key]; !ok {
				m["resources."+row.key+key] = e
			}
		}
	}
	return m
}

// severalFiles is export_scope where more than one file may leave.
const severalFiles = "per_job_host_dir_bound_at_/out_files_of_allowed_names_on_operator_provisioned_bounded_tmpfs"

// mountTests is the visible effect of denied_mounts.
func mountTests(p *Policy) any {
	var got []string
	for _, path := range []string{"/run/docker.sock", "/home/x", "/root/x", "/run/x", "/var/run/x", "/etc/shadow", "/dev/sda", "/opt/sbx-test/mock-secret/token.txt", "/srv/other"} {
		rule, _ := p.Denies(path)
		got = append(got, path+" "+rule)
	}
	for _, path := range []string{"/proc", "/sys"} {
		rule, _ := p.DeniesTarget(path, true)
		got = append(got, path+" "+rule)
	}
	return got
}

func expect(m map[string]expectation, pattern string) (string, expectation, bool) {
	if e, ok := m[pattern]; ok {
		return pattern, e, true
	}
	for p := pattern; ; {
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			return "", expectation{}, false
		}
		p = p[:i]
		if e, ok := m[p+".*"]; ok {
			return p + ".*", e, true
		}
	}
}

func TestEveryLeafIsCarriedObeyedOrRefused(t *testing.T) {
	var doc any
	if err := json.Unmarshal(manifest(t), &doc); err != nil {
		t.Fatal(err)
	}
	leaves := leavesOf("", doc)
	if len(leaves) < 230 {
		t.Fatalf("only %d leaves found", len(leaves))
	}
	indices := regexp.MustCompile(`\[\d+\]`)
	table, used := expectations(), map[string]bool{}
	before := decodeManifest(t)
	for _, l := range leaves {
		key, e, ok := expect(table, indices.ReplaceAllString(l.path, "[]"))
		if !ok {
			t.Errorf("%s: no expectation", l.path)
			continue
		}
		used[key] = true
		to := e.to
		if to == nil {
			to = change(l.value)
		}
		if reflect.DeepEqual(to, l.value) {
			t.Errorf("%s: is not changed", l.path)
			continue
		}
		edits := map[string]any{l.path: to}
		for k, v := range e.with {
			edits[k] = v
		}
		after, err := Decode("edited", edited(t, edits))
		switch {
		case e.id != "":
			if err == nil {
				t.Errorf("%s = %v is accepted; want %s", l.path, to, e.id)
				continue
			}
			if f := faultsOf(t, err); f.Reason() != e.id || !within(f[0].Path, parent(l.path)) || len(f) > 2 {
				t.Errorf("%s = %v: got %+v; want %s there", l.path, to, f, e.id)
			}
		case err != nil:
			t.Errorf("%s = %v is refused: %v", l.path, to, err)
		case e.obeyed != nil:
			if reflect.DeepEqual(e.obeyed(before), e.obeyed(after)) {
				t.Errorf("%s = %v changes nothing that is obeyed", l.path, to)
			}
		case e.carried:
			if cmp.Equal(before, after) {
				t.Errorf("%s = %v is not carried", l.path, to)
			}
		default:
			t.Errorf("%s: the expectation %s expects nothing", l.path, key)
		}
	}
	var idle []string
	for key := range table {
		if !used[key] {
			idle = append(idle, key)
		}
	}
	if sort.Strings(idle); len(idle) > 0 {
		t.Errorf("expectations without a leaf: %v", idle)
	}
}

// parent is the list or object a fault about a leaf may be told at.
func parent(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return path
}

// Each resource value moves exactly one field of Limits.
func TestEachResourceHasItsOwnLimit(t *testing.T) {
	before := decodeManifest(t).Limits()
	seen := map[string]string{}
	for _, row := range resourceRows {
		if row.min == row.max {
			continue
		}
		var old float64
		p := decodeManifest(t)
		for i, r := range p.Resources.all() {
			if resourceRows[i].key == row.key {
				old = r.Value
			}
		}
		change := map[string]any{"resources." + row.key + ".value": old + 1}
		if row.key == "out_file_count_accept" {
			change["filesystem.export_scope"] = severalFiles
		}
		after, err := Decode("edited", edited(t, change))
		if err != nil {
			t.Errorf("%s: %v", row.key, err)
			continue
		}
		var moved []string
		differing("", reflect.ValueOf(before), reflect.ValueOf(after.Limits()), &moved)
		if len(moved) != 1 || seen[moved[0]] != "" {
			t.Errorf("%s moves %v (already moved by %q)", row.key, moved, seen[moved[0]])
			continue
		}
		seen[moved[0]] = row.key
	}
	if len(seen) != resourceCount-1 {
		t.Errorf("%d limits are moved", len(seen))
	}
}

func differing(path string, a, b reflect.Value, out *[]string) {
	if a.Kind() == reflect.Struct {
		for i := range a.NumField() {
			differing(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i), out)
		}
	} else if a.Int() != b.Int() {
		*out = append(*out, path)
	}
}
