package seccompgen

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// The golden files make a changed filter visible in review.
func TestExplainGolden(t *testing.T) {
	for name, p := range profiles() {
		path := filepath.Join("testdata", strings.NewReplacer(", ", "-", " ", "-").Replace(name)+".golden")
		got := Explain(p)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (go test -update rewrites it):\n%s", path, diff)
		}
	}
}

func TestExplainNamesEveryCall(t *testing.T) {
	for name, p := range profiles() {
		words := map[string]bool{}
		for _, w := range strings.Fields(Explain(p)) {
			words[w] = true
		}
		for _, r := range p.Rules {
			for _, call := range r.Syscalls {
				if !words[call] {
					t.Errorf("%s: %s is not explained", name, call)
				}
			}
			if !strings.Contains(Explain(p), r.Why) {
				t.Errorf("%s: the reason of class %s is not shown", name, r.Class)
			}
		}
	}
}
