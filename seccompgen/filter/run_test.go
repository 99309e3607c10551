package filter

import (
	"encoding/binary"
	"syscall"
	"testing"
)

type ins struct {
	code   uint16
	jt, jf byte
	k      uint32
}

func assemble(list ...ins) Program {
	var p Program
	for _, i := range list {
		p = binary.NativeEndian.AppendUint16(p, i.code)
		p = append(p, i.jt, i.jf)
		p = binary.NativeEndian.AppendUint32(p, i.k)
	}
	return p
}

func TestRun(t *testing.T) {
	d := Data{NR: -2, Arch: ArchAMD64, IP: 0x1122334455667788, Args: [6]uint64{0xa1a2a3a4b1b2b3b4, 5: 0xc1c2c3c4d1d2d3d4}}
	load := func(off uint32) Program { return assemble(ins{code: ldWord, k: off}, ins{code: retA}) }
	jump := func(code uint16, k uint32) Program {
		return assemble(ins{code: ldImm, k: 6}, ins{code, 0, 1, k}, ins{code: retK, k: 1}, ins{code: retK, k: 2})
	}
	for _, tc := range []struct {
		name string
		p    Program
		want uint32
	}{
		{"constant", assemble(ins{code: retK, k: 7}), 7},
		{"number", load(0), 0xfffffffe},
		{"architecture", load(4), ArchAMD64},
		{"instruction low", load(8), 0x55667788},
		{"instruction high", load(12), 0x11223344},
		{"argument 0 low", load(16), 0xb1b2b3b4},
		{"argument 0 high", load(20), 0xa1a2a3a4},
		{"argument 5 low", load(56), 0xd1d2d3d4},
		{"argument 5 high", load(60), 0xc1c2c3c4},
		{"past the end", load(64), ActKillProcess},
		{"unaligned", load(2), ActKillProcess},
		{"and", assemble(ins{code: ldImm, k: 12}, ins{code: andK, k: 6}, ins{code: retA}), 4},
		{"or", assemble(ins{code: ldImm, k: 12}, ins{code: orK, k: 3}, ins{code: retA}), 15},
		{"and x", assemble(ins{code: ldImm, k: 12}, ins{code: ldxImm, k: 6}, ins{code: andX}, ins{code: retA}), 4},
		{"moves", assemble(ins{code: ldImm, k: 9}, ins{code: tax}, ins{code: ldImm}, ins{code: txa}, ins{code: retA}), 9},
		{"memory", assemble(ins{code: ldImm, k: 9}, ins{code: store, k: 3}, ins{code: ldImm}, ins{code: ldMem, k: 3}, ins{code: retA}), 9},
		{"memory x", assemble(ins{code: ldxImm, k: 8}, ins{code: storeX, k: 15}, ins{code: ldxMem, k: 15}, ins{code: txa}, ins{code: retA}), 8},
		{"memory past the end", assemble(ins{code: ldMem, k: 16}, ins{code: retA}), ActKillProcess},
		{"jump over", assemble(ins{code: jumpA, k: 1}, ins{code: retK, k: 1}, ins{code: retK, k: 2}), 2},
		{"jump past the end", assemble(ins{code: jumpA, k: 0xffffffff}, ins{code: retK, k: 1}), ActKillProcess},
		{"equal", jump(jumpEq, 6), 1},
		{"not equal", jump(jumpEq, 7), 2},
		{"greater", jump(jumpGt, 5), 1},
		{"not greater", jump(jumpGt, 6), 2},
		{"greater or equal", jump(jumpGe, 6), 1},
		{"less", jump(jumpGe, 7), 2},
		{"bits set", jump(jumpSet, 2), 1},
		{"no bit set", jump(jumpSet, 9), 2},
		{"empty", nil, ActKillProcess},
		{"no verdict", assemble(ins{code: ldImm, k: 1}), ActKillProcess},
		{"half an instruction", Program{6, 0, 0, 0}, ActKillProcess},
		{"unknown operation", assemble(ins{code: 0xffff}, ins{code: retK, k: ActAllow}), ActKillProcess},
	} {
		if got := tc.p.Run(d); got != tc.want {
			t.Errorf("%s: %#x, want %#x", tc.name, got, tc.want)
		}
	}
}

func TestErrno(t *testing.T) {
	for _, tc := range []struct {
		verdict uint32
		want    syscall.Errno
	}{
		{ActErrno | 1, syscall.EPERM},
		{ActErrno | 38, syscall.ENOSYS},
		{ActAllow, 0},
		{ActKillProcess, 0},
		{ActKillProcess | 1, 0},
	} {
		if got := Errno(tc.verdict); got != tc.want {
			t.Errorf("%#x: %d, want %d", tc.verdict, got, tc.want)
		}
	}
}
