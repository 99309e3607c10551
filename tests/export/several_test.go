package export

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// severalPolicy lets three of four names leave, one of each type.
func severalPolicy(more ...harness.Change) []harness.Change {
	type typed struct {
		Name  string `json:"name"`
		Type  string `json:"type"`
		Bytes int    `json:"bytes,omitempty"`
	}
	return append([]harness.Change{
		harness.Set("out_file_count_accept", 3),
		{Path: "filesystem.export_scope", Value: "per_job_host_dir_bound_at_/out_files_of_allowed_names_on_operator_provisioned_bounded_tmpfs"},
		{Path: "artifact_export.allowed_names", Value: []string{"summary.csv", "notes.txt", "facts.json", "chart.png"}},
		{Path: "artifact_export.types", Added: true, Value: []typed{{"notes.txt", "text", 0}, {"facts.json", "json", 64}, {"chart.png", "binary", 4096}}},
	}, more...)
}

// files are what a program leaves, by name.
type files map[string]string

func (f files) code() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "put(%q, bytes.fromhex('%x'))\n", name, f[name])
	}
	return b.String()
}

const picture = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

func goodFiles() files {
	return files{"summary.csv": "a,b\n1,2\n", "facts.json": `{"a":[1,2]}`, "chart.png": picture}
}

// TestSeveralFiles: every file that may leave does, under its own checks, and
// all of them appear as one directory.
func TestSeveralFiles(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for name, c := range map[string]struct {
			left  files
			order []string
			rows  map[string]int64
		}{
			"three of four": {goodFiles(), []string{"summary.csv", "facts.json", "chart.png"}, map[string]int64{"summary.csv": 2}},
			"two":           {files{"notes.txt": "one\ntwo\nthree", "chart.png": "\x00\xff"}, []string{"notes.txt", "chart.png"}, map[string]int64{"notes.txt": 3}},
			"one":           {files{"facts.json": "[]"}, []string{"facts.json"}, nil},
			"at their caps": {files{"facts.json": `"` + strings.Repeat("x", 62) + `"`, "chart.png": strings.Repeat("\x01", 4096)}, []string{"facts.json", "chart.png"}, nil},
			"no bytes":      {files{"summary.csv": "", "notes.txt": ""}, []string{"summary.csv", "notes.txt"}, nil},
		} {
			t.Run(name, func(t *testing.T) {
				tr := try(t, s, c.left.code(), harness.Job{Policy: severalPolicy()})
				tr.run.WantOK()
				res := tr.run.Result
				dir := filepath.Join(tr.deliver, res.Attempt)
				if got := tr.left(); !slices.Equal(got, []string{res.Attempt}) || res.Delivery.Path != dir {
					t.Fatalf("delivered %q as %q", got, res.Delivery.Path)
				}
				total, names := int64(0), []string{}
				for i, f := range res.Artifact.Files {
					want := c.left[f.Name]
					have, err := os.ReadFile(filepath.Join(dir, f.Name))
					if err != nil || string(have) != want || res.Delivery.Paths[i] != filepath.Join(dir, f.Name) {
						t.Errorf("%s: delivered %q as %s, %v", f.Name, have, res.Delivery.Paths[i], err)
					}
					if f.Bytes != int64(len(want)) || f.Rows != c.rows[f.Name] || f.SHA256 != fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(want))) {
						t.Errorf("%+v of %q", f, want)
					}
					total, names = total+f.Bytes, append(names, f.Name)
					if !strings.Contains(string(tr.run.Stderr), res.Delivery.Paths[i]+": "+f.Type) {
						t.Errorf("%s is not in the summary:\n%s", f.Name, tr.run.Stderr)
					}
				}
				if !slices.Equal(names, c.order) || res.Artifact.Bytes != total {
					t.Errorf("files %q of %d bytes, want %q of %d", names, res.Artifact.Bytes, c.order, total)
				}
				if entries, _ := os.ReadDir(dir); len(entries) != len(c.left) {
					t.Errorf("the directory has %v", entries)
				}
				tr.wantManifest()
			})
		}
	})
}

// wantManifest holds the list that the attempt keeps against result and copies.
func (tr *trial) wantManifest() {
	tr.t.Helper()
	res := tr.run.Result
	dir := filepath.Join(tr.site.State, "attempts", res.Attempt)
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		tr.t.Fatal(err)
	}
	var m struct{ Files []launcher.ArtifactFile }
	if err := json.Unmarshal(data, &m); err != nil || !slices.Equal(m.Files, res.Artifact.Files) || res.Artifact.SHA256 != fmt.Sprintf("sha256:%x", sha256.Sum256(data)) {
		tr.t.Errorf("manifest %s, %v; the result has %+v", data, err, res.Artifact)
	}
	if kept := tr.copies(); len(kept) != len(m.Files) {
		tr.t.Errorf("%d files were accepted and %q are kept", len(m.Files), kept)
	}
}

// TestSeveralWithoutADirectory: what nobody asked to have delivered stays with
// the attempt, and the result says where each file is.
func TestSeveralWithoutADirectory(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		left := goodFiles()
		run := s.Run(harness.Job{Code: prelude + left.code(), Policy: severalPolicy()})
		run.WantOK()
		if len(run.Result.Delivery.Paths) != len(left) {
			t.Fatalf("%+v", run.Result.Delivery)
		}
		for i, f := range run.Result.Artifact.Files {
			have, err := os.ReadFile(run.Result.Delivery.Paths[i])
			info, statErr := os.Stat(run.Result.Delivery.Paths[i])
			if err != nil || statErr != nil || string(have) != left[f.Name] || info.Mode() != 0o400 {
				t.Errorf("%s: %q, %v, %v", f.Name, have, err, info)
			}
		}
	})
}

// TestSeveralRejected: one bad entry among good ones, and not a byte of any
// leaves. The control is the same good files without it.
func TestSeveralRejected(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		control := try(t, s, goodFiles().code(), harness.Job{Policy: severalPolicy()})
		control.run.WantOK()
		with := func(name, data string) files {
			f := goodFiles()
			f["chart.png"] += canary
			f[name] = data
			return f
		}
		for name, c := range map[string]struct {
			code  string
			codes []string
		}{
			"the first is no csv":       {with("summary.csv", "a,b\n"+canary+"\n").code(), []string{"csv_fields"}},
			"the second is no json":     {with("facts.json", "{"+canary).code(), []string{"json_syntax"}},
			"the last is a program":     {with("chart.png", "\x7fELF"+canary).code(), []string{"executable_magic"}},
			"a document under csv":      {with("summary.csv", "%PDF-1.4"+canary).code(), []string{"document_magic"}},
			"json above its own cap":    {with("facts.json", `"`+strings.Repeat("x", 63)+`"`).code(), []string{"too_large"}},
			"binary above its own cap":  {with("chart.png", strings.Repeat("\x01", 4097)).code(), []string{"too_large"}},
			"four files of three":       {with("notes.txt", canary).code(), []string{"too_many_files"}},
			"a name that may not leave": {with("other.csv", canary).code(), []string{"name_not_allowed", "too_many_files"}},
			"two faults of two files":   {with("summary.csv", canary+"\x00\n").code() + "put('facts.json', '[' * 40 + C)\n", []string{"json_syntax", "nul_byte"}},
			"a link under one name":     {goodFiles().code() + "os.remove('/out/facts.json'); os.symlink('/in/x', '/out/facts.json')\n", []string{"symlink"}},
			"a hard link of two names":  {files{"summary.csv": canary + "\n"}.code() + "os.link(p, '/out/notes.txt')\n", []string{"hardlink"}},
			"a directory under a name":  {goodFiles().code() + "os.remove('/out/chart.png'); os.mkdir('/out/chart.png')\n", []string{"directory"}},
			"a pipe under a name":       {goodFiles().code() + "os.remove('/out/chart.png'); os.mkfifo('/out/chart.png')\n", []string{"fifo"}},
		} {
			t.Run(name, func(t *testing.T) {
				tr := try(t, s, c.code, harness.Job{Policy: severalPolicy()})
				if len(tr.run.Stdout)+bytes.Count(tr.run.Stderr, []byte("Traceback")) > 0 {
					t.Fatalf("the program failed:\n%s%s", tr.run.Stdout, tr.run.Stderr)
				}
				tr.wantRejected(c.codes...)
			})
		}
	})
}

// TestSeveralAtTheCaps: exactly at each name's cap leaves, as many files as one
// export can have.
func TestSeveralAtTheCaps(t *testing.T) {
	names := strings.Fields("a b c d e f g h i j k l")
	var types []map[string]any
	for _, n := range names {
		types = append(types, map[string]any{"name": n, "type": "binary"})
	}
	policy := []harness.Change{
		harness.Set("out_file_count_accept", 7),
		{Path: "filesystem.export_scope", Value: "per_job_host_dir_bound_at_/out_files_of_allowed_names_on_operator_provisioned_bounded_tmpfs"},
		{Path: "artifact_export.allowed_names", Value: names},
		{Path: "artifact_export.types", Added: true, Value: types},
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		left := files{}
		for _, n := range names[5:] {
			left[n] = strings.Repeat(n, 1<<20)
		}
		code := "for n in 'fghijkl': put(n, n * (1 << 20))\n"
		tr := try(t, s, code, harness.Job{Policy: policy})
		tr.run.WantOK()
		if len(tr.run.Result.Artifact.Files) != 7 || tr.run.Result.Artifact.Bytes != 7<<20 {
			t.Errorf("%+v", tr.run.Result.Artifact)
		}
		for n, want := range left {
			if have, err := os.ReadFile(filepath.Join(tr.run.Result.Delivery.Path, n)); err != nil || string(have) != want {
				t.Errorf("%s: %d bytes, %v", n, len(have), err)
			}
		}
		tr = try(t, s, "for n in 'efghijkl': put(n, n)\n", harness.Job{Policy: policy})
		tr.wantRejected("too_many_files")
	})
}

// TestNamesOfEveryKind: a name is bytes to the file system and nothing else.
func TestNamesOfEveryKind(t *testing.T) {
	names := []string{strings.Repeat("n", 255), "naïve €.csv", ".hidden", "with a blank", "-rf", "a\\b\"c", "..csv", "not left"}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		left := files{}
		for i, n := range names[:7] {
			left[n] = fmt.Sprintf("file %d\n", i)
		}
		tr := try(t, s, left.code(), harness.Job{Policy: []harness.Change{
			harness.Set("out_file_count_accept", 7),
			{Path: "filesystem.export_scope", Value: nil},
			{Path: "artifact_export.allowed_names", Value: names},
		}})
		tr.run.WantOK()
		for n, want := range left {
			if have, err := os.ReadFile(filepath.Join(tr.run.Result.Delivery.Path, n)); err != nil || string(have) != want {
				t.Errorf("%q: %q, %v", n, have, err)
			}
		}
	})
}

// TestByteOrderMark: the policy's word decides, for csv and text alike.
func TestByteOrderMark(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		data := []byte("\xef\xbb\xbfa,b\n1,2\n")
		leave(t, s, data, harness.Job{}).wantRejected("bom")
		mark := func(word string) []harness.Change {
			return []harness.Change{{Path: "artifact_export.byte_order_mark", Value: word, Added: true}}
		}
		leave(t, s, data, harness.Job{Policy: mark("reject")}).wantRejected("bom")
		leave(t, s, data, harness.Job{Policy: mark("allow")}).wantDelivered(data, 2)
		leave(t, s, []byte("a,\xef\xbb\xbfb\n"), harness.Job{}).wantDelivered([]byte("a,\xef\xbb\xbfb\n"), 1) // inside it is a character
	})
}

// TestFormulas: the same for cells that a spreadsheet would evaluate.
func TestFormulas(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		data := []byte("a,b\n1,\"=HYPERLINK(\"\"x\"\")\"\n")
		leave(t, s, data, harness.Job{}).wantDelivered(data, 2)
		rule := []harness.Change{{Path: "artifact_export.csv_formula", Value: "reject", Added: true}}
		leave(t, s, data, harness.Job{Policy: rule}).wantRejected("csv_formula")
		leave(t, s, []byte("a,b\n1,-2.5\n"), harness.Job{Policy: rule}).wantDelivered([]byte("a,b\n1,-2.5\n"), 2)
	})
}
