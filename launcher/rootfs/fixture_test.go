package rootfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// fakeELF describes a file with program headers only, as a stripped one has.
type fakeELF struct {
	class   elf.Class   // zero: 64
	machine elf.Machine // zero: x86-64
	kind    elf.Type    // zero: ET_DYN
	interp  string
	soname  string
	needed  []string
	rpath   string
	runpath string
	flags1  uint64
}

func (f fakeELF) bytes() []byte {
	const base, phnum = 0x1000, 3
	strs := []byte{0}
	intern := func(s string) uint64 {
		off := uint64(len(strs))
		strs = append(append(strs, s...), 0)
		return off
	}
	var dyn []uint64
	tag := func(t elf.DynTag, v uint64) { dyn = append(dyn, uint64(t), v) }
	for _, n := range f.needed {
		tag(elf.DT_NEEDED, intern(n))
	}
	for t, s := range map[elf.DynTag]string{elf.DT_SONAME: f.soname, elf.DT_RPATH: f.rpath, elf.DT_RUNPATH: f.runpath} {
		if s != "" {
			tag(t, intern(s))
		}
	}
	if f.flags1 != 0 {
		tag(elf.DT_FLAGS_1, f.flags1)
	}
	interp := append([]byte(f.interp), 0)
	interpOff := uint64(64 + 56*phnum)
	strOff := interpOff + uint64(len(interp))
	tag(elf.DT_STRTAB, base+strOff)
	tag(elf.DT_STRSZ, uint64(len(strs)))
	tag(elf.DT_NULL, 0)
	dynOff := strOff + uint64(len(strs))
	total := dynOff + uint64(8*len(dyn))

	h := elf.Header64{Type: uint16(f.kind), Machine: uint16(f.machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: phnum, Shentsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	if f.class != 0 {
		h.Ident[elf.EI_CLASS] = byte(f.class)
	}
	if f.machine == 0 {
		h.Machine = uint16(elf.EM_X86_64)
	}
	if f.kind == 0 {
		h.Type = uint16(elf.ET_DYN)
	}
	progs := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Vaddr: base, Filesz: total, Memsz: total},
		{Type: uint32(elf.PT_DYNAMIC), Off: dynOff, Vaddr: base + dynOff, Filesz: uint64(8 * len(dyn))},
		{Type: uint32(elf.PT_NULL)},
	}
	if f.interp != "" {
		progs[2] = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: interpOff, Vaddr: base + interpOff, Filesz: uint64(len(interp))}
	}
	var b bytes.Buffer
	for _, part := range []any{h, progs, interp, strs, dyn} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// put writes a file below dir, with its directories, and returns its path.
func put(t testing.TB, dir, name string, mode os.FileMode, data []byte) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(p, mode); err != nil {
		t.Fatal(err)
	}
	return p
}

// realDir is a temporary directory named without links.
func realDir(t testing.TB) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// wantReason fails unless err carries id with a text and a next step, and says want.
func wantReason(t testing.TB, err error, id reason.ID, want string) {
	t.Helper()
	e := reason.Of(err)
	if e == nil {
		t.Fatalf("error %v is no *reason.Error; want %s", err, id)
	}
	if e.ID != id || !strings.Contains(e.Error(), want) {
		t.Errorf("got %s (%v); want %s with %q in its text", e.ID, e, id, want)
	}
	if e.What == "" || e.Why == "" || e.Next == "" || strings.ContainsAny(e.What+e.Why+e.Next, "\n\x1b") {
		t.Errorf("%s lacks what, why or next, or they are not one clean line: %+v", e.ID, e)
	}
}

func nodeAt(nodes []nsexec.Node, p string) *nsexec.Node {
	for i := range nodes {
		if nodes[i].Path == p {
			return &nodes[i]
		}
	}
	return nil
}
