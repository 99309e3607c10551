package filter

import (
	"encoding/binary"
	"syscall"
)

// Verdicts a program returns, from linux/seccomp.h. The low 16 bits are data: for
// ActErrno the error number.
const (
	ActKillProcess uint32 = 0x80000000
	ActErrno       uint32 = 0x00050000
	ActAllow       uint32 = 0x7fff0000
	actionFull     uint32 = 0xffff0000
)

// Values of Data.Arch, from linux/audit.h, and the bit of x32 call numbers.
const (
	ArchAMD64 uint32 = 0xc000003e
	ArchI386  uint32 = 0x40000003
	X32Bit    int32  = 0x40000000
)

// Data is struct seccomp_data: what the kernel shows a program about one call.
type Data struct {
	NR   int32
	Arch uint32
	IP   uint64
	Args [6]uint64
}

// Errno returns the error that the verdict makes a call fail with, or 0.
func Errno(verdict uint32) syscall.Errno {
	if verdict&actionFull != ActErrno {
		return 0
	}
	return syscall.Errno(verdict &^ actionFull)
}

// BPF operations the kernel allows in a filter and compilers of filters use, from
// linux/bpf_common.h.
const (
	ldWord  = 0x20
	ldImm   = 0x00
	ldMem   = 0x60
	ldxImm  = 0x01
	ldxMem  = 0x61
	store   = 0x02
	storeX  = 0x03
	andK    = 0x54
	andX    = 0x5c
	orK     = 0x44
	jumpA   = 0x05
	jumpEq  = 0x15
	jumpGt  = 0x25
	jumpGe  = 0x35
	jumpSet = 0x45
	tax     = 0x07
	txa     = 0x87
	retK    = 0x06
	retA    = 0x16
)

// Run returns the verdict of p on d, for tests and for showing what a filter does
// without being under it. A program that does something this interpreter does not
// know, or that ends without a verdict, kills: the kernel would not have loaded it.
func (p Program) Run(d Data) uint32 {
	var a, x uint32
	var mem [16]uint32
	if len(p)%8 != 0 {
		return ActKillProcess
	}
	for pc := 0; pc < p.Len(); pc++ {
		ins := p[pc*8:]
		code := binary.NativeEndian.Uint16(ins)
		jt, jf := int(ins[2]), int(ins[3])
		k := binary.NativeEndian.Uint32(ins[4:])
		switch code {
		case ldWord:
			w, ok := d.word(k)
			if !ok {
				return ActKillProcess
			}
			a = w
		case ldImm:
			a = k
		case ldxImm:
			x = k
		case ldMem, ldxMem, store, storeX:
			if k >= uint32(len(mem)) {
				return ActKillProcess
			}
			switch code {
			case ldMem:
				a = mem[k]
			case ldxMem:
				x = mem[k]
			case store:
				mem[k] = a
			case storeX:
				mem[k] = x
			}
		case andK:
			a &= k
		case andX:
			a &= x
		case orK:
			a |= k
		case tax:
			x = a
		case txa:
			a = x
		case jumpA:
			if k >= uint32(p.Len()) {
				return ActKillProcess
			}
			pc += int(k)
		case jumpEq:
			pc += branch(a == k, jt, jf)
		case jumpGt:
			pc += branch(a > k, jt, jf)
		case jumpGe:
			pc += branch(a >= k, jt, jf)
		case jumpSet:
			pc += branch(a&k != 0, jt, jf)
		case retK:
			return k
		case retA:
			return a
		default:
			return ActKillProcess
		}
	}
	return ActKillProcess
}

func branch(taken bool, jt, jf int) int {
	if taken {
		return jt
	}
	return jf
}

// word returns the aligned 32-bit word at byte offset off of struct seccomp_data,
// as laid out on a little-endian machine.
func (d Data) word(off uint32) (uint32, bool) {
	if off%4 != 0 || off >= 64 {
		return 0, false
	}
	switch off {
	case 0:
		return uint32(d.NR), true
	case 4:
		return d.Arch, true
	}
	v := d.IP
	if off >= 16 {
		v = d.Args[(off-16)/8]
	}
	if off%8 == 4 {
		v >>= 32
	}
	return uint32(v), true
}
