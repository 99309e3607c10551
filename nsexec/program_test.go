package nsexec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// mostly draws from the valid range lo..hi, and now and then from the wider one.
func mostly(r *rapid.T, lo, hi, low, high int) int {
	if lo > hi || rapid.IntRange(0, 400).Draw(r, "odd") == 400 {
		return rapid.IntRange(low, high).Draw(r, "wide")
	}
	return rapid.IntRange(lo, hi).Draw(r, "valid")
}

// drawArg makes an operand of any kind; blobs nest as sendmsg's do.
func drawArg(r *rapid.T, slots []*Slot, depth int) Arg {
	data := func() []byte { return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(r, "data") }
	ref := func() Ref {
		s := rapid.SampledFrom(slots).Draw(r, "slot")
		return s.at(mostly(r, 0, len(s.Init)-8, -1, len(s.Init)+8))
	}
	switch k := rapid.IntRange(0, 4).Draw(r, "kind"); {
	case k == 1:
		return bytesArg(data())
	case k == 2 && len(slots) > 0:
		return addr(ref())
	case k == 3 && len(slots) > 0 && (depth == 0 || mostly(r, 0, 0, 0, 1) == 1):
		return load(ref())
	case k == 4 && depth < 3:
		a := Arg{kind: argBlob, data: make([]byte, 8*rapid.IntRange(1, 6).Draw(r, "words"))}
		for i := range mostly(r, 0, len(a.data)/8, 0, 9) {
			a.relocs = append(a.relocs, reloc{8 * i, drawArg(r, slots, depth+1)})
		}
		return a
	}
	return imm(uintptr(rapid.Uint64().Draw(r, "imm")))
}

// Whatever the program: linking errs or stays within its mapping, keeps every
// slot's content, and points only into itself.
func TestLinkStaysWithinItsMapping(t *testing.T) {
	linked := 0
	rapid.Check(t, func(r *rapid.T) {
		p := &Program{}
		for i := range rapid.IntRange(0, 5).Draw(r, "slots") {
			s := p.slot(fmt.Sprint(i), mostly(r, 8, 70, 0, 7))
			copy(s.Init, rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(r, "init"))
		}
		steps := rapid.IntRange(0, 30).Draw(r, "steps")
		for i := range steps {
			s := Step{Name: fmt.Sprint(i), Nr: uintptr(mostly(r, 0, 0xffff, 0, 0x10010)), Rule: Rule(mostly(r, 0, min(4, 3+steps-1-i), 0, 5)), Want: rapid.Int64().Draw(r, "want"),
				To: fmt.Sprint(mostly(r, i+1, min(i+5, steps-1), 0, 40))}
			for range mostly(r, 0, 6, 0, 7) {
				s.Args = append(s.Args, drawArg(r, p.slots, 0))
			}
			if len(p.slots) > 0 && rapid.Bool().Draw(r, "stores") {
				slot := rapid.SampledFrom(p.slots).Draw(r, "out slot")
				s.Out = &Ref{slot, mostly(r, 0, len(slot.Init)-8, -1, 80)}
			}
			p.Steps = append(p.Steps, s)
		}
		im, err := p.link()
		if err != nil {
			return
		}
		defer im.free()
		linked++
		if im.used > len(im.mem)-8 { // the last eight are the pidfd's
			r.Fatalf("%d bytes used of %d", im.used, len(im.mem))
		}
		inside := func(a uint64, n int) bool {
			return a >= uint64(im.base()) && a+uint64(n) <= uint64(im.base())+uint64(im.used)
		}
		for _, s := range p.slots {
			if off := im.addrs[s]; !bytes.Equal(im.mem[off:off+len(s.Init)], s.Init) {
				r.Fatalf("slot %s was overwritten", s.Name)
			}
		}
		for i, s := range p.Steps {
			op := im.mem[i*opSize:]
			for n, a := range s.Args {
				v := binary.NativeEndian.Uint64(op[8+8*n:])
				switch a.kind {
				case argImm:
					if v != uint64(a.imm) {
						r.Fatalf("step %d: argument %d is %#x, want %#x", i, n, v, a.imm)
					}
				case argBytes, argBlob:
					if !inside(v, len(a.data)) {
						r.Fatalf("step %d: argument %d points outside", i, n)
					}
					if a.kind == argBytes && !bytes.Equal(im.mem[v-uint64(im.base()):][:len(a.data)], a.data) {
						r.Fatalf("step %d: data of argument %d was overwritten", i, n)
					}
				case argLoad:
					if !inside(v, 8) || int(v-uint64(im.base()))+8 > im.addrs[a.ref.Slot]+len(a.ref.Slot.Init) {
						r.Fatalf("step %d: argument %d loads 8 bytes that are not all of its slot", i, n)
					}
				case argAddr:
					if !inside(v, 1) {
						r.Fatalf("step %d: argument %d points outside", i, n)
					}
				}
			}
			if out := binary.NativeEndian.Uint64(op[56:]); s.Out != nil && int(out-uint64(im.base()))+8 > im.addrs[s.Out.Slot]+len(s.Out.Slot.Init) {
				r.Fatalf("step %d stores 8 bytes that are not all of its slot", i)
			}
			if to := binary.NativeEndian.Uint64(op[64:]); s.Rule == Branch && (to < uint64(im.base()) || to >= uint64(im.base())+uint64(len(p.Steps)*opSize) || (to-uint64(im.base()))%opSize != 0) {
				r.Fatalf("step %d jumps to no step", i)
			}
		}
	})
	t.Logf("%d programs linked", linked)
	if linked < 3 {
		t.Errorf("only %d of the drawn programs linked: the property was hardly tried", linked)
	}
}

func TestLinkRefuses(t *testing.T) {
	foreign := &Slot{Name: "of another program", Init: make([]byte, 8)}
	seven := func(p *Program) *Slot { return p.slot("seven", 7) }
	rows := map[string]func(*Program) Step{
		"seven arguments":          func(*Program) Step { return Step{Args: make([]Arg, 7)} },
		"a call that does not fit": func(*Program) Step { return Step{Nr: 0x10000} },
		"an unknown rule":          func(*Program) Step { return Step{Rule: Branch + 1} },
		"a jump to nowhere":        func(*Program) Step { return Step{Rule: Branch, To: "nowhere"} },
		"a jump back":              func(*Program) Step { return Step{Rule: Branch, To: "a"} },
		"a name that stands twice": func(*Program) Step { return Step{Name: "a"} },
		"another program's slot":   func(*Program) Step { return Step{Args: []Arg{addr(foreign.at(0))}} },
		"an address past a slot":   func(p *Program) Step { return Step{Args: []Arg{addr(seven(p).at(7))}} },
		"an address before it":     func(p *Program) Step { return Step{Args: []Arg{addr(seven(p).at(-1))}} },
		"a load of seven bytes":    func(p *Program) Step { return Step{Args: []Arg{load(seven(p).at(0))}} },
		"a store to seven bytes":   func(p *Program) Step { return Step{Out: &Ref{Slot: seven(p)}} },
		"an unknown argument":      func(*Program) Step { return Step{Args: []Arg{{kind: argBlob + 1}}} },
		"a load within a blob": func(p *Program) Step {
			return Step{Args: []Arg{{kind: argBlob, data: make([]byte, 8), relocs: []reloc{{0, load(p.slot("x", 8).at(0))}}}}}
		},
		"an address past a blob": func(*Program) Step {
			return Step{Args: []Arg{{kind: argBlob, data: make([]byte, 8), relocs: []reloc{{1, str("x")}}}}}
		},
	}
	for name, last := range rows {
		p := &Program{Steps: []Step{{Name: "a", Nr: unix.SYS_GETPID}}}
		s := last(p)
		if s.Name == "" {
			s.Name = "b"
		}
		p.Steps = append(p.Steps, s)
		im, err := func() (im *image, err error) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%s: panic: %v", name, r)
				}
			}()
			return p.link()
		}()
		if err == nil {
			t.Errorf("%s: linked", name)
			if im != nil {
				im.free()
			}
		}
	}
}
