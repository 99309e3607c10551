package rootfs

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// maxModules bounds the extension modules that are looked at in packages; a
// scientific Debian root has some 600.
const maxModules = 20000

// packageDirs are the directories of a root that its interpreter searches for
// installed packages, the place for prepared ones first. Debian's own site.py
// looks into dist-packages and keeps the first for what the administrator adds;
// elsewhere there is one, inside the standard library (site.py, getsitepackages).
func (b *builder) packageDirs(stdlib, version string) []string {
	site, err := b.in.readSmall(path.Join(stdlib, "site.py"))
	if err == nil && bytes.Contains(site, []byte("dist-packages")) {
		return []string{path.Join(stdlib, "../../local/lib/python"+version, "dist-packages"), path.Join(stdlib, "../python3/dist-packages")}
	}
	return []string{path.Join(stdlib, "site-packages")}
}

// packages adds what is installed beside the interpreter of a root of its own,
// and what was prepared for it, with the libraries of their extension modules.
func (b *builder) packages(stdlib, version string, caller *object, loaded map[string]*object) error {
	dirs := b.packageDirs(stdlib, version)
	if b.root.Prepared != "" {
		if err := b.standOver(dirs[0], version); err != nil {
			return err
		}
		if b.root.Dir == "" {
			dirs = dirs[:1]
		}
	} else if b.root.Dir == "" && !b.root.Packages {
		return nil
	}
	for _, dir := range dirs {
		if !b.in.isDir(dir) {
			continue
		}
		if _, err := b.bindDir(dir); err != nil {
			return err
		}
		if err := b.modules(dir, caller, loaded); err != nil {
			return err
		}
	}
	return nil
}

// standOver puts the prepared packages at their place.
func (b *builder) standOver(at, version string) error {
	if want := b.root.PreparedFor; want != version {
		return reason.New(reason.PreparedNotUsable, b.root.Prepared, fmt.Sprintf("was prepared for Python %s; this interpreter is %s", want, version), "prepare the packages again with this root: nsbox prep")
	}
	if bound := boundAbove(b.tree.nodes, at); (bound || b.root.Whole) && !b.in.isDir(at) {
		return reason.New(reason.PreparedNotUsable, at, "is where this interpreter looks for packages, and the root has no such directory to put them at", "use a root that has the directory")
	}
	b.in.at, b.in.over = at, b.root.Prepared
	b.tree.in = b.in
	return nil
}

// bindDir binds the directory that dir leads to, which the workload may read.
func (b *builder) bindDir(dir string) (string, error) {
	at, err := b.tree.walk(dir, true)
	if err != nil {
		return "", err
	}
	source := b.in.host(at)
	if err := readableInside(source, nsexec.Read|nsexec.List); err != nil {
		return "", err
	}
	if err := b.tree.note(at); err != nil {
		return "", err
	}
	n := nsexec.Node{Path: at, Kind: nsexec.BindDir, Source: source, Access: nsexec.Read | nsexec.List}
	if source != b.in.dir+at {
		// Stands over the root, also where a directory bound above shows another.
		b.tree.nodes[at] = n
		return at, nil
	}
	if b.tree.nodes[at].Kind == nsexec.Dir {
		delete(b.tree.nodes, at)
	}
	return at, b.tree.add(n)
}

// modules adds the libraries of the extension modules at and below dir.
func (b *builder) modules(dir string, caller *object, loaded map[string]*object) error {
	at, err := b.in.real(dir)
	if err != nil {
		return err
	}
	var files []string
	top := b.in.host(at)
	err = filepath.WalkDir(top, func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && (strings.HasSuffix(p, ".so") || strings.Contains(e.Name(), ".so.")) {
			files = append(files, at+strings.TrimPrefix(p, top))
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(files) > maxModules {
		return reason.New(reason.RootfsBadOptions, top, fmt.Sprintf("holds %d libraries; at most %d are looked at", len(files), maxModules), "use a smaller root")
	}
	sort.Strings(files)
	lacking := map[string]int{}
	for _, f := range files {
		missing, err := b.dlopened(f, caller, loaded)
		if err != nil {
			return err
		}
		for _, name := range missing {
			lacking[name]++
		}
	}
	var names []string
	for name := range lacking {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		b.notes = append(b.notes, fmt.Sprintf("%d of the modules in %s cannot be imported: %s is not in the root", lacking[name], at, name))
	}
	return nil
}

// data binds what a C library or the standard library opens by a fixed name: the
// one locale of a box, and the time zones, which zoneinfo and dateutil read.
// Terminal descriptions stay out: a closure has no terminal.
func (b *builder) data(python bool) error {
	places := []string{"/usr/lib/locale/C.utf8"}
	if python {
		places = append(places, "/usr/share/zoneinfo")
	}
	for _, p := range places {
		if !b.in.isDir(p) {
			continue
		}
		at, err := b.tree.walk(p, true)
		if err == nil {
			err = b.tree.note(at)
		}
		if err == nil {
			// Read alone is what the rest of /usr has, so no Landlock rule is added.
			err = b.tree.add(nsexec.Node{Path: at, Kind: nsexec.BindDir, Source: b.in.host(at), Access: nsexec.Read})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ownPlaces are top-level directories that every box makes for itself or has not:
// those of people and of the system's start are none of a program's.
func ownPlaces() []string {
	return []string{"/dev", "/proc", "/sys", "/run", "/in", "/scratch", "/out", "/tmp", "/boot", "/lost+found", "/home", "/root", "/mnt", "/media"}
}

// generatedNames are the files of /etc that every box generates.
func generatedNames() []string {
	return []string{"passwd", "group", "hosts", "nsswitch.conf", "localtime", "resolv.conf"}
}

// whole replaces the closure's nodes by all of the root's top level. The program
// was resolved before, so that what it lacks is named in the same words.
func (b *builder) whole() error {
	over := b.tree.nodes[b.in.at]
	b.tree.nodes = map[string]nsexec.Node{}
	if err := b.level("/", ownPlaces()); err != nil {
		return err
	}
	if b.in.over != "" {
		b.tree.nodes[over.Path] = over
	}
	return nil
}

// opened tells that a directory is not bound as one, because files of nsbox's own
// may come beside what the root has there: those that every box generates, and the
// authorities, unless the root brings some.
func (b *builder) opened(at string) bool {
	return at == "/etc" || at == "/etc/ssl" || at == path.Dir(bundleAt) && !b.in.exists(bundleAt)
}

// level binds each entry of the directory dir, except those named.
func (b *builder) level(dir string, except []string) error {
	entries, err := os.ReadDir(b.in.dir + dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := path.Join(dir, e.Name())
		skip := false
		for _, x := range except {
			skip = skip || at == x || e.Name() == x
		}
		if skip {
			continue
		}
		n := nsexec.Node{Path: at, Source: b.in.dir + at, Access: nsexec.Read | nsexec.List | nsexec.Execute}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(n.Source)
			if err != nil {
				return err
			}
			n = nsexec.Node{Path: at, Kind: nsexec.Symlink, Source: target}
		case e.IsDir() && b.opened(at):
			n = nsexec.Node{Path: at, Kind: nsexec.Dir, Mode: 0o755}
		case e.IsDir():
			n.Kind = nsexec.BindDir
		case e.Type().IsRegular():
			n.Kind, n.Access = nsexec.BindFile, nsexec.Read|nsexec.Execute
		default:
			continue
		}
		if err := b.tree.add(n); err != nil {
			return err
		}
		if n.Kind == nsexec.Dir {
			if err := b.level(at, generatedNames()); err != nil {
				return err
			}
		}
	}
	return b.tree.note(dir)
}
