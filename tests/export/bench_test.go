package export

import (
	"slices"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// exportPhases are the parts of an export in the result, in order, after the
// start of the workload's box that export-box is held against.
var exportPhases = []string{"box", "export", "export-prepare", "export-box", "export-attest", "export-run", "export-digest"}

// phases runs a job that leaves data, n times, and returns what each phase took.
func phases(t testing.TB, s *harness.Site, data string, n int) map[string][]float64 {
	t.Helper()
	in := s.File("content", data) + ":content"
	took := map[string][]float64{}
	for range n {
		r := s.Run(harness.Job{Code: "import shutil\nshutil.copyfile('/in/content', '/out/summary.csv')\n", In: []string{in}, Deliver: s.Folder()})
		if r.Status != 0 {
			t.Fatalf("status %d\n%s", r.Status, r.Stderr)
		}
		for _, name := range exportPhases {
			ms, ok := r.Result.DurationsMS[name]
			if !ok {
				t.Fatalf("the result has no duration %s: %v", name, r.Result.DurationsMS)
			}
			took[name] = append(took[name], ms)
		}
	}
	for _, all := range took {
		slices.Sort(all)
	}
	return took
}

// TestExportersBoxStartsLikeTheWorkloads: the second box has less in it than the
// first. Both are of the same runs, and of each the fastest counts, so that
// another load is in neither or in both.
func TestExportersBoxStartsLikeTheWorkloads(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		took := phases(t, s, "a,b\n1,2\n", 12)
		for _, name := range exportPhases {
			t.Logf("%-14s best %6.1f ms, median %6.1f ms", name, took[name][0], took[name][len(took[name])/2])
		}
		if own, workload := took["export-box"][0], took["box"][0]; own > 2*workload {
			t.Errorf("the exporter's box starts in %.1f ms, the workload's in %.1f ms", own, workload)
		}
	})
}

// BenchmarkExport runs the whole job and reports medians in milliseconds: the
// export (second box, checks, copy, the launcher's own digest), its parts, and
// the start of the workload's box it is held against.
func BenchmarkExport(b *testing.B) {
	const runs = 15
	for _, c := range harness.Callers(b) {
		s := harness.NewSite(b, c)
		for name, rows := range map[string]int{"one row": 1, "1 MiB": 19900} {
			b.Run(c.Name+"/"+name, func(b *testing.B) {
				data := strings.Repeat("Abilene,2000-01,72,5380000,71400,701,6.3,some more text\n", rows)
				data = data[:min(len(data), 1<<20)]
				data = data[:strings.LastIndexByte(data, '\n')+1]
				var took map[string][]float64
				for b.Loop() {
					took = phases(b, s, data, runs)
				}
				for _, name := range exportPhases {
					b.ReportMetric(took[name][runs/2], "ms-"+name)
				}
				b.ReportMetric(took["export-box"][0]/took["box"][0], "export-box/box")
			})
		}
	}
}
