package seccompgen

import (
	"testing"

	"nsbox/seccompgen/filter"
)

// With a live bind neither connect nor a datagram reaches a socket by its path,
// while pairs made inside go on working. The control is the ordinary filter.
func TestConnectDenied(t *testing.T) {
	const (
		stream, dgram, raw, seqpacket = 1, 2, 3, 5
		flags                         = 0x80800 // SOCK_CLOEXEC|SOCK_NONBLOCK
	)
	open, closed := mustCompile(t, Workload(Options{})), mustCompile(t, Workload(Options{DenyConnect: true}))
	for _, c := range []struct {
		name string
		args []uint64
		open uint32
		want uint32
	}{
		{"connect", []uint64{3, 0x1000, 110}, filter.ActAllow, eperm},
		{"socket", []uint64{1, stream | flags}, filter.ActAllow, filter.ActAllow},
		{"socket", []uint64{1, seqpacket}, filter.ActAllow, filter.ActAllow},
		{"socket", []uint64{1, dgram}, filter.ActAllow, eperm},
		{"socket", []uint64{1, dgram | flags}, filter.ActAllow, eperm},
		{"socket", []uint64{1, raw}, filter.ActAllow, eperm},
		{"socketpair", []uint64{1, stream | flags}, filter.ActAllow, filter.ActAllow},
		{"socketpair", []uint64{1, dgram}, filter.ActAllow, eperm},
		{"socket", []uint64{2, stream}, eperm, eperm},
		{"socket", []uint64{16, raw}, eperm, eperm},
	} {
		d := call(t, c.name, c.args...)
		if got := open.Run(d); got != c.open {
			t.Errorf("%s %v, ordinary filter: %#x, want %#x", c.name, c.args, got, c.open)
		}
		if got := closed.Run(d); got != c.want {
			t.Errorf("%s %v with a live bind: %#x, want %#x", c.name, c.args, got, c.want)
		}
	}
}
