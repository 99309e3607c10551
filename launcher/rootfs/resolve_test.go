package rootfs

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

func TestResolveFaults(t *testing.T) {
	dir := realDir(t)
	loader := put(t, dir, "ld.so", 0o755, fakeELF{soname: "ld.so"}.bytes())
	exe := func(f fakeELF) []byte {
		if f.interp == "" {
			f.interp = loader
		}
		return f.bytes()
	}
	whole := exe(fakeELF{})
	for _, c := range []struct {
		name string
		mode os.FileMode
		data []byte
		id   reason.ID
		want string
	}{
		{"good", 0o755, whole, "", ""}, // the control: what the faults below start from
		{"good-script", 0o755, []byte("#! " + filepath.Join(dir, "good") + " -x  y \nbody\n"), "", ""},
		{"good-env", 0o755, []byte("#!/usr/bin/env good\n"), "", ""},
		{"good-env-split", 0o755, []byte("#!/usr/bin/env -S good -u -v\n"), "", ""},
		{"no-x", 0o644, whole, reason.ProgramNotExecutable, "no execute permission"},
		{"no-x-for-others", 0o750, whole, reason.ProgramNotExecutable, "mode is 0750"},
		{"empty", 0o755, nil, reason.ProgramNotExecutable, "neither an ELF"},
		{"text", 0o755, []byte("echo hello\n"), reason.ProgramNotExecutable, "neither an ELF"},
		{"cut-short", 0o755, whole[:100], reason.ProgramNotExecutable, "neither an ELF"},
		{"object", 0o755, exe(fakeELF{kind: elf.ET_REL}), reason.ProgramNotExecutable, "not a program"},
		{"core", 0o755, exe(fakeELF{kind: elf.ET_CORE}), reason.ProgramNotExecutable, "not a program"},
		{"library", 0o755, fakeELF{soname: "libx.so.1"}.bytes(), reason.ProgramNotExecutable, "not a program"},
		{"arm64", 0o755, exe(fakeELF{machine: elf.EM_AARCH64}), reason.ProgramWrongArch, "EM_AARCH64"},
		{"class32", 0o755, exe(fakeELF{class: elf.ELFCLASS32}), reason.ProgramWrongArch, "ELFCLASS32"},
		{"no-loader", 0o755, exe(fakeELF{interp: "/lib64/ld-absent.so.2"}), reason.LoaderMissing, "/lib64/ld-absent.so.2 is missing"},
		{"relative-loader", 0o755, exe(fakeELF{interp: "ld.so"}), reason.LoaderMissing, "not named by an absolute path"},
		{"no-library", 0o755, exe(fakeELF{needed: []string{"libabsent.so.9"}}), reason.LibraryMissing, "libabsent.so.9"},
		{"script-no-interp", 0o755, []byte("#!/absent/python\n"), reason.InterpreterMissing, "/absent/python"},
		{"script-relative", 0o755, []byte("#!python3\n"), reason.InterpreterMissing, "no absolute path"},
		{"script-bare", 0o755, []byte("#!\n"), reason.InterpreterMissing, "no absolute path"},
		{"script-crlf", 0o755, []byte("#!/usr/bin/python3\r\nprint()\r\n"), reason.InterpreterMissing, "carriage return"},
		{"script-env-absent", 0o755, []byte("#!/usr/bin/env absent-program\n"), reason.InterpreterMissing, "absent-program"},
		{"script-env-var", 0o755, []byte("#!/usr/bin/env -S A=1 good\n"), reason.InterpreterMissing, "does not interpret"},
		{"script-env-words", 0o755, []byte("#!/usr/bin/env good -u\n"), reason.InterpreterMissing, "does not interpret"},
		{"script-of-script", 0o755, []byte("#!" + filepath.Join(dir, "good-script") + "\n"), reason.InterpreterMissing, "itself a script"},
		{"script-of-text", 0o755, []byte("#!" + filepath.Join(dir, "text") + "\n"), reason.InterpreterMissing, "cannot be run"},
		{"script-long", 0o755, []byte("#!/" + strings.Repeat("x", 300) + "\n"), reason.ProgramNotExecutable, "longer than 255"},
		{"script-unreadable", 0o711, []byte("#!" + filepath.Join(dir, "good") + "\n"), reason.RootfsSourceUnreadable, "mode is 0711"},
	} {
		put(t, dir, c.name, c.mode, c.data)
		t.Run(c.name, func(t *testing.T) {
			for _, cmd := range []string{c.name, filepath.Join(dir, c.name)} {
				_, err := Resolve(cmd, []string{"/absent", dir})
				if c.id == "" {
					if err != nil {
						t.Errorf("%s: %v", cmd, err)
					}
					continue
				}
				wantReason(t, err, c.id, c.want)
			}
		})
	}
	for cmd, id := range map[string]reason.ID{
		"":                reason.ProgramNotFound,
		"a\x00b":          reason.ProgramNotFound,
		"absent":          reason.ProgramNotFound,
		"./good":          reason.ProgramNotFound,
		dir + "/absent":   reason.ProgramNotFound,
		dir:               reason.ProgramNotExecutable,
		dir + "/good/sub": reason.ProgramNotExecutable,
	} {
		_, err := Resolve(cmd, []string{dir})
		wantReason(t, err, id, "")
	}
}

func TestScriptArguments(t *testing.T) {
	dir := realDir(t)
	good := put(t, dir, "good", 0o755, fakeELF{}.bytes())
	for line, want := range map[string][]string{
		"#!" + good + "\n":               {},
		"#!" + good:                      {}, // no line end
		"#! " + good + " -x  y \t\n":     {"-x  y"},
		"#!/usr/bin/env good\n":          {},
		"#!/usr/bin/env -S good -u -v":   {"-u", "-v"},
		"#!/bin/env --split-string good": {},
	} {
		s := put(t, dir, "script", 0o755, []byte(line))
		c, err := Resolve(s, []string{dir})
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if c.Program != good || !slices.Equal(c.Args, append(want, s)) {
			t.Errorf("%q: program %s args %q; want %s %q", line, c.Program, c.Args, good, append(want, s))
		}
		if n := nodeAt(c.Nodes, s); n == nil || n.Access != nsexec.Read {
			t.Errorf("%q: the script's node is %+v; want it readable and no more", line, n)
		}
	}
}

// The search order decides which of several files of one name the box gets.
func TestLibrarySearch(t *testing.T) {
	lib := func(f fakeELF) []byte { f.soname = "lib.so"; return f.bytes() }
	leaf := fakeELF{}
	for name, c := range map[string]struct {
		files map[string][]byte // below the root; "bin/prog" is run
		want  []string          // bound libraries
		miss  string
	}{
		"runpath-origin": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, runpath: "$ORIGIN/../lib"}.bytes(),
			"lib/libt1.so": leaf.bytes()}, []string{"lib/libt1.so"}, ""},
		"braces": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, runpath: "/absent:${ORIGIN}/../lib"}.bytes(),
			"lib/libt1.so": leaf.bytes()}, []string{"lib/libt1.so"}, ""},
		"rpath-is-inherited": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, rpath: "$ORIGIN/../lib"}.bytes(),
			"lib/libt1.so": fakeELF{needed: []string{"libt2.so"}}.bytes(),
			"lib/libt2.so": leaf.bytes()}, []string{"lib/libt1.so", "lib/libt2.so"}, ""},
		"runpath-is-not": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, runpath: "$ORIGIN/../lib"}.bytes(),
			"lib/libt1.so": fakeELF{needed: []string{"libt2.so"}}.bytes(),
			"lib/libt2.so": leaf.bytes()}, nil, "libt2.so"},
		"runpath-silences-rpath": {map[string][]byte{
			"bin/prog":       fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, rpath: "$ORIGIN/a", runpath: "$ORIGIN/b"}.bytes(),
			"bin/a/libt1.so": leaf.bytes()}, nil, "libt1.so"},
		"rpath-beside-runpath-is-not-inherited": {map[string][]byte{
			"bin/prog":       fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, rpath: "$ORIGIN/../lib", runpath: "$ORIGIN/a"}.bytes(),
			"bin/a/libt1.so": fakeELF{needed: []string{"libt2.so"}}.bytes(),
			"lib/libt2.so":   leaf.bytes()}, nil, "libt2.so"},
		"foreign-file-is-passed-over": {map[string][]byte{
			"bin/prog":       fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, runpath: "$ORIGIN/a:$ORIGIN/b"}.bytes(),
			"bin/a/libt1.so": fakeELF{class: elf.ELFCLASS32}.bytes(),
			"bin/b/libt1.so": leaf.bytes()}, []string{"bin/b/libt1.so"}, ""},
		"soname-counts-as-loaded": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so", "lib.so"}, runpath: "$ORIGIN"}.bytes(),
			"bin/libt1.so": lib(fakeELF{})}, []string{"bin/libt1.so"}, ""},
		"cycle": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, rpath: "$ORIGIN"}.bytes(),
			"bin/libt1.so": fakeELF{needed: []string{"libt2.so"}}.bytes(),
			"bin/libt2.so": fakeELF{needed: []string{"libt1.so"}}.bytes()}, []string{"bin/libt1.so", "bin/libt2.so"}, ""},
		"no-default-directories": {map[string][]byte{
			"bin/prog": fakeELF{kind: elf.ET_EXEC, needed: []string{"libc.so.6"}, flags1: uint64(elf.DF_1_NODEFLIB)}.bytes()}, nil, "libc.so.6"},
		"relative-entry-is-no-working-directory": {map[string][]byte{
			"bin/prog":     fakeELF{kind: elf.ET_EXEC, needed: []string{"libt1.so"}, runpath: ":."}.bytes(),
			"bin/libt1.so": leaf.bytes()}, nil, "libt1.so"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realDir(t)
			for f, b := range c.files {
				put(t, dir, f, 0o755, b)
			}
			t.Chdir(filepath.Join(dir, "bin"))
			got, err := Resolve(filepath.Join(dir, "bin/prog"), nil)
			if c.miss != "" {
				wantReason(t, err, reason.LibraryMissing, c.miss)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var bound []string
			for _, n := range got.Nodes {
				if n.Kind == nsexec.BindFile && n.Access == nsexec.Read {
					bound = append(bound, strings.TrimPrefix(n.Path, dir+"/"))
				}
			}
			if !slices.Equal(bound, c.want) {
				t.Errorf("bound %v, want %v", bound, c.want)
			}
			if len(got.Libraries) != 0 {
				t.Errorf("libraries found by the object's own paths entered ld.so.cache: %v", got.Libraries)
			}
		})
	}
}

func TestLinksAreKept(t *testing.T) {
	dir := realDir(t)
	put(t, dir, "v2/bin/prog-2", 0o755, fakeELF{needed: []string{"libt1.so"}, runpath: "$ORIGIN/../lib"}.bytes())
	put(t, dir, "v2/lib/libt1.so.1.2", 0o644, fakeELF{}.bytes())
	for link, target := range map[string]string{"cur": "v2", "v2/bin/prog": "./../bin/prog-2", "v2/lib/libt1.so": "libt1.so.1.2",
		"entry": dir + "/cur/bin/prog", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Resolve(filepath.Join(dir, "entry"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]nsexec.Node{
		"cur":                 {Kind: nsexec.Symlink, Source: "v2"},
		"entry":               {Kind: nsexec.Symlink, Source: dir + "/cur/bin/prog"},
		"v2/bin/prog":         {Kind: nsexec.Symlink, Source: "./../bin/prog-2"},
		"v2/bin/prog-2":       {Kind: nsexec.BindFile, Source: dir + "/v2/bin/prog-2", Access: execute},
		"v2/lib/libt1.so":     {Kind: nsexec.BindFile, Source: dir + "/v2/lib/libt1.so.1.2", Access: nsexec.Read},
		"v2/lib/libt1.so.1.2": {},
	} {
		want.Path = filepath.Join(dir, p)
		n := nodeAt(c.Nodes, want.Path)
		if want.Kind == "" {
			if n != nil {
				t.Errorf("%s is in the box under a name nobody asks for", p)
			}
			continue
		}
		if n == nil || n.Kind != want.Kind || n.Source != want.Source || n.Access != want.Access {
			t.Errorf("%s: node %+v, want %+v", p, n, want)
		}
	}
	_, err = Resolve(filepath.Join(dir, "loop"), nil)
	wantReason(t, err, reason.ProgramNotExecutable, "loop")
}

func TestPythonVersion(t *testing.T) {
	for base, want := range map[string]string{
		"python": "?", "python3": "?", "python3.11": "3.11", "python3.13t": "3.13t", "python3.11d": "3.11",
		"python3.11-config": "", "pythonw": "", "python-": "", "pypy3": "", "xpython3.11": "", "bash": "", "pythont": "",
	} {
		v, ok := pythonVersion("/x/"+base, nil)
		if got := map[bool]string{true: cmpOr(v, "?"), false: ""}[ok]; got != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
	if v, ok := pythonVersion("/x/python3", []string{"libc.so.6", "libpython3.9.so.1.0"}); !ok || v != "3.9" {
		t.Errorf("version from libpython: %q %v", v, ok)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func TestStdlibLandmark(t *testing.T) {
	for name, c := range map[string]struct {
		exe, libs string // space-separated directories that hold os.py
		version   string
		dir       string
		needs     reason.ID
	}{
		"prefix":       {"bin/python3.7", "lib/python3.7", "3.7", "lib/python3.7", ""},
		"lib64":        {"bin/python3.7", "lib64/python3.7", "3.7", "lib64/python3.7", ""},
		"unversioned":  {"bin/python3", "lib/python3.7", "3.7", "lib/python3.7", ""},
		"ambiguous":    {"bin/python3", "lib/python3.7 lib/python3.8", "", "", reason.PythonStdlibMissing},
		"other":        {"bin/python3.9", "lib/python3.7", "", "", reason.PythonStdlibMissing},
		"no-landmark":  {"bin/python3.7", "", "", "", reason.PythonStdlibMissing},
		"build-nested": {"a/b/bin/python3.7", "lib/python3.7", "3.7", "lib/python3.7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realDir(t)
			exe := put(t, dir, c.exe, 0o755, fakeELF{}.bytes())
			for _, l := range strings.Fields(c.libs) {
				put(t, dir, l+"/os.py", 0o644, nil)
			}
			got, err := Resolve(exe, nil)
			if c.needs != "" {
				wantReason(t, err, c.needs, "os.py")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n := nodeAt(got.Nodes, filepath.Join(dir, c.dir))
			if got.Python != c.version || n == nil || n.Kind != nsexec.BindDir || n.Access != nsexec.Read|nsexec.List {
				t.Errorf("version %q, node %+v", got.Python, n)
			}
		})
	}
}

func TestNotesSayWhatIsMissed(t *testing.T) {
	dir := realDir(t)
	put(t, dir, "lib/python3.7/os.py", 0o644, nil)
	put(t, dir, "lib/python3.7/site-packages/x.py", 0o644, nil)
	put(t, dir, "lib/python3.7/lib-dynload/_tk.cpython-37.so", 0o644, fakeELF{needed: []string{"libabsent.so.8"}}.bytes())
	put(t, dir, "lib/python3.7/lib-dynload/junk.so", 0o644, []byte("no ELF"))
	put(t, dir, "pyvenv.cfg", 0o644, nil)
	c, err := Resolve(put(t, dir, "bin/python3.7", 0o755, fakeELF{}.bytes()), nil)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(c.Notes, "\n")
	for _, want := range []string{"site-packages lies inside", "module _tk cannot be imported: this host lacks libabsent.so.8", "virtual environment"} {
		if !strings.Contains(all, want) {
			t.Errorf("notes lack %q:\n%s", want, all)
		}
	}
}

// No file, however broken, may do more than be refused.
func TestBrokenELFIsRefused(t *testing.T) {
	whole := fakeELF{interp: "/ld.so", needed: []string{"a", "b"}, runpath: "/x", soname: "s"}.bytes()
	if _, err := parseImage(strings.NewReader(string(whole))); err != nil {
		t.Fatal(err) // the control
	}
	refused := 0
	for i := range whole {
		for _, v := range []byte{0, 0x7f, 0xff} {
			b := slices.Clone(whole)
			b[i] = v
			if _, err := parseImage(strings.NewReader(string(b))); err != nil {
				refused++
			}
		}
		_, _ = parseImage(strings.NewReader(string(whole[:i])))
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}
