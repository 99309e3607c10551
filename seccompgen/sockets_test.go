package seccompgen

import (
	"testing"

	"nsbox/seccompgen/filter"
)

// Every domain with every type, its flags, and every protocol that matters, under
// each plan; bits that the kernel does not read change nothing.
func TestSocketPlans(t *testing.T) {
	const stream = 1
	const cloexec, nonblock = 0x80000, 0x800
	plans := map[Sockets]filter.Program{}
	for _, s := range []Sockets{UnixSockets, TCPSockets, AnySocket} {
		plans[s] = mustCompile(t, Workload(Options{Sockets: s}))
	}
	allowed, tried := map[Sockets]int{}, 0
	for domain := uint64(0); domain < 64; domain++ {
		for kind := uint64(0); kind < 16; kind++ {
			for _, flags := range []uint64{0, cloexec, nonblock, cloexec | nonblock} {
				for _, protocol := range []uint64{0, 1, 2, 6, 17, 58, 132, 255, 262, 1<<32 | 6, 6 | 1<<31} {
					for _, high := range []uint64{0, 1 << 32} {
						tried++
						tcp := (domain == 2 || domain == 10) && kind == stream && (uint32(protocol) == 0 || uint32(protocol) == 6)
						want := map[Sockets]bool{UnixSockets: domain == 1, TCPSockets: domain == 1 || tcp, AnySocket: domain != 40}
						for s, prog := range plans {
							got := prog.Run(call(t, "socket", domain|high, kind|flags|high, protocol))
							if wanted := map[bool]uint32{true: filter.ActAllow, false: eperm}[want[s]]; got != wanted {
								t.Fatalf("plan %d: socket(%d, %#x, %d): %#x, want %#x", s, domain, kind|flags, protocol, got, wanted)
							}
							if got == filter.ActAllow {
								allowed[s]++
							}
							pair := map[bool]uint32{true: filter.ActAllow, false: eperm}[domain == 1]
							if got := prog.Run(call(t, "socketpair", domain, kind, protocol)); got != pair {
								t.Fatalf("plan %d: socketpair(%d, %d, %d): %#x, want %#x", s, domain, kind, protocol, got, pair)
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d calls; allowed by plan: %v", tried, allowed)
	if !(allowed[UnixSockets] < allowed[TCPSockets] && allowed[TCPSockets] < allowed[AnySocket]) {
		t.Error("the plans are not ordered by what they allow")
	}
}

// A further condition that could mean nothing, or two things, is refused.
func TestFurtherConditionsAreChecked(t *testing.T) {
	good := makingSockets(TCPSockets, false)[1]
	for name, spoil := range map[string]func(*When){
		"of a value that is none of the rule's": func(w *When) { w.More[0].Of = []Value{{"AF_VSOCK", 40}} },
		"on the same argument":                  func(w *When) { w.More[0].Arg = 0 },
		"twice on one argument":                 func(w *When) { w.More[1].Arg = 1 },
		"without a value":                       func(w *When) { w.More[0].In = nil },
		"bits outside of the mask":              func(w *When) { w.More[0].In = []Value{{"x", 0x10}} },
		"beside a pointer":                      func(w *When) { w.NonNull = 3 },
	} {
		w := *good.When
		w.More = append([]More{}, w.More...)
		spoil(&w)
		r := good
		r.When = &w
		if _, err := Compile(Profile{Name: "t", Rules: []Rule{r}}); err == nil {
			t.Errorf("%s: compiles", name)
		}
	}
	if _, err := Compile(Profile{Name: "t", Rules: []Rule{good}}); err != nil {
		t.Errorf("control: %v", err)
	}
}

// The digest tells plans apart, or one would be taken from the other's cache.
func TestSocketPlansHaveOwnDigests(t *testing.T) {
	seen := map[string]Sockets{}
	for _, s := range []Sockets{UnixSockets, TCPSockets, AnySocket} {
		d := Workload(Options{Sockets: s}).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("plans %d and %d have one digest", s, other)
		}
		seen[d] = s
	}
	p := Workload(Options{Sockets: TCPSockets})
	before := p.Digest()
	for _, r := range p.Rules {
		if r.When != nil && len(r.When.More) > 0 {
			r.When.More[1].In = r.When.More[1].In[:1]
		}
	}
	if p.Digest() == before {
		t.Error("a protocol less has the same digest")
	}
}
