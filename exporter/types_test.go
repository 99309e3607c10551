package exporter

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func severalBounds() Bounds {
	b := testBounds()
	b.AllowedNames = []string{"table.csv", "notes.txt", "facts.json", "plot.png"}
	b.FileCount = 3
	b.Rules = map[string]Rule{"notes.txt": {Type: TypeText}, "facts.json": {Type: TypeJSON, Bytes: 100}, "plot.png": {Type: TypeBinary}}
	return b
}

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func TestSeveralFiles(t *testing.T) {
	p := newPlace(t)
	content := map[string]string{"plot.png": png, "notes.txt": "a \"quote\n= b\n", "facts.json": `{"rows": 3}`}
	for name, data := range content {
		p.file(name, []byte(data))
	}
	b := severalBounds()
	r := p.examine(b)
	if r.Verdict != Accepted || len(r.Files) != 3 || r.Entries != 3 {
		t.Fatalf("%+v", r)
	}
	staged := append([]*os.File{p.staging}, p.more...)
	for i, want := range []File{{Name: "notes.txt", Type: TypeText, Rows: 2}, {Name: "facts.json", Type: TypeJSON}, {Name: "plot.png", Type: TypeBinary}} {
		got, data := r.Files[i], content[want.Name]
		if got.Name != want.Name || got.Type != want.Type || got.Rows != want.Rows || got.SHA256 != digestOf([]byte(data)) {
			t.Errorf("file %d: %+v, want %+v", i, got, want)
		}
		if have, err := os.ReadFile(staged[i].Name()); err != nil || string(have) != data {
			t.Errorf("staging file %d holds %q, %v", i, have, err)
		}
	}
}

// One bad file takes all with it: no staging file keeps a byte.
func TestSeveralFilesOneBad(t *testing.T) {
	for name, c := range map[string]struct {
		file, data string
		codes      []string
	}{
		"first":         {"table.csv", "a,b\n" + canary + "\n", []string{codeCSVFields}},
		"last":          {"plot.png", "\x7fELF" + canary, []string{codeExecutableMagic}},
		"own cap":       {"facts.json", `["` + strings.Repeat(canary, 20) + `"]`, []string{codeTooLarge}},
		"not its type":  {"facts.json", canary, []string{codeJSONSyntax}},
		"text with nul": {"notes.txt", canary + "\x00", []string{codeNUL}},
		"packed image":  {"plot.png", "PK\x03\x04" + canary, []string{codeArchiveMagic}},
		"gzip":          {"plot.png", "\x1f\x8b\x08" + canary, []string{codeCompressedMagic}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			for n, data := range map[string]string{"table.csv": "a\n", "notes.txt": "x\n", "plot.png": png} {
				p.file(n, []byte(data))
			}
			if c.file == "facts.json" {
				p.check(os.Remove(p.at("notes.txt")))
			}
			p.file(c.file, []byte(c.data))
			p.wantRejected(p.examine(severalBounds()), c.codes...)
			for _, f := range append([]*os.File{p.staging}, p.more...) {
				if data, err := os.ReadFile(f.Name()); err != nil || len(data) > 0 {
					t.Errorf("%d bytes are staged, %v", len(data), err)
				}
			}
		})
	}
	p := newPlace(t)
	for _, n := range []string{"table.csv", "notes.txt", "facts.json", "plot.png"} {
		p.file(n, []byte("1"))
	}
	p.wantRejected(p.examine(severalBounds()), codeTooManyFiles)
}

func TestTextCaps(t *testing.T) {
	for data, want := range map[string][]string{
		"0123456789\n1\n2\n":   nil,
		"0123456789a\n":        {codeLineTooLong},
		"1\n2\n3\n4":           {codeTooManyRows},
		"a,b\n\"c\n":           nil,
		"a\rb\n":               {codeBareCR},
		"%PDF-1.4\n":           {codeDocumentMagic},
		bom + "a\n":            {codeBOM},
		"\"0123456\n89012\"\n": nil,
	} {
		if codes, _ := stream([]byte(data), smallBounds(), Rule{Type: TypeText}, func(int) int { return 3 }); !slices.Equal(codes, want) {
			t.Errorf("%q: %v, want %v", data, codes, want)
		}
	}
}

func TestCheckByHand(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", goodCSV)
	r, err := Check(p.path, "", testBounds())
	p.check(err)
	if r.Verdict != Accepted || r.SHA256 != digestOf(goodCSV) {
		t.Errorf("%+v", r)
	}
	r, err = Check(p.at("summary.csv"), "", testBounds())
	p.check(err)
	if r.Verdict != Accepted || r.Rows != 2 {
		t.Errorf("%+v", r)
	}
	p.check(unix.Mkfifo(p.at("pipe"), 0o644))
	p.check(os.Symlink("summary.csv", p.at("link")))
	p.file("other.csv", goodCSV)
	for _, c := range []struct {
		path, as string
		codes    []string
	}{
		{p.at("pipe"), "summary.csv", []string{codeFIFO}},
		{p.at("link"), "summary.csv", []string{codeSymlink}},
		{p.at("other.csv"), "", []string{codeNameNotAllowed}},
		{p.at("other.csv"), "summary.csv", nil},
	} {
		began := time.Now()
		r, err := Check(c.path, c.as, testBounds())
		p.check(err)
		if !slices.Equal(r.Codes(), c.codes) || (r.Verdict == Accepted) != (c.codes == nil) || time.Since(began) > time.Second {
			t.Errorf("%s as %q: %+v", c.path, c.as, r)
		}
	}
	p.check(os.Remove(p.at("summary.csv")))
	p.check(unix.Mkfifo(p.at("summary.csv"), 0o644))
	p.own("summary.csv")
	r, err = Check(p.path, "", testBounds())
	p.check(err)
	for _, code := range []string{codeFIFO, codeNameNotAllowed, codeSymlink} {
		if !slices.Contains(r.Codes(), code) {
			t.Errorf("%s is missing: %v", code, r.Codes())
		}
	}
	if _, err := Check(p.at("nothing"), "", testBounds()); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a path that is not there: %v", err)
	}
	if _, err := Check(p.path, "a/b", testBounds()); err == nil {
		t.Error("a path as name is taken")
	}
	empty := t.TempDir()
	if r, err := Check(empty, "", testBounds()); err != nil || r.Verdict != Empty {
		t.Errorf("an empty directory: %+v, %v", r, err)
	}
	before := openDescriptors(t)
	for range 10 {
		Check(p.path, "", testBounds())
		Check(p.at("other.csv"), "summary.csv", testBounds())
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// The image of a plain artifact passes whole, whatever its size, at every cap.
func TestBinaryAtTheCap(t *testing.T) {
	b := testBounds()
	b.AllowedNames, b.Rules = []string{"plot.png"}, map[string]Rule{"plot.png": {Type: TypeBinary, Bytes: 1 << 19}}
	for size, codes := range map[int][]string{1 << 19: nil, 1<<19 + 1: {codeTooLarge}} {
		p := newPlace(t)
		p.file("plot.png", append([]byte(png), bytes.Repeat([]byte{0xff}, size-len(png))...))
		r := p.examine(b)
		if !slices.Equal(r.Codes(), codes) || (r.Verdict == Accepted) != (codes == nil) {
			t.Errorf("%d bytes: %+v", size, r)
		}
	}
}
