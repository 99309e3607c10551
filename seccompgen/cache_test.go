package seccompgen

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// privateDir returns a fresh 0700 directory.
func privateDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func cacheFile(dir string, p Profile) string {
	return filepath.Join(dir, strings.TrimPrefix(p.Digest(), "sha256:")+".bpf")
}

func TestCachedHitsTheSecondTime(t *testing.T) {
	dir, p := privateDir(t), Init()
	want := mustCompile(t, p)
	for i, wantHit := range []bool{false, true, true} {
		prog, hit, err := Cached(dir, p)
		if err != nil || hit != wantHit || !bytes.Equal(prog, want) {
			t.Fatalf("call %d: %d bytes, hit %v, error %v", i, len(prog), hit, err)
		}
	}
	if _, hit, err := Cached(dir, Exporter()); hit || err != nil {
		t.Errorf("another profile: hit %v, error %v", hit, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Errorf("%d files for two profiles: %v", len(entries), entries)
	}
}

// Each case spoils a good file; the next call must not use it, must give the right
// program and must leave a good file again.
func TestCachedReplacesBadFiles(t *testing.T) {
	rewrite := func(change func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(make func(path string) error) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
			if err := make(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]func(*testing.T, string){
		"empty":               rewrite(func(b []byte) []byte { return nil }),
		"magic only":          rewrite(func(b []byte) []byte { return b[:len(cacheMagic)] }),
		"header only":         rewrite(func(b []byte) []byte { return b[:cacheHeader] }),
		"one byte short":      rewrite(func(b []byte) []byte { return b[:len(b)-1] }),
		"one instruction off": rewrite(func(b []byte) []byte { return b[:len(b)-8] }),
		"trailing bytes":      rewrite(func(b []byte) []byte { return append(b, make([]byte, 8)...) }),
		"far too long":        rewrite(func(b []byte) []byte { return append(b, make([]byte, maxInstructions*8)...) }),
		"wrong magic":         rewrite(func(b []byte) []byte { b[0] ^= 1; return b }),
		"wrong length":        rewrite(func(b []byte) []byte { b[len(cacheMagic)] ^= 8; return b }),
		"wrong sum":           rewrite(func(b []byte) []byte { b[cacheHeader-1] ^= 1; return b }),
		"first bit flipped":   rewrite(func(b []byte) []byte { b[cacheHeader] ^= 1; return b }),
		"last bit flipped":    rewrite(func(b []byte) []byte { b[len(b)-1] ^= 0x80; return b }),
		"another profile's program": rewrite(func(b []byte) []byte {
			other := mustCompile(t, Exporter())
			return append(header(Exporter().Digest(), other), other...)
		}),
		"allow everything, own sum": rewrite(func(b []byte) []byte {
			prog := []byte{6, 0, 0, 0, 0, 0, 0xff, 0x7f}
			s := sha256.Sum256(prog) // without the digest of the profile
			h := binary.LittleEndian.AppendUint32([]byte(cacheMagic), 8)
			return append(append(h, s[:]...), prog...)
		}),
		"group-writable": func(t *testing.T, path string) { chmod(t, path, 0o620) },
		"world-writable": func(t *testing.T, path string) { chmod(t, path, 0o602) },
		"hard link":      func(t *testing.T, path string) { must(t, os.Link(path, path+".old")) },
		"symlink":        replace(func(path string) error { return os.Symlink(path+".old", path) }),
		"fifo":           replace(func(path string) error { return unix.Mkfifo(path, 0o600) }),
		"directory":      replace(func(path string) error { return os.Mkdir(path, 0o700) }),
	}
	if os.Geteuid() == 0 {
		cases["other owner"] = func(t *testing.T, path string) { must(t, os.Chown(path, 4242, -1)) }
	}
	p := Init()
	want := mustCompile(t, p)
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			dir := privateDir(t)
			if _, _, err := Cached(dir, p); err != nil {
				t.Fatal(err)
			}
			if _, hit, _ := Cached(dir, p); !hit {
				t.Fatal("control: the unspoilt file is not used")
			}
			spoil(t, cacheFile(dir, p))
			for _, wantHit := range []bool{false, true} {
				prog, hit, err := Cached(dir, p)
				if err != nil || hit != wantHit || !bytes.Equal(prog, want) {
					t.Errorf("%d bytes, hit %v (want %v), error %v", len(prog), hit, wantHit, err)
				}
			}
		})
	}
}

func TestCachedRefusesOpenDirectories(t *testing.T) {
	cases := map[string]func(*testing.T, string) string{
		"group may enter": func(t *testing.T, dir string) string { chmod(t, dir, 0o710); return dir },
		"world may write": func(t *testing.T, dir string) string { chmod(t, dir, 0o702); return dir },
		"absent":          func(t *testing.T, dir string) string { return dir + "/absent" },
		"symlink":         func(t *testing.T, dir string) string { must(t, os.Symlink(dir, dir+".link")); return dir + ".link" },
	}
	if os.Geteuid() == 0 {
		cases["other owner"] = func(t *testing.T, dir string) string { must(t, os.Chown(dir, 4242, -1)); return dir }
	}
	for name, open := range cases {
		dir := privateDir(t)
		if _, _, err := Cached(dir, Init()); err != nil {
			t.Fatalf("control: %v", err)
		}
		if prog, hit, err := Cached(open(t, dir), Init()); err == nil || prog != nil || hit {
			t.Errorf("%s: %d bytes, hit %v, error %v; want a refusal", name, len(prog), hit, err)
		}
	}
}

func TestCachedWithoutRoomStillCompiles(t *testing.T) {
	dir, p := privateDir(t), Init()
	// Something in the file's place that cannot be replaced.
	must(t, os.MkdirAll(filepath.Join(cacheFile(dir, p), "kept"), 0o700))
	prog, hit, err := Cached(dir, p)
	if err != nil || hit || !bytes.Equal(prog, mustCompile(t, p)) {
		t.Errorf("%d bytes, hit %v, error %v", len(prog), hit, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".new-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The bound is for the best of many and ten times what it should be, so
// that a busy machine does not fail it; the benchmark gives the figure.
func TestCachedHitIsFast(t *testing.T) {
	dir, p := privateDir(t), Workload(Options{})
	if _, _, err := Cached(dir, p); err != nil {
		t.Fatal(err)
	}
	best := time.Hour
	for range 50 {
		start := time.Now()
		if _, hit, err := Cached(dir, p); !hit || err != nil {
			t.Fatal(hit, err)
		}
		best = min(best, time.Since(start))
	}
	t.Logf("best of 50: %v", best)
	if best > time.Millisecond {
		t.Errorf("a hit takes %v", best)
	}
}

func BenchmarkCachedHit(b *testing.B) {
	dir := privateDir(b)
	if _, _, err := Cached(dir, Workload(Options{})); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, hit, err := Cached(dir, Workload(Options{})); !hit || err != nil {
			b.Fatal(hit, err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile(Workload(Options{})); err != nil {
			b.Fatal(err)
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	must(t, os.Chmod(path, mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
