package launcher

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// planRow says what has to happen to the plan when a leaf of the policy is changed.
type planRow struct {
	to      any            // the new value; nil: changed by its type
	with    map[string]any // further edits, where two keys speak of one thing
	facts   func(*Facts)   // other facts than the good ones, where they decide
	refused reason.ID      // by Decode or by MakePlan
	// plan names exactly the fields that differ, outside of document, policy
	// and policy_digest; list elements go by their name or path.
	plan []string
	// carried says why the key is right to stand in the document only.
	carried string
}

// planned is one value below a plan's JSON, by path.
func planned(t *testing.T, pl *Plan) (effect, document map[string]any) {
	t.Helper()
	data, err := json.Marshal(pl)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	document = map[string]any{}
	flatten("", doc["document"], document)
	for _, key := range []string{"document", "policy", "policy_digest"} {
		delete(doc, key)
	}
	effect = map[string]any{}
	flatten("", doc, effect)
	return effect, document
}

func flatten(at string, v any, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			flatten(strings.TrimPrefix(at+"."+k, "."), x, out)
		}
	case []any:
		for i, x := range v {
			flatten(at+"["+elementName(i, x)+"]", x, out)
		}
		if len(v) == 0 {
			out[at] = "empty"
		}
	default:
		out[at] = v
	}
}

func elementName(i int, x any) string {
	if m, ok := x.(map[string]any); ok {
		for _, key := range []string{"name", "path", "dimension"} {
			if s, ok := m[key].(string); ok {
				return s
			}
		}
	}
	return strconv.Itoa(i)
}

var anyIndex = regexp.MustCompile(`\[\d+\]`)

func differing(a, b map[string]any) []string {
	seen := map[string]bool{}
	for _, pair := range [][2]map[string]any{{a, b}, {b, a}} {
		for k, v := range pair[0] {
			if w, ok := pair[1][k]; !ok || !reflect.DeepEqual(v, w) {
				seen[anyIndex.ReplaceAllString(k, "[]")] = true
			}
		}
	}
	return sortedKeys(seen)
}

// leavesOf lists the scalars and empty lists below v by path.
func leavesOf(at string, v any, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			leavesOf(strings.TrimPrefix(at+"."+k, "."), x, out)
		}
	case []any:
		for i, x := range v {
			leavesOf(at+"["+strconv.Itoa(i)+"]", x, out)
		}
		if len(v) == 0 {
			out[at] = v
		}
	default:
		out[at] = v
	}
}

func changed(v any) any {
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
	return nil // null stays: its row has to name a value
}

// rowFor finds a leaf's row: its own, or that of the nearest .* above it.
func rowFor(table map[string]planRow, pattern string) (string, planRow, bool) {
	if r, ok := table[pattern]; ok {
		return pattern, r, true
	}
	for p := pattern; strings.Contains(p, "."); {
		p = p[:strings.LastIndexByte(p, '.')]
		if r, ok := table[p+".*"]; ok {
			return p + ".*", r, true
		}
	}
	return "", planRow{}, false
}

func TestEveryKeyOfThePolicyShowsInThePlan(t *testing.T) {
	raw, _ := policy.PresetBytes("sales-summary")
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	leaves := map[string]any{}
	leavesOf("", doc, leaves)
	if len(leaves) < 230 {
		t.Fatalf("only %d leaves found", len(leaves))
	}
	table, used, counts := planRows(), map[string]bool{}, map[string]int{}
	for _, path := range sortedKeys(leaves) {
		key, row, ok := rowFor(table, anyIndex.ReplaceAllString(path, "[]"))
		if !ok {
			t.Errorf("%s: no row", path)
			continue
		}
		used[key] = true
		kind, fault := tryRow(t, path, leaves[path], row)
		if fault != "" {
			t.Errorf("%s: %s", path, fault)
		}
		counts[kind]++
	}
	var idle []string
	for key := range table {
		if !used[key] {
			idle = append(idle, key)
		}
	}
	if sort.Strings(idle); len(idle) > 0 {
		t.Errorf("rows without a leaf: %v", idle)
	}
	t.Logf("%d leaves: %v", len(leaves), counts)
}

// tryRow changes one leaf and says what it saw against its row, or "".
func tryRow(t *testing.T, path string, value any, row planRow) (kind, fault string) {
	to := row.to
	if to == nil {
		to = changed(value)
	}
	if reflect.DeepEqual(to, value) {
		return "", "is not changed"
	}
	edits := map[string]any{path: to}
	for k, v := range row.with {
		edits[k] = v
	}
	facts := goodFacts(t)
	if row.facts != nil {
		row.facts(&facts)
	}
	p, src, err := preset(t, edits)
	var after *Plan
	if err == nil {
		after, err = MakePlan(goodRequest(), p, src, facts)
	}
	if row.refused != "" {
		if idOf(err) != row.refused {
			return "", fmt.Sprintf("= %v: got %v, want a refusal with %s", to, err, row.refused)
		}
		return "refused", ""
	}
	if err != nil {
		return "", fmt.Sprintf("= %v is refused: %v", to, err)
	}
	effect, document := planned(t, mustPlan(t, facts))
	newEffect, newDocument := planned(t, after)
	if reflect.DeepEqual(document, newDocument) {
		return "", fmt.Sprintf("= %v is not even in the plan's document", to)
	}
	got := differing(effect, newEffect)
	if row.carried != "" {
		if len(got) > 0 {
			return "", fmt.Sprintf("= %v changes %v, and its row says that it is only carried", to, got)
		}
		return "carried", ""
	}
	got = underWildcards(got, row.plan)
	if len(row.plan) == 0 || !slices.Equal(got, row.plan) {
		return "", fmt.Sprintf("= %v changes\n\t%#v\nwant\n\t%#v", to, got, row.plan)
	}
	return "plan", ""
}

// underWildcards puts, for each wanted name that ends in *, that name in place of
// all those that begin like it.
func underWildcards(got, want []string) []string {
	for _, w := range want {
		prefix, wild := strings.CutSuffix(w, "*")
		if at := slices.IndexFunc(got, func(g string) bool { return strings.HasPrefix(g, prefix) }); wild && at >= 0 {
			rest := slices.DeleteFunc(slices.Clone(got[at:]), func(g string) bool { return strings.HasPrefix(g, prefix) })
			got = slices.Concat(got[:at], []string{w}, rest)
		}
	}
	return got
}

// The walk can say no: each kind of row fails on a leaf of another kind.
func TestAPlanRowCanFail(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		value any
		row   planRow
	}{
		"refused, but planned":  {"resources.wall_workload.value", 30.0, planRow{to: 29, refused: reason.PolicyUnenforceable}},
		"carried, but planned":  {"resources.wall_workload.value", 30.0, planRow{to: 29, carried: "no"}},
		"planned, but carried":  {"policy_id", "SBX-POL-WS-EVAL-001", planRow{plan: []string{"limits.Wall"}}},
		"planned, but refused":  {"network.default", "deny", planRow{plan: []string{"limits.Wall"}}},
		"another field":         {"resources.wall_workload.value", 30.0, planRow{to: 29, plan: []string{"limits.Wall"}}},
		"refused by another id": {"network.default", "deny", planRow{refused: reason.KernelTooOld}},
		"not changed":           {"policy_id", "x", planRow{to: "x", carried: "no"}},
		"nothing expected":      {"policy_id", "SBX-POL-WS-EVAL-001", planRow{}},
	} {
		if kind, fault := tryRow(t, c.path, c.value, c.row); fault == "" {
			t.Errorf("%s passes as %s", name, kind)
		}
	}
}
