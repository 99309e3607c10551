package launcher

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

func failed(step string, errno unix.Errno) error {
	return &nsexec.StepError{Stage: "setup", Step: step, Why: "of a reason", Result: -int64(errno)}
}

func TestBoxFailureNamesTheCause(t *testing.T) {
	for _, c := range []struct {
		err  error
		want reason.ID
	}{
		{failed("clone", unix.ENOSPC), reason.UsernsDisabled},
		{failed("clone", unix.EPERM), reason.UsernsSysctl},
		{failed("clone", unix.EACCES), reason.UsernsApparmor},
		{failed("clone", unix.EINVAL), reason.KernelTooOld},
		{failed("clone", unix.ENOSYS), reason.KernelTooOld},
		{failed("clone", unix.EAGAIN), reason.SetupStep},
		{failed("clone", unix.ENOMEM), reason.SetupStep},
		{failed("clone", unix.EBUSY), reason.SetupStep}, // no row: the step's own reason
		{failed("scope-capabilities", unix.EPERM), reason.UsernsCapabilities},
		{failed("bound-0", unix.EPERM), reason.UsernsCapabilities},
		{failed("bound-40", unix.EPERM), reason.UsernsCapabilities},
		{failed("bound-0", unix.ENOMEM), reason.SetupStep},
		{failed("private-mounts", unix.EACCES), reason.UsernsCapabilities},
		{failed("private-mounts", unix.ENOMEM), reason.SetupStep},
		{failed("become-gid-0", unix.EINVAL), reason.UsernsCapabilities},
		{failed("become-uid-0", unix.EAGAIN), reason.UsernsCapabilities},
		{failed("proc:/proc", unix.EPERM), reason.ProcMasked},
		{failed("proc:/proc", unix.ENOMEM), reason.SetupStep},
		{failed("open:/usr/lib/python3.11", unix.ENOENT), reason.RootfsSourceChanged},
		{failed("open:/usr/lib/python3.11", unix.EACCES), reason.SetupStep},
		{failed("landlock-open:/usr", unix.ENOENT), reason.SetupStep}, // not the prefix open:
		{failed("open", unix.ENOENT), reason.SetupStep},
		{failed("init-exec", unix.EACCES), reason.LauncherExeUnreadable},
		{failed("init-exec", unix.ENOEXEC), reason.SetupStep},
		{failed("landlock-ruleset", unix.EOPNOTSUPP), reason.LandlockBlocked},
		{failed("pivot-root", unix.EINVAL), reason.SetupStep},
		{failed("rlimit-nofile", unix.EPERM), reason.SetupStep},
		{&nsexec.StepError{Stage: "child", Step: "is-pid-2", Result: 7}, reason.SetupStep},
		{&nsexec.StepError{Stage: "setup", Step: "landlock-ruleset", Result: 7}, reason.LandlockBlocked},
		{fmt.Errorf("spawn: %w", failed("clone", unix.ENOSPC)), reason.UsernsDisabled},
		{errors.Join(failed("clone", unix.ENOSPC), errors.New("journal")), reason.UsernsDisabled},
		{&nsexec.MapError{Path: "/usr/bin/newuidmap", Text: "uid range not allowed", Err: errors.New("exit status 1")}, reason.IdMaps},
		{nsexec.ErrGone, reason.SetupGone},
		{fmt.Errorf("x: %w", nsexec.ErrGone), reason.SetupGone},
		{errors.New("anything"), reason.SetupStep},
		{reason.New(reason.Busy, "a", "b", "c"), reason.Busy}, // a reason stays what it is
	} {
		e := boxFailure(c.err)
		if e.ID != c.want || e.What == "" {
			t.Errorf("%v: %s (%s), want %s", c.err, e.ID, e.What, c.want)
		}
		var step, told *nsexec.StepError
		if errors.As(c.err, &step) {
			if !errors.As(e, &told) || told != step || e.What != "step "+step.Step || e.Why == "" || e.Next == "" {
				t.Errorf("%v: what %q, why %q, next %q", c.err, e.What, e.Why, e.Next)
			}
		}
		var m *nsexec.MapError
		if errors.As(c.err, &m) && !strings.Contains(e.Error(), m.Text) {
			t.Errorf("the helper's words are lost: %v", e)
		}
	}
}

func TestCloneUnderAProfile(t *testing.T) {
	for _, c := range []struct {
		step  string
		errno unix.Errno
		label string
		want  bool
	}{
		{"clone", unix.EPERM, "nsbox-denied", true},
		{"clone", unix.EPERM, "unconfined", false},
		{"clone", unix.EPERM, "", false},
		{"clone", unix.EACCES, "nsbox-denied", false},
		{"proc:/proc", unix.EPERM, "nsbox-denied", false},
	} {
		if got := capabilitiesDenied(&nsexec.StepError{Step: c.step, Result: -int64(c.errno)}, c.label); got != c.want {
			t.Errorf("%s with %v under %q: %v", c.step, c.errno, c.label, got)
		}
	}
}

func TestExecFailure(t *testing.T) {
	for errno, want := range map[unix.Errno]reason.ID{
		unix.ENOENT: reason.LoaderMissing, unix.EACCES: reason.ProgramNotExecutable, unix.EPERM: reason.ProgramNotExecutable,
		unix.ENOEXEC: reason.ProgramNotExecutable, unix.ELOOP: reason.ProgramNotExecutable, unix.ENOMEM: reason.ProgramNotExecutable,
	} {
		e := execFailure("/usr/bin/python3", &nsexec.StepError{Stage: "child", Step: "exec-workload", Result: -int64(errno)})
		if e.ID != want || e.What != "/usr/bin/python3" || !errors.Is(e, errno) {
			t.Errorf("%v: %v", errno, e)
		}
	}
}

// stepNames reads from nsexec's sources how steps are called: whole names, and
// what names begin with. It stands here until nsexec lists them itself.
func stepNames(t *testing.T) (whole, prefixes map[string]bool) {
	t.Helper()
	names, err := filepath.Glob("../nsexec/*.go")
	must(t, err)
	whole, prefixes = map[string]bool{}, map[string]bool{}
	text := func(e ast.Expr) string {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			return s
		}
		return ""
	}
	for _, n := range names {
		if strings.HasSuffix(n, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), n, nil, parser.SkipObjectResolution)
		must(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "add" && len(n.Args) > 2 {
					whole[text(n.Args[0])] = true
					if sum, ok := n.Args[0].(*ast.BinaryExpr); ok {
						prefixes[text(sum.X)] = true
					}
				}
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Step" {
					whole[text(n.Value)] = true // an error of the launcher's own step
				}
			}
			return true
		})
	}
	delete(whole, "")
	delete(prefixes, "")
	return whole, prefixes
}

// A row for a step that no program has would never be told.
func TestEveryStepReasonIsReachable(t *testing.T) {
	whole, prefixes := stepNames(t)
	if len(whole) < 40 || len(prefixes) < 10 {
		t.Fatalf("%d names and %d prefixes found", len(whole), len(prefixes))
	}
	for i, r := range stepReasons {
		known := whole[r.step]
		if r.isPrefix() {
			known = prefixes[r.step]
		}
		if !known {
			t.Errorf("no step is called %q", r.step)
		}
		if r.id == "" || r.why == "" || r.next == "" {
			t.Errorf("%s: %+v", r.step, r)
		}
		errnos := r.errnos
		if errnos == nil {
			errnos = []unix.Errno{unix.EPERM}
		}
		for _, e := range errnos {
			s := &nsexec.StepError{Step: strings.TrimSuffix(r.step, ":"), Result: -int64(e)}
			if s.Step != r.step {
				s.Step = r.step + "/x"
			}
			for j := range stepReasons[:i] {
				if stepReasons[j].matches(s) {
					t.Errorf("row %d (%s, %v) is hidden by row %d", i, r.step, e, j)
				}
			}
			if !r.matches(s) {
				t.Errorf("row %d does not match its own step %v", i, s)
			}
		}
	}
	if whole["no-such-step"] || prefixes["no-such-step:"] {
		t.Error("the reader of names finds everything")
	}
}
