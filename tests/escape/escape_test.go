package escape

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// try is one attempt.
type try struct {
	name   string
	script string // in testdata
	args   []string
	report map[string][]string // what the program says of each try: any of the values
	// watch looks at the target before the run and returns the look after it.
	watch func(t *testing.T, s *harness.Site) func(t *testing.T, r *harness.Run)
}

// forEachTry runs a table as every caller.
func forEachTry(t *testing.T, tries []try) {
	t.Helper()
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, a := range tries {
			t.Run(a.name, func(t *testing.T) {
				var after func(*testing.T, *harness.Run)
				if a.watch != nil {
					after = a.watch(t, s)
				}
				run := s.Run(job(a.script, a.args...)).WantOK()
				wantReport(t, reportOf(t, run), a.report)
				if after != nil {
					after(t, run)
				}
			})
		}
	})
}

func job(script string, args ...string) harness.Job {
	return harness.Job{Script: filepath.Join("testdata", script), Args: args}
}

// reportOf decodes what a program printed. Run.Report would end the site's test
// and not the subtest that calls it.
func reportOf(t *testing.T, r *harness.Run) map[string]string {
	t.Helper()
	report := map[string]string{}
	if err := json.Unmarshal(r.Stdout, &report); err != nil {
		t.Fatalf("the program printed no report: %v\n%s\n%s", err, r.Stdout, r.Stderr)
	}
	return report
}

func wantReport(t *testing.T, report map[string]string, want map[string][]string) {
	t.Helper()
	for name, values := range want {
		if got, tried := report[name]; !tried || !slices.Contains(values, got) {
			t.Errorf("%s: %q, want one of %q", name, got, values)
		}
	}
}

// all gives the names in a blank-separated list the same permitted values;
// an underscore stands for a blank.
func all(names string, values ...string) map[string][]string {
	want := map[string][]string{}
	for _, name := range strings.Fields(names) {
		want[strings.ReplaceAll(name, "_", " ")] = values
	}
	return want
}

func with(parts ...map[string][]string) map[string][]string {
	want := map[string][]string{}
	for _, p := range parts {
		for name, values := range p {
			want[name] = values
		}
	}
	return want
}

// unchanged watches files of the host.
func unchanged(paths ...string) func(*testing.T, *harness.Site) func(*testing.T, *harness.Run) {
	return func(t *testing.T, _ *harness.Site) func(*testing.T, *harness.Run) {
		before := harness.Fingerprint(t, paths...)
		return func(t *testing.T, _ *harness.Run) {
			if harness.Fingerprint(t, paths...) != before {
				t.Errorf("one of %q changed", paths)
			}
		}
	}
}
