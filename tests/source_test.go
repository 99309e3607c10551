package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// parsed is one of our own non-test files.
type parsed struct {
	pkg, name string
	file      *ast.File
	set       *token.FileSet
}

func ourSources(t *testing.T) []parsed {
	t.Helper()
	var all []parsed
	for _, p := range goList(t) {
		for _, name := range p.sources() {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s: %v", p.name(), err)
				continue
			}
			all = append(all, parsed{p.name(), name, f, set})
		}
	}
	return all
}

func snippet(t *testing.T, text string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "snippet.go", "package p\n"+text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// startWork finds what runs before main: init functions, and package variables
// whose value is computed by a call or built as a map. Every stage of the one
// binary would pay for it, with that stage's rights. errors.New is let pass:
// it only allocates, and sentinels need it.
func startWork(f *ast.File) []string {
	var found []string
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, "func init")
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, s := range d.Specs {
				v := s.(*ast.ValueSpec)
				for _, value := range v.Values {
					if what := computed(value); what != "" {
						found = append(found, fmt.Sprintf("var %s: %s", v.Names[0].Name, what))
					}
				}
			}
		}
	}
	return found
}

func computed(value ast.Expr) string {
	var what string
	ast.Inspect(value, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false // its body runs later
		case *ast.CallExpr:
			if callee := calleeName(n.Fun); callee != "errors.New" {
				what = "calls " + callee
			}
		case *ast.CompositeLit:
			if _, isMap := n.Type.(*ast.MapType); isMap {
				what = "builds a map"
			}
		}
		return true
	})
	return what
}

func calleeName(fun ast.Expr) string {
	switch fun := fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name + "." + fun.Sel.Name
		}
		return fun.Sel.Name
	}
	return "a function"
}

func TestNothingRunsBeforeMain(t *testing.T) {
	// One line per exception: "package file: finding", and why it must be so.
	allowed := []string{}
	for _, p := range ourSources(t) {
		for _, w := range startWork(p.file) {
			if !slices.Contains(allowed, fmt.Sprintf("%s %s: %s", p.pkg, p.name, w)) {
				t.Errorf("%s/%s: %s", p.pkg, p.name, w)
			}
		}
	}
	for _, bad := range []string{"func init() {}", "var x = f()", "var m = map[string]int{}", "var a = []int{g()}"} {
		if startWork(snippet(t, bad)) == nil {
			t.Errorf("%q passes", bad)
		}
	}
	for _, good := range []string{"func (t T) init() {}", "var x = 1", "var e = errors.New(\"x\")", "var f = func() { g() }", "func g() { x := f(); _ = x }"} {
		if got := startWork(snippet(t, good)); got != nil {
			t.Errorf("%q: %v", good, got)
		}
	}
}

// outOpeners are the functions through which host-side code could reach what a
// workload left below /out.
func outOpeners() []string {
	return []string{
		"os.Open", "os.OpenFile", "os.ReadFile", "os.WriteFile", "os.Create", "os.Stat", "os.Lstat", "os.ReadDir", "os.Readlink", "os.Rename",
		"os.Remove", "os.RemoveAll", "os.OpenRoot", "os.OpenInRoot", "os.DirFS", "os.Chmod", "os.Chown", "os.Truncate", "os.CopyFS", "os.Link",
		"unix.Open", "unix.Openat", "unix.Openat2", "unix.Stat", "unix.Lstat", "unix.Fstatat", "unix.Statx", "unix.Unlinkat", "unix.Readlinkat",
		"syscall.Open", "syscall.Stat", "syscall.Lstat", "filepath.Walk", "filepath.WalkDir", "filepath.Glob", "filepath.EvalSymlinks",
		"ioutil.ReadFile", "ioutil.ReadDir", "renameio.WriteFile",
	}
}

// opensOut finds calls of those with an argument that spells a path at or below /out.
func opensOut(f *ast.File) []string {
	var found []string
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !slices.Contains(outOpeners(), calleeName(call.Fun)) {
			return true
		}
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					return true
				}
				if text, err := strconv.Unquote(lit.Value); err == nil && (text == "/out" || strings.HasPrefix(text, "/out/")) {
					found = append(found, calleeName(call.Fun)+" "+text)
				}
				return true
			})
		}
		return true
	})
	return found
}

func TestHostSideOpensNothingBelowOut(t *testing.T) {
	inside := []string{"nsexec", "exporter"}
	for _, p := range ourSources(t) {
		if slices.Contains(inside, p.pkg) || strings.HasPrefix(p.pkg, "tests") {
			continue
		}
		for _, w := range opensOut(p.file) {
			t.Errorf("%s/%s: %s", p.pkg, p.name, w)
		}
	}
	for _, bad := range []string{
		`func f() { os.Open("/out/x") }`,
		`func f(n string) { os.ReadFile(filepath.Join(root, "/out", n)) }`,
		`func f(n string) { unix.Openat2(3, "/out/"+n, nil) }`,
	} {
		if opensOut(snippet(t, bad)) == nil {
			t.Errorf("%s passes", bad)
		}
	}
	if got := opensOut(snippet(t, `func f() { mount("/out"); os.Open("/outside") }`)); got != nil {
		t.Errorf("naming a mount point is no opening: %v", got)
	}
}

// TestOneFilePrints wants the standard streams named in one file of the command only.
func TestOneFilePrints(t *testing.T) {
	seen := 0
	for _, p := range ourSources(t) {
		ast.Inspect(p.file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch name := calleeName(s); name {
			case "os.Stdout", "os.Stderr", "os.Stdin", "fmt.Println", "fmt.Printf", "fmt.Print":
				if p.pkg == "cmd/nsbox" && p.name == "report.go" {
					seen++
				} else if p.pkg == "cmd/nsbox" || strings.HasPrefix(p.pkg, "launcher") {
					t.Errorf("%s/%s: %s", p.pkg, p.name, name)
				}
			}
			return true
		})
	}
	if seen == 0 {
		t.Error("report.go names no standard stream: the test looks at the wrong thing")
	}
}
