package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

const execute = nsexec.Execute | nsexec.Read

// Closure is a program with every host file it needs, and no other.
type Closure struct {
	Command string   // host path that was resolved, before links
	Program string   // absolute path to execve inside the box
	Args    []string // to stand between argv[0] and the operator's arguments: a script and what its "#!" line adds
	Path    []string // of added roots, in front of PATH
	Real    string   // host path of the ELF file behind Program
	Python  string   // "3.11" if Program is a CPython interpreter with its standard library; else empty
	Binds   []Bind   // what the operator shows of the host besides
	Whole   bool     // the root is more than this program's files: its loader cache is its own
	Nodes   []nsexec.Node
	// Libraries are those the loader finds by ld.so.cache or default directory.
	Libraries []Library
	Files     []FileID // what Nodes and the search rest on
	Notes     []string // one line each: what an operator may miss inside
	Digest    string   // hex SHA-256 over all of the above
}

// Library is one entry of the box's ld.so.cache.
type Library struct {
	Name string // as in DT_NEEDED
	Path string // inside the box
}

// Check compares every file with its recorded identity. The error is a
// *reason.Error with id RootfsSourceChanged and names the first that differs.
func (c *Closure) Check() error {
	for _, want := range c.Files {
		got, err := identify(want.Path, want.Link)
		if err == nil && got == want {
			continue
		}
		return reason.Wrap(reason.RootfsSourceChanged, want.Path,
			"is not the file that was examined for the box's root",
			"run again; if it repeats, wait until the package upgrade on this host is done", err)
	}
	return nil
}

// DefaultSearchPath is where a bare program name is looked up; never the
// caller's PATH.
func DefaultSearchPath() []string { return []string{"/usr/local/bin", "/usr/bin", "/bin"} }

// Root says where a program is looked for, and how much of what lies there the
// box gets.
type Root struct {
	// Dir is the host directory that holds the root; "" is the host's own. With an
	// interpreter of a Dir come the packages installed there; those of the host
	// do not: nobody pinned them.
	Dir string
	// Whole takes all of Dir and not one program's closure.
	Whole bool
	// Prepared is a host directory of packages, on the interpreter's search path;
	// "" for none. PreparedFor is the Python version it was made for.
	Prepared, PreparedFor string
	// Packages brings those of the host's own root too, for the installer.
	Packages bool
	// Pin names the content of Dir and Prepared; a closure is kept under it.
	Pin string
}

// Resolve finds the program cmd on the host; see Root.Resolve.
func Resolve(cmd string, searchPath []string) (*Closure, error) {
	return Root{}.Resolve(cmd, searchPath)
}

// Resolve finds the program cmd (a bare name searched in searchPath, which may
// be nil for the default, or an absolute path of the root) and computes its
// closure. Every error is a *reason.Error.
func (r Root) Resolve(cmd string, searchPath []string) (*Closure, error) {
	if searchPath == nil {
		searchPath = DefaultSearchPath()
	}
	p, err := place{dir: r.Dir}.lookup(cmd, searchPath)
	if err != nil {
		return nil, err
	}
	return r.resolve(p, searchPath)
}

func (r Root) resolve(command string, searchPath []string) (*Closure, error) {
	b := newBuilder(r)
	if err := b.mergedUsr(); err != nil {
		return nil, explain(command, err)
	}
	c := &Closure{Command: command, Program: command}
	bang, err := b.in.readShebang(command)
	if err != nil {
		return nil, err
	}
	if bang != nil {
		if c.Program, c.Args, err = bang.command(b.in, command, searchPath); err != nil {
			return nil, err
		}
		if err := b.script(command); err != nil {
			return nil, explain(command, err)
		}
	}
	if err := b.program(c); err != nil {
		if bang != nil && reason.Of(err) != nil && reason.Of(err).ID == reason.ProgramNotExecutable {
			return nil, reason.Wrap(reason.InterpreterMissing, command,
				"the interpreter on its first line cannot be run", "name a script interpreter that is an ELF program", err)
		}
		return nil, explain(c.Program, err)
	}
	if r.Prepared != "" && c.Python == "" {
		return nil, reason.New(reason.PreparedNotUsable, c.Program, "is no Python interpreter, which prepared packages are for", "start a script with python3, or take rootfs.prepared out of the policy")
	}
	if r.Whole {
		if err := b.whole(); err != nil {
			return nil, explain(r.Dir, err)
		}
	}
	c.Nodes, c.Files, c.Notes = b.tree.sortedNodes(), b.tree.sortedIDs(), b.notes
	for name, p := range b.libraries {
		c.Libraries = append(c.Libraries, Library{name, p})
	}
	sort.Slice(c.Libraries, func(i, j int) bool { return c.Libraries[i].Name < c.Libraries[j].Name })
	c.Digest = digestOf(encodeClosure(c))
	return c, nil
}

// explain turns what the host's filesystem said into an error a user can act on.
func explain(what string, err error) error {
	if reason.Of(err) != nil {
		return err
	}
	id, next := reason.RootfsSourceUnreadable, "make the file readable for the user that runs nsbox, or use another program"
	if errors.Is(err, fs.ErrNotExist) {
		id, next = reason.RootfsSourceChanged, "run again; a file vanished while it was examined"
	}
	return reason.Wrap(id, what, "a file it needs could not be examined", next, err)
}

// builder gathers one closure.
type builder struct {
	root      Root
	in        place
	tree      *tree
	ldcache   map[string]string // the root's ld.so.cache
	musl      bool              // the program's loader is musl's, which searches by other rules
	muslDirs  []string          // of its path file; nil if there is none
	images    map[string]*image // memo by path; nil: not usable
	libraries map[string]string
	stdlibDir string // of the interpreter; empty for another program
	notes     []string
}

func newBuilder(r Root) *builder {
	in := place{dir: r.Dir}
	b := &builder{root: r, in: in, tree: newTree(in), images: map[string]*image{}, libraries: map[string]string{}}
	raw, err := in.readSmall("/etc/ld.so.cache")
	if err == nil {
		err = b.tree.note("/etc/ld.so.cache")
	}
	if err != nil {
		raw = nil // a root without the file has only the default directories
	}
	b.ldcache = parseLDCache(raw)
	return b
}

// mergedUsr keeps /bin, /sbin, /lib and /lib64 as the host has them, used or
// not: programs name their loader and interpreters through them.
func (b *builder) mergedUsr() error {
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
		at, err := b.tree.walk(p, true)
		if errors.Is(err, fs.ErrNotExist) {
			delete(b.tree.nodes, p) // absent, or a link to nothing
			continue
		}
		if err == nil {
			err = b.tree.add(nsexec.Node{Path: at, Kind: nsexec.Dir, Mode: 0o755})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// script binds a "#!" file where the operator named it.
func (b *builder) script(p string) error {
	at, err := b.tree.walk(p, true)
	if err != nil {
		return err
	}
	_, err = b.tree.addFile(at, nsexec.Read)
	return err
}

// program adds c.Program, its loader, its libraries and, for Python, the rest.
func (b *builder) program(c *Closure) error {
	real, err := b.tree.walk(c.Program, true)
	if err != nil {
		return err
	}
	c.Real = real
	im, err := b.in.readImage(real)
	switch {
	case errors.Is(err, errWrongArch):
		return reason.Wrap(reason.ProgramWrongArch, c.Program, "it is not a 64-bit x86-64 program",
			"use a build of the program for x86-64", err)
	case errors.Is(err, errNotELF):
		return reason.Wrap(reason.ProgramNotExecutable, c.Program, `it is neither an ELF program nor a script with a "#!" line`,
			"start it through its interpreter", err)
	case err != nil:
		return reason.Wrap(reason.ProgramNotExecutable, c.Program, "it cannot be read", "make it readable for the user that runs nsbox", err)
	case !runnable(im):
		return reason.New(reason.ProgramNotExecutable, c.Program, fmt.Sprintf("it is an ELF file of type %v, not a program", im.kind),
			"name the program, not an object or a core file")
	}
	if _, err := b.tree.addFile(real, execute); err != nil {
		return err
	}
	main := &object{image: im, origin: path.Dir(real)}
	loaded := map[string]*object{}
	if im.interp != "" {
		if err := b.loader(c.Program, im.interp, loaded); err != nil {
			return err
		}
	}
	version, isPython := pythonVersion(real, im.needed)
	if isPython {
		// Before the libraries: one that lies inside the bound directory needs no entry.
		if version, err = b.stdlib(real, version); err != nil {
			return err
		}
		c.Python = version
	}
	missing, err := b.libs(main, loaded)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return reason.New(reason.LibraryMissing, c.Program, "it needs the library "+missing[0]+", which is not where its loader looks",
			"install the package that holds "+missing[0])
	}
	if im.interp != "" && !b.musl {
		if err := b.data(isPython); err != nil {
			return err
		}
	}
	if isPython {
		return b.pythonExtras(c, main, loaded)
	}
	return nil
}

// loader binds the program interpreter and marks its names as loaded: libraries
// that need it get the one the kernel mapped.
func (b *builder) loader(program, interp string, loaded map[string]*object) error {
	if !path.IsAbs(interp) {
		return reason.New(reason.LoaderMissing, program, "its ELF loader "+interp+" is not named by an absolute path", "use a regular build of the program")
	}
	if _, err := b.in.stat(interp); err != nil {
		return reason.Wrap(reason.LoaderMissing, program, "its ELF loader "+interp+" is missing",
			"install the C library the program was built for (its package holds "+interp+")", err)
	}
	if _, err := b.tree.addFile(interp, execute); err != nil {
		return err
	}
	im, err := b.in.readImage(interp)
	if err != nil {
		return reason.Wrap(reason.LoaderMissing, program, "its ELF loader "+interp+" is unusable", "reinstall the C library", err)
	}
	o := &object{image: im, origin: path.Dir(interp)}
	loaded[path.Base(interp)] = o
	if isMusl(interp) {
		if err := b.muslRules(o, interp, loaded); err != nil {
			return err
		}
	}
	if im.soname != "" {
		loaded[im.soname] = o
	}
	return nil
}
