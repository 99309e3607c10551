package probe

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// vfsCap renders a security.capability attribute.
func vfsCap(magic uint32, words ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, magic)
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestJudgeHelper(t *testing.T) {
	const reg = unix.S_IFREG | 0o755
	setuid := 1 << capSetuid
	rev2 := vfsCap(0x02000001, uint32(setuid), 0, 0, 0)
	for _, c := range []struct {
		name string
		f    helperFile
		ok   bool
	}{
		{"setuid root", helperFile{mode: reg | unix.S_ISUID}, true},
		{"file capability", helperFile{mode: reg, caps: rev2}, true},
		{"revision 3 of the first namespace", helperFile{mode: reg, caps: vfsCap(0x03000001, uint32(setuid), 0, 0, 0, 0)}, true},
		{"plain", helperFile{mode: reg}, false},
		{"setgid only", helperFile{mode: reg | unix.S_ISGID}, false},
		{"owned by a user", helperFile{mode: reg | unix.S_ISUID, uid: 1000}, false},
		{"group may write", helperFile{mode: reg | unix.S_ISUID | 0o020}, false},
		{"others may write", helperFile{mode: reg | unix.S_ISUID | 0o002}, false},
		{"not for everybody", helperFile{mode: unix.S_IFREG | unix.S_ISUID | 0o750}, false},
		{"symbolic link", helperFile{mode: unix.S_IFLNK | 0o777}, false},
		{"directory", helperFile{mode: unix.S_IFDIR | unix.S_ISUID | 0o755}, false},
		{"nosuid mount", helperFile{mode: reg | unix.S_ISUID, nosuid: true}, false},
		{"nosuid mount, capability", helperFile{mode: reg, nosuid: true, caps: rev2}, false},
		{"other capability", helperFile{mode: reg, caps: vfsCap(0x02000001, 1<<capSetgid, 0, 0, 0)}, false},
		{"inheritable only", helperFile{mode: reg, caps: vfsCap(0x02000001, 0, uint32(setuid), 0, 0)}, false},
		{"not effective", helperFile{mode: reg, caps: vfsCap(0x02000000, uint32(setuid), 0, 0, 0)}, false},
		{"revision 3 of another namespace", helperFile{mode: reg, caps: vfsCap(0x03000001, uint32(setuid), 0, 0, 0, 1000)}, false},
		{"unknown revision", helperFile{mode: reg, caps: vfsCap(0x04000001, uint32(setuid), 0, 0, 0)}, false},
		{"cut off", helperFile{mode: reg, caps: rev2[:10]}, false},
		{"empty attribute", helperFile{mode: reg, caps: []byte{}}, false},
	} {
		if why := judgeHelper(c.f, capSetuid); (why == "") != c.ok {
			t.Errorf("%s: %q, want ok=%v", c.name, why, c.ok)
		}
	}
}

func TestHelperIgnoresPath(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"newuidmap", "no-such-helper"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	if h := findHelper("no-such-helper", capSetuid); h.OK || h.Why != "not installed" {
		t.Errorf("%+v", h)
	}
	if h := findHelper("newuidmap", capSetuid); filepath.Dir(h.Path) == dir {
		t.Errorf("%+v was found through PATH", h)
	}
	// A program that is there and has no power.
	if h := findHelper("env", capSetuid); h.OK || h.Path != "/usr/bin/env" {
		t.Errorf("env as a helper: %+v", h)
	}
}

// elf64 builds a header with program headers of the given types.
func elf64(types ...uint32) []byte {
	b := make([]byte, elfHeaderSize+len(types)*elfPhdrSize)
	copy(b, "\x7fELF\x02\x01\x01")
	binary.LittleEndian.PutUint64(b[32:], elfHeaderSize)
	binary.LittleEndian.PutUint16(b[54:], elfPhdrSize)
	binary.LittleEndian.PutUint16(b[56:], uint16(len(types)))
	for i, t := range types {
		binary.LittleEndian.PutUint32(b[elfHeaderSize+i*elfPhdrSize:], t)
	}
	return b
}

func TestHasInterpreter(t *testing.T) {
	edit := func(off int, v byte) []byte { b := elf64(6, 1); b[off] = v; return b }
	for _, c := range []struct {
		name    string
		file    []byte
		dyn, ok bool
	}{
		{"static", elf64(6, 1, 1), false, true},
		{"dynamic", elf64(6, ptInterp, 1), true, true},
		{"dynamic, last", elf64(6, 1, ptInterp), true, true},
		{"empty", nil, false, false},
		{"script", []byte("#!/bin/sh\n"), false, false},
		{"script, long", bytes.Repeat([]byte("#!/bin/sh\n"), 20), false, false},
		{"32 bit", edit(4, 1), false, false},
		{"big endian", edit(5, 2), false, false},
		{"odd entry size", edit(54, 32), false, false},
		{"no entries", edit(56, 0), false, false},
		{"too many entries", edit(57, 1), false, false},
		{"table beyond the end", edit(33, 1), false, false},
		{"absurd offset", edit(39, 0xff), false, false},
	} {
		dyn, err := hasInterpreter(bytes.NewReader(c.file))
		if (err == nil) != c.ok || dyn != c.dyn {
			t.Errorf("%s: %v, %v", c.name, dyn, err)
		}
	}
	f, err := os.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if dyn, err := hasInterpreter(f); err != nil || !dyn {
		t.Errorf("/bin/sh of a distribution: %v, %v; want dynamic", dyn, err)
	}
}

func FuzzFiles(f *testing.F) {
	f.Add(elf64(6, 3), vfsCap(0x02000001, 1<<capSetuid, 0, 0, 0))
	f.Fuzz(func(t *testing.T, elf, xattr []byte) {
		hasInterpreter(bytes.NewReader(elf))
		if grants(xattr, capSetuid) && len(xattr) != 20 && len(xattr) != 24 {
			t.Fatalf("attribute of %d bytes grants", len(xattr))
		}
	})
}
