package rootfs

import (
	"path"
	"sort"
	"strings"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// libgcc is loaded by glibc at the first pthread_exit, named by no DT_NEEDED.
const libgcc = "libgcc_s.so.1"

// pythonVersion tells whether the ELF file real is a CPython interpreter, and
// its version ("3.11", "3.13t") if its name or its libpython says so.
func pythonVersion(real string, needed []string) (version string, isPython bool) {
	version, isPython = cutPython(path.Base(real))
	if !isPython {
		return "", false
	}
	if strings.Contains(version, ".") {
		return version, true
	}
	for _, n := range needed {
		if rest, ok := strings.CutPrefix(n, "libpython"); ok {
			if v, _, ok := strings.Cut(rest, ".so"); ok && strings.Contains(v, ".") {
				return strings.TrimSuffix(v, "d"), true // a debug build shares the directory
			}
		}
	}
	return "", true
}

// cutPython accepts python, python3, python3.11 and python3.13t; nothing like
// python3.11-config or pythonw.
func cutPython(base string) (version string, ok bool) {
	v, ok := strings.CutPrefix(base, "python")
	if !ok {
		return "", false
	}
	digits := strings.TrimSuffix(strings.TrimSuffix(v, "d"), "t")
	if strings.Trim(digits, "0123456789.") != "" || (digits == "" && v != "") {
		return "", false
	}
	return strings.TrimSuffix(v, "d"), true
}

// stdlib binds the standard library of the interpreter real. It is searched as
// CPython does: by the landmark os.py, upwards from the real binary. It returns
// the version, which may have come from the directory's name.
func (b *builder) stdlib(real, version string) (string, error) {
	dir, version := b.in.findStdlib(path.Dir(real), version)
	if dir == "" {
		return "", reason.New(reason.PythonStdlibMissing, real,
			"no directory above it holds lib/python"+orAny(version)+"/os.py, the landmark of its standard library",
			"install the interpreter's standard library (Debian: libpython3-stdlib), or name an interpreter in its own prefix")
	}
	b.stdlibDir = dir
	dirs := []string{dir}
	if lib64 := path.Join(dir, "../../lib64", path.Base(dir)); b.in.isDir(path.Join(lib64, "lib-dynload")) && lib64 != dir {
		dirs = append(dirs, lib64) // platlibdir differs from lib: extension modules live apart
	}
	for _, d := range dirs {
		at, err := b.bindDir(d)
		if err != nil {
			return "", err
		}
		if b.root.Dir == "" && b.in.isDir(path.Join(at, "site-packages")) {
			b.notes = append(b.notes, at+"/site-packages lies inside the standard library and is visible; libraries that its packages need from elsewhere are not")
		}
	}
	return version, nil
}

// findStdlib searches from dir upwards. Without a version only the binary's own
// prefix is looked at: further up lies some other interpreter's library.
func (r place) findStdlib(dir, version string) (found, foundVersion string) {
	libs := []string{"lib", "lib64"}
	if version == "" {
		for _, lib := range libs {
			base := path.Join(dir, "..", lib)
			if v, ok := r.onlyVersion(base); ok {
				return path.Join(base, "python"+v), v
			}
		}
		return "", ""
	}
	for ; ; dir = path.Dir(dir) {
		for _, lib := range libs {
			if p := path.Join(dir, lib, "python"+version); r.exists(path.Join(p, "os.py")) {
				return p, version
			}
		}
		if dir == "/" {
			return "", version
		}
	}
}

// onlyVersion returns the one version with a standard library below base; with
// several, a binary without a version in its name could belong to any.
func (r place) onlyVersion(base string) (version string, ok bool) {
	entries, err := r.readDir(base)
	if err != nil {
		return "", false
	}
	for _, e := range entries {
		v, isPython := cutPython(e.Name())
		if !isPython || !strings.Contains(v, ".") || !r.exists(path.Join(base, e.Name(), "os.py")) {
			continue
		}
		if ok {
			return "", false
		}
		version, ok = v, true
	}
	return version, ok
}

func orAny(version string) string {
	if version == "" {
		return "X.Y"
	}
	return version
}

// pythonExtras adds the libraries of the extension modules and those that only
// appear at run time. A module whose library is not on the host fails to import
// there as well: that is a note, not an error.
func (b *builder) pythonExtras(c *Closure, main *object, loaded map[string]*object) error {
	caller := main
	for name, o := range loaded {
		if strings.HasPrefix(name, "libpython") {
			caller = o // it is libpython that calls dlopen
		}
	}
	for _, n := range b.tree.sortedNodes() {
		dynload := path.Join(n.Path, "lib-dynload")
		if n.Kind != nsexec.BindDir || !b.in.isDir(dynload) {
			continue
		}
		if err := b.extensions(dynload, caller, loaded); err != nil {
			return err
		}
	}
	if b.musl {
		// has no cancellation that needs it
	} else if p, global := b.find(libgcc, main); p == "" {
		b.notes = append(b.notes, libgcc+" is not on this host: a thread that ends by pthread_exit aborts the program")
	} else if at, err := b.tree.addFile(p, nsexec.Read); err != nil {
		return err
	} else if global {
		b.libraries[libgcc] = at
	}
	if err := b.packages(b.stdlibDir, c.Python, caller, loaded); err != nil {
		return err
	}
	for _, cfg := range []string{path.Join(path.Dir(c.Program), "pyvenv.cfg"), path.Join(path.Dir(c.Program), "../pyvenv.cfg")} {
		if b.in.exists(cfg) {
			b.notes = append(b.notes, c.Program+" belongs to a virtual environment, whose packages are not in the box")
		}
	}
	return nil
}

func (b *builder) extensions(dynload string, caller *object, loaded map[string]*object) error {
	entries, err := b.in.readDir(dynload)
	if err != nil {
		return err
	}
	// Its times stand for its entries: a package upgrade renames new files into
	// place, and one stat for each module would double the cost of a cached start.
	if err := b.tree.note(dynload); err != nil {
		return err
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".so") {
			continue
		}
		file := path.Join(dynload, e.Name())
		missing, err := b.dlopened(file, caller, loaded)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			b.notes = append(b.notes, "module "+strings.SplitN(e.Name(), ".", 2)[0]+" cannot be imported: this host lacks "+strings.Join(missing, ", "))
		}
	}
	return nil
}
