package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sample makes a small tree with every kind of entry that has a digest.
func sample(t *testing.T, dir string) string {
	t.Helper()
	root := filepath.Join(dir, "root")
	must(t, os.MkdirAll(root+"/usr/bin", 0o755))
	must(t, os.WriteFile(root+"/usr/bin/prog", []byte("content"), 0o755))
	must(t, os.WriteFile(root+"/usr/odd \"name\"\n\xff", []byte("x"), 0o644))
	must(t, os.Symlink("usr/bin", root+"/bin"))
	for _, p := range []string{root, root + "/usr", root + "/usr/bin", root + "/usr/bin/prog"} {
		must(t, os.Chmod(p, 0o755))
	}
	must(t, os.Chmod(root+"/usr/odd \"name\"\n\xff", 0o644))
	return root
}

func digest(t *testing.T, root string) string {
	t.Helper()
	tree, err := Read(root)
	must(t, err)
	return tree.Digest
}

// The text is written out once by hand: a change of the form would make every
// digest in a policy a wrong one.
func TestManifestIsWhatItIsSaidToBe(t *testing.T) {
	tree, err := Read(sample(t, t.TempDir()))
	must(t, err)
	const want = "nsbox-tree 1\n" +
		"d 0755 \".\"\n" +
		"l \"usr/bin\" \"bin\"\n" +
		"d 0755 \"usr\"\n" +
		"d 0755 \"usr/bin\"\n" +
		"f 0755 7 ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73 \"usr/bin/prog\"\n" +
		"f 0644 1 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881 \"usr/odd \\\"name\\\"\\n\\xff\"\n"
	if string(tree.Manifest) != want || tree.Digest != DigestOf([]byte(want)) || tree.Entries != 5 || tree.Bytes != 8 {
		t.Errorf("%q\n%+v", tree.Manifest, tree)
	}
}

func TestDigestFollowsContentAndNothingElse(t *testing.T) {
	root := sample(t, t.TempDir())
	first := digest(t, root)
	if again := digest(t, sample(t, t.TempDir())); again != first {
		t.Errorf("two equal trees have %s and %s", first, again)
	}
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"a byte", func() { must(t, os.WriteFile(root+"/usr/bin/prog", []byte("cOntent"), 0o755)) }},
		{"a mode", func() { must(t, unix.Chmod(root+"/usr/bin/prog", 0o4755)) }},
		{"a new file", func() { must(t, os.WriteFile(root+"/new", nil, 0o644)) }},
		{"a new name", func() { must(t, os.Rename(root+"/usr/bin/prog", root+"/usr/bin/prog2")) }},
		{"a link", func() { must(t, os.Remove(root+"/bin")); must(t, os.Symlink("usr", root+"/bin")) }},
		{"a directory", func() { must(t, os.Mkdir(root+"/empty", 0o755)) }},
	} {
		before, fp := digest(t, root), ""
		fp, err := Fingerprint(root)
		must(t, err)
		c.change()
		after, err := Fingerprint(root)
		must(t, err)
		if digest(t, root) == before || fp == after {
			t.Errorf("%s changes neither or only one of digest and fingerprint", c.name)
		}
	}
}

func TestTreesWithoutADigest(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"a pipe":   func(dir string) error { return unix.Mkfifo(dir+"/p", 0o666) },
		"a socket": func(dir string) error { return unix.Mknod(dir+"/s", unix.S_IFSOCK|0o666, 0) },
	} {
		root := sample(t, t.TempDir())
		must(t, put(root))
		_, err := Read(root)
		if e := reason.Of(err); e == nil || e.ID != reason.StoreBadTree || !strings.Contains(e.Error(), "pipe or socket") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "absent")); reason.Of(err) == nil {
		t.Errorf("an absent tree: %v", err)
	}
}

func stored(t *testing.T) (*Store, Meta) {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store"))
	must(t, err)
	dir, err := s.NewDir("new")
	must(t, err)
	sample(t, dir)
	m, made, err := s.Adopt(dir, Meta{Kind: KindPrepared, Python: "3.11"})
	must(t, err)
	if !made {
		t.Fatal("a new tree is called known")
	}
	must(t, s.SetRef("names", "tools", m.Digest))
	return s, m
}

// One byte, anywhere: every file of the store is changed in turn, in its first,
// middle and last byte, and put back.
func TestEveryByteIsHeld(t *testing.T) {
	s, m := stored(t)
	whole := func() error {
		tree, err := s.Ref("names", "tools")
		return errors.Join(err, s.Verify(tree))
	}
	must(t, whole())
	files := 0
	must(t, filepath.WalkDir(s.Dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		files++
		old, err := os.ReadFile(p)
		must(t, err)
		for _, at := range []int{0, len(old) / 2, len(old) - 1} {
			data := append([]byte{}, old...)
			data[at] ^= 1
			fi, err := os.Stat(p)
			must(t, err)
			must(t, os.Chmod(p, 0o700))
			must(t, os.WriteFile(p, data, 0o600))
			must(t, os.Chmod(p, fi.Mode().Perm()))
			if err := whole(); reason.Of(err) == nil || reason.Of(err).ID != reason.StoreDamaged {
				t.Errorf("byte %d of %s: %v", at, p, err)
			}
			must(t, os.Chmod(p, 0o700))
			must(t, os.WriteFile(p, old, 0o600))
			must(t, os.Chmod(p, fi.Mode().Perm()))
		}
		return nil
	}))
	must(t, whole())
	if files != 5 { // two files of the tree, manifest, meta, name
		t.Errorf("%d files were changed", files)
	}
	must(t, os.WriteFile(filepath.Join(s.Root(m.Digest), "usr/bin/extra"), nil, 0o644))
	if err := s.Verify(m.Digest); err == nil || !strings.Contains(err.Error(), `"usr/bin/extra" (not recorded)`) {
		t.Errorf("an additional file: %v", err)
	}
}

func TestAdoptKnowsWhatIsThere(t *testing.T) {
	s, m := stored(t)
	dir, err := s.NewDir("new")
	must(t, err)
	sample(t, dir)
	again, made, err := s.Adopt(dir, Meta{Kind: KindPrepared})
	if err != nil || made || again.Digest != m.Digest || !exists(dir) {
		t.Errorf("%+v, made %v, %v", again, made, err)
	}
}

// TestUnfinishedFilesStandInNew: a killed writer's temporary file must not pass
// for a damaged name.
func TestUnfinishedFilesStandInNew(t *testing.T) {
	s, err := Open(t.TempDir() + "/store")
	must(t, err)
	must(t, s.SetRef("names", "tools", DigestOf(nil)))
	must(t, os.Remove(s.Dir+"/new"))
	if err := s.SetRef("names", "more", DigestOf(nil)); err == nil {
		t.Error("a name was written without new/")
	}
	if names, err := s.Below("names"); err != nil || len(names) != 1 {
		t.Errorf("names/ holds %v, %v", names, err)
	}
}

func TestWhatIsUsedStays(t *testing.T) {
	s, m := stored(t)
	f, err := s.Use(m.Digest)
	must(t, err)
	if _, err := s.Release(m.Digest); reason.Of(err) == nil || reason.Of(err).ID != reason.StoreBusy {
		t.Errorf("an entry in use is released: %v", err)
	}
	must(t, f.Close())
	at, err := s.Release(m.Digest)
	if err != nil || !exists(at+"/it/root") || exists(s.Root(m.Digest)) {
		t.Errorf("%s, %v", at, err)
	}
	if _, err := s.Use(m.Digest); reason.Of(err) == nil || reason.Of(err).ID != reason.StoreMissing {
		t.Errorf("a removed entry is used: %v", err)
	}
}

func TestAStoreOfOthersIsRefused(t *testing.T) {
	s, _ := stored(t)
	must(t, os.Chmod(s.Dir+"/names", 0o755))
	if _, err := Open(s.Dir); reason.Of(err) == nil || reason.Of(err).ID != reason.StoreUnusable {
		t.Errorf("a store open to others: %v", err)
	}
}
