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

// phases runs a job that leaves data, n times, and returns what each phase took
// in each run.
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
	return took
}

// TestExportersBoxStartsLikeTheWorkloads: the second box has less in it than the
// first. A busy machine can slow either of the two in any run, so what fails is
// that the second was never the faster one.
func TestExportersBoxStartsLikeTheWorkloads(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		took := phases(t, s, "a,b\n1,2\n", 12)
		faster := 0
		for i, own := range took["export-box"] {
			if own <= took["box"][i] {
				faster++
			}
		}
		for _, name := range exportPhases {
			t.Logf("%-14s best %6.1f ms, median %6.1f ms", name, slices.Min(took[name]), median(took[name]))
		}
		if faster == 0 {
			t.Errorf("in %d runs the exporter's box never started as fast as the workload's", len(took["box"]))
		}
	})
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
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
					b.ReportMetric(median(took[name]), "ms-"+name)
				}
				b.ReportMetric(slices.Min(took["export-box"])/slices.Min(took["box"]), "export-box/box")
			})
		}
	}
}
