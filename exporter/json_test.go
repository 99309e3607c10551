package exporter

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func jsonCodes(data string, size int) []string {
	codes, _ := stream([]byte(data), testBounds(), Rule{Type: TypeJSON}, func(int) int { return size })
	return codes
}

func TestJSON(t *testing.T) {
	for _, good := range []string{
		`{}`, `[]`, `0`, `-0`, `1.5e+10`, `"x"`, `null`, ` { "a" : [ 1 , { "b" : null } ] , "c" : "\u00e9\\\"" } ` + "\r\n", `[[],{},[{}]]`,
		strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth), `{"𝄞":"𐍈"}`, `[true,false,null,-1,0.0,1E1]`,
		`[` + strings.Repeat(`1,`, 30000) + `1]`, // lines and rows are CSV's
	} {
		for _, size := range []int{1, 7, len(good)} {
			if codes := jsonCodes(good, size); codes != nil {
				t.Errorf("%.40q in chunks of %d: %v", good, size, codes)
			}
		}
	}
	for bad, want := range map[string]string{
		"": codeJSONSyntax, " ": codeJSONSyntax, `{`: codeJSONSyntax, `{}{}`: codeJSONSyntax, `{} x`: codeJSONSyntax, `[1,]`: codeJSONSyntax, `{"a":1,}`: codeJSONSyntax,
		`[,]`: codeJSONSyntax, `{"a"}`: codeJSONSyntax, `{a:1}`: codeJSONSyntax, `[1 2]`: codeJSONSyntax, `01`: codeJSONSyntax, `1.`: codeJSONSyntax, `.5`: codeJSONSyntax,
		`-`: codeJSONSyntax, `1e`: codeJSONSyntax, `+1`: codeJSONSyntax, `"a`: codeJSONSyntax, "\"a\n\"": codeJSONSyntax, `"\x"`: codeJSONSyntax, `"\u12g4"`: codeJSONSyntax,
		`tru`: codeJSONSyntax, `nulll`: codeJSONSyntax, `NaN`: codeJSONSyntax, `]`: codeJSONSyntax, `[}`: codeJSONSyntax, `{]`: codeJSONSyntax, `1,2`: codeJSONSyntax,
		"\"\xff\"": codeNotUTF8, "\"\x00\"": codeNUL,
		strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1): codeJSONDeep,
	} {
		for _, size := range []int{1, 2, max(1, len(bad))} {
			if codes := jsonCodes(bad, size); !slices.Contains(codes, want) {
				t.Errorf("%.40q in chunks of %d: %v, want %s", bad, size, codes, want)
			}
		}
	}
}

// A byte order mark is never part of JSON; in the smallest chunks it is a fault of
// the syntax before it is whole.
func TestJSONWithMark(t *testing.T) {
	b := testBounds()
	b.AllowBOM = true
	for _, size := range []int{1, 3} {
		if codes, _ := stream([]byte(bom+`{}`), b, Rule{Type: TypeJSON}, func(int) int { return size }); codes == nil {
			t.Errorf("taken in chunks of %d", size)
		}
	}
}

// FuzzJSON holds the streaming check against encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e3,null,"\u00e9"]}`, ` [true , false] `, `{"":{"":[]}}`, `01`, `"`, `[1,]`, `{"a":1,}`, "\"\t\"", `-`, `1e`, `[[[[`} {
		f.Add([]byte(s), byte(1))
		f.Add([]byte(s), byte(5))
	}
	f.Fuzz(func(t *testing.T, data []byte, step byte) {
		codes, _ := stream(data, testBounds(), Rule{Type: TypeJSON}, func(at int) int { return 1 + (at*7+int(step))%(1+int(step)) })
		if slices.Contains(codes, codeJSONDeep) || match(data, false).code != "" || !utf8.Valid(data) {
			return
		}
		if good := json.Valid(data); good != (codes == nil) {
			t.Fatalf("%q: %v, json.Valid says %v", data, codes, good)
		}
	})
}
