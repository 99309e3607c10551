package launcher

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// limitReaders says in which of the launcher's files each field of
// policy.Limits is read. Every other import is an empty package: types that
// come from there stay unknown, which the fields of Limits do not need.
func limitReaders(t *testing.T, more string) (fields []string, readers map[string][]string) {
	t.Helper()
	set := token.NewFileSet()
	ignore := func(error) {}
	known := map[string]*types.Package{}
	load := func(dir, as string, extra ...*ast.File) (*types.Package, *types.Info) {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files := extra
		for _, n := range names {
			if strings.HasSuffix(n, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(set, n, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
		cfg := types.Config{Error: ignore, Importer: importerFunc(func(p string) (*types.Package, error) {
			if known[p] == nil {
				known[p] = types.NewPackage(p, path.Base(p))
				known[p].MarkComplete()
			}
			return known[p], nil
		})}
		pkg, _ := cfg.Check(as, set, files, info)
		return pkg, info
	}
	known["nsbox/launcher/policy"], _ = load("policy", "nsbox/launcher/policy")
	vars := map[*types.Var]string{}
	var walk func(at string, s *types.Struct)
	walk = func(at string, s *types.Struct) {
		for i := range s.NumFields() {
			f := s.Field(i)
			if below, ok := f.Type().Underlying().(*types.Struct); ok {
				walk(at+f.Name()+".", below)
				continue
			}
			vars[f] = at + f.Name()
			fields = append(fields, at+f.Name())
		}
	}
	walk("", known["nsbox/launcher/policy"].Scope().Lookup("Limits").Type().Underlying().(*types.Struct))
	extra, err := parser.ParseFile(set, "extra.go", "package launcher\n"+more, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	_, info := load(".", "nsbox/launcher", extra)
	readers = map[string][]string{}
	for sel, s := range info.Selections {
		if v, ok := s.Obj().(*types.Var); ok && vars[v] != "" {
			file := filepath.Base(set.Position(sel.Pos()).Filename)
			readers[vars[v]] = append(readers[vars[v]], file)
		}
	}
	return fields, readers
}

type importerFunc func(string) (*types.Package, error)

func (f importerFunc) Import(p string) (*types.Package, error) { return f(p) }

// A limit that only the plan shows is a promise nobody keeps. restrictions.go
// only writes values down.
func TestEveryLimitIsUsed(t *testing.T) {
	unused := map[string]string{
		"IOWriteRate": "blocked, as the policy itself says",
	}
	fields, readers := limitReaders(t, "")
	if len(fields) != 33 {
		t.Errorf("%d limits found", len(fields))
	}
	for _, f := range fields {
		used := false
		for _, file := range readers[f] {
			used = used || file != "restrictions.go"
		}
		if _, known := unused[f]; used == known {
			t.Errorf("limits.%s is read by %v; known as unused: %v", f, readers[f], known)
		}
	}
	_, readers = limitReaders(t, "func control(pl *Plan) any { l := &pl.Limits; return l.IOWriteRate }")
	if !slices.Contains(readers["IOWriteRate"], "extra.go") {
		t.Errorf("the control's read is not seen: %v", readers["IOWriteRate"])
	}
}
