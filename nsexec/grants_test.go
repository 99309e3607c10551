package nsexec

import (
	"path"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestGrantsTable(t *testing.T) {
	rows := map[string]struct {
		nodes []Node
		want  []Grant
	}{
		"one tree": {[]Node{{Path: "/usr", Kind: BindDir, Access: Read | List}}, []Grant{{"/usr", Read | List, false}}},
		"entries share, one needs more": {[]Node{{Path: "/lib", Kind: Dir}, {Path: "/lib/a", Kind: BindFile, Access: Read}, {Path: "/lib/ld", Kind: BindFile, Access: Read | Execute}},
			[]Grant{{"/lib", Read, false}, {"/lib/ld", Read | Execute, true}}},
		"one entry without any":   {[]Node{{Path: "/d", Kind: Dir}, {Path: "/d/a", Kind: File, Access: Read}, {Path: "/d/b", Kind: File}}, []Grant{{"/d/a", Read, true}}},
		"a link grants nothing":   {[]Node{{Path: "/bin", Kind: Symlink, Access: Read | Execute}}, nil},
		"an empty directory":      {[]Node{{Path: "/in", Kind: Dir, Access: Read | List}}, []Grant{{"/in", Read | List, false}}},
		"a directory without any": {[]Node{{Path: "/in", Kind: Dir}}, nil},
		"a file at the top":       {[]Node{{Path: "/f", Kind: File, Access: Read}}, []Grant{{"/f", Read, true}}},
		"the root itself":         {[]Node{{Path: "/", Kind: Dir, Access: List}}, []Grant{{"/", List, false}}},
		"a tree within a tree": {[]Node{{Path: "/usr", Kind: BindDir, Access: Read | List | Execute}, {Path: "/usr/x", Kind: BindDir, Access: Read}},
			[]Grant{{"/usr", Read | List | Execute, false}}},
	}
	for name, r := range rows {
		if d := cmp.Diff(r.want, Grants(r.nodes)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

// effective is what Landlock allows at p: every rule on p or above it counts.
func effective(grants []Grant, p string) (a Access) {
	for _, g := range grants {
		if g.Path == p || within(p, g.Path) {
			a |= g.Access
		}
	}
	return a
}

func within(p, dir string) bool {
	for p != "/" {
		if p = path.Dir(p); p == dir {
			return true
		}
	}
	return false
}

// For each node the rules give what it and the nodes around it were given, no
// more and no less; a rule on a plain directory may add what all its entries have.
func TestGrantsAreNoWiderThanTheirNodes(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		nodes := drawNodes(r)
		grants := Grants(nodes)
		seen := map[string]bool{}
		for _, g := range grants {
			if seen[g.Path] {
				r.Fatalf("two rules for %s: their steps would share a name", g.Path)
			}
			seen[g.Path] = true
		}
		for _, n := range nodes {
			if n.Kind == Symlink {
				continue // nothing is opened through its own inode
			}
			want := n.Access
			for _, up := range nodes {
				if up.Kind != Symlink && within(n.Path, up.Path) {
					want |= up.Access
				}
			}
			got := effective(grants, n.Path)
			if n.Kind == Dir && n.Path != "/" {
				shared, any := Access(15), false
				for _, below := range nodes {
					if below.Kind != Symlink && below.Kind != Dir && topOf(below.Path) == topOf(n.Path) {
						shared, any = shared&below.Access, true
					}
				}
				if any {
					if got&^(want|shared) != 0 || want&^got != 0 {
						r.Fatalf("%s: rules give %04b, nodes %04b, shared by its entries %04b", n.Path, got, want, shared)
					}
					continue
				}
			}
			if got != want {
				r.Fatalf("%s (%s): rules give %04b, nodes %04b", n.Path, n.Kind, got, want)
			}
		}
	})
}

// What an ABI does not know is left out, and nothing is granted that is not handled.
func TestRightsByABI(t *testing.T) {
	last := uint64(0)
	for abi := 1; abi <= 6; abi++ {
		h := handledFS(abi)
		if h&last != last {
			t.Errorf("ABI %d handles less than ABI %d", abi, abi-1)
		}
		last = h
	}
	for abi, bits := range map[int]int{1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16} {
		if got := handledFS(abi); got != 1<<bits-1 {
			t.Errorf("ABI %d handles %#x, want %d rights", abi, got, bits)
		}
	}
	if rights(Read|List|Execute|Write)&^handledFS(6) != 0 {
		t.Error("a right is granted that is never handled")
	}
	if r := rights(Read | List | Execute); r&(llWriteFile|llTruncate|llMakeReg|llRemoveFile|llIoctlDev|llMakeChar|llMakeBlock) != 0 {
		t.Errorf("reading grants %#x", r)
	}
	if r := rights(Write); r&(llMakeChar|llMakeBlock|llIoctlDev) != 0 {
		t.Errorf("writing grants device rights: %#x", r)
	}
}
