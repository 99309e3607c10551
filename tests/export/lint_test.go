package export

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// heldUses finds what is done with the descriptor of the sealed directory, which
// the launcher's code calls held: any call with it that is not in allowed.
// tests/source_test.go looks for paths; by descriptor one could open as well.
func heldUses(f *ast.File, allowed []string) (bad []string, seen int) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		for _, arg := range call.Args {
			if !mentionsHeld(arg) {
				continue
			}
			seen++
			if name := callee(call); !slices.Contains(allowed, name) {
				bad = append(bad, name)
			}
		}
		return true
	})
	return bad, seen
}

// mentionsHeld looks at the argument itself, not into calls or literals in it.
func mentionsHeld(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if len(n.Args) == 1 { // a conversion
				if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "uintptr" || id.Name == "int") {
					return true
				}
			}
			return false
		case *ast.CompositeLit, *ast.FuncLit:
			return false
		case *ast.Ident:
			found = found || strings.EqualFold(n.Name, "held")
		}
		return true
	})
	return found
}

func callee(call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
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

func TestLauncherOpensNothingByTheHeldDescriptor(t *testing.T) {
	// Nothing of these opens or lists what is below it.
	allowed := []string{"unix.Fstatfs", "unix.Fstat", "unix.Close", "uintptr", "int",
		"in.row",                 // a line of the attestation with what fstat showed
		"outslot.LookAt", "rows", // file system and inode of the directory itself
	}
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "launcher", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		bad, seen := heldUses(f, allowed)
		total += seen
		for _, name := range bad {
			t.Errorf("%s: %s is called with the held descriptor", filepath.Base(path), name)
		}
	}
	if total == 0 {
		t.Error("the launcher does nothing with a descriptor called held: the test looks at the wrong thing")
	}
	for _, text := range []string{
		"func f() { unix.Openat(r.held, name, 0, 0) }", "func f() { os.NewFile(uintptr(x.held), name) }", "func f() { unix.ReadDirent(held, buf) }",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "snippet.go", "package p\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if bad, _ := heldUses(f, allowed); bad == nil {
			t.Errorf("%s passes", text)
		}
	}
}
