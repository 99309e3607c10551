package rootfs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

func sumOf(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func TestStageShapes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077)) // a strict umask must not reach the copy
	for name, c := range map[string]struct {
		files  map[string]string // on the host; a trailing slash makes a directory
		inputs []Input           // Path relative to the host directory
		want   map[string]string // name below /in -> content
		dirs   []string          // directories without files
	}{
		"file":              {map[string]string{"a.csv": "x"}, []Input{{"a.csv", ""}}, map[string]string{"a.csv": "x"}, nil},
		"renamed":           {map[string]string{"a.csv": "x"}, []Input{{"a.csv", "b"}}, map[string]string{"b": "x"}, nil},
		"empty-file":        {map[string]string{"a": ""}, []Input{{"a", ""}}, map[string]string{"a": ""}, nil},
		"no-inputs":         {nil, nil, map[string]string{}, nil},
		"contents":          {map[string]string{"d/a": "1", "d/s/b": "2"}, []Input{{"d", ""}}, map[string]string{"a": "1", "s/b": "2"}, nil},
		"dir-slash":         {map[string]string{"d/a": "1"}, []Input{{"d/", ""}}, map[string]string{"a": "1"}, nil},
		"dir-renamed":       {map[string]string{"d/a": "1"}, []Input{{"d", "n"}}, map[string]string{"n/a": "1"}, nil},
		"empty-dirs":        {map[string]string{"d/e/f/": ""}, []Input{{"d", ""}}, map[string]string{}, []string{"e/f"}},
		"both":              {map[string]string{"d/a": "1", "b": "2"}, []Input{{"d", ""}, {"b", ""}}, map[string]string{"a": "1", "b": "2"}, nil},
		"same-file-twice":   {map[string]string{"a": "1"}, []Input{{"a", ""}, {"a", "b"}}, map[string]string{"a": "1", "b": "1"}, nil},
		"collision-avoided": {map[string]string{"x/a": "1", "y/a": "2"}, []Input{{"x/a", ""}, {"y/a", "a2"}}, map[string]string{"a": "1", "a2": "2"}, nil},
		"unicode":           {map[string]string{"tÿ 文.csv": "x"}, []Input{{"tÿ 文.csv", ""}}, map[string]string{"tÿ 文.csv": "x"}, nil},
		"dots":              {map[string]string{"..a": "x", ".h": "y"}, []Input{{"..a", ""}, {".h", "..."}}, map[string]string{"..a": "x", "...": "y"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			host, dst := realDir(t), filepath.Join(realDir(t), "in")
			for f, content := range c.files {
				if strings.HasSuffix(f, "/") {
					must(t, os.MkdirAll(filepath.Join(host, f), 0o700))
					continue
				}
				must(t, os.MkdirAll(filepath.Join(host, filepath.Dir(f)), 0o700))
				must(t, os.WriteFile(filepath.Join(host, f), []byte(content), 0o700))
			}
			for i := range c.inputs {
				c.inputs[i].Path = host + "/" + c.inputs[i].Path
			}
			got, err := Stage(t.Context(), dst, c.inputs, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.want) {
				t.Errorf("staged %v, want %v", got, c.want)
			}
			last := ""
			for _, s := range got {
				content, ok := c.want[s.Name]
				if !ok || s.Bytes != int64(len(content)) || s.SHA256 != sumOf([]byte(content)) || s.Name <= last {
					t.Errorf("%+v is unexpected, wrong or out of order", s)
				}
				last = s.Name
			}
			for _, d := range c.dirs {
				if !(place{}).isDir(filepath.Join(dst, d)) {
					t.Errorf("directory %s was not copied", d)
				}
			}
			must(t, filepath.WalkDir(dst, func(p string, d fs.DirEntry, err error) error {
				must(t, err)
				fi, err := d.Info()
				must(t, err)
				want := fs.FileMode(0o644)
				if d.IsDir() {
					want = 0o755
				}
				if fi.Mode().Perm() != want || (!d.IsDir() && !fi.Mode().IsRegular()) {
					t.Errorf("%s has mode %v", p, fi.Mode())
				}
				return nil
			}))
			for _, f := range got {
				b, err := os.ReadFile(filepath.Join(dst, f.Name))
				must(t, err)
				if sum := sha256.Sum256(b); int64(len(b)) != f.Bytes || hex.EncodeToString(sum[:]) != f.SHA256 {
					t.Errorf("%s has other content than what was hashed", f.Name)
				}
			}
			must(t, RemoveStaged(dst))
			if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the copy is still there: %v", err)
			}
		})
	}
}

func TestStageRefuses(t *testing.T) {
	host := realDir(t)
	put(t, host, "file", 0o644, []byte("12345"))
	put(t, host, "d/file", 0o644, []byte("12345"))
	put(t, host, "deep/"+strings.Repeat("x/", maxDepth+1)+"f", 0o644, nil)
	put(t, host, "shallow/"+strings.Repeat("x/", maxDepth-1)+"f", 0o644, nil)
	put(t, host, "bad/new\nline", 0o644, nil)
	put(t, host, "esc/a\x1b[1m", 0o644, nil)
	put(t, host, "latin/caf\xe9", 0o644, nil)
	put(t, host, "fifo/a", 0o644, nil)
	must(t, unix.Mkfifo(host+"/fifo/p", 0o644))
	must(t, os.MkdirAll(host+"/links", 0o755))
	must(t, os.Symlink("../file", host+"/links/l"))
	must(t, os.MkdirAll(host+"/dirlinks", 0o755))
	must(t, os.Symlink("../d", host+"/dirlinks/l"))
	must(t, os.Symlink("file", host+"/named"))
	must(t, os.Symlink("d", host+"/nameddir"))
	must(t, os.Symlink("loop", host+"/loop"))
	must(t, os.Symlink("absent", host+"/dangling"))
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	defer unix.Close(sock)
	t.Chdir(host) // a socket's address is short
	must(t, unix.Bind(sock, &unix.SockaddrUnix{Name: "sock"}))
	one := func(p, name string) []Input { return []Input{{host + "/" + p, name}} }
	for name, c := range map[string]struct {
		inputs []Input
		max    int64
		id     reason.ID // empty: a control
	}{
		"exactly-full":      {one("file", ""), 5, ""},
		"named-link":        {one("named", ""), 5, ""},
		"named-dir-link":    {one("nameddir", ""), 5, ""},
		"deep-enough":       {one("shallow", ""), 5, ""},
		"missing":           {one("absent", ""), 5, reason.InputMissing},
		"dangling":          {one("dangling", ""), 5, reason.InputMissing},
		"file-as-dir":       {one("file/x", ""), 5, reason.InputMissing},
		"empty-path":        {[]Input{{"", ""}}, 5, reason.InputMissing},
		"link-inside":       {one("links", ""), 5, reason.InputSymlink},
		"dir-link-inside":   {one("dirlinks", ""), 5, reason.InputSymlink},
		"link-loop":         {one("loop", ""), 5, reason.InputSymlink},
		"fifo":              {one("fifo/p", ""), 5, reason.InputSpecial},
		"fifo-inside":       {one("fifo", ""), 5, reason.InputSpecial},
		"socket":            {one("sock", ""), 5, reason.InputSpecial},
		"device":            {[]Input{{"/dev/zero", ""}}, 5, reason.InputSpecial},
		"too-large":         {one("file", ""), 4, reason.InputTooLarge},
		"too-large-sum":     {append(one("file", ""), one("d/file", "b")...), 9, reason.InputTooLarge},
		"negative-limit":    {one("file", ""), -1, reason.InputTooLarge},
		"too-deep":          {one("deep", ""), 5, reason.InputTooMany},
		"collision":         {append(one("file", ""), one("d/file", "")...), 99, reason.InputCollision},
		"collision-dir":     {append(one("d", ""), one("file", "")...), 99, reason.InputCollision},
		"collision-renamed": {append(one("d", "n"), one("file", "n")...), 99, reason.InputCollision},
		"collision-twice":   {append(one("d", "n"), one("d", "n")...), 99, reason.InputCollision},
		"name-slash":        {one("file", "a/b"), 5, reason.InputBadName},
		"name-dots":         {one("file", ".."), 5, reason.InputBadName},
		"name-dot":          {one("d", "."), 5, reason.InputBadName},
		"name-nul":          {one("file", "a\x00b"), 5, reason.InputBadName},
		"name-delete":       {one("file", "a\x7f"), 5, reason.InputBadName},
		"name-c1":           {one("file", "a\u009b"), 5, reason.InputBadName},
		"name-long":         {one("file", strings.Repeat("x", maxName+1)), 5, reason.InputBadName},
		"name-utf8":         {one("latin", ""), 5, reason.InputBadName},
		"name-newline":      {one("bad", ""), 5, reason.InputBadName},
		"name-escape":       {one("esc", ""), 5, reason.InputBadName},
		// Regular, of size 0, with content: the same as a file that grew under the copy.
		"grown": {[]Input{{"/proc/version", ""}}, 1 << 20, reason.InputChanged},
		// And the bound is kept although the size promised to fit.
		"grown-too-large": {[]Input{{"/proc/version", ""}}, 5, reason.InputTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			dst := filepath.Join(realDir(t), "in")
			_, err := Stage(t.Context(), dst, c.inputs, c.max)
			if c.id == "" {
				must(t, err)
				return
			}
			wantReason(t, err, c.id, "")
			if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a refused staging left its copy: %v", err)
			}
		})
	}
}

func TestStageUnreadable(t *testing.T) {
	host, state := realDir(t), realDir(t)
	must(t, os.Chmod(filepath.Dir(state), 0o755))
	must(t, os.Chmod(host, 0o755))
	must(t, os.Chmod(state, 0o777))
	open := put(t, host, "open", 0o644, []byte("x"))
	closed := put(t, host, "closed", 0o000, []byte("x"))
	done := make(chan [2]error)
	go func() {
		// Root reads anything; this thread becomes nobody to the filesystem and ends with the goroutine.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if _, err := unix.SetfsuidRetUid(nobody); err != nil {
				done <- [2]error{err, err}
				return
			}
		}
		_, control := Stage(context.Background(), state+"/a", []Input{{open, ""}}, 9)
		_, refused := Stage(context.Background(), state+"/b", []Input{{closed, ""}}, 9)
		done <- [2]error{control, refused}
	}()
	errs := <-done
	must(t, errs[0])
	wantReason(t, errs[1], reason.InputUnreadable, "closed")
}

// The change falls between the open and the copy, where a writer would have to hit.
func TestStageNoticesChange(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p string) error
		id     reason.ID
	}{
		"at-rest":   {func(string) error { return nil }, ""}, // the control
		"same-size": {func(p string) error { return writeAt(p, 0) }, reason.InputChanged},
		"mtime-put-back": {func(p string) error {
			return errors.Join(writeAt(p, 0), os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0)))
		}, reason.InputChanged},
		"appended":             {func(p string) error { return writeAt(p, 5) }, reason.InputChanged},
		"truncated":            {func(p string) error { return os.Truncate(p, 1) }, reason.InputChanged},
		"times-set":            {func(p string) error { return os.Chtimes(p, time.Unix(2, 0), time.Unix(2, 0)) }, reason.InputChanged},
		"grown-past-the-limit": {func(p string) error { return os.Truncate(p, 100) }, reason.InputTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			p := put(t, realDir(t), "f", 0o644, []byte("12345"))
			// Long ago: timestamps are as coarse as a tick before Linux 6.13.
			must(t, os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0)))
			s, dst := newStager(t, 50)
			src, err := openSource(unix.AT_FDCWD, p, p, 0)
			must(t, err)
			defer unix.Close(src.fd)
			must(t, c.change(p))
			err = s.file(src, dst, "", "f")
			if c.id == "" {
				must(t, err)
				return
			}
			wantReason(t, err, c.id, p)
		})
	}
}

func TestStageNoticesDirectoryChange(t *testing.T) {
	host := realDir(t)
	put(t, host, "a", 0o644, nil)
	must(t, os.Chtimes(host, time.Unix(1, 0), time.Unix(1, 0)))
	s, dst := newStager(t, 50)
	src, err := openSource(unix.AT_FDCWD, host, host, 0)
	must(t, err)
	defer unix.Close(src.fd)
	wantReason(t, s.entry(src, dst, "", "vanished", 0), reason.InputMissing, "vanished")
	must(t, s.dir(src, dst, "", 0))
	put(t, host, "b", 0o644, nil)
	must(t, os.Remove(host+"/b"))
	s, dst = newStager(t, 50)
	_, err = unix.Seek(src.fd, 0, 0)
	must(t, err)
	wantReason(t, s.dir(src, dst, "", 0), reason.InputChanged, host)
}

func writeAt(p string, off int64) error {
	f, err := os.OpenFile(p, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("x"), off)
	return errors.Join(err, f.Close())
}

// newStager returns a stager and an open, empty directory for it to fill.
func newStager(t testing.TB, limit int64) (*stager, int) {
	t.Helper()
	dst, err := unix.Open(realDir(t), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(dst) })
	return &stager{ctx: context.Background(), limit: limit, left: limit, claims: map[string]string{}, buf: make([]byte, 16), copied: new(atomic.Int64)}, dst
}

func TestStageTooManyEntries(t *testing.T) {
	host := realDir(t)
	put(t, host, "a", 0o644, nil)
	s, dst := newStager(t, 50)
	s.entries = maxEntries - 1
	must(t, s.input(dst, Input{Path: host}))
	wantReason(t, s.input(dst, Input{host, "n"}), reason.InputTooMany, "65536")
}

func TestStageStopsWhenCancelled(t *testing.T) {
	host, dst := realDir(t), filepath.Join(realDir(t), "in")
	p := put(t, host, "a", 0o644, []byte("x"))
	why := errors.New("attempt deadline")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Stage(ctx, dst, []Input{{p, ""}}, 9); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a cancelled staging left its copy: %v", err)
	}
}

func TestStageNeedsAFreshDirectory(t *testing.T) {
	dir := realDir(t)
	kept := put(t, dir, "in/kept", 0o644, nil)
	_, err := Stage(t.Context(), dir+"/in", nil, 9)
	wantReason(t, err, reason.InputStagingFailed, "")
	if !(place{}).exists(kept) {
		t.Error("a directory that was there before was removed")
	}
}

func BenchmarkStage64MiB(b *testing.B) {
	host, state := b.TempDir(), b.TempDir()
	data := make([]byte, 64<<20)
	_, _ = rand.Read(data)
	p := put(b, host, "big", 0o644, data)
	b.SetBytes(int64(len(data)))
	for i := 0; b.Loop(); i++ {
		dst := fmt.Sprintf("%s/%d", state, i)
		if _, err := Stage(b.Context(), dst, []Input{{p, ""}}, 64<<20); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		must(b, RemoveStaged(dst))
		b.StartTimer()
	}
}
