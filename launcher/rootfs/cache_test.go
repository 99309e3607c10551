package rootfs

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"nsbox/launcher/reason"
)

func TestCacheHitAndInvalidation(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string){
		"nothing":          nil, // the control: without a change there is a hit
		"program-replaced": func(t *testing.T, dir string) { replace(t, dir+"/bin/prog-1") },
		"library-replaced": func(t *testing.T, dir string) { replace(t, dir+"/lib/libt1.so.1.2") },
		"same-size-same-mtime": func(t *testing.T, dir string) {
			p := dir + "/bin/prog-1"
			fi, err := os.Stat(p)
			must(t, err)
			b, err := os.ReadFile(p)
			must(t, err)
			must(t, os.WriteFile(p, b, 0o755))
			must(t, os.Chtimes(p, fi.ModTime(), fi.ModTime()))
		},
		"entry-link-rewritten": func(t *testing.T, dir string) { // its text is in the box
			must(t, os.Remove(dir+"/bin/prog"))
			must(t, os.Symlink("./prog-1", dir+"/bin/prog"))
		},
		"link-moved": func(t *testing.T, dir string) {
			must(t, os.Remove(dir+"/lib/libt1.so"))
			put(t, dir, "lib/libt1.so.1.3", 0o644, fakeELF{}.bytes())
			must(t, os.Symlink("libt1.so.1.3", dir+"/lib/libt1.so"))
		},
		"library-shadowed": func(t *testing.T, dir string) { put(t, dir, "first/libt1.so", 0o644, fakeELF{}.bytes()) },
		"mode-taken-away-and-back": func(t *testing.T, dir string) {
			must(t, os.Chmod(dir+"/bin/prog-1", 0o700))
			must(t, os.Chmod(dir+"/bin/prog-1", 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := realDir(t)
			put(t, dir, "bin/prog-1", 0o755, fakeELF{needed: []string{"libt1.so"}, runpath: "$ORIGIN/../first:$ORIGIN/../lib"}.bytes())
			must(t, os.Symlink("prog-1", dir+"/bin/prog"))
			put(t, dir, "lib/libt1.so.1.2", 0o644, fakeELF{}.bytes())
			must(t, os.Mkdir(dir+"/first", 0o755))
			must(t, os.Symlink("libt1.so.1.2", dir+"/lib/libt1.so"))
			cache := dir + "/cache"
			first, hit, err := Cached(cache, "prog", []string{dir + "/bin"})
			if err != nil || hit {
				t.Fatalf("first: hit %v, %v", hit, err)
			}
			if change != nil {
				change(t, dir)
			}
			second, hit, err := Cached(cache, "prog", []string{dir + "/bin"})
			if err != nil || hit != (change == nil) {
				t.Fatalf("second: hit %v, %v", hit, err)
			}
			if change == nil && !reflect.DeepEqual(first, second) {
				t.Errorf("the cached closure differs:\n%+v\n%+v", first, second)
			}
			if change != nil && first.Digest == second.Digest {
				t.Error("the digest does not tell the two apart")
			}
			if _, hit, err = Cached(cache, "prog", []string{dir + "/bin"}); err != nil || !hit {
				t.Errorf("third: hit %v, %v", hit, err)
			}
		})
	}
}

func replace(t *testing.T, p string) {
	t.Helper()
	b, err := os.ReadFile(p)
	must(t, err)
	must(t, os.WriteFile(p+".new", b, 0o755))
	must(t, os.Rename(p+".new", p))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDamagedCacheIsRecomputed(t *testing.T) {
	dir := realDir(t)
	prog := put(t, dir, "bin/prog", 0o755, fakeELF{}.bytes())
	other := put(t, dir, "bin/other", 0o755, fakeELF{}.bytes())
	cache := dir + "/cache"
	want, _, err := Cached(cache, prog, nil)
	must(t, err)
	entries, err := filepath.Glob(cache + "/*.closure")
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, %v", entries, err)
	}
	file := entries[0]
	good, err := os.ReadFile(file)
	must(t, err)
	foreign, err := Resolve(other, nil)
	must(t, err)
	flip := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 1
		return b
	}
	for name, damage := range map[string]func(){
		"empty":         func() { must(t, os.WriteFile(file, nil, 0o600)) },
		"cut":           func() { must(t, os.WriteFile(file, good[:len(good)/2], 0o600)) },
		"longer":        func() { must(t, os.WriteFile(file, append(bytes.Clone(good), 0), 0o600)) },
		"magic":         func() { must(t, os.WriteFile(file, flip(0), 0o600)) },
		"checksum":      func() { must(t, os.WriteFile(file, flip(len(cacheMagic)), 0o600)) },
		"payload":       func() { must(t, os.WriteFile(file, flip(len(good)-1), 0o600)) },
		"huge":          func() { must(t, os.WriteFile(file, make([]byte, maxCacheFile+1), 0o600)) },
		"other-program": func() { must(t, os.WriteFile(file, seal(encodeClosure(foreign)), 0o600)) },
		"valid-garbage": func() { must(t, os.WriteFile(file, seal([]byte{0xff, 0xff, 0xff}), 0o600)) },
		"huge-count":    func() { must(t, os.WriteFile(file, seal([]byte{0, 0, 0xfe, 0xff, 0xff, 0xff, 0x0f}), 0o600)) },
		"open-mode":     func() { must(t, os.Chmod(file, 0o644)) },
		"link": func() {
			must(t, os.WriteFile(dir+"/elsewhere", good, 0o600))
			must(t, os.Remove(file))
			must(t, os.Symlink(dir+"/elsewhere", file))
		},
		"directory": func() { must(t, os.Remove(file)); must(t, os.Mkdir(file, 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.RemoveAll(file))
			must(t, os.WriteFile(file, good, 0o600))
			if _, hit, err := Cached(cache, prog, nil); err != nil || !hit {
				t.Fatalf("control: hit %v, %v", hit, err)
			}
			damage()
			got, hit, err := Cached(cache, prog, nil)
			if err != nil || hit || got.Digest != want.Digest {
				t.Errorf("hit %v, %v; digest equal %v", hit, err, got != nil && got.Digest == want.Digest)
			}
		})
	}
	names, err := os.ReadDir(cache)
	must(t, err)
	if len(names) > 2 { // the entry, and the half-done one of "directory"
		t.Errorf("the cache grew to %d files", len(names))
	}
}

// A payload that lies about itself may do no more than fail to decode.
func TestCodecDamage(t *testing.T) {
	dir := realDir(t)
	c, err := Resolve(put(t, dir, "prog", 0o755, fakeELF{}.bytes()), nil)
	must(t, err)
	payload := encodeClosure(c)
	back, err := decodeClosure(seal(payload))
	if err != nil || !reflect.DeepEqual(back, c) {
		t.Fatalf("round trip: %v\n%+v\n%+v", err, back, c)
	}
	refused := 0
	for i := range payload {
		for _, v := range []byte{0, 1, 0x7f, 0xff} {
			bad := bytes.Clone(payload)
			bad[i] = v
			got, err := decodeClosure(seal(bad))
			if err != nil {
				refused++
			} else if got.Digest == c.Digest && v != payload[i] {
				t.Fatalf("byte %d changed and the digest did not", i)
			}
		}
		if _, err := decodeClosure(seal(payload[:i])); err == nil {
			t.Errorf("the first %d bytes alone were accepted", i)
		}
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

func TestCacheDirectoryMustBePrivate(t *testing.T) {
	dir := realDir(t)
	prog := put(t, dir, "prog", 0o755, fakeELF{}.bytes())
	for name, c := range map[string]struct {
		make func(p string) error
		ok   bool
	}{
		"absent":    {func(string) error { return nil }, true},
		"private":   {func(p string) error { return os.Mkdir(p, 0o700) }, true},
		"group":     {func(p string) error { return os.Mkdir(p, 0o750) }, false},
		"file":      {func(p string) error { return os.WriteFile(p, nil, 0o600) }, false},
		"link":      {func(p string) error { return os.Symlink(dir+"/private", p) }, false},
		"no/parent": {func(string) error { return nil }, false},
	} {
		p := filepath.Join(dir, name)
		must(t, c.make(p))
		_, _, err := Cached(p, prog, nil)
		if c.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.ok {
			wantReason(t, err, reason.RootfsCacheNotPrivate, "")
		}
	}
}

func TestCheckNamesWhatChanged(t *testing.T) {
	dir := realDir(t)
	prog := put(t, dir, "prog", 0o755, fakeELF{}.bytes())
	c, err := Resolve(prog, nil)
	must(t, err)
	must(t, c.Check())
	replace(t, prog)
	wantReason(t, c.Check(), reason.RootfsSourceChanged, prog)
	must(t, os.Remove(prog))
	wantReason(t, c.Check(), reason.RootfsSourceChanged, prog)
}

func BenchmarkCachedPython(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "cache")
	_, _, err := Cached(dir, "/usr/bin/python3", nil)
	must(b, err)
	for b.Loop() {
		if _, hit, err := Cached(dir, "/usr/bin/python3", nil); err != nil || !hit {
			b.Fatal(hit, err)
		}
	}
}

func BenchmarkResolvePython(b *testing.B) {
	for b.Loop() {
		_, err := Resolve("/usr/bin/python3", nil)
		must(b, err)
	}
}
