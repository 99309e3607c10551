package nsexec

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// impossible makes a step fail: a call that no kernel has, or, where that very
// errno is allowed, one on a descriptor that cannot be.
func impossible(s *Step) unix.Errno {
	if s.Rule == Tolerate && s.Want == -int64(unix.ENOSYS) {
		s.Nr, s.Args, s.Out = unix.SYS_CLOSE, []Arg{neg(-1)}, nil
		return unix.EBADF
	}
	s.Nr = endOfProgram
	return unix.ENOSYS
}

// representative says whether a step of a long series (one per capability, per
// signal) is tried: its first, its last and one between.
func representative(p *Program, i int) bool {
	prefix, n := series(p.Steps[i].Name)
	if n < 0 || n == 7 {
		return true
	}
	first := i == 0 || !sameSeries(p.Steps[i], p.Steps[i-1], prefix)
	last := i == len(p.Steps)-1 || !sameSeries(p.Steps[i], p.Steps[i+1], prefix)
	return first || last
}

// Every step is made to fail once. The box must say which it was, and nothing of
// it may be left: no process, no descriptor.
func TestEveryStepFailsOnce(t *testing.T) {
	for name, spec := range boxSpecs() {
		if spec.Listable >= 0 && unix.Geteuid() != 0 {
			continue // its directory must belong to an id of the box; only root can make one here
		}
		if spec.Identity.Nested && unix.Geteuid() == 0 {
			continue // root's own id is never given to a box; TestAsUser does it
		}
		for _, shared := range []bool{false, true} {
			spec.SharedVM = shared
			t.Run(name+map[bool]string{false: "/fork", true: "/shared"}[shared], func(t *testing.T) { failEveryStep(t, spec) })
		}
	}
}

func failEveryStep(t *testing.T, spec *Spec) {
	files := filesFor(t, spec)
	box, err := Spawn(spec, files, nil) // the control: unbroken, it comes up
	if err != nil {
		t.Fatal(err)
	}
	box.Abort()
	before := openFDs(t)
	steps := box.steps
	tried := 0
	for i := range steps {
		if testing.Short() && !representative(&Program{Steps: steps}, i) {
			continue
		}
		tried++
		var errno unix.Errno
		box, err := spawnAltered(spec, files, nil, func(p *Program) { errno = impossible(&p.Steps[i]) })
		var step *StepError
		switch name := steps[i].Name; {
		case steps[i].Rule == Any:
			if err != nil {
				t.Errorf("%s: a failure is data, but: %v", name, err)
				break
			}
			box.Abort()
		case name == execStep || name == "wait-for-go":
			if err != nil {
				t.Errorf("%s: failed before go: %v", name, err)
				break
			}
			failAfterGo(t, box, name, errno)
		case !errors.As(err, &step):
			t.Errorf("%s: got %v, want a StepError", name, err)
			if err == nil {
				box.Abort()
			}
		case step.Step != name || step.Errno() != errno || step.Stage != steps[i].Stage || step.Why != steps[i].Why:
			t.Errorf("%s: got %+v, want this step with %v", name, step, errno)
		}
		nothingLeft(t, before, steps[i].Name)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of %d steps made to fail", tried, len(steps))
}

// failAfterGo lets a box go whose last steps are broken.
func failAfterGo(t *testing.T, box *Box, name string, errno unix.Errno) {
	t.Helper()
	defer box.closeStreams()
	if err := box.Release(); err != nil {
		// The child is gone already: it did not wait for go.
		if name != "wait-for-go" {
			t.Errorf("%s: %v", name, err)
		}
		box.Abort()
		return
	}
	e := <-box.Done()
	got := e.ExecErr
	if name != execStep {
		got = e.SetupErr
	}
	if got == nil || got.Step != name || got.Errno() != errno {
		t.Errorf("%s: the box ended with %+v", name, e)
	}
}

// The set-up holds no capability that its steps could do without.
func TestEveryCapabilityIsNeeded(t *testing.T) {
	for name, spec := range boxSpecs() {
		if spec.Listable >= 0 && unix.Geteuid() != 0 || spec.Identity.Nested && unix.Geteuid() == 0 {
			continue // as above
		}
		files := filesFor(t, spec)
		scoped := scopedSet(t, mustCompile(t, spec))
		for c := range 64 {
			if scoped&(1<<c) == 0 {
				continue
			}
			if onlyForData(mustCompile(t, spec), c) {
				continue // what it opens may fail
			}
			box, err := spawnAltered(spec, files, nil, func(p *Program) { p.Steps[0].Args[1] = bytesArg(capData(scoped &^ (1 << c))) })
			if err == nil {
				t.Errorf("%s: comes up without capability %d", name, c)
				box.Abort()
				continue
			}
			var step *StepError
			if !errors.As(err, &step) {
				t.Errorf("%s without capability %d: %v", name, c, err)
				continue
			}
			var named bool
			for _, s := range mustCompile(t, spec).Steps {
				named = named || s.Name == step.Step && s.Cap == c
			}
			if !named {
				t.Errorf("%s without capability %d fails at %s, which does not name it", name, c, step.Step)
			}
		}
	}
}

// onlyForData says that every step which needs c may fail.
func onlyForData(p *Program, c int) bool {
	for _, s := range p.Steps {
		if s.Cap == c && s.Rule != Any {
			return false
		}
	}
	return true
}

func TestExporterKindOfBox(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("the sealed directory must belong to an id of the box; only root can make one here")
	}
	for _, shared := range []bool{false, true} {
		spec := exporterSpec()
		spec.SharedVM = shared
		box, err := Spawn(spec, filesFor(t, spec), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := box.Release(); err != nil {
			t.Fatal(err)
		}
		e := <-box.Done()
		out, _ := io.ReadAll(box.Stdout)
		errs, _ := io.ReadAll(box.Stderr)
		box.closeStreams()
		if !e.Reported || e.Status != 0 || string(out) != "0 1 2 3 4 5 " {
			t.Errorf("shared %v: it has descriptors %q, want 0 to 5; %s; %+v", shared, out, errs, e)
		}
	}
}
