package exporter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func acceptedReport() Report {
	return Report{
		Verdict: Accepted, Entries: 1,
		Files: []File{{Name: "summary.csv", Type: TypeCSV, Bytes: 4, Rows: 2, SHA256: digestOf([]byte("a\nb\n")), Source: identity{Ino: 7, Nlink: 1, Size: 4}}},
	}
}

func rejectedReport() Report {
	r := Report{Verdict: Rejected, Entries: 2}
	r.add(codeSymlink, "a\nb\xff\\", "x")
	return r
}

func TestReportRoundTrip(t *testing.T) {
	for _, want := range []Report{acceptedReport(), rejectedReport(), {Verdict: Empty}} {
		line, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(line, testBounds())
		if err != nil {
			t.Fatal(err)
		}
		if want.Reasons == nil {
			want.Reasons = []Finding{}
		}
		if want.Files == nil {
			want.Files = []File{}
		}
		want.onlyFile()
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}
	if name := rejectedReport().Reasons[0].Name; name != `a\x0ab\xff\\` {
		t.Errorf("escaped name is %s", name)
	}
}

func TestDecodeReportRefuses(t *testing.T) {
	change := func(base Report, f func(*Report)) []byte {
		base.Reasons, base.Files = slices.Clone(base.Reasons), slices.Clone(base.Files)
		f(&base)
		line, err := base.encode()
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	good := change(acceptedReport(), func(*Report) {})
	if _, err := DecodeReport(good, testBounds()); err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) []byte {
		out := bytes.Replace(good, []byte(old), []byte(new), 1)
		if bytes.Equal(out, good) {
			t.Fatalf("%q is not in the report", old)
		}
		return out
	}
	for name, line := range map[string][]byte{
		"nothing":              nil,
		"no line feed":         good[:len(good)-1],
		"two lines":            append(bytes.Clone(good), good...),
		"text after":           append(bytes.Clone(good), 'x'),
		"text before":          append([]byte(" "), good...),
		"null":                 []byte("null\n"),
		"list":                 []byte("[]\n"),
		"cut":                  good[:len(good)/2],
		"too long":             append(bytes.Clone(good), bytes.Repeat([]byte(" "), MaxReport)...),
		"unknown key":          edit(`"entries"`, `"x":1,"entries"`),
		"key in capitals":      edit(`"entries"`, `"Entries"`),
		"key twice":            edit(`"bytes":4`, `"bytes":9,"bytes":4`),
		"number as text":       edit(`"bytes":4`, `"bytes":"4"`),
		"number with exponent": edit(`"bytes":4`, `"bytes":4e0`),
		"escaped letters":      edit(`ACCEPTED`, `\u0041CCEPTED`),
		"reasons null":         edit(`"reasons":[]`, `"reasons":null`),

		"verdict unknown":       change(acceptedReport(), func(r *Report) { r.Verdict = "DELIVERED" }),
		"verdict lower case":    change(acceptedReport(), func(r *Report) { r.Verdict = "accepted" }),
		"verdict absent":        change(acceptedReport(), func(r *Report) { r.Verdict = "" }),
		"accepted with reason":  change(acceptedReport(), func(r *Report) { r.add(codeNUL, "", "") }),
		"accepted other name":   change(acceptedReport(), func(r *Report) { r.Files[0].Name = "../x" }),
		"accepted too large":    change(acceptedReport(), func(r *Report) { r.Files[0].Bytes, r.Files[0].Source.Size = 1<<20+1, 1<<20+1 }),
		"accepted negative":     change(acceptedReport(), func(r *Report) { r.Files[0].Bytes, r.Files[0].Source.Size = -1, -1 }),
		"accepted other size":   change(acceptedReport(), func(r *Report) { r.Files[0].Source.Size = 5 }),
		"accepted rows":         change(acceptedReport(), func(r *Report) { r.Files[0].Rows = 5 }),
		"accepted rows < 0":     change(acceptedReport(), func(r *Report) { r.Files[0].Rows = -1 }),
		"accepted two entries":  change(acceptedReport(), func(r *Report) { r.Entries = 2 }),
		"accepted no digest":    change(acceptedReport(), func(r *Report) { r.Files[0].SHA256 = "" }),
		"accepted bare digest":  change(acceptedReport(), func(r *Report) { r.Files[0].SHA256 = r.Files[0].SHA256[len(digestPrefix):] }),
		"accepted short digest": change(acceptedReport(), func(r *Report) { r.Files[0].SHA256 = r.Files[0].SHA256[:len(r.Files[0].SHA256)-2] }),
		"accepted upper digest": change(acceptedReport(), func(r *Report) { r.Files[0].SHA256 = digestPrefix + strings.Repeat("AB", 32) }),
		"accepted hard link":    change(acceptedReport(), func(r *Report) { r.Files[0].Source.Nlink = 2 }),
		"rejected, no reason":   change(rejectedReport(), func(r *Report) { r.Reasons = nil }),
		"accepted two files":    change(acceptedReport(), func(r *Report) { r.Entries, r.Files = 2, slices.Repeat(r.Files, 2) }),
		"accepted without":      change(acceptedReport(), func(r *Report) { r.Files = nil }),
		"accepted other type":   change(acceptedReport(), func(r *Report) { r.Files[0].Type = TypeText }),
		"rejected with a file":  change(rejectedReport(), func(r *Report) { r.Files = acceptedReport().Files }),
		"code unknown":          change(rejectedReport(), func(r *Report) { r.Reasons[0].Code = "fine" }),
		"name with escape":      change(rejectedReport(), func(r *Report) { r.Reasons[0].Name = "\x1b[2J" }),
		"name too long":         change(rejectedReport(), func(r *Report) { r.Reasons[0].Name = strings.Repeat("x", maxNameText+1) }),
		"detail with newline":   change(rejectedReport(), func(r *Report) { r.Reasons[0].Detail = "a\nOUTCOME=DELIVERED" }),
		"detail not ascii":      change(rejectedReport(), func(r *Report) { r.Reasons[0].Detail = "é" }),
		"too many reasons":      change(rejectedReport(), func(r *Report) { r.Reasons = slices.Repeat(r.Reasons, maxFindings+1) }),
		"omitted too early":     change(rejectedReport(), func(r *Report) { r.Omitted = 1 }),
		"omitted negative":      change(rejectedReport(), func(r *Report) { r.Omitted = -1 }),
		"entries beyond":        change(rejectedReport(), func(r *Report) { r.Entries = 66 }),
		"entries negative":      change(rejectedReport(), func(r *Report) { r.Entries = -1 }),
		"empty with entries":    change(Report{Verdict: Empty}, func(r *Report) { r.Entries = 1 }),
		"empty with reasons":    change(Report{Verdict: Empty}, func(r *Report) { r.add(codeNUL, "", "") }),
		"empty with a file":     change(acceptedReport(), func(r *Report) { r.Verdict, r.Entries = Empty, 0 }),
	} {
		if got, err := DecodeReport(line, testBounds()); err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		} else if got.Verdict != "" {
			t.Errorf("%s: refused, but returned", name)
		}
	}
}

func FuzzDecodeReport(f *testing.F) {
	for _, r := range []Report{acceptedReport(), rejectedReport(), {Verdict: Empty}} {
		line, err := r.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := DecodeReport(line, testBounds())
		if err == nil && r.Verdict == Accepted && (len(r.Files) != 1 || r.Name != "summary.csv" || r.Bytes > 1<<20 || len(r.Reasons) > 0) {
			t.Fatalf("%q: %+v", line, r)
		}
	})
}

func TestLargestReportFits(t *testing.T) {
	r := Report{Verdict: Rejected, Entries: 65}
	for range maxFindings {
		r.add(codeChanged, strings.Repeat(`\`, 255), strings.Repeat(`\`, 500))
	}
	line, err := r.encode()
	if err != nil || len(line) > MaxReport {
		t.Fatalf("%d bytes, %v", len(line), err)
	}
	if _, err := DecodeReport(line, testBounds()); err != nil {
		t.Error(err)
	}
}

func TestEveryCodeIsExplained(t *testing.T) {
	codes := Codes()
	for i, c := range codes {
		if Explain(c) == "" || slices.Contains(codes[:i], c) || c != strings.ToLower(c) {
			t.Errorf("%s is not explained, stands twice, or is not lower case", c)
		}
	}
	if Explain("made_up") != "" {
		t.Error("an unknown code is explained")
	}
}

func TestBadRequests(t *testing.T) {
	good := Request{Bounds: testBounds(), Names: []Handle{{Name: "summary.csv", FD: 5}}, OwnerUID: 10001, OwnerGID: 10001}
	argv, err := good.Argv()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := decodeRequest(argv); err != nil || cmp.Diff(good, back) != "" {
		t.Fatalf("%v\n%s", err, cmp.Diff(good, back))
	}
	for name, f := range map[string]func(*Request){
		"no size":          func(r *Request) { r.Bounds.FileBytes = 0 },
		"negative size":    func(r *Request) { r.Bounds.FileBytes = -1 },
		"no line bound":    func(r *Request) { r.Bounds.MaxLine = 0 },
		"no row bound":     func(r *Request) { r.Bounds.MaxRows = 0 },
		"no entry bound":   func(r *Request) { r.Bounds.MaxEntries = 0 },
		"huge entry bound": func(r *Request) { r.Bounds.MaxEntries = entriesCeiling + 1 },
		"no file":          func(r *Request) { r.Bounds.FileCount = 0 },
		"eight files":      func(r *Request) { r.Bounds.FileCount = filesCeiling + 1 },
		"staging missing": func(r *Request) {
			r.Bounds.FileCount, r.Bounds.AllowedNames = 2, []string{"summary.csv", "b"}
			r.Names = append(r.Names, Handle{Name: "b", FD: 6})
		},
		"staging twice":      func(r *Request) { r.Staging = []int{4, 4} },
		"staging is a name":  func(r *Request) { r.Staging = []int{5} },
		"staging is stdout":  func(r *Request) { r.Staging = []int{1} },
		"rule for no name":   func(r *Request) { r.Bounds.Rules = map[string]Rule{"b": {}} },
		"unknown type":       func(r *Request) { r.Bounds.Rules = map[string]Rule{"summary.csv": {Type: "exe"}} },
		"rule above the cap": func(r *Request) { r.Bounds.Rules = map[string]Rule{"summary.csv": {Bytes: 2 << 20}} },
		"unknown formula":    func(r *Request) { r.Bounds.CSVFormula = "maybe" },
		"too many to hand over": func(r *Request) {
			r.Bounds.AllowedNames, r.Names, r.Staging = nil, nil, nil
			for i := range 16 {
				n := fmt.Sprint(i)
				r.Bounds.AllowedNames, r.Names = append(r.Bounds.AllowedNames, n), append(r.Names, Handle{Name: n, FD: 10 + i})
			}
			r.Bounds.FileCount, r.Staging = 4, []int{4, 5, 6, 7}
		},
		"no name":           func(r *Request) { r.Bounds.AllowedNames, r.Names = nil, nil },
		"path as name":      func(r *Request) { r.Bounds.AllowedNames[0], r.Names[0].Name = "a/b", "a/b" },
		"parent as name":    func(r *Request) { r.Bounds.AllowedNames[0], r.Names[0].Name = "..", ".." },
		"control in name":   func(r *Request) { r.Bounds.AllowedNames[0], r.Names[0].Name = "a\n", "a\n" },
		"handle missing":    func(r *Request) { r.Names = nil },
		"handle of another": func(r *Request) { r.Names[0].Name = "x" },
		"stdout as handle":  func(r *Request) { r.Names[0].FD = 1 },
		"no errno":          func(r *Request) { r.Names[0] = Handle{Name: "summary.csv", FD: -1} },
		"fd and errno":      func(r *Request) { r.Names[0].Errno = 2 },
		"same fd twice": func(r *Request) {
			r.Bounds.AllowedNames = []string{"summary.csv", "b"}
			r.Names = append(r.Names, Handle{Name: "b", FD: 5})
		},
	} {
		bad := good
		bad.Names, bad.Bounds.AllowedNames = slices.Clone(good.Names), slices.Clone(good.Bounds.AllowedNames)
		f(&bad)
		if _, err := bad.Argv(); err == nil {
			t.Errorf("%s: Argv takes it", name)
		}
		raw, _ := json.Marshal(bad)
		if _, err := decodeRequest([]string{StageName, string(raw)}); err == nil {
			t.Errorf("%s: the stage takes it", name)
		}
	}
	for name, argv := range map[string][]string{
		"none":        {StageName},
		"two":         {StageName, argv[1], "x"},
		"no json":     {StageName, "x"},
		"text after":  {StageName, argv[1] + "}"},
		"unknown key": {StageName, strings.Replace(argv[1], `{`, `{"x":1,`, 1)},
	} {
		if _, err := decodeRequest(argv); err == nil {
			t.Errorf("arguments %s: taken", name)
		}
	}
}

const stageMark = "NSBOX_EXPORTER_TEST_STAGE"

func TestMain(m *testing.M) {
	if os.Getenv(stageMark) != "" {
		os.Exit(Run())
	}
	os.Exit(m.Run())
}

// stage runs Run as a process of its own with the descriptors of the set-up.
func stage(t *testing.T, argv []string, files ...*os.File) (Report, []byte, error) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Args = argv
	cmd.Env = []string{stageMark + "=1", "GOMAXPROCS=1"}
	cmd.ExtraFiles = files
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if log.Len() > 0 {
		t.Errorf("the stage logs: %s", log.Bytes())
	}
	r, bad := DecodeReport(out.Bytes(), testBounds())
	if bad != nil {
		t.Errorf("%v: %s", bad, out.Bytes())
	}
	return r, out.Bytes(), err
}

func TestStage(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", goodCSV)
	dir, err := os.Open(p.path)
	p.check(err)
	defer dir.Close()
	in, err := os.Open(p.at("summary.csv"))
	p.check(err)
	defer in.Close()
	req := Request{Bounds: testBounds(), Names: []Handle{{Name: "summary.csv", FD: 5}}, OwnerUID: uint32(p.uid), OwnerGID: uint32(p.gid)}
	argv, err := req.Argv()
	p.check(err)

	r, _, err := stage(t, argv, dir, p.staging, in)
	p.check(err)
	p.wantAccepted(r, goodCSV)

	p.newStaging()
	p.file("b", []byte(canary))
	r, line, err := stage(t, argv, dir, p.staging, in)
	p.check(err)
	p.wantRejected(r, codeNameNotAllowed, codeTooManyFiles)
	if bytes.Contains(line, []byte(canary)) || len(p.staged()) != 0 {
		t.Error("content in the report or in the staging file")
	}

	for name, argv := range map[string][]string{"no request": {StageName}, "not a request": {StageName, "{}"}} {
		r, _, err := stage(t, argv, dir, p.staging, in)
		if err == nil || !equalCodes(r, codeBadRequest) {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
	// By hand: no descriptors at all.
	if r, _, err := stage(t, argv); err == nil || !equalCodes(r, codeBadRequest) {
		t.Errorf("without descriptors: %v, %+v", err, r)
	}
}
