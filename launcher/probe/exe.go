package probe

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
)

// selfExe inspects the running binary through the kernel's own link, so that a
// file renamed or replaced since then is not mistaken for it.
func selfExe() SelfExe {
	const link = "/proc/self/exe"
	var s SelfExe
	s.Path, _ = os.Readlink(link)
	f, err := os.Open(link)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			s.WorldReadable = No
		}
		return s
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil {
		s.WorldReadable = answer(st.Mode().Perm()&0o005 == 0o005)
	}
	if dyn, err := hasInterpreter(f); err == nil {
		s.Static = answer(!dyn)
	}
	return s
}

const (
	elfHeaderSize = 64
	elfPhdrSize   = 56
	ptInterp      = 3
	maxPhdrs      = 128
)

var errNotELF = errors.New("not a 64-bit little-endian ELF file")

// hasInterpreter reports whether an ELF file asks for a dynamic loader.
// debug/elf would tell too, at the price of its package inits in every stage.
func hasInterpreter(r io.ReaderAt) (bool, error) {
	var h [elfHeaderSize]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return false, errNotELF
	}
	const class64, little = 2, 1
	if string(h[:4]) != "\x7fELF" || h[4] != class64 || h[5] != little {
		return false, errNotELF
	}
	off := binary.LittleEndian.Uint64(h[32:])
	size := binary.LittleEndian.Uint16(h[54:])
	num := binary.LittleEndian.Uint16(h[56:])
	if size != elfPhdrSize || num == 0 || num > maxPhdrs || off > 1<<40 {
		return false, errNotELF
	}
	table := make([]byte, int(num)*elfPhdrSize)
	if _, err := r.ReadAt(table, int64(off)); err != nil {
		return false, errNotELF
	}
	for i := 0; i < len(table); i += elfPhdrSize {
		if binary.LittleEndian.Uint32(table[i:]) == ptInterp {
			return true, nil
		}
	}
	return false, nil
}
