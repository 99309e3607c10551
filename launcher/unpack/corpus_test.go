package unpack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"nsbox/launcher/unpack/request"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entry is one tar entry; kind 0 is a regular file.
type entry struct {
	name, link, content string
	kind                byte
	mode                int64
	xattr               string
}

func archive(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.content)), Format: tar.FormatPAX}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if e.xattr != "" {
			h.PAXRecords = map[string]string{"SCHILY.xattr." + e.xattr: "v"}
		}
		must(t, w.WriteHeader(h))
		_, err := w.Write([]byte(e.content))
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// imageOf writes an OCI layout with one layer for each archive.
func imageOf(t testing.TB, layers ...[]byte) (dir, digest string) {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, raw := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
		must(t, err)
		img, err = mutate.AppendLayers(img, l)
		must(t, err)
	}
	dir = t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	must(t, err)
	must(t, p.AppendImage(img))
	h, err := img.Digest()
	must(t, err)
	return dir, h.String()
}

// unpacked runs the stage's own function in a scratch place with a canary beside it.
func unpacked(t testing.TB, b request.Bounds, layers ...[]byte) (root string, rep request.Report, err error) {
	t.Helper()
	dir, digest := imageOf(t, layers...)
	return unpackedFrom(t, dir, digest, b)
}

func unpackedFrom(t testing.TB, dir, digest string, b request.Bounds) (root string, rep request.Report, err error) {
	t.Helper()
	place := t.TempDir()
	must(t, os.WriteFile(place+"/canary", []byte("whole"), 0o644))
	must(t, os.Mkdir(place+"/store", 0o755))
	rep.Counts = map[string]int{}
	err = image(dir, place+"/store", digest, b, &rep)
	if got, e := os.ReadFile(place + "/canary"); e != nil || string(got) != "whole" {
		t.Errorf("the canary beside the store is %q, %v", got, e)
	}
	names, e := os.ReadDir(place)
	if must(t, e); len(names) != 2 {
		t.Errorf("something was made beside the store: %v", names)
	}
	return place + "/store/root", rep, err
}

// listing is the tree as "mode name content" lines.
func listing(t testing.TB, root string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		fi, err := os.Lstat(p)
		must(t, err)
		name := strings.TrimPrefix(p, root+"/")
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			must(t, err)
			out = append(out, name+" -> "+target)
		case d.IsDir():
			out = append(out, fmt.Sprintf("%s/ %o", name, fi.Mode().Perm()))
		default:
			data, err := os.ReadFile(p)
			must(t, err)
			if n, err := unix.Llistxattr(p, nil); n != 0 && err == nil {
				t.Errorf("%s has extended attributes", name)
			}
			out = append(out, fmt.Sprintf("%s %o %s", name, fi.Mode(), data))
		}
		return nil
	}))
	return strings.Join(out, "; ")
}

func TestOrdinaryImage(t *testing.T) {
	root, rep, err := unpacked(t, request.DefaultBounds(),
		archive(t, []entry{
			{name: "usr/", kind: tar.TypeDir, mode: 0o700}, {name: "usr/bin/prog", content: "v1", mode: 0o700}, {name: "usr/data", content: "d", mode: 0o600},
			{name: "bin", kind: tar.TypeSymlink, link: "usr/bin"}, {name: "usr/hard", kind: tar.TypeLink, link: "usr/data"},
			{name: "old/a", content: "1"}, {name: "old/b", content: "2"}, {name: "gone/deep/x", content: "3"}, {name: "file", content: "4"},
		}),
		archive(t, []entry{
			{name: "bin/second", content: "v2", mode: 0o755}, // through the lower layer's link
			{name: "old/c", content: "5"}, {name: "old/.wh..wh..opq"}, {name: ".wh.gone"}, {name: ".wh.absent"}, {name: "file/", kind: tar.TypeDir},
		}))
	if err != nil {
		t.Fatal(err)
	}
	const want = "bin -> usr/bin; file/ 755; old/ 755; old/c 444 5; usr/ 755; usr/bin/ 755; usr/bin/prog 555 v1; usr/bin/second 555 v2; usr/data 444 d; usr/hard 444 d"
	if got := listing(t, root); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if rep.Counts["entries"] != 15 || rep.Bytes != 10 {
		t.Errorf("%+v", rep)
	}
	a, _ := os.Stat(root + "/usr/data")
	b, _ := os.Stat(root + "/usr/hard")
	if !os.SameFile(a, b) {
		t.Error("a hard link became a copy")
	}
}

// The corpus: each hostile layer is refused with its code, or leaves the tree
// that is written down.
func TestHostileLayers(t *testing.T) {
	long := strings.Repeat("n", 256)
	deep := strings.Repeat("d/", 70) + "f"
	for name, c := range map[string]struct {
		layers [][]entry
		code   string // refused with
		want   string // or the tree that results
		counts map[string]int
	}{
		"absolute name":                  {layers: [][]entry{{{name: "/etc/x", content: "1"}}}, want: "etc/ 755; etc/x 444 1", counts: map[string]int{"absolute_names": 1}},
		"name that leads up":             {layers: [][]entry{{{name: "../canary", content: "evil"}}}, code: "name_leads_up"},
		"up in the middle":               {layers: [][]entry{{{name: "a/../../canary", content: "evil"}}}, code: "name_leads_up"},
		"write through an absolute link": {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "/"}, {name: "l/x", content: "1"}}}, want: "l -> /; x 444 1"},
		"write through a link up": {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "../.."}, {name: "l/canary", content: "evil"}}},
			want: "canary 444 evil; l -> ../.."},
		"write through it in another layer": {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "../../.."}}, {{name: "l/canary", content: "evil"}}},
			want: "canary 444 evil; l -> ../../.."},
		"overwrite the file behind a link": {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "../../canary"}, {name: "l", content: "mine"}}}, want: "l 444 mine",
			counts: map[string]int{"repeated_names": 1}},
		"link loop":                   {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "l"}, {name: "l/x", content: "1"}}}, code: "bad_parent"},
		"hard link out":               {layers: [][]entry{{{name: "h", kind: tar.TypeLink, link: "../../canary"}}}, code: "name_leads_up"},
		"hard link to an absolute":    {layers: [][]entry{{{name: "h", kind: tar.TypeLink, link: "/etc/passwd"}}}, code: "bad_link"},
		"hard link through a link":    {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "../.."}, {name: "h", kind: tar.TypeLink, link: "l/canary"}}}, code: "bad_link"},
		"hard link to a link":         {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "/etc/passwd"}, {name: "h", kind: tar.TypeLink, link: "l"}}}, code: "bad_link"},
		"hard link to a directory":    {layers: [][]entry{{{name: "d/", kind: tar.TypeDir}, {name: "h", kind: tar.TypeLink, link: "d"}}}, code: "bad_link"},
		"hard link to itself":         {layers: [][]entry{{{name: "f", content: "1"}, {name: "f", kind: tar.TypeLink, link: "f"}}}, want: "f 444 1", counts: map[string]int{"repeated_names": 1}},
		"device nodes and a pipe":     {layers: [][]entry{{{name: "mem", kind: tar.TypeChar}, {name: "sda", kind: tar.TypeBlock}, {name: "p", kind: tar.TypeFifo}}}, counts: map[string]int{"special_files": 3}},
		"set-id and sticky bits":      {layers: [][]entry{{{name: "su", mode: 0o6755, content: "1"}}}, want: "su 555 1", counts: map[string]int{"set_id_bits": 1}},
		"world-writable":              {layers: [][]entry{{{name: "d/", kind: tar.TypeDir, mode: 0o1777}, {name: "f", mode: 0o666, content: "1"}}}, want: "d/ 755; f 444 1"},
		"file capabilities":           {layers: [][]entry{{{name: "f", content: "1", xattr: "security.capability"}, {name: "g", content: "2", xattr: "user.x"}}}, want: "f 444 1; g 444 2", counts: map[string]int{"xattrs": 2}},
		"duplicate entries":           {layers: [][]entry{{{name: "f", content: "1"}, {name: "./f", content: "2"}}}, want: "f 444 2", counts: map[string]int{"repeated_names": 1}},
		"a file where a directory is": {layers: [][]entry{{{name: "d/x", content: "1"}}, {{name: "d", content: "2"}}}, want: "d 444 2"},
		"deep nesting":                {layers: [][]entry{{{name: deep, content: "1"}}}, code: "too_deep"},
		"long name":                   {layers: [][]entry{{{name: long, content: "1"}}}, code: "bad_name"},
		"whiteout that leads up":      {layers: [][]entry{{{name: ".wh...", content: ""}}}, code: "bad_name"},
		"whiteout of what is outside": {layers: [][]entry{{{name: "l", kind: tar.TypeSymlink, link: "../.."}}, {{name: "l/.wh.canary"}, {name: "l/.wh..wh..opq"}}}, want: ""},
		"whiteout hides own entries":  {layers: [][]entry{{{name: "f", content: "1"}, {name: ".wh.f"}}}, want: "f 444 1"},
		"unknown kind":                {layers: [][]entry{{{name: "x", kind: 'Z'}}}, code: "entry_type"},
	} {
		t.Run(name, func(t *testing.T) {
			var raw [][]byte
			for _, l := range c.layers {
				raw = append(raw, archive(t, l))
			}
			root, rep, err := unpacked(t, request.DefaultBounds(), raw...)
			var f *fault
			if c.code != "" {
				if !errors.As(err, &f) || f.code != c.code {
					t.Errorf("got %v; want it refused as %s", err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := listing(t, root)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			delete(rep.Counts, "entries")
			if fmt.Sprint(rep.Counts) != fmt.Sprint(c.counts) && len(rep.Counts)+len(c.counts) > 0 {
				t.Errorf("counted %v, want %v", rep.Counts, c.counts)
			}
		})
	}
}

func TestBombs(t *testing.T) {
	many := make([]entry, 100_000)
	for i := range many {
		many[i] = entry{name: fmt.Sprintf("%d/%d", i%100, i)}
	}
	small := request.DefaultBounds()
	small.Bytes = 1 << 20
	for name, c := range map[string]struct {
		layer  []byte
		bounds request.Bounds
		code   string
	}{
		"100,000 entries": {archive(t, many), request.DefaultBounds(), "too_many_entries"},
		"by ratio":        {archive(t, []entry{{name: "zeros", content: strings.Repeat("\x00", request.RatioFrom+1<<20)}}), request.DefaultBounds(), "compression_ratio"},
		"by size":         {archive(t, []entry{{name: "a", content: strings.Repeat("x", 700<<10)}, {name: "b", content: strings.Repeat("y", 700<<10)}}), small, "too_many_bytes"},
		"no archive":      {[]byte(strings.Repeat("this is no archive ", 100)), request.DefaultBounds(), "bad_archive"},
		"cut archive":     {archive(t, []entry{{name: "a", content: strings.Repeat("x", 4096)}})[:2000], request.DefaultBounds(), "bad_archive"},
	} {
		_, _, err := unpacked(t, c.bounds, c.layer)
		var f *fault
		if !errors.As(err, &f) || f.code != c.code {
			t.Errorf("%s: %v; want it refused as %s", name, err, c.code)
		}
	}
}

// Whatever a digest leads to is held to it.
func TestDigestsAreHeld(t *testing.T) {
	layer := archive(t, []entry{{name: "f", content: "1"}})
	dir, digest := imageOf(t, layer)
	if _, _, err := unpackedFrom(t, dir, digest, request.DefaultBounds()); err != nil {
		t.Fatalf("control: %v", err)
	}
	blobs, err := filepath.Glob(dir + "/blobs/sha256/*")
	must(t, err)
	if len(blobs) != 3 {
		t.Fatalf("%d blobs", len(blobs))
	}
	for _, b := range blobs {
		old, err := os.ReadFile(b)
		must(t, err)
		for _, at := range []int{len(old) - 1, len(old) / 2} {
			data := append([]byte{}, old...)
			data[at] ^= 4
			must(t, os.WriteFile(b, data, 0o644))
			var f *fault
			if _, _, err := unpackedFrom(t, dir, digest, request.DefaultBounds()); !errors.As(err, &f) {
				t.Errorf("byte %d of %s changed: %v", at, filepath.Base(b), err)
			}
		}
		must(t, os.WriteFile(b, append(old, 'x'), 0o644))
		var f *fault
		if _, _, err := unpackedFrom(t, dir, digest, request.DefaultBounds()); !errors.As(err, &f) {
			t.Errorf("a byte added to %s: %v", filepath.Base(b), err)
		}
		must(t, os.WriteFile(b, old, 0o644))
	}
	for _, bad := range []string{"sha256:" + strings.Repeat("0", 64), "latest", "sha512:00", ""} {
		var f *fault
		if _, _, err := unpackedFrom(t, dir, bad, request.DefaultBounds()); !errors.As(err, &f) {
			t.Errorf("digest %q: %v", bad, err)
		}
	}
}

// wheelOf writes a zip; names are taken as they are.
func wheelOf(t testing.TB, dir, file string, names []string, edit func(*zip.FileHeader)) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, file))
	must(t, err)
	w := zip.NewWriter(f)
	for _, n := range names {
		h := &zip.FileHeader{Name: n, Method: zip.Deflate}
		if edit != nil {
			edit(h)
		}
		e, err := w.CreateHeader(h)
		must(t, err)
		_, err = e.Write([]byte("content of " + n))
		must(t, err)
	}
	must(t, w.Close())
	must(t, f.Close())
}

func TestHostileWheels(t *testing.T) {
	good := []string{"m/__init__.py", "m-1.dist-info/WHEEL", "m-1.dist-info/METADATA"}
	deep := strings.Repeat("d/", 70) + "f"
	for name, c := range map[string]struct {
		names []string
		edit  func(*zip.FileHeader)
		code  string
	}{
		"good":          {names: good},
		"leads up":      {names: append([]string{"../evil.py"}, good...), code: "name_leads_up"},
		"up inside":     {names: append([]string{"m/../../evil.py"}, good...), code: "name_leads_up"},
		"absolute":      {names: append([]string{"/evil.py"}, good...), code: "bad_name"},
		"backslash":     {names: append([]string{`m\..\..\evil.py`}, good...), code: "bad_name"},
		"twice":         {names: append([]string{"m/__init__.py"}, good...), code: "repeated_name"},
		"twice by case": {names: append([]string{"M/__init__.PY"}, good...), code: "repeated_name"},
		"link":          {names: good, edit: func(h *zip.FileHeader) { h.SetMode(fs.ModeSymlink | 0o777) }, code: "special_file"},
		"deep":          {names: append([]string{deep}, good...), code: "too_deep"},
		"no metadata":   {names: good[:1], code: "bad_wheel"},
		"two metadata":  {names: append([]string{"n-1.dist-info/WHEEL"}, good...), code: "bad_wheel"},
	} {
		dir := t.TempDir()
		wheelOf(t, dir, "m-1-py3-none-any.whl", c.names, c.edit)
		rep := request.Report{Counts: map[string]int{}}
		err := wheels(dir, request.DefaultBounds(), &rep)
		var f *fault
		switch {
		case c.code == "" && (err != nil || rep.Counts["wheels"] != 1):
			t.Errorf("%s: %v, %+v", name, err, rep)
		case c.code != "" && (!errors.As(err, &f) || f.code != c.code):
			t.Errorf("%s: %v; want %s", name, err, c.code)
		}
	}
	for name, data := range map[string][]byte{"no zip": []byte("PK but not really"), "empty": nil} {
		dir := t.TempDir()
		must(t, os.WriteFile(dir+"/m-1-py3-none-any.whl", data, 0o644))
		var f *fault
		if err := wheels(dir, request.DefaultBounds(), &request.Report{Counts: map[string]int{}}); !errors.As(err, &f) || f.code != "bad_wheel" {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	f, err := os.Create(dir + "/m-1-py3-none-any.whl")
	must(t, err)
	w := zip.NewWriter(f)
	e, err := w.Create("m-1.dist-info/WHEEL")
	must(t, err)
	zeros := make([]byte, 1<<20)
	for range request.RatioFrom>>20 + 1 {
		_, err = e.Write(zeros)
		must(t, err)
	}
	must(t, w.Close())
	must(t, f.Close())
	var ff *fault
	if err := wheels(dir, request.DefaultBounds(), &request.Report{Counts: map[string]int{}}); !errors.As(err, &ff) || ff.code != "compression_ratio" {
		t.Errorf("a bomb: %v", err)
	}
}
