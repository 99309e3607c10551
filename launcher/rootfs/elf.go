package rootfs

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds on what is believed of an ELF file; far above anything a linker makes.
const (
	maxDynamic = 1 << 20 // bytes of PT_DYNAMIC
	maxString  = 4096    // bytes of one string, the kernel's PATH_MAX
)

var (
	errNotELF    = errors.New("not an ELF file")
	errWrongArch = errors.New("wrong machine or class")
)

// image is what a loader reads of an ELF file.
type image struct {
	kind    elf.Type
	interp  string // PT_INTERP; empty if none
	soname  string
	needed  []string
	rpath   []string // DT_RPATH, split; ignored by the loader if runpath is set
	runpath []string
	noDeps  bool // DF_1_NODEFLIB: neither ld.so.cache nor default directories
}

// readImage parses path. errNotELF and errWrongArch tell apart what the caller
// reports differently.
func (r place) readImage(path string) (*image, error) {
	f, err := r.open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseImage(f)
}

func parseImage(r io.ReaderAt) (*image, error) {
	var ident [elf.EI_NIDENT]byte
	if _, err := r.ReadAt(ident[:], 0); err != nil || !bytes.HasPrefix(ident[:], []byte(elf.ELFMAG)) {
		return nil, errNotELF
	}
	// Before NewFile: it refuses some foreign files with a text of its own.
	if elf.Class(ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(ident[elf.EI_DATA]) != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("%w: %v", errWrongArch, elf.Class(ident[elf.EI_CLASS]))
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", errNotELF, err)
	}
	if f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("%w: %v", errWrongArch, f.Machine)
	}
	im := &image{kind: f.Type}
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_INTERP:
			if p.Filesz == 0 || p.Filesz > maxString {
				return nil, fmt.Errorf("%w: bad PT_INTERP", errNotELF)
			}
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				return nil, fmt.Errorf("%w: PT_INTERP: %v", errNotELF, err)
			}
			im.interp = cString(b)
		case elf.PT_DYNAMIC:
			if err := im.readDynamic(f, p); err != nil {
				return nil, fmt.Errorf("%w: PT_DYNAMIC: %v", errNotELF, err)
			}
		}
	}
	return im, nil
}

// readDynamic walks the dynamic table by program headers, as ld.so does:
// debug/elf looks for a section, which a stripped file need not have.
func (im *image) readDynamic(f *elf.File, p *elf.Prog) error {
	if p.Filesz > maxDynamic {
		return errors.New("too large")
	}
	table := make([]byte, p.Filesz)
	if _, err := p.ReadAt(table, 0); err != nil {
		return err
	}
	type ref struct {
		tag elf.DynTag
		off uint64
	}
	var refs []ref
	var strtab, strsz uint64
	for i := 0; i+16 <= len(table); i += 16 {
		tag, val := elf.DynTag(f.ByteOrder.Uint64(table[i:])), f.ByteOrder.Uint64(table[i+8:])
		if tag == elf.DT_NULL {
			break
		}
		switch tag {
		case elf.DT_STRTAB:
			strtab = val
		case elf.DT_STRSZ:
			strsz = val
		case elf.DT_FLAGS_1:
			im.noDeps = elf.DynFlag1(val)&elf.DF_1_NODEFLIB != 0
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			refs = append(refs, ref{tag, val})
		}
	}
	for _, r := range refs {
		s, err := dynString(f, strtab, strsz, r.off)
		if err != nil {
			return err
		}
		switch r.tag {
		case elf.DT_NEEDED:
			im.needed = append(im.needed, s)
		case elf.DT_SONAME:
			im.soname = s
		case elf.DT_RPATH:
			im.rpath = splitPath(s)
		case elf.DT_RUNPATH:
			im.runpath = splitPath(s)
		}
	}
	return nil
}

// dynString reads one string of the table at virtual address strtab.
func dynString(f *elf.File, strtab, strsz, off uint64) (string, error) {
	if off >= strsz {
		return "", errors.New("string outside the string table")
	}
	addr := strtab + off
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || addr < p.Vaddr || addr-p.Vaddr >= p.Filesz {
			continue
		}
		n := min(strsz-off, p.Filesz-(addr-p.Vaddr), maxString)
		b := make([]byte, n)
		if _, err := p.ReadAt(b, int64(addr-p.Vaddr)); err != nil {
			return "", err
		}
		if bytes.IndexByte(b, 0) < 0 {
			return "", errors.New("string without an end")
		}
		return cString(b), nil
	}
	return "", errors.New("string table outside every segment")
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// splitPath splits a search path; an empty element is dropped although ld.so
// takes it for the working directory, which in the box is the writable /scratch.
func splitPath(s string) []string {
	var out []string
	for e := range strings.SplitSeq(s, ":") {
		if e != "" {
			out = append(out, e)
		}
	}
	return out
}
