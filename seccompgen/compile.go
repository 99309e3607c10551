//go:build cgo

package seccompgen

import (
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	seccomp "github.com/seccomp/libseccomp-golang"

	"nsbox/seccompgen/filter"
)

// maxInstructions is BPF_MAXINSNS of linux/bpf_common.h; the kernel refuses more.
const maxInstructions = 4096

// Compile builds the program of p. The same profile gives the same bytes. It takes
// some milliseconds and changes nothing about this process.
//
// The program is a plain list. The kernel keeps a bitmap of the calls that are
// allowed whatever their arguments (Linux 5.11), and only the others run it at all;
// a tree by number doubled the time to compile, and putting the conditional calls
// first made it five times as long, for a gain nobody can measure.
func Compile(p Profile) (filter.Program, error) {
	nr := numbers()
	if err := p.check(nr); err != nil {
		return nil, err
	}
	f, err := seccomp.NewFilter(action(Missing))
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: new filter: %w", p.Name, err)
	}
	defer f.Release()
	// No x32 is ever added, so libseccomp sends its numbers here too.
	if err := f.SetBadArchAction(seccomp.ActKillProcess); err != nil {
		return nil, fmt.Errorf("seccomp profile %s: foreign architecture: %w", p.Name, err)
	}
	// no_new_privs is set and read back by the code that loads the bytes.
	if err := f.SetNoNewPrivsBit(false); err != nil {
		return nil, fmt.Errorf("seccomp profile %s: no_new_privs attribute: %w", p.Name, err)
	}
	for _, r := range p.Rules {
		for _, name := range r.Syscalls {
			if err := add(f, seccomp.ScmpSyscall(nr[name]), r); err != nil {
				return nil, fmt.Errorf("seccomp profile %s, class %s, %s: %w", p.Name, r.Class, name, err)
			}
		}
	}
	prog, err := export(f)
	if err != nil {
		return nil, fmt.Errorf("seccomp profile %s: export: %w", p.Name, err)
	}
	return prog, nil
}

// add enters one rule for one call. Missing is the default action, which
// libseccomp refuses as a rule and which needs none.
func add(f *seccomp.ScmpFilter, call seccomp.ScmpSyscall, r Rule) error {
	if r.When == nil {
		if r.Verdict == Missing {
			return nil
		}
		return f.AddRuleExact(call, action(r.Verdict))
	}
	if r.Verdict != Missing {
		for _, v := range r.When.In {
			for _, more := range within(r.When.of(v)) {
				conds := append(more, r.When.pointer(seccomp.CompareNotEqual)...)
				if err := addMasked(f, call, r.Verdict, r.When.Arg, cube{r.When.Mask, v.N}, conds...); err != nil {
					return err
				}
			}
		}
	}
	if r.Else != "" && r.Else != Missing {
		for _, c := range outside(r.When.Mask, r.When.In) {
			if err := addMasked(f, call, r.Else, r.When.Arg, c); err != nil {
				return err
			}
		}
		for _, v := range r.When.In {
			// Disjoint: the first condition that fails decides, those before it hold.
			more := r.When.of(v)
			for n, m := range more {
				for _, c := range outside(m.Mask, m.In) {
					for _, before := range within(more[:n]) {
						if err := addMasked(f, call, r.Else, r.When.Arg, cube{r.When.Mask, v.N}, append(before, masked(m.Arg, c))...); err != nil {
							return err
						}
					}
				}
			}
		}
		if r.When.NonNull == 0 {
			return nil
		}
		for _, v := range r.When.In {
			if err := addMasked(f, call, r.Else, r.When.Arg, cube{r.When.Mask, v.N}, r.When.pointer(seccomp.CompareEqual)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// within returns, for every choice of one wanted value of each condition, the
// compares that say so; without conditions that is one empty choice.
func within(conds []More) [][]seccomp.ScmpCondition {
	out := [][]seccomp.ScmpCondition{nil}
	for _, m := range conds {
		var next [][]seccomp.ScmpCondition
		for _, before := range out {
			for _, v := range m.In {
				next = append(next, append(slices.Clone(before), masked(m.Arg, cube{m.Mask, v.N})))
			}
		}
		out = next
	}
	return out
}

// masked is one compare of the bits of c. One that cannot be made comes out empty,
// and libseccomp refuses an empty one where it is added.
func masked(arg int, c cube) seccomp.ScmpCondition {
	cond, err := seccomp.MakeCondition(uint(arg), seccomp.CompareMaskedEqual, uint64(c.mask), uint64(c.value))
	if err != nil {
		return seccomp.ScmpCondition{}
	}
	return cond
}

// pointer is the condition on the NonNull argument, all 64 bits of it.
func (w *When) pointer(op seccomp.ScmpCompareOp) []seccomp.ScmpCondition {
	if w.NonNull == 0 {
		return nil
	}
	cond, err := seccomp.MakeCondition(uint(w.NonNull), op, 0)
	if err != nil {
		return []seccomp.ScmpCondition{{}} // an empty condition is refused where it is added
	}
	return []seccomp.ScmpCondition{cond}
}

func addMasked(f *seccomp.ScmpFilter, call seccomp.ScmpSyscall, v Verdict, arg int, c cube, more ...seccomp.ScmpCondition) error {
	return f.AddRuleConditionalExact(call, action(v), append([]seccomp.ScmpCondition{masked(arg, c)}, more...))
}

func action(v Verdict) seccomp.ScmpAction {
	switch v {
	case Allow:
		return seccomp.ActAllow
	case Deny:
		return seccomp.ActErrno.SetReturnCode(int16(syscall.EPERM))
	case Pretend:
		return seccomp.ActErrno.SetReturnCode(0)
	default:
		return seccomp.ActErrno.SetReturnCode(int16(syscall.ENOSYS))
	}
}

// export reads the program through a pipe, because libseccomp can write to memory
// only since 2.6. The reader runs beside the writer: a user over the pipe page
// quota gets a pipe of one page.
func export(f *seccomp.ScmpFilter) (filter.Program, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	written := make(chan error, 1)
	go func() {
		err := f.ExportBPF(w)
		w.Close()
		written <- err
	}()
	prog, err := io.ReadAll(io.LimitReader(r, maxInstructions*8+1))
	r.Close()
	if werr := <-written; err == nil {
		err = werr
	}
	if err != nil {
		return nil, err
	}
	if len(prog) == 0 || len(prog)%8 != 0 || len(prog) > maxInstructions*8 {
		return nil, fmt.Errorf("%d bytes are no program the kernel would take", len(prog))
	}
	return prog, nil
}

// libraryVersion returns the version of the libseccomp this binary is linked with.
func libraryVersion() (major, minor, micro uint) { return seccomp.GetLibraryVersion() }
