package nsexec

import (
	"testing"
	"time"
)

// oneBox runs a trivial program in a box and gives the time from the first
// system call to the reaped pid 1.
func oneBox(b *testing.B, s *Spec, self int, phases map[string]time.Duration) time.Duration {
	start := time.Now()
	box, err := Spawn(s, Files{Self: self, Cgroup: -1, Work: -1}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for k, v := range box.Phases {
		phases[k] += v
	}
	if err := box.Release(); err != nil {
		b.Fatal(err)
	}
	if e := <-box.Done(); !e.Reported || e.Status != 0 {
		b.Fatalf("%+v", e)
	}
	took := time.Since(start)
	box.closeStreams()
	return took
}

// BenchmarkModes runs both ways to clone in turn, so that whatever else the
// machine does meets both. ballast is what the launcher's heap holds: a copy of
// the page tables costs by pages.
func BenchmarkModes(b *testing.B) {
	for name, ballast := range map[string]int{"small": 0, "heap-64MiB": 64 << 20} {
		b.Run(name, func(b *testing.B) {
			fill := make([]byte, ballast)
			for i := 0; i < len(fill); i += 4096 {
				fill[i] = 1
			}
			self := selfFD(b)
			var total [2]time.Duration
			phases := [2]map[string]time.Duration{{}, {}}
			for b.Loop() {
				for i, shared := range []bool{false, true} {
					s := testSpec("/usr/bin/true")
					s.SharedVM = shared
					total[i] += oneBox(b, s, self, phases[i])
				}
			}
			ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 / float64(b.N) }
			b.ReportMetric(ms(total[0]), "fork-ms")
			b.ReportMetric(ms(total[1]), "shared-ms")
			b.ReportMetric(float64(total[0])/float64(total[1]), "fork/shared")
			for k := range phases[0] {
				b.ReportMetric(ms(phases[0][k]), "fork-"+k+"-ms")
				b.ReportMetric(ms(phases[1][k]), "shared-"+k+"-ms")
			}
			if len(fill) > 0 && fill[0] != 1 {
				b.Fatal("the ballast is gone")
			}
		})
	}
}
