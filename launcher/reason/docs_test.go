package reason

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/reasons.md")

// documented is one id with the sentence above it.
type documented struct {
	area, name, id, sentence string
}

// collect reads every constant of type ID from source files by name.
func collect(files map[string]*ast.File) []documented {
	var all []documented
	for name, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if kind, ok := v.Type.(*ast.Ident); !ok || kind.Name != "ID" {
					continue
				}
				lit, ok := v.Values[0].(*ast.BasicLit)
				if !ok {
					continue
				}
				id, _ := strconv.Unquote(lit.Value)
				doc := v.Doc.Text()
				if doc == "" && !g.Lparen.IsValid() {
					doc = g.Doc.Text()
				}
				all = append(all, documented{strings.TrimSuffix(name, ".go"), v.Names[0].Name, id, strings.Join(strings.Fields(doc), " ")})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool {
		if all[i].area != all[j].area {
			return all[i].area < all[j].area
		}
		return all[i].id < all[j].id
	})
	return all
}

// faults says what is wrong with a list of ids.
func faults(all []documented) []string {
	var bad []string
	shape := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := map[string]string{}
	for _, d := range all {
		if !shape.MatchString(d.id) {
			bad = append(bad, d.name+": the id is not lower case with underscores: "+d.id)
		}
		if seen[d.id] != "" {
			bad = append(bad, fmt.Sprintf("%s and %s have the same id", seen[d.id], d.name))
		}
		seen[d.id] = d.name
		if !strings.HasPrefix(d.sentence, d.name) || !strings.HasSuffix(d.sentence, ".") {
			bad = append(bad, d.name+": the doc comment has to begin with the name and end with a stop: "+d.sentence)
		}
	}
	return bad
}

// meaning is the sentence without the constant's name in front.
func (d documented) meaning() string {
	text := strings.TrimPrefix(d.sentence, d.name)
	for _, opening := range []string{" means that ", " means ", " is ", ": "} {
		if rest, ok := strings.CutPrefix(text, opening); ok {
			text = rest
			break
		}
	}
	text = strings.ReplaceAll(strings.TrimSpace(text), "|", `\|`)
	if first, _, _ := strings.Cut(text, " "); first == "nsbox" || first == "newuidmap" {
		return text // names of programs keep their case
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func sourceFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files
}

func TestEveryIDIsDocumented(t *testing.T) {
	all := collect(sourceFiles(t))
	if len(all) < 5 {
		t.Fatalf("found %d ids only", len(all))
	}
	for _, f := range faults(all) {
		t.Error(f)
	}
	// The rules can say no.
	for name, d := range map[string][]documented{
		"upper case": {{"a", "X", "Bad_id", "X is bad."}},
		"no comment": {{"a", "X", "x", ""}},
		"no stop":    {{"a", "X", "x", "X is bad"}},
		"doubled":    {{"a", "X", "x", "X is bad."}, {"b", "Y", "x", "Y is bad."}},
	} {
		if faults(d) == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestReasonsDoc writes and holds docs/reasons.md.
func TestReasonsDoc(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Reason ids\n\nGenerated from the comments in launcher/reason by `make docs`.\n\n" +
		"Every refusal and failure of nsbox has one of these ids, on standard error and in\n" +
		"`reason.id` of the result. An id keeps its meaning; the text beside it may change.\n")
	area := ""
	for _, d := range collect(sourceFiles(t)) {
		if d.area != area {
			area = d.area
			fmt.Fprintf(&b, "\n## %s\n\n| id | meaning |\n|---|---|\n", area)
		}
		if d.sentence != "" {
			fmt.Fprintf(&b, "| `%s` | %s |\n", d.id, d.meaning())
		}
	}
	const path = "../../docs/reasons.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(have), b.String()); d != "" {
		t.Errorf("%s (write it with -update):\n%s", path, d)
	}
}
