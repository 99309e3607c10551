package export

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/binary"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestContent holds the caps and the dialect: what is exactly at a cap leaves,
// one beyond does not.
func TestContent(t *testing.T) {
	line := strings.Repeat("x", 8191) + "\n"
	rows := func(n int) string { return strings.Repeat("1,2\n", n) }
	cases := []struct {
		name, data string
		codes      []string // none: delivered
		rows       int64
	}{
		{"plain", "city,volume\nAustin,1\n", nil, 2},
		{"one KiB", strings.Repeat("0123456789abcde\n", 64), nil, 64},
		{"no bytes", "", nil, 0},
		{"quoted newlines", "a,b\n\"1\n2\",\"3\n\n\"\n", nil, 2},
		{"crlf", "a,b\r\n1,2\r\n", nil, 2},
		{"beyond the first plane", "a\n𝄞𐍈\U0010ffff\n", nil, 2},
		{"empty fields", ",,\n,\"\",\n", nil, 2},
		{"no newline at the end", "a,b\n1,2", nil, 2},
		{"size at the cap", strings.Repeat(line, 128), nil, 128},
		{"size beyond", strings.Repeat(line, 128) + "x", []string{"too_large"}, 0},
		{"line at the cap", strings.Repeat("x", 8192) + "\n", nil, 1},
		{"line beyond", strings.Repeat("x", 8193) + "\n" + canary, []string{"line_too_long"}, 0},
		{"rows at the cap", rows(20000), nil, 20000},
		{"rows beyond", rows(20000) + canary + ",2\n", []string{"too_many_rows"}, 0},
		{"ragged", "a,b\n" + canary + "\n", []string{"csv_fields"}, 0},
		{"unbalanced quote", "a,b\n\"" + canary + ",1\n", []string{"csv_quote"}, 0},
		{"bare cr", "a\r" + canary + "\n", []string{"bare_cr"}, 0},
		{"quoted bare cr", "\"a\r" + canary + "\"\n", []string{"bare_cr"}, 0},
		{"nul", canary + "\x00\n", []string{"nul_byte"}, 0},
		{"latin-1", canary + "\xe9\n", []string{"not_utf8"}, 0},
		{"overlong", canary + "\xc0\xaf\n", []string{"not_utf8"}, 0},
		{"surrogate", canary + "\xed\xa0\x80\n", []string{"not_utf8"}, 0},
		{"byte order mark", "\xef\xbb\xbf" + canary + "\n", []string{"bom"}, 0},
		{"ten million empty rows, as many as fit", strings.Repeat("\n", 1<<20), []string{"too_many_rows"}, 0},
		{"script", "#!/bin/sh\n" + canary, []string{"executable_magic"}, 0},
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				tr := leave(t, s, []byte(c.data), harness.Job{})
				if len(c.codes) == 0 {
					tr.wantDelivered([]byte(c.data), c.rows)
					return
				}
				tr.wantRejected(c.codes...)
			})
		}
	})
}

// TestA5a: a line and rows that would fill the cap are refused within the
// exporter's own limits.
func TestA5a(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, c := range []struct{ name, data, code string }{
			{"one line of 1 MiB", strings.Repeat("x", 1<<20), "line_too_long"},
			{"1 MiB of two-byte rows", strings.Repeat("1\n", 1<<19), "too_many_rows"},
		} {
			t.Run(c.name, func(t *testing.T) {
				tr := leave(t, s, []byte(c.data), harness.Job{})
				tr.wantRejected(c.code)
				took := tr.run.Result.DurationsMS["export"]
				t.Logf("export %.1f ms", took)
				if took > 5000 {
					t.Errorf("the export took %.0f ms; its cpu time is 5 s", took)
				}
			})
		}
	})
}

// TestS10 is too large, wrong name, second file, and the mount's own cap.
func TestS10(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		t.Run("control", func(t *testing.T) {
			try(t, s, "put('summary.csv', 'x\\n' * 512)", harness.Job{}).wantDelivered([]byte(strings.Repeat("x\n", 512)), 512)
		})
		t.Run("a", func(t *testing.T) {
			try(t, s, "put('summary.csv', (C + '\\n') * 200000)", harness.Job{}).wantRejected("too_large")
		})
		t.Run("b", func(t *testing.T) {
			try(t, s, "put('results.csv', C)", harness.Job{}).wantRejected("name_not_allowed")
		})
		t.Run("c", func(t *testing.T) {
			try(t, s, good+"put('more.csv', C)", harness.Job{}).wantRejected("name_not_allowed", "too_many_files")
		})
		t.Run("d", func(t *testing.T) {
			tr := try(t, s, "total = 0\ntry:\n for n in range(8):\n  with open('/out/f%d' % n, 'wb', 0) as f:\n   for k in range(512): total += f.write((C.encode() + b'.' * 4085))\n"+
				"except OSError as e: print(errno.errorcode[e.errno], total)\n", harness.Job{})
			if got := strings.TrimSpace(string(tr.run.Stdout)); got != "ENOSPC 8388608" {
				t.Errorf("printed %q, want ENOSPC after 8 MiB", got)
			}
			tr.wantRejected("name_not_allowed", "too_large", "too_many_files")
		})
	})
}

// TestS16 leaves real files of other formats as summary.csv.
func TestS16(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for name, c := range disguised(t) {
			t.Run(name, func(t *testing.T) {
				tr := leave(t, s, c.data, harness.Job{})
				tr.run.Want(launcher.Exited, launcher.ExitUndelivered)
				a := tr.run.Result.Artifact
				if a.Outcome != launcher.ArtifactRejected || !slices.Contains(a.Reasons, c.code) {
					t.Errorf("artifact %+v, want REJECTED with %s", a, c.code)
				}
				tr.wantNothing()
			})
		}
	})
}

type disguise struct {
	code string
	data []byte
}

func disguised(t *testing.T) map[string]disguise {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var gz bytes.Buffer
	z := gzip.NewWriter(&gz)
	noise := make([]byte, 36<<10)
	rand.Read(noise)
	for _, part := range [][]byte{make([]byte, 63<<20), noise} {
		_, err := z.Write(part)
		check(err)
	}
	check(z.Close())
	if gz.Len() < 90<<10 || gz.Len() > 110<<10 {
		t.Fatalf("the gzip file has %d bytes, want about 100 KiB", gz.Len())
	}
	var zipped bytes.Buffer
	zw := zip.NewWriter(&zipped)
	w, err := zw.CreateHeader(&zip.FileHeader{Name: "summary.csv", Method: zip.Store})
	check(err)
	w.Write([]byte(canary))
	check(zw.Close())
	var tarred bytes.Buffer
	tw := tar.NewWriter(&tarred)
	check(tw.WriteHeader(&tar.Header{Name: "summary.csv", Mode: 0o644, Size: int64(len(canary))}))
	tw.Write([]byte(canary))
	check(tw.Close())
	var picture bytes.Buffer
	check(png.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 64))))
	elf, err := os.ReadFile("/proc/self/exe")
	check(err)
	elf = elf[:min(len(elf), 1<<20)]

	dir := t.TempDir()
	code := "import lzma, bz2, sqlite3\nlzma.open('xz', 'w').write(b'" + canary + "')\nbz2.open('bz2', 'w').write(b'" + canary + "')\n" +
		"c = sqlite3.connect('sqlite'); c.execute('create table t (x)'); c.execute('insert into t values (?)', ('" + canary + "',)); c.commit()\n"
	cmd := exec.Command("/usr/bin/python3", "-c", code)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		check(err)
		return data
	}
	return map[string]disguise{
		"gzip":   {"compressed_magic", gz.Bytes()},
		"zip":    {"archive_magic", zipped.Bytes()},
		"tar":    {"archive_magic", tarred.Bytes()},
		"xz":     {"compressed_magic", file("xz")},
		"bzip2":  {"compressed_magic", file("bz2")},
		"zstd":   {"compressed_magic", zstdFrame([]byte(canary))},
		"elf":    {"executable_magic", elf},
		"pdf":    {"document_magic", []byte("%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n%" + canary + "\ntrailer<</Root 1 0 R>>\n%%EOF\n")},
		"png":    {"document_magic", picture.Bytes()},
		"sqlite": {"document_magic", file("sqlite")},
	}
}

// zstdFrame is a whole frame of RFC 8878 with one raw block.
func zstdFrame(data []byte) []byte {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x20, byte(len(data))} // single segment, one-byte size
	block := binary.LittleEndian.AppendUint32(nil, uint32(len(data))<<3|1)
	return append(append(frame, block[:3]...), data...)
}
