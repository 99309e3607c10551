package nsexec

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"nsbox/seccompgen/filter"
)

const (
	maxID          = 1<<32 - 2 // the kernel takes ids as 32 bits; the last one means "unchanged"
	maxHostname    = 64        // __NEW_UTS_LEN
	maxFilterInsns = 4096      // BPF_MAXINSNS; struct sock_fprog counts in 16 bits
	maxCPU         = 1024      // bits of the affinity mask
)

// Validate refuses what compile would turn into a wrong program: above all text
// that the kernel would read only in part (a NUL ends a C string) and numbers
// that it would cut.
func (s *Spec) Validate() error {
	for _, check := range []func() error{s.validateRoot, s.validateText, s.validateIdentity, s.validateCommand, s.validateLimits, s.validateFilters, s.validateListen} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

func (s *Spec) validateRoot() error {
	kinds := map[string]NodeKind{"/": Dir}
	seen := map[string]bool{}
	for _, n := range s.Root {
		if !absolute(n.Path) {
			return fmt.Errorf("node %q is not an absolute clean path", n.Path)
		}
		if seen[n.Path] {
			return fmt.Errorf("node %q stands twice", n.Path)
		}
		seen[n.Path] = true
		if n.Path == "/" && n.Kind != Dir {
			return fmt.Errorf("the root is a %s, want a dir", n.Kind)
		}
		switch parent, ok := kinds[path.Dir(n.Path)]; {
		case n.Kind == BindDir && s.standsOver(n):
			// its place is in what is bound above
		case !ok:
			return fmt.Errorf("node %q stands before its parent", n.Path)
		case parent != Dir && parent != BindDir && parent != Tmpfs && parent != Proc:
			return fmt.Errorf("node %q stands below a %s", n.Path, parent)
		}
		kinds[n.Path] = n.Kind
		if err := n.validate(); err != nil {
			return err
		}
	}
	return s.validateShared(kinds)
}

// validateShared holds parts to a tmpfs of another name, and a terminal to a devpts.
func (s *Spec) validateShared(kinds map[string]NodeKind) error {
	names := map[string]bool{}
	devpts := false
	for _, n := range s.Root {
		devpts = devpts || n.Kind == Devpts
		if n.Kind == Part {
			name := n.Source + "/" + path.Base(n.Path)
			if kinds[n.Source] != Tmpfs || names[name] || path.Base(n.Path) == path.Base(n.Source) {
				return fmt.Errorf("part %q of %q, which is no tmpfs or has a part of that name", n.Path, n.Source)
			}
			names[name] = true
		}
	}
	if s.Terminal != nil && (!devpts || s.Stdin) {
		return fmt.Errorf("a terminal needs a devpts, and is the program's stdin as well")
	}
	return nil
}

func (n Node) validate() error {
	switch n.Kind {
	case Dir, File, Proc, Devpts:
	case Part:
		// The tmpfs itself is checked with the whole root.
	case Symlink:
		if n.Source == "" || strings.ContainsRune(n.Source, 0) {
			return fmt.Errorf("link %q leads to %q", n.Path, n.Source)
		}
	case BindDir, BindFile, Device:
		if !absolute(n.Source) {
			return fmt.Errorf("source %q of %q is not an absolute clean path", n.Source, n.Path)
		}
	case Storage:
		if !absolute(n.Source) || n.Bytes < 0 || (n.Bytes == 0) != (n.Inodes == 0) {
			return fmt.Errorf("storage %q has no source, or half a size", n.Path)
		}
	case Tmpfs:
		if n.Bytes <= 0 || n.Inodes <= 0 {
			return fmt.Errorf("tmpfs %q has no size or no inode count", n.Path)
		}
		if n.UID < 0 || n.UID > maxID || n.GID < 0 || n.GID > maxID {
			return fmt.Errorf("tmpfs %q belongs to %d:%d", n.Path, n.UID, n.GID)
		}
	default:
		return fmt.Errorf("node %q is of unknown kind %q", n.Path, n.Kind)
	}
	if n.Mode&^0o777 != 0 {
		return fmt.Errorf("mode %#o of %q has more than permission bits", n.Mode, n.Path)
	}
	if n.Access&^(Read|List|Execute|Write|Control) != 0 {
		return fmt.Errorf("access %#x of %q is unknown", n.Access, n.Path)
	}
	return nil
}

func (s *Spec) validateText() error {
	if len(s.Hostname) > maxHostname || strings.ContainsRune(s.Hostname, 0) {
		return fmt.Errorf("hostname %q", s.Hostname)
	}
	if !absolute(s.StagingPoint) {
		return fmt.Errorf("staging point %q is not an absolute clean path", s.StagingPoint)
	}
	if s.Hold != "" && !absolute(s.Hold) {
		return fmt.Errorf("held directory %q is not an absolute clean path", s.Hold)
	}
	masks := slices.Concat(s.MaskProc, s.MaskDirs)
	for i, m := range masks {
		if m == "" || !absolute("/"+m) || slices.Contains(masks[:i], m) {
			return fmt.Errorf("mask %q is no clean path below /proc, or stands twice", m)
		}
	}
	for _, o := range s.Open {
		if o.Name == "" || o.Name == "." || o.Name == ".." || strings.ContainsAny(o.Name, "/\x00") {
			return fmt.Errorf("name %q to open is not one path element", o.Name)
		}
	}
	return nil
}

func (s *Spec) validateIdentity() error {
	if s.UID <= 0 || s.GID <= 0 || s.UID > maxID || s.GID > maxID {
		return fmt.Errorf("workload ids %d:%d: id 0 is init's alone", s.UID, s.GID)
	}
	for _, m := range []struct {
		name    string
		entries []MapEntry
		want    int
	}{{"uid", s.Identity.UIDs, s.UID}, {"gid", s.Identity.GIDs, s.GID}} {
		if s.Identity.Nested && (len(m.entries) != 1 || m.entries[0].Count != 1 || s.Identity.UIDHelper+s.Identity.GIDHelper != "") {
			return fmt.Errorf("%s map of a nested box: 0 alone can be mapped, and by the launcher itself", m.name)
		}
		var zero, own bool
		for _, e := range m.entries {
			// The caller itself may be the 0 of a namespace around it: who it is there is
			// the launcher's to judge.
			if e.Host < 0 || e.Host == 0 && !s.Identity.Nested {
				return fmt.Errorf("host %s %d must not be mapped", m.name, e.Host)
			}
			if e.Inside < 0 || e.Count <= 0 || e.Inside > maxID-e.Count+1 || e.Host > maxID-e.Count+1 {
				return fmt.Errorf("%s map %d %d %d is out of range", m.name, e.Inside, e.Host, e.Count)
			}
			zero = zero || e.Inside == 0
			own = own || s.Identity.Nested || m.want >= e.Inside && m.want < e.Inside+e.Count
		}
		if !zero || !own {
			return fmt.Errorf("%s 0 and %d must both be mapped", m.name, m.want)
		}
	}
	return nil
}

func (s *Spec) validateCommand() error {
	c := s.Command
	if len(c.Argv) == 0 || (c.Path == "") == !c.Self {
		return fmt.Errorf("no program, or two")
	}
	if !c.Self && !absolute(c.Path) {
		return fmt.Errorf("program %q is not an absolute clean path", c.Path)
	}
	if !absolute(c.Dir) {
		return fmt.Errorf("working directory %q is not an absolute clean path", c.Dir)
	}
	for _, a := range c.Argv {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("argument %q holds a NUL", a)
		}
	}
	for _, v := range c.Env {
		if strings.IndexByte(v, '=') < 1 || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment entry %q is not NAME=VALUE", v)
		}
	}
	return nil
}

func (s *Spec) validateLimits() error {
	names := map[string]bool{}
	for _, l := range s.Rlimits {
		if l.Name == "" || names[l.Name] || l.Soft > l.Hard {
			return fmt.Errorf("rlimit %q has no name, stands twice, or its soft value %d is above its hard %d", l.Name, l.Soft, l.Hard)
		}
		names[l.Name] = true
	}
	if s.Umask&^0o777 != 0 {
		return fmt.Errorf("umask %#o has more than permission bits", s.Umask)
	}
	if s.Affinity >= maxCPU {
		return fmt.Errorf("cpu %d is above the highest, %d", s.Affinity, maxCPU-1)
	}
	return nil
}

func (s *Spec) validateFilters() error {
	for _, f := range []filter.Program{s.Filter, s.InitFilter} {
		if f.Len() == 0 {
			return fmt.Errorf("a box without both filters is never started")
		}
		if len(f)%8 != 0 || f.Len() > maxFilterInsns {
			return fmt.Errorf("a filter of %d bytes is not 1 to %d instructions", len(f), maxFilterInsns)
		}
	}
	if s.CapLast < 37 || s.CapLast > 63 {
		return fmt.Errorf("highest capability %d is not between 37 and 63", s.CapLast)
	}
	return nil
}

// validate holds the descriptors against the numbers that the set-up itself uses.
func (f fds) validate(s *Spec) error {
	numbers := []int{f.control, f.golink, f.self}
	if f.work >= 0 {
		numbers = append(numbers, f.work)
	}
	given := map[int]bool{}
	give := func(to int) error {
		if to < 3 || to >= fdLift || given[to] {
			return fmt.Errorf("descriptor %d given to the program is below 3, above %d, or given twice", to, fdLift-1)
		}
		given[to] = true
		return nil
	}
	for _, p := range f.pass {
		numbers = append(numbers, p.From)
		if err := give(p.To); err != nil {
			return err
		}
	}
	passed := func(fd int) bool { return slices.ContainsFunc(f.pass, func(p Pass) bool { return p.To == fd }) }
	for _, o := range s.Open {
		if !passed(o.Dir) {
			return fmt.Errorf("name %q is to be opened below descriptor %d, which is not passed", o.Name, o.Dir)
		}
		if err := give(o.To); err != nil {
			return err
		}
		if slices.ContainsFunc(f.pass, func(p Pass) bool { return p.To > o.To }) {
			return fmt.Errorf("name %q gets number %d, below one that is passed", o.Name, o.To)
		}
	}
	if s.Listable >= 0 && !passed(s.Listable) {
		return fmt.Errorf("listable descriptor %d is not passed", s.Listable)
	}
	for _, n := range numbers {
		if n < highFD {
			return fmt.Errorf("launcher's descriptor %d is below %d, where the set-up would overwrite it", n, highFD)
		}
	}
	return nil
}
