package nsexec

import "testing"

func benchBox(b *testing.B, vm bool) {
	s := testSpec("/usr/bin/true")
	s.SharedVM = vm
	self := selfFD(b)
	phases := map[string]float64{}
	for b.Loop() {
		box, err := Spawn(s, Files{Self: self, Cgroup: -1, Work: -1}, nil)
		if err != nil {
			b.Fatal(err)
		}
		for k, v := range box.Phases {
			phases[k] += v.Seconds() * 1e3
		}
		box.Release()
		<-box.Done()
		box.closeStreams()
	}
	for k, v := range phases {
		b.ReportMetric(v/float64(b.N), k+"-ms")
	}
}

func BenchmarkBoxFork(b *testing.B)   { benchBox(b, false) }
func BenchmarkBoxShared(b *testing.B) { benchBox(b, true) }
