package launcher

import (
	"bytes"
	"encoding"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"nsbox/exporter"
)

var update = flag.Bool("update", false, "rewrite generated files")

// TestResultDocIsCurrent holds docs/result.md and the types of result.go equal.
func TestResultDocIsCurrent(t *testing.T) {
	const path = "../docs/result.md"
	want := resultDoc(t)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is stale; run: make docs", path)
	}
}

func resultDoc(t *testing.T) []byte {
	t.Helper()
	comments := map[string]string{}   // Type or Type.Field -> comment
	words := map[string][][2]string{} // heading -> word, meaning
	fset := token.NewFileSet()
	for _, name := range []string{"result.go", "attest/attest.go", "broker/broker.go", "../exporter/report.go"} {
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if ok && g.Tok == token.CONST {
				collectWords(g, words)
			}
			if !ok || g.Tok != token.TYPE {
				continue
			}
			for _, s := range g.Specs {
				ts := s.(*ast.TypeSpec)
				comments[ts.Name.Name] = oneLine(g.Doc.Text())
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						comments[ts.Name.Name+"."+n.Name] = oneLine(field.Doc.Text() + field.Comment.Text())
					}
				}
			}
		}
	}
	var b bytes.Buffer
	b.WriteString("# The result document\n\nGenerated from launcher/result.go by `make docs`; a test holds both equal.\n")
	done := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		text := typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) // one string in JSON
		if typ.Kind() != reflect.Struct || typ.PkgPath() == "time" || text || done[typ] {
			return
		}
		done[typ] = true
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | type | |\n|---|---|---|\n", typ.Name(), comments[typ.Name()])
		var next []reflect.Type
		for i := range typ.NumField() {
			f := typ.Field(i)
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", key, strings.NewReplacer("launcher.", "", "*", "nullable ").Replace(f.Type.String()), strings.ReplaceAll(comments[typ.Name()+"."+f.Name], "|", `\|`))
			if comments[typ.Name()+"."+f.Name] == "" {
				t.Errorf("%s.%s has no comment", typ.Name(), f.Name)
			}
			next = append(next, f.Type)
		}
		for _, n := range next {
			walk(n)
		}
	}
	walk(reflect.TypeFor[Result]())
	for _, code := range exporter.Codes() {
		words["Artifact reason codes"] = append(words["Artifact reason codes"], [2]string{code, exporter.Explain(code)})
	}
	for _, heading := range []string{"Workload outcomes", "Artifact outcomes", "Cleanup outcomes", "Delivery outcomes", "Grade", "Status", "End", "Artifact reason codes"} {
		if len(words[heading]) == 0 {
			t.Errorf("no words for %q", heading)
		}
		fmt.Fprintf(&b, "\n## %s\n\n| word | meaning |\n|---|---|\n", heading)
		for _, w := range words[heading] {
			if w[1] == "" {
				t.Errorf("%s: %s has no meaning", heading, w[0])
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", w[0], strings.ReplaceAll(w[1], "|", `\|`))
		}
	}
	return b.Bytes()
}

// collectWords keeps the constants of a group with its first sentence, or, where
// they have a type of their own, with that type, as heading.
func collectWords(g *ast.GenDecl, words map[string][][2]string) {
	heading, _, _ := strings.Cut(oneLine(g.Doc.Text()), ".")
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		h := heading
		if id, ok := v.Type.(*ast.Ident); ok {
			h = id.Name
		}
		if h == "" || len(v.Values) != 1 {
			continue
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			word, _ := strconv.Unquote(lit.Value)
			meaning := strings.TrimSuffix(strings.TrimPrefix(oneLine(v.Doc.Text()+v.Comment.Text()), v.Names[0].Name+": "), ".")
			words[h] = append(words[h], [2]string{word, meaning})
		}
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
