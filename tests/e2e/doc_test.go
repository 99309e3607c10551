// Package e2e shows over the built binary, as root and as a plain user, what
// nsbox promises. Each forbidden act is tried by a small Python program inside
// the box; beside it stands the same act where it is allowed, and afterwards the
// test looks at the target on the host. A limit that this host can only hold in a
// weaker form is logged as not shown.
package e2e

import (
	"os"
	"slices"
	"testing"

	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// script is a workload of tests/programs.
func script(name string) string { return "../programs/" + name }

// wantReport compares entries of a report; each may be any of its values.
func wantReport(t *testing.T, report map[string]string, want map[string][]string) {
	t.Helper()
	for name, values := range want {
		if got, tried := report[name]; !tried || !slices.Contains(values, got) {
			t.Errorf("%s: %q, want one of %q", name, got, values)
		}
	}
}

func one(value string) []string { return []string{value} }
