package export

import (
	"slices"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// BenchmarkExport runs the whole job and reports medians in milliseconds: the
// export (second box, checks, copy, the launcher's own digest) and the start of
// the workload's box it is held against.
func BenchmarkExport(b *testing.B) {
	const runs = 15
	for _, c := range harness.Callers(b) {
		s := harness.NewSite(b, c)
		for name, rows := range map[string]int{"one row": 1, "1 MiB": 19900} {
			b.Run(c.Name+"/"+name, func(b *testing.B) {
				data := strings.Repeat("Abilene,2000-01,72,5380000,71400,701,6.3,some more text\n", rows)
				data = data[:min(len(data), 1<<20)]
				data = data[:strings.LastIndexByte(data, '\n')+1]
				in := s.File("content", data) + ":content"
				var export, box []float64
				for b.Loop() {
					export, box = nil, nil
					for range runs {
						r := s.Run(harness.Job{Code: "import shutil\nshutil.copyfile('/in/content', '/out/summary.csv')\n", In: []string{in}, Deliver: s.Folder()})
						if r.Status != 0 {
							b.Fatalf("status %d\n%s", r.Status, r.Stderr)
						}
						export, box = append(export, r.Result.DurationsMS["export"]), append(box, r.Result.DurationsMS["box"])
					}
				}
				slices.Sort(export)
				slices.Sort(box)
				b.ReportMetric(export[runs/2], "ms-export")
				b.ReportMetric(box[runs/2], "ms-box")
				b.ReportMetric(export[0], "ms-export-best")
				b.ReportMetric(box[0], "ms-box-best")
			})
		}
	}
}
