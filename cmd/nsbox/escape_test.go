package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"nsbox/launcher"
)

func TestEscaper(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "hello\n\tworld", "hello\n\tworld"},
		{"beyond ASCII", "Zürich 日本 😀", "Zürich 日本 😀"},
		{"escape sequence", "\x1b[31mred", `\x1b[31mred`},
		{"carriage return", "safe\rEVIL", `safe\x0dEVIL`},
		{"bell, backspace, NUL, DEL", "\a\b\x00\x7f", `\x07\x08\x00\x7f`},
		{"C1 as UTF-8", "a\u009b31mb", `a\u009b31mb`},
		{"C1 as a byte", "a\x9b31mb", `a\x9b31mb`},
		{"invalid", "a\xffb\xc3(", `a\xffb\xc3(`},
		{"overlong slash", "\xc0\xaf", `\xc0\xaf`},
		{"surrogate", "\xed\xa0\x80", `\xed\xa0\x80`},
		{"right-to-left override", "a\u202eb\u2066c\u2069", `a\u202eb\u2066c\u2069`},
		{"marks and line separators", "a\u200eb\u200fc\u061cd\u2028e\u2029f", `a\u200eb\u200fc\u061cd\u2028e\u2029f`},
		{"a real replacement character stays", "\ufffd", "\ufffd"},
		{"cut in the middle", "a\xf0\x9f\x98", `a\xf0\x9f\x98`},
		{"nothing", "", ""},
	} {
		for size := 1; size <= len(tc.in)+1; size++ {
			if got := escapeInParts(t, []byte(tc.in), size); got != tc.want {
				t.Errorf("%s, in parts of %d: %q, want %q", tc.name, size, got, tc.want)
			}
		}
	}
}

func escapeInParts(t *testing.T, in []byte, size int) string {
	t.Helper()
	var b bytes.Buffer
	e := &escaper{to: &b}
	for len(in) > 0 {
		n := min(size, len(in))
		part := append([]byte(nil), in[:n]...)
		if got, err := e.Write(part); got != n || err != nil {
			t.Fatalf("Write: %d, %v", got, err)
		}
		for i := range part { // a writer may not keep its argument
			part[i] = 'X'
		}
		in = in[n:]
	}
	if err := e.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestStreamsEscapeOnlyOnTerminals is the positive control of the escaper: the
// same bytes are exact elsewhere.
func TestStreamsEscapeOnlyOnTerminals(t *testing.T) {
	const hostile = "\x1b]0;x\a\xff"
	for _, terminal := range []bool{false, true} {
		var b bytes.Buffer
		s := &stream{to: &b, terminal: terminal}
		w, finish := s.guarded()
		_, _ = w.Write([]byte(hostile))
		finish()
		if got := b.String(); (got == hostile) == terminal {
			t.Errorf("terminal %v: %q", terminal, got)
		}
	}
}

func TestVisibleIsOneLine(t *testing.T) {
	if got := visible("a\nnsbox: fake\t\x1b"); got != `a\x0ansbox: fake\x09\x1b` {
		t.Errorf("%q", got)
	}
}

func TestSafeJSONKeepsTheValue(t *testing.T) {
	in := "\x7f\u009b\u202e\u2069 plain é <&> \x00"
	doc, err := encode(in)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(doc, &back); err != nil || back != in {
		t.Errorf("%q came back as %q (%v)", in, back, err)
	}
	if strings.ContainsAny(string(doc), "\x7f\u009b\u202e\u2069") || !strings.Contains(string(doc), "é <&>") {
		t.Errorf("document %q", doc)
	}
}

func FuzzEscaper(f *testing.F) {
	for _, s := range []string{"plain", "\x1b[2J", "\xf0\x9f\x98\x80", "\xf0\x9f", "\u202e", "a\x9bb\xc2", "\xe2\x80\xae"} {
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		whole := escapeInParts(t, in, len(in)+1)
		if size < 1 {
			size = 1
		}
		if parts := escapeInParts(t, in, size); parts != whole {
			t.Fatalf("%q: whole %q, in parts of %d %q", in, whole, size, parts)
		}
		if !utf8.ValidString(whole) {
			t.Fatalf("%q: not valid UTF-8: %q", in, whole)
		}
		for _, r := range whole {
			if (r < 0x20 && r != '\n' && r != '\t') || r == 0x7f || launcher.Steers(r) {
				t.Fatalf("%q: %q passes", in, r)
			}
		}
		if clean := strings.ToValidUTF8(string(in), ""); clean == string(in) && visible(clean) == clean && whole != clean {
			t.Fatalf("harmless %q became %q", in, whole)
		}
	})
}
