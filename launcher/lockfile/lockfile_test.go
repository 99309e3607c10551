package lockfile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/reason"
)

var (
	h1 = strings.Repeat("1", 64)
	h2 = strings.Repeat("2", 64)
)

func TestParse(t *testing.T) {
	got, err := Parse("lock", []byte("# made by hand\r\n\nSales_Tools==1.0 --hash=sha256:"+h1+" # why\nother.dep==2.0.post1 \\\n    --hash=sha256:"+h2+"\n"))
	want := []Pin{{"sales-tools", "1.0", h1, 3}, {"other-dep", "2.0.post1", h2, 4}}
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	again, err := Parse("lock", Text(got))
	if err != nil || len(again) != 2 || again[1].SHA256 != h2 {
		t.Errorf("its own text reads as %v, %v", again, err)
	}
}

func TestParseRefuses(t *testing.T) {
	a := "a==1 --hash=sha256:" + h1
	for text, want := range map[string]string{
		"":                                       "no requirement",
		"a==1":                                   "0 hashes",
		"a==1 --hash=md5:00":                     "no sha256",
		"a==1 --hash=sha256:" + h1[1:]:           "no sha256",
		a + " --hash=sha256:" + h2:               "2 hashes",
		a + " --hash=sha256:" + h1:               "2 hashes",
		a + "\nA==1 --hash=sha256:" + h2:         "line 1 already",
		a + "\nb==1 --hash=sha256:" + h1:         "hash stands in line 1",
		"a>=1 --hash=sha256:" + h1:               "exact version",
		"a==1.* --hash=sha256:" + h1:             "exact version",
		"a[x]==1 --hash=sha256:" + h1:            "exact version",
		"a==1; os_name=='x' --hash=sha256:" + h1: "exact version",
		"-r other.txt":                           "exact version",
		"--index-url x":                          "exact version",
		"-e .":                                   "exact version",
		"a @ file:///x.whl --hash=sha256:" + h1:  "exact version",
		"./a-1-py3-none-any.whl":                 "exact version",
		a + " --no-binary":                       "exact version",
	} {
		_, err := Parse("lock", []byte(text))
		if e := reason.Of(err); e == nil || e.ID != reason.LockInvalid || !strings.Contains(e.Error(), want) || e.Next == "" {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	pins := []Pin{{"a-b", "1.0", h1, 1}, {"c", "2", h2, 2}}
	whole := []File{{"A_b-1.0-py3-none-any.whl", h1}, {"c-2-1-cp311-cp311-linux_x86_64.whl", h2}}
	if err := Match(pins, whole); err != nil {
		t.Errorf("what fits is refused: %v", err)
	}
	h3 := strings.Repeat("3", 64)
	for name, c := range map[string]struct {
		files []File
		want  string
	}{
		"wrong hash":    {[]File{{"A_b-1.0-py3-none-any.whl", h3}, whole[1]}, "the lock has " + h1},
		"missing wheel": {whole[:1], "no wheel"},
		"additional":    {append(append([]File{}, whole...), File{"d-1-py3-none-any.whl", h3}), "not in the lock"},
		"twice":         {append(append([]File{}, whole...), File{"a_b-1.0-py2-none-any.whl", h1}), "same file"},
		"sdist":         {append(append([]File{}, whole...), File{"c-2.tar.gz", h3}), "no wheel"},
		"zip":           {[]File{{"a_b-1.0.zip", h1}, whole[1]}, "no wheel"},
		"other name":    {[]File{{"x-1.0-py3-none-any.whl", h1}, whole[1]}, "another release"},
		"other version": {[]File{{"a_b-1.1-py3-none-any.whl", h1}, whole[1]}, "another release"},
	} {
		err := Match(pins, c.files)
		if e := reason.Of(err); e == nil || e.ID != reason.WheelRefused || !strings.Contains(e.Error(), c.want) || e.Next == "" {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}
