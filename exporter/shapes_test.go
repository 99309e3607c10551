package exporter

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// canary is in everything that must not come out.
const canary = "CANARY-7f3a"

var goodCSV = []byte("city,volume\nAustin,\"1,000\"\n")

func testBounds() Bounds {
	return Bounds{FileBytes: 1 << 20, FileCount: 1, MaxLine: 8192, MaxRows: 20000, MaxEntries: 64, AllowedNames: []string{"summary.csv"}}
}

// place is an /out and a staging file of one test. As root the entries belong to
// 10001, as in a box; otherwise to whoever runs the test.
type place struct {
	t        testing.TB
	path     string
	dir      int
	staging  *os.File
	more     []*os.File // of an export of several files
	uid, gid int
}

func newPlace(t testing.TB) *place {
	t.Helper()
	p := &place{t: t, path: t.TempDir(), uid: os.Getuid(), gid: os.Getgid()}
	if p.uid == 0 {
		p.uid, p.gid = 10001, 10001
	}
	p.check(os.Chown(p.path, p.uid, p.gid))
	var err error
	p.dir, err = unix.Open(p.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	p.check(err)
	t.Cleanup(func() { unix.Close(p.dir) })
	p.newStaging()
	return p
}

func (p *place) newStaging() {
	p.t.Helper()
	var err error
	p.staging, err = os.OpenFile(filepath.Join(p.t.TempDir(), "staging"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	p.check(err)
	p.t.Cleanup(func() { p.staging.Close() })
}

func (p *place) check(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) at(name string) string { return p.path + "/" + name }

func (p *place) own(name string) { p.check(os.Lchown(p.at(name), p.uid, p.gid)) }

func (p *place) file(name string, data []byte) {
	p.t.Helper()
	p.check(os.WriteFile(p.at(name), data, 0o600))
	p.own(name)
}

// request opens the allowed names as the set-up does.
func (p *place) request(b Bounds) Request {
	req := Request{Bounds: b, OwnerUID: uint32(p.uid), OwnerGID: uint32(p.gid), Staging: []int{int(p.staging.Fd())}}
	for len(req.Staging) < b.Slots() {
		f, err := os.OpenFile(filepath.Join(p.t.TempDir(), "more"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		p.check(err)
		p.t.Cleanup(func() { f.Close() })
		p.more, req.Staging = append(p.more, f), append(req.Staging, int(f.Fd()))
	}
	for _, name := range b.AllowedNames {
		how := unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		}
		h := Handle{Name: name}
		fd, err := unix.Openat2(p.dir, name, &how)
		if err != nil {
			h.FD, h.Errno = -1, int(err.(unix.Errno))
		} else {
			h.FD = fd
			p.t.Cleanup(func() { unix.Close(fd) })
		}
		req.Names = append(req.Names, h)
	}
	return req
}

func (p *place) staged() []byte {
	p.t.Helper()
	data, err := os.ReadFile(p.staging.Name())
	p.check(err)
	return data
}

// examine runs the whole and holds the report against what the launcher checks.
func (p *place) examine(b Bounds) Report {
	p.t.Helper()
	return p.examineWith(p.request(b), standardChecks)
}

func (p *place) examineWith(req Request, pipeline pipeline) Report {
	p.t.Helper()
	done := make(chan Report, 1)
	go func() { done <- examine(p.dir, req, pipeline) }()
	var r Report
	select {
	case r = <-done:
	case <-time.After(10 * time.Second):
		p.t.Fatal("the examination hangs")
	}
	line, err := r.encode()
	p.check(err)
	decoded, err := DecodeReport(line, req.Bounds)
	if err != nil {
		p.t.Fatalf("the launcher would refuse the report: %v\n%s", err, line)
	}
	if bytes.Contains(line, []byte(canary)) {
		p.t.Errorf("the report has content: %s", line)
	}
	if r.Verdict != Accepted && len(p.staged()) != 0 {
		p.t.Errorf("%s, and %d bytes are staged", r.Verdict, len(p.staged()))
	}
	return decoded
}

func (p *place) wantRejected(r Report, codes ...string) {
	p.t.Helper()
	if r.Verdict != Rejected || !slices.Equal(r.Codes(), codes) {
		p.t.Errorf("%s %v, want REJECTED %v\n%+v", r.Verdict, r.Codes(), codes, r.Reasons)
	}
}

func (p *place) wantAccepted(r Report, data []byte) {
	p.t.Helper()
	if r.Verdict != Accepted || r.Name != "summary.csv" || r.Bytes != int64(len(data)) {
		p.t.Errorf("%s %s, %d bytes; want ACCEPTED summary.csv, %d bytes\n%+v", r.Verdict, r.Name, r.Bytes, len(data), r.Reasons)
	}
	if !bytes.Equal(p.staged(), data) {
		p.t.Errorf("staged are %d bytes that are not the file's", len(p.staged()))
	}
	if want := digestOf(data); r.SHA256 != want {
		p.t.Errorf("digest is %s, want %s", r.SHA256, want)
	}
}

func TestEmpty(t *testing.T) {
	p := newPlace(t)
	if r := p.examine(testBounds()); r.Verdict != Empty || r.Entries != 0 {
		t.Errorf("%+v", r)
	}
}

func TestShapes(t *testing.T) {
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte(canary+",1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := func(to string) func(*place) {
		return func(p *place) { p.check(os.Symlink(to, p.at("summary.csv"))); p.own("summary.csv") }
	}
	good := func(p *place) { p.file("summary.csv", goodCSV) }
	long := strings.Repeat("n", 255)
	cases := []struct {
		name  string
		make  func(*place)
		codes []string // none: accepted
	}{
		{"the file alone", good, nil},
		{"mode 0444", func(p *place) { good(p); p.check(os.Chmod(p.at("summary.csv"), 0o444)) }, nil},
		{"absolute link", link(target), []string{codeSymlink}},
		{"relative link", func(p *place) { p.file("real", []byte(canary)); link("real")(p) }, []string{codeNameNotAllowed, codeSymlink}},
		{"dangling link", link("/nowhere/at/all"), []string{codeSymlink}},
		{"link loop", link("summary.csv"), []string{codeSymlink}},
		{"link to a directory", link("/"), []string{codeSymlink}},
		{"link to parent", link(".."), []string{codeSymlink}},
		{"magic link to a descriptor", link("/proc/self/fd/0"), []string{codeSymlink}},
		{"magic link to the root", link("/proc/self/root"), []string{codeSymlink}},
		{"link to a device", link("/dev/zero"), []string{codeSymlink}},
		{"link under another name", func(p *place) { good(p); p.check(os.Symlink(target, p.at("x"))); p.own("x") }, []string{codeNameNotAllowed, codeSymlink}},
		{"hard link inside", func(p *place) { good(p); p.check(os.Link(p.at("summary.csv"), p.at("b"))) }, []string{codeNameNotAllowed, codeHardlink, codeTooManyFiles}},
		{"hard link from outside", func(p *place) {
			outside := filepath.Join(filepath.Dir(p.path), "outside")
			p.check(os.WriteFile(outside, []byte(canary), 0o600))
			p.check(os.Lchown(outside, p.uid, p.gid))
			p.check(os.Link(outside, p.at("summary.csv")))
		}, []string{codeHardlink}},
		{"fifo", func(p *place) { p.check(unix.Mkfifo(p.at("summary.csv"), 0o666)); p.own("summary.csv") }, []string{codeFIFO}},
		{"socket", func(p *place) {
			// by the short way: a socket's path is limited to 108 bytes
			l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/summary.csv", p.dir))
			p.check(err)
			p.t.Cleanup(func() { l.Close() })
			p.own("summary.csv")
		}, []string{codeSocket}},
		{"directory", func(p *place) { p.check(os.Mkdir(p.at("summary.csv"), 0o755)); p.own("summary.csv") }, []string{codeDirectory}},
		{"directory beside", func(p *place) { good(p); p.check(os.Mkdir(p.at("d"), 0o755)); p.own("d") }, []string{codeNameNotAllowed, codeDirectory}},
		{"wrong name", func(p *place) { p.file("results.csv", []byte(canary)) }, []string{codeNameNotAllowed}},
		{"wrong case", func(p *place) { p.file("Summary.csv", []byte(canary)) }, []string{codeNameNotAllowed}},
		{"hidden file", func(p *place) { p.file(".summary.csv", []byte(canary)) }, []string{codeNameNotAllowed}},
		{"second file", func(p *place) { good(p); p.file("more.csv", []byte(canary)) }, []string{codeNameNotAllowed, codeTooManyFiles}},
		{"newline in a name", func(p *place) { p.file("summary.csv\n", []byte(canary)) }, []string{codeNameNotAllowed}},
		{"name not utf-8", func(p *place) { p.file("summary\xff\xfe.csv", []byte(canary)) }, []string{codeNameNotAllowed}},
		{"longest name", func(p *place) { p.file(long, []byte(canary)) }, []string{codeNameNotAllowed}},
		{"two MiB", func(p *place) { p.file("summary.csv", bytes.Repeat([]byte(canary+"\n"), 2<<20/12)) }, []string{codeTooLarge}},
		{"sparse TiB", func(p *place) { good(p); p.check(os.Truncate(p.at("summary.csv"), 1<<40)) }, []string{codeTooLarge}},
		{"gzip", func(p *place) { p.file("summary.csv", gzipped(p.t, 64<<20)) }, []string{codeCompressedMagic, codeNUL, codeNotUTF8, codeLineTooLong}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			c.make(p)
			r := p.examine(testBounds())
			if len(c.codes) == 0 {
				p.wantAccepted(r, goodCSV)
				return
			}
			p.wantRejected(r, c.codes...)
		})
	}
}

// gzipped returns real gzip data that expands to n zeros.
func gzipped(t testing.TB, n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	chunk := make([]byte, 1<<20)
	for ; n > 0; n -= len(chunk) {
		if _, err := z.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDevicesAndOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		err := unix.Mknod(filepath.Join(t.TempDir(), "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))
		if errors.Is(err, unix.EPERM) {
			t.Skip("making a device and giving files away needs root, as mknod just showed: ", err)
		}
		t.Fatalf("not root, and mknod says %v", err)
	}
	for name, mode := range map[string]uint32{"character": unix.S_IFCHR, "block": unix.S_IFBLK} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.check(unix.Mknod(p.at("summary.csv"), mode|0o666, int(unix.Mkdev(1, 5))))
			p.own("summary.csv")
			p.wantRejected(p.examine(testBounds()), codeDevice)
		})
	}
	for name, ids := range map[string][2]int{"user": {0, 10001}, "group": {10001, 0}} {
		t.Run("foreign "+name, func(t *testing.T) {
			p := newPlace(t)
			p.file("summary.csv", goodCSV)
			p.check(os.Chown(p.at("summary.csv"), ids[0], ids[1]))
			p.wantRejected(p.examine(testBounds()), codeWrongOwner)
		})
	}
}

func TestMountInside(t *testing.T) {
	// The thread keeps its mount namespace and ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		if os.Geteuid() != 0 && errors.Is(err, unix.EPERM) {
			runtime.UnlockOSThread()
			t.Skip("mounting needs root, as unshare just showed: ", err)
		}
		t.Fatal(err)
	}
	p := newPlace(t)
	p.check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	p.check(os.Mkdir(p.at("d"), 0o755))
	p.check(unix.Mount("tmpfs", p.at("d"), "tmpfs", 0, "size=64k"))
	p.check(os.WriteFile(p.at("d/secret"), []byte(canary), 0o600))
	p.own("d/secret")
	p.file("summary.csv", nil)
	p.check(unix.Mount(p.at("d/secret"), p.at("summary.csv"), "", unix.MS_BIND, ""))
	p.check(unix.Unmount(p.at("d"), unix.MNT_DETACH))
	p.check(os.Remove(p.at("d")))
	req := p.request(testBounds())
	r := Examine(p.dir, req)
	p.wantRejected(r, codeOtherFilesystem, codeOpenFailed)
	p.check(unix.Unmount(p.at("summary.csv"), 0))
	r = Examine(p.dir, p.request(testBounds()))
	p.wantAccepted(r, nil)
}

func TestManyEntries(t *testing.T) {
	p := newPlace(t)
	for i := range 63 {
		p.file(fmt.Sprintf("f%04d", i), nil)
	}
	p.file("summary.csv", goodCSV)
	r := p.examine(testBounds())
	p.wantRejected(r, codeNameNotAllowed, codeTooManyFiles)
	if len(r.Reasons) != 64 || r.Omitted != 0 || r.Entries != 64 {
		t.Errorf("at the cap: %d reasons, %d omitted, %d entries", len(r.Reasons), r.Omitted, r.Entries)
	}
	for i := 63; i < 5000; i++ {
		p.check(unix.Mknod(p.at(fmt.Sprintf("f%04d", i)), unix.S_IFREG|0o600, 0))
	}
	p.wantRejected(p.examine(testBounds()), codeTooManyEntries)
	b := testBounds()
	b.MaxEntries = entriesCeiling
	p.wantRejected(p.examine(b), codeTooManyEntries)
}

func TestManyFindingsFitTheReport(t *testing.T) {
	p := newPlace(t)
	b := testBounds()
	b.MaxEntries = 1024
	for i := range 1000 {
		p.file(fmt.Sprintf("%03d", i)+strings.Repeat("\xff\\", 126), nil)
	}
	r := p.examine(b) // decodes, so the line fits
	if len(r.Reasons) != maxFindings || r.Omitted != 1000+1-maxFindings {
		t.Errorf("%d reasons, %d omitted", len(r.Reasons), r.Omitted)
	}
}

// What is opened and what is listed may disagree only if somebody is still
// writing: never a reason to call the directory empty.
func TestOpenedAndListedDisagree(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", goodCSV)
	req := p.request(testBounds())
	p.check(os.Remove(p.at("summary.csv")))
	p.wantRejected(p.examineWith(req, standardChecks), codeChanged)

	p.file("summary.csv", goodCSV)
	p.wantRejected(p.examineWith(req, standardChecks), codeChanged)

	closed := req
	closed.Names = []Handle{{Name: "summary.csv", FD: -1, Errno: int(unix.EACCES)}}
	p.wantRejected(p.examineWith(closed, standardChecks), codeOpenFailed)
	p.check(os.Remove(p.at("summary.csv")))
	p.wantRejected(p.examineWith(closed, standardChecks), codeOpenFailed)
	p.file("summary.csv", goodCSV)
	p.wantAccepted(p.examine(testBounds()), goodCSV)
}
