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

// TestCoverage: every key has a row, every row a key, and what a row names exists.
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
	for _, key := range keys("", doc) {
		best := ""
		for _, r := range rows {
			if (key == r.Key || strings.HasPrefix(key, r.Key+".")) && len(r.Key) > len(best) {
				best = r.Key
			}
		}
		if best == "" {
			t.Errorf("%s is covered by no row", key)
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
