package nsexec

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rule says which results of a step let the program go on.
type Rule uint8

const (
	NoError  Rule = iota // any result that is not an error
	Any                  // any result; a failure is data
	Exactly              // the raw result equals Want; an errno is written as -errno
	Tolerate             // no error, or the raw result equals Want
	Branch               // no error; on zero the program continues at To (fork)
)

// Step is one system call of the set-up: what documentation, attestation, fault
// injection and the kernel all see.
type Step struct {
	Name  string  // kebab-case, unique within its program
	Why   string  // what would go wrong without it
	Nr    uintptr // system call number
	Args  []Arg
	Out   *Ref // where the raw result is stored, if anywhere
	Rule  Rule
	Want  int64
	To    string // Branch: name of the step to continue at
	Cap   int    // capability it needs in the box's user namespace, or noCap
	Stage string // "setup", "child" or "init"
}

const noCap = -1

// pseudoReport is the syscall number the interpreter reads as "switch the
// descriptor on which failures are reported"; the kernel never sees it.
const pseudoReport = 0xffff

// endOfProgram is a system call that no kernel has (ENOSYS). link puts it behind
// the last step: a program that runs past its exec must fail, not run its own data.
const endOfProgram = 0xfffe

// Program is the whole sequence, still without addresses. It is plain data: two
// equal Specs compile to equal Programs.
type Program struct {
	Steps []Step
	slots []*Slot
}

// Slot is memory that steps write and later steps or the launcher read.
type Slot struct {
	Name string
	Init []byte // initial content; its length is the slot's size
}

// Ref is a place within a slot.
type Ref struct {
	Slot *Slot
	Off  int
}

type argKind uint8

const (
	argImm   argKind = iota
	argBytes         // address of a read-only copy of data
	argAddr          // address of a Ref
	argLoad          // the 64 bits stored at a Ref when the step runs
	argBlob          // address of data in which relocations are filled in
)

// Arg is one operand. On amd64 the kernel cuts int-sized arguments itself, so a
// 64-bit load is right for packed descriptors too (pipe2 stores two ints).
type Arg struct {
	kind   argKind
	imm    uintptr
	data   []byte
	ref    Ref
	relocs []reloc
}

type reloc struct {
	off int
	arg Arg
}

func imm(v uintptr) Arg     { return Arg{kind: argImm, imm: v} }
func neg(v int) Arg         { return Arg{kind: argImm, imm: uintptr(v)} }
func str(s string) Arg      { return Arg{kind: argBytes, data: append([]byte(s), 0)} }
func bytesArg(b []byte) Arg { return Arg{kind: argBytes, data: b} }
func addr(r Ref) Arg        { return Arg{kind: argAddr, ref: r} }
func load(r Ref) Arg        { return Arg{kind: argLoad, ref: r} }

// vec is a NULL-terminated array of C strings, as execve takes them.
func vec(ss []string) Arg {
	a := Arg{kind: argBlob, data: make([]byte, 8*(len(ss)+1))}
	for i, s := range ss {
		a.relocs = append(a.relocs, reloc{8 * i, str(s)})
	}
	return a
}

func (p *Program) slot(name string, size int) *Slot {
	s := &Slot{Name: name, Init: make([]byte, size)}
	p.slots = append(p.slots, s)
	return s
}

func (s *Slot) at(off int) Ref { return Ref{s, off} }

// opSize is the size of one linked op; interp_amd64.s holds the layout.
const opSize = 72

// image is a linked program in memory of its own: the child's only world until
// execve. It must stay mapped until pid 1 is reaped, since a CLONE_VM child runs from it.
type image struct {
	mem   []byte
	steps []Step
	addrs map[*Slot]int
	used  int
}

// link lays out ops first, then what they point at, in one private mapping.
func (p *Program) link() (*image, error) {
	index, err := p.index()
	if err != nil {
		return nil, err
	}
	ops := (len(p.Steps) + 1) * opSize
	need := ops + 4096 // alignment, and the last eight bytes for pidfd
	for _, s := range p.slots {
		need += len(s.Init) + 8
	}
	for i := range p.Steps {
		for _, a := range p.Steps[i].Args {
			need += a.size()
		}
	}
	need = (need + 4095) &^ 4095
	// Populated at once: a page fault each costs more than zeroing all of it here.
	mem, err := unix.Mmap(-1, 0, need, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for the set-up program: %w", need, err)
	}
	im := &image{mem: mem, steps: p.Steps, used: ops, addrs: make(map[*Slot]int, len(p.slots))}
	for _, s := range p.slots {
		im.addrs[s] = im.put(s.Init)
	}
	for i := range p.Steps {
		if err := im.op(i, &p.Steps[i], index); err != nil {
			unix.Munmap(mem)
			return nil, err
		}
	}
	if err := im.op(len(p.Steps), &Step{Nr: endOfProgram}, nil); err != nil {
		unix.Munmap(mem)
		return nil, err
	}
	return im, nil
}

// index maps each step's name to its place, and refuses what an op cannot hold.
func (p *Program) index() (map[string]int, error) {
	index := make(map[string]int, len(p.Steps))
	for i, s := range p.Steps {
		if _, ok := index[s.Name]; ok {
			return nil, fmt.Errorf("step %s stands twice", s.Name)
		}
		if s.Nr > 0xffff || s.Rule > Branch || len(s.Args) > 6 {
			return nil, fmt.Errorf("step %s does not fit an op: call %#x, rule %d, %d arguments", s.Name, s.Nr, s.Rule, len(s.Args))
		}
		index[s.Name] = i
	}
	return index, nil
}

func (a Arg) size() int {
	n := len(a.data) + 16
	for _, r := range a.relocs {
		n += r.arg.size()
	}
	return n
}

func (im *image) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(im.mem))) }

// put copies b into the image, 8-aligned, and returns its offset.
func (im *image) put(b []byte) int {
	off := (im.used + 7) &^ 7
	copy(im.mem[off:off+len(b)], b)
	im.used = off + len(b)
	return off
}

func (im *image) op(i int, s *Step, index map[string]int) error {
	at := im.mem[i*opSize : (i+1)*opSize]
	header := uint64(s.Nr)&0xffff | uint64(s.Rule)<<16 | uint64(i)<<32
	for n, a := range s.Args {
		v, indirect, err := im.resolve(a)
		if err != nil {
			return fmt.Errorf("step %s: %w", s.Name, err)
		}
		if indirect {
			header |= 1 << (24 + n)
		}
		binary.NativeEndian.PutUint64(at[8+8*n:], uint64(v))
	}
	if s.Out != nil {
		v, err := im.refAddr(*s.Out, 8)
		if err != nil {
			return fmt.Errorf("step %s: %w", s.Name, err)
		}
		binary.NativeEndian.PutUint64(at[56:], uint64(v))
	}
	operand := uint64(s.Want)
	if s.Rule == Branch {
		to, ok := index[s.To]
		if !ok || to <= i { // backwards would be a loop, and a loop has no end
			return fmt.Errorf("step %s continues at %q, which does not follow it", s.Name, s.To)
		}
		operand = uint64(im.base()) + uint64(to*opSize)
	}
	binary.NativeEndian.PutUint64(at[64:], operand)
	binary.NativeEndian.PutUint64(at[0:], header)
	return nil
}

// refAddr is where r is mapped; n bytes from there on must be of its slot.
func (im *image) refAddr(r Ref, n int) (uintptr, error) {
	off, ok := im.addrs[r.Slot]
	if !ok || r.Off < 0 || r.Off+n > len(r.Slot.Init) {
		return 0, fmt.Errorf("reference outside of a slot")
	}
	return im.base() + uintptr(off+r.Off), nil
}

func (im *image) resolve(a Arg) (v uintptr, indirect bool, err error) {
	switch a.kind {
	case argImm:
		return a.imm, false, nil
	case argBytes:
		return im.base() + uintptr(im.put(a.data)), false, nil
	case argAddr:
		v, err = im.refAddr(a.ref, 1)
		return v, false, err
	case argLoad:
		v, err = im.refAddr(a.ref, 8)
		return v, true, err
	case argBlob:
		off := im.put(a.data)
		for _, r := range a.relocs {
			v, indirect, err := im.resolve(r.arg)
			if err != nil {
				return 0, false, err
			}
			if indirect || r.off < 0 || r.off+8 > len(a.data) {
				return 0, false, fmt.Errorf("relocation at %d of %d bytes, or one that only a running step could load", r.off, len(a.data))
			}
			binary.NativeEndian.PutUint64(im.mem[off+r.off:], uint64(v))
		}
		return im.base() + uintptr(off), false, nil
	}
	return 0, false, fmt.Errorf("unknown argument kind %d", a.kind)
}

// pidfd is where clone3 stores the descriptor of pid 1: in the image, since a
// goroutine's stack may move between taking an address and the call.
func (im *image) pidfd() uintptr { return im.base() + uintptr(len(im.mem)-8) }

func (im *image) readPIDFD() int {
	return int(int32(binary.NativeEndian.Uint32(im.mem[len(im.mem)-8:])))
}

func (im *image) free() {
	if im.mem != nil {
		unix.Munmap(im.mem)
		im.mem = nil
	}
}
