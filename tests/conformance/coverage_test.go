package conformance

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

var update = flag.Bool("update", false, "rewrite the documents of this package")

// schemaKeys are the paths of everything a policy may have: the properties of its
// JSON Schema down to what has none.
func schemaKeys(t *testing.T) (found []string) {
	t.Helper()
	data, err := policy.Schema()
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Ref        string          `json:"$ref"`
		Properties map[string]node `json:"properties"`
		Defs       map[string]node `json:"$defs"`
	}
	var root node
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, n node)
	walk = func(path string, n node) {
		if n.Ref != "" {
			n = root.Defs[strings.TrimPrefix(n.Ref, "#/$defs/")]
		}
		for k, x := range n.Properties {
			walk(strings.TrimPrefix(path+"."+k, "."), x)
		}
		if len(n.Properties) == 0 {
			found = append(found, path)
		}
	}
	walk("", root)
	if len(found) < 50 {
		t.Fatalf("the schema shows %d keys only", len(found))
	}
	return found
}

// gaps are the keys that no row stands for. A key that the specification's own
// policy leaves out needs a row of its own: none above it was written for it.
func gaps(rows []Row, manifest, schema []string) (missing []string) {
	for _, key := range append(slices.Clone(manifest), schema...) {
		covered := slices.ContainsFunc(rows, func(r Row) bool {
			return key == r.Key || strings.HasPrefix(key, r.Key+".") || strings.HasPrefix(r.Key, key+".")
		})
		own := slices.ContainsFunc(rows, func(r Row) bool { return key == r.Key })
		known := slices.ContainsFunc(manifest, func(m string) bool { return m == key || strings.HasPrefix(m, key+".") || strings.HasPrefix(key, m+".") })
		if !covered || !own && !known {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// TestGapsAreFound: the test of the table can fail, for a key of each kind.
func TestGapsAreFound(t *testing.T) {
	rows := []Row{{Key: "network"}, {Key: "degrade"}}
	got := gaps(rows, []string{"network.mode", "resources.wall"}, []string{"network.mode", "network.later", "degrade", "extends"})
	if want := []string{"extends", "network.later", "resources.wall"}; !slices.Equal(got, want) {
		t.Errorf("gaps %q, want %q", got, want)
	}
}

// keys are the paths of a policy's leaves; lists of objects with an id count by it.
func keys(path string, v any) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			found = append(found, keys(strings.TrimPrefix(path+"."+k, "."), x)...)
		}
	case []any:
		for _, x := range v {
			if m, ok := x.(map[string]any); ok && m["id"] != nil {
				found = append(found, path+"."+m["id"].(string))
				continue
			}
			return append(found, path)
		}
		if len(v) == 0 {
			found = append(found, path)
		}
	default:
		found = append(found, path)
	}
	return found
}

// TestCoverage: every key, blocker and threat has a row, every row one of these,
// and what a row names exists.
func TestCoverage(t *testing.T) {
	_, source, err := policy.Load("sales-summary")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(source.Raw, &doc); err != nil {
		t.Fatal(err)
	}
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, "_test.go") {
			data, _ := os.ReadFile(p)
			for _, m := range decl.FindAllSubmatch(data, -1) {
				tests[string(m[1])] = true
			}
		}
		return nil
	})
	rows, used := Coverage(), map[string]bool{}
	manifest, schema := keys("", doc), schemaKeys(t)
	for _, key := range gaps(rows, manifest, schema) {
		t.Errorf("no row stands for %s", key)
	}
	known, blockers, threats := append(manifest, schema...), 0, 0
	for _, r := range rows {
		switch {
		case strings.HasPrefix(r.Key, "blockers."):
			blockers++
		case strings.HasPrefix(r.Key, "matrix."):
			threats++
		default:
			continue
		}
		used[r.Key] = true
	}
	if all, ok := doc["blockers"].([]any); !ok || len(all) != blockers || threats != matrix {
		t.Errorf("%d blockers of %d, %d threats of %d", blockers, len(all), threats, matrix)
	}
	for _, key := range known {
		best := ""
		for _, r := range rows {
			if (key == r.Key || strings.HasPrefix(key, r.Key+".")) && len(r.Key) > len(best) {
				best = r.Key
			}
		}
		used[best] = true
	}
	named := map[string]bool{}
	all := All()
	for _, r := range rows {
		if !used[r.Key] {
			t.Errorf("the policy has nothing below %s", r.Key)
		}
		if _, err := os.Stat(filepath.Join(root, r.Code)); err != nil {
			t.Errorf("%s: %v", r.Key, err)
		}
		if !tests[r.Test] {
			t.Errorf("%s: there is no %s", r.Key, r.Test)
		}
		for _, id := range r.Fixtures {
			named[id] = true
			if !slices.ContainsFunc(all, func(f Fixture) bool { return f.ID == id }) {
				t.Errorf("%s: there is no fixture %s", r.Key, id)
			}
		}
	}
	for _, f := range all {
		if !named[f.ID] && f.ID != "S8" { // preparation is no key of this policy
			t.Errorf("no key is shown by fixture %s", f.ID)
		}
	}
}

func TestCoverageDoc(t *testing.T) {
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "docs", "coverage.md")
	if *update {
		if err := os.WriteFile(path, []byte(CoverageDoc()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || string(have) != CoverageDoc() {
		t.Errorf("%s is not current: make docs (%v)", path, err)
	}
}
