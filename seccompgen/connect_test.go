package seccompgen

import (
	"testing"

	"nsbox/seccompgen/filter"
)

// With a live bind neither connect nor a datagram reaches a socket by its path,
// while pairs made inside go on working: without endpoints nothing connects, with
// them nothing but TCP can be made. The controls are the ordinary filters.
func TestSocketFilesDenied(t *testing.T) {
	const (
		stream, dgram, raw, seqpacket = 1, 2, 3, 5
		flags                         = 0x80800 // SOCK_CLOEXEC|SOCK_NONBLOCK
		yes, no                       = filter.ActAllow, eperm
	)
	filters := []filter.Program{
		mustCompile(t, Workload(Options{})), mustCompile(t, Workload(Options{DenySocketFiles: true})),
		mustCompile(t, Workload(Options{Sockets: TCPSockets})), mustCompile(t, Workload(Options{Sockets: TCPSockets, DenySocketFiles: true})),
		mustCompile(t, Workload(Options{Sockets: AnySocket, DenySocketFiles: true})), // as without TCP
	}
	for _, c := range []struct {
		name string
		args []uint64
		want [5]uint32
	}{
		{"connect", []uint64{3, 0x1000, 110}, [5]uint32{yes, no, yes, yes, no}},
		{"socket", []uint64{1, stream | flags}, [5]uint32{yes, yes, yes, no, yes}},
		{"socket", []uint64{1, seqpacket}, [5]uint32{yes, yes, yes, no, yes}},
		{"socket", []uint64{1, dgram}, [5]uint32{yes, no, yes, no, no}},
		{"socket", []uint64{1, dgram | flags}, [5]uint32{yes, no, yes, no, no}},
		{"socket", []uint64{1, raw}, [5]uint32{yes, no, yes, no, no}},
		{"socketpair", []uint64{1, stream | flags}, [5]uint32{yes, yes, yes, yes, yes}},
		{"socketpair", []uint64{1, seqpacket}, [5]uint32{yes, yes, yes, yes, yes}},
		{"socketpair", []uint64{1, dgram}, [5]uint32{yes, no, yes, no, no}},
		{"socketpair", []uint64{2, stream}, [5]uint32{no, no, no, no, no}},
		{"socket", []uint64{2, stream}, [5]uint32{no, no, yes, yes, no}},
		{"socket", []uint64{10, stream | flags, 6}, [5]uint32{no, no, yes, yes, no}},
		{"socket", []uint64{2, stream, 262}, [5]uint32{no, no, no, no, no}},
		{"socket", []uint64{2, dgram}, [5]uint32{no, no, no, no, no}},
		{"socket", []uint64{16, raw}, [5]uint32{no, no, no, no, no}},
	} {
		d := call(t, c.name, c.args...)
		for i, f := range filters {
			if got := f.Run(d); got != c.want[i] {
				t.Errorf("%s %v, filter %d: %#x, want %#x", c.name, c.args, i, got, c.want[i])
			}
		}
	}
}
