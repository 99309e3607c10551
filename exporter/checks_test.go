package exporter

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func smallBounds() Bounds {
	b := testBounds()
	b.MaxLine, b.MaxRows, b.FileBytes = 10, 3, 64
	return b
}

func TestContent(t *testing.T) {
	cases := []struct {
		name, data string
		codes      []string // none: accepted
		rows       int64
	}{
		{"plain", "a,b\n1,2\n", nil, 2},
		{"no newline at the end", "a,b\n1,2", nil, 2},
		{"quoted newline", "a\n\"x\ny\"\n", nil, 2},
		{"crlf", "a,b\r\n1,2\r\n", nil, 2},
		{"empty fields", ",,\n,,\n", nil, 2},
		{"astral", "a\n𝄞𐍈\n", nil, 2},
		{"highest rune", "\U0010ffff\n", nil, 1},
		{"replacement rune itself", "\ufffd\n", nil, 1},
		{"no bytes", "", nil, 0},
		{"only a newline", "\n", nil, 1},
		{"line at the cap", "0123456789\n", nil, 1},
		{"line at the cap, crlf", "0123456789\r\n", nil, 1},
		{"last line at the cap, open", "a\n0123456789", nil, 2},
		{"rows at the cap", "1\n2\n3\n", nil, 3},
		{"rows at the cap, open", "1\n2\n3", nil, 3},
		{"size at the cap", strings.Repeat("0123456\n", 8)[:64], []string{codeTooManyRows}, 0},
		{"line beyond", "0123456789a\n", []string{codeLineTooLong}, 0},
		{"line beyond, open", "0123456789a", []string{codeLineTooLong}, 0},
		{"rows beyond", "1\n2\n3\n4\n", []string{codeTooManyRows}, 0},
		{"rows beyond, open", "1\n2\n3\n4", []string{codeTooManyRows}, 0},
		{"empty rows beyond", "\n\n\n\n", []string{codeTooManyRows}, 0},
		{"size beyond", strings.Repeat("0123456\n", 8) + "x", []string{codeTooLarge}, 0},
		{"nul", "a\x00b\n", []string{codeNUL}, 0},
		{"nul at the end", "ab\n\x00", []string{codeNUL}, 0},
		{"latin-1", "caf\xe9\n", []string{codeNotUTF8}, 0},
		{"overlong slash", "\xc0\xaf\n", []string{codeNotUTF8}, 0},
		{"overlong nul", "\xc0\x80\n", []string{codeNotUTF8}, 0},
		{"surrogate", "\xed\xa0\x80\n", []string{codeNotUTF8}, 0},
		{"beyond unicode", "\xf4\x90\x80\x80\n", []string{codeNotUTF8}, 0},
		{"cut rune at the end", "a\xf0\x9d\x84", []string{codeNotUTF8}, 0},
		{"lone continuation", "a\x80\n", []string{codeNotUTF8}, 0},
		{"utf-16", "\xff\xfea\x00", []string{codeNUL, codeNotUTF8}, 0},
		{"bom", "\xef\xbb\xbfa\n", []string{codeBOM}, 0},
		{"bare cr", "a\rb\n", []string{codeBareCR}, 0},
		{"bare cr, quoted", "\"a\rb\"\n", []string{codeBareCR}, 0},
		{"cr cr lf", "a\r\r\n", []string{codeBareCR}, 0},
		{"cr at the end", "a\r", []string{codeBareCR}, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			p.file("summary.csv", []byte(c.data))
			r := p.examine(smallBounds())
			if len(c.codes) > 0 {
				p.wantRejected(r, c.codes...)
			} else if p.wantAccepted(r, []byte(c.data)); r.Rows != c.rows {
				t.Errorf("%d rows, want %d", r.Rows, c.rows)
			}
			// The verdict must not depend on where the chunks end.
			if c.codes != nil && c.codes[0] == codeTooLarge {
				return
			}
			for size := 1; size <= len(c.data); size++ {
				codes, _ := stream([]byte(c.data), smallBounds(), Rule{}, func(int) int { return size })
				if len(c.codes) == 0 && len(codes) > 0 || len(c.codes) > 0 && (len(codes) == 0 || !slices.Contains(c.codes, codes[0])) {
					t.Errorf("in chunks of %d: %v", size, codes)
				}
			}
		})
	}
}

func TestCapsAtRealSize(t *testing.T) {
	b := testBounds()
	line := strings.Repeat("x", 8191) + "\n"
	full := strings.Repeat(line, 128) // 1 MiB
	for _, c := range []struct {
		name, data string
		codes      []string
	}{
		{"1 MiB", full, nil},
		{"1 MiB and a byte", full + "x", []string{codeTooLarge}},
		{"one line of 1 MiB", strings.Repeat("x", 1<<20), []string{codeLineTooLong}},
		{"1 MiB of two-byte rows", strings.Repeat("1\n", 1<<19), []string{codeTooManyRows}},
		{"20000 rows", strings.Repeat("1,2\n", 20000), nil},
		{"20001 rows", strings.Repeat("1,2\n", 20001), []string{codeTooManyRows}},
		{"a fault in the last byte", full[:1<<20-1] + "\x00", []string{codeNUL}},
		{"a cut rune over a chunk border", strings.Repeat("x\n", chunkBytes/2-1) + "x\xe2\x82\xac\n" + line, []string{codeTooManyRows}},
		{"runes over chunk borders", strings.Repeat("€", 1000) + strings.Repeat("\n"+strings.Repeat("𝄞€x", 1000), 10), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlace(t)
			p.file("summary.csv", []byte(c.data))
			r := p.examine(b)
			if len(c.codes) > 0 {
				p.wantRejected(r, c.codes...)
				return
			}
			p.wantAccepted(r, []byte(c.data))
		})
	}
}

// stream runs data through the pipeline and returns the first faults' codes.
func stream(data []byte, b Bounds, r Rule, size func(at int) int) ([]string, int64) {
	c := standardChecks(b, r)
	var faults []fault
	for at := 0; at < len(data) && faults == nil; {
		n := min(size(at), len(data)-at)
		faults = c.write(data[at : at+n])
		at += n
	}
	if faults == nil {
		faults = c.close()
	}
	var codes []string
	for _, f := range faults {
		codes = append(codes, f.code)
	}
	return codes, c.rows()
}

// reference says what holds of text as a whole, in the simplest words.
func reference(data []byte, b Bounds) map[string]bool {
	wrong := map[string]bool{}
	wrong[codeBOM] = bytes.HasPrefix(data, []byte("\xef\xbb\xbf"))
	wrong[codeNUL] = bytes.IndexByte(data, 0) >= 0
	wrong[codeNotUTF8] = !utf8.Valid(data)
	wrong[codeBareCR] = bytes.Contains(bytes.ReplaceAll(data, []byte("\r\n"), nil), []byte("\r"))
	lines := bytes.Split(data, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	wrong[codeTooManyRows] = int64(len(lines)) > b.MaxRows
	for _, l := range lines[:min(len(lines), int(b.MaxRows))] {
		if int64(len(bytes.ReplaceAll(l, []byte("\r"), nil))) > b.MaxLine {
			wrong[codeLineTooLong] = true
		}
	}
	head := data[:min(len(data), magicBytes)]
	if m := match(head, false); m.code != "" {
		wrong[m.code] = true
	}
	return wrong
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"a,b\r\n1,2\n", "\xef\xbb\xbfa", "𝄞\n€", "a\rb", "\x00", "\xed\xa0\x80", "\r\r\n", "0123456789a\n1\n2\n3\n4", "PK\x03\x04", "#!x"} {
		f.Add([]byte(s), byte(1))
		f.Add([]byte(s), byte(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, step byte) {
		b := smallBounds()
		codes, rows := stream(data, b, Rule{Type: TypeText}, func(at int) int { return 1 + (at*7+int(step))%(1+int(step)) })
		wrong := reference(data, b)
		any := false
		for _, is := range wrong {
			any = any || is
		}
		if any != (len(codes) > 0) {
			t.Fatalf("%q: codes %v, reference %v", data, codes, wrong)
		}
		for _, code := range codes {
			if !wrong[code] {
				t.Fatalf("%q: code %s, reference %v", data, code, wrong)
			}
		}
		if want := bytes.Count(append(data, '\n'), []byte("\n")); len(codes) == 0 && rows != int64(want) && rows != int64(want-1) {
			t.Fatalf("%q: %d rows, want about %d", data, rows, want)
		}
	})
}

func TestMagics(t *testing.T) {
	tar := strings.Repeat("t", 257)
	samples := map[string]string{
		"gzip": "\x1f\x8b\x08", "compress": "\x1f\x9d\x90", "pack or lzh": "\x1f\xa0x",
		"bzip2": "BZh91AY&SY\x01", "xz": "\xfd7zXZ\x00\x00", "lzma": "\x5d\x00\x00\x80", "lzip": "LZIP\x01\x0c",
		"zstd": "\x28\xb5\x2f\xfd\x04", "zstd or lz4 skippable frame": "\x50\x2a\x4d\x18", "lz4": "\x04\x22\x4d\x18d",
		"lz4 legacy": "\x02\x21\x4c\x18", "snappy": "\xff\x06\x00\x00sNaPpY",
		"zip": "PK\x03\x04\x14", "empty zip": "PK\x05\x06", "spanned zip": "PK\x07\x08PK",
		"tar": tar + "ustar\x0000", "gnu tar": tar + "ustar  \x00", "7z": "7z\xbc\xaf\x27\x1c", "rar": "Rar!\x1a\x07\x01",
		"ar or deb": "!<arch>\ndebian-binary", "cpio": "070701" + strings.Repeat("0", 104) + "name", "binary cpio": "\xc7\x71",
		"cabinet": "MSCF\x00\x00\x00\x00", "elf": "\x7fELF\x02", "dos or windows program": "MZ\x90\x00\x03",
		"mach-o 32": "\xfe\xed\xfa\xce", "mach-o 64": "\xfe\xed\xfa\xcf", "mach-o 32 reversed": "\xce\xfa\xed\xfe",
		"mach-o 64 reversed": "\xcf\xfa\xed\xfe", "mach-o universal or java class": "\xca\xfe\xba\xbe", "webassembly": "\x00asm\x01",
		"script": "#!/bin/sh\n", "pdf": "%PDF-1.7\n", "postscript": "%!PS-Adobe\n", "rtf": "{\\rtf1", "ole": "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
		"png": "\x89PNG\r\n\x1a\n", "jpeg": "\xff\xd8\xff\xe0", "gif": "GIF89a", "sqlite": "SQLite format 3\x00", "parquet": "PAR1\x15\x00",
	}
	for _, m := range magics {
		sample, ok := samples[m.what]
		if !ok {
			t.Errorf("%s: no sample", m.what)
			continue
		}
		t.Run(m.what, func(t *testing.T) {
			p := newPlace(t)
			p.file("summary.csv", []byte(sample+canary))
			r := p.examine(testBounds())
			if r.Verdict != Rejected || len(r.Reasons) == 0 || r.Reasons[0].Code != m.code || r.Reasons[0].Detail != m.what {
				t.Errorf("%+v", r)
			}
		})
	}
	for _, text := range []string{
		"MZ,count\n1,2\n", "BZh,BZh9\n", "070701,5\n", "070701\n070702\n", "PK,name\n1,a\n", "PAR1,PAR2\n", "LZIP,7z\n", "]*M,\n",
		"GIF,PNG\n", "Rar!\n", "ustar,1\n", tar + "ustar," + "\n", "P*M\n", "{a:1}\n", "#comment\n", "!<arch\n",
	} {
		p := newPlace(t)
		p.file("summary.csv", []byte(text))
		if r := p.examine(testBounds()); r.Verdict != Accepted {
			t.Errorf("%q: %+v", text, r)
		}
	}
}

func TestMemoryIsFixed(t *testing.T) {
	b := testBounds()
	b.FileBytes, b.MaxRows = 64<<20, 1<<40
	p := newPlace(t)
	p.file("summary.csv", bytes.Repeat([]byte(strings.Repeat("x", 63)+"\n"), 1<<20))
	req := p.request(b)
	var r Report
	used := testing.AllocsPerRun(1, func() {
		p.check(p.staging.Truncate(0))
		r = Examine(p.dir, req)
	})
	if r.Verdict != Accepted || r.Bytes != 64<<20 {
		t.Fatalf("%+v", r)
	}
	if used > 200 {
		t.Errorf("%.0f allocations for 1024 chunks", used)
	}
}
