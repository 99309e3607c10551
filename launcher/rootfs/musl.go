package rootfs

import (
	"path"
	"strings"

	"nsbox/nsexec"
)

// isMusl tells musl's loader by its name, ld-musl-ARCH.so.1.
func isMusl(interp string) bool { return strings.HasPrefix(path.Base(interp), "ld-musl-") }

// muslRules prepares the search as musl does it (ldso/dynlink.c, load_library and
// __dls3): the C library is the loader itself under any of its names; there is no
// cache and no DF_1_NODEFLIB; the directories are those of /etc/ld-musl-ARCH.path,
// or three built-in ones. The box gets the same list.
func (b *builder) muslRules(loader *object, interp string, loaded map[string]*object) error {
	b.musl, b.ldcache = true, nil
	arch := strings.TrimSuffix(strings.TrimPrefix(path.Base(interp), "ld-musl-"), ".so.1")
	for _, name := range []string{"libc.so", "libc.musl-" + arch + ".so.1"} {
		loaded[name] = loader
	}
	list := "/etc/ld-musl-" + arch + ".path"
	raw, err := b.in.readSmall(list)
	if err != nil {
		return nil // musl then uses its built-in directories, and so does find
	}
	if err := b.tree.note(list); err != nil {
		return err
	}
	b.muslDirs = strings.FieldsFunc(string(raw), func(r rune) bool { return r == ':' || r == '\n' })
	return b.tree.add(nsexec.Node{Path: list, Kind: nsexec.File, Data: raw, Mode: 0o444, Access: nsexec.Read})
}

// defaultDirs are searched last.
func (b *builder) defaultDirs() []string {
	switch {
	case b.muslDirs != nil:
		return b.muslDirs
	case b.musl:
		return []string{"/lib", "/usr/local/lib", "/usr/lib"}
	}
	// Debian's multiarch directories, then those of other distributions. What is
	// found here enters the box's ld.so.cache, so the order in the box's own loader
	// does not matter.
	return []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}
}
