package rootfs

import (
	"debug/elf"
	"maps"
	"path"
	"strings"

	"nsbox/nsexec"
)

// object is a loaded ELF file in the loader's sense.
type object struct {
	*image
	origin string  // what $ORIGIN stands for
	parent *object // who asked for it first; nil for the program
}

// libs adds everything root needs, breadth first as the loader does, and
// returns the names it could not find. loaded is extended.
func (b *builder) libs(root *object, loaded map[string]*object) (missing []string, err error) {
	queue := []*object{root}
	for len(queue) > 0 {
		o := queue[0]
		queue = queue[1:]
		for _, name := range o.needed {
			if loaded[name] != nil {
				continue
			}
			found, global := b.find(name, o)
			if found == "" {
				missing = append(missing, name)
				continue
			}
			at, err := b.tree.addFile(found, nsexec.Read)
			if err != nil {
				return nil, err
			}
			if global {
				b.libraries[name] = at
			}
			lib := &object{image: b.image(found), origin: path.Dir(at), parent: o}
			loaded[name] = lib
			if lib.soname != "" {
				loaded[lib.soname] = lib
			}
			queue = append(queue, lib)
		}
	}
	return missing, nil
}

// dlopened adds what a file needs that one of the loaded objects opens at run
// time. Each is resolved as if it were the first, because the order in which a
// program imports its extensions is not known.
func (b *builder) dlopened(file string, caller *object, loaded map[string]*object) (missing []string, err error) {
	im := b.image(file)
	if im == nil {
		return nil, nil // not an ELF file of this machine: the program cannot load it either
	}
	return b.libs(&object{image: im, origin: path.Dir(file), parent: caller}, maps.Clone(loaded))
}

// image returns what readImage says of p, or nil; each file is read once.
func (b *builder) image(p string) *image {
	im, ok := b.images[p]
	if !ok {
		im, _ = b.in.readImage(p) // nil on any error: the loader passes over such a file
		b.images[p] = im
	}
	return im
}

// find returns the host path of the library name for the requesting object, and
// whether it was found by cache or default directory and not by o's own paths.
func (b *builder) find(name string, o *object) (found string, global bool) {
	if strings.Contains(name, "/") {
		p, ok := expand(name, o.origin)
		if ok && path.IsAbs(p) && b.image(p) != nil {
			return p, false
		}
		return "", false
	}
	for _, dir := range b.ownDirs(o) {
		// Plain concatenation: cleaning "link/.." by text would name another directory.
		if p := dir + "/" + name; b.image(p) != nil {
			return p, false
		}
	}
	if o.noDeps && !b.musl {
		return "", false
	}
	if p := b.ldcache[name]; p != "" && b.image(p) != nil {
		return p, true
	}
	for _, dir := range b.defaultDirs() {
		if p := dir + "/" + name; b.image(p) != nil {
			return p, true
		}
	}
	return "", false
}

// ownDirs lists o's DT_RUNPATH, or the DT_RPATH of o and of those that loaded
// it. Each existing directory is recorded: a file put there later would win.
func (b *builder) ownDirs(o *object) []string {
	var dirs []string
	collect := func(list []string, origin string) {
		for _, e := range list {
			d, ok := expand(e, origin)
			if !ok || !path.IsAbs(d) {
				continue
			}
			if real, err := b.in.real(d); err == nil {
				if b.tree.note(real) == nil {
					dirs = append(dirs, d)
				}
			}
		}
	}
	if len(o.runpath) > 0 {
		collect(o.runpath, o.origin)
		return dirs
	}
	for p := o; p != nil; p = p.parent {
		if len(p.runpath) == 0 {
			collect(p.rpath, p.origin)
		}
	}
	return dirs
}

// expand replaces $ORIGIN. An entry with another token ($LIB, $PLATFORM) is
// passed over: what it means is known only to the loader that was built with it.
func expand(s, origin string) (string, bool) {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "${ORIGIN}", origin), "$ORIGIN", origin)
	return s, !strings.Contains(s, "$")
}

// runnable tells programs from objects, cores and libraries without a loader
// (a static-pie has neither PT_INTERP nor DT_SONAME; a library has the latter).
func runnable(im *image) bool {
	switch im.kind {
	case elf.ET_EXEC:
		return true
	case elf.ET_DYN:
		return im.interp != "" || im.soname == "" || isLoader(im.soname)
	}
	return false
}

func isLoader(soname string) bool {
	return strings.HasPrefix(soname, "ld-linux") || isMusl(soname) || strings.HasPrefix(soname, "libc.musl-")
}
