package seccompgen

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Verdict says what becomes of a system call.
type Verdict string

const (
	Allow   Verdict = "allow"   // the kernel decides
	Deny    Verdict = "EPERM"   // known to be dangerous
	Missing Verdict = "ENOSYS"  // as if the kernel had been built without it; also the default
	Pretend Verdict = "ignored" // answers success and does nothing
)

// Value is one argument value with the name people know it by.
type Value struct {
	Name string
	N    uint32
}

// When restricts a rule to calls with low32(argument Arg) & Mask among In.
type When struct {
	Arg  int    // 0 to 5
	What string // subject and verb that read on with the names of In: "request is"
	Mask uint32 // bits that are looked at
	In   []Value

	// NonNull is a further argument, 1 to 5, that must not be 0; 0: none is looked at.
	NonNull int

	// More narrows single values of In by other arguments; NonNull is then 0.
	More []More
}

// More holds a call whose looked-at argument is one of Of to another argument as
// well: low32(argument Arg) & Mask has to be among In.
type More struct {
	Of   []Value
	Arg  int
	What string // as When's, for the names of In
	Mask uint32
	In   []Value
}

// of returns the further conditions on one value of In.
func (w *When) of(v Value) []More {
	var out []More
	for _, m := range w.More {
		if slices.Contains(m.Of, v) {
			out = append(out, m)
		}
	}
	return out
}

// Rule gives one verdict to a class of system calls.
type Rule struct {
	Class    string // for Allow what it is for, otherwise the denied class as policies name it
	Why      string // one sentence; never empty
	Verdict  Verdict
	Syscalls []string
	When     *When   // nil: whatever the arguments
	Else     Verdict // verdict where When does not hold; empty: the default, Missing
	ElseIs   string  // denied class that Else stands for, where Else is Deny
}

// Profile is a named list of rules. A call that no rule names is Missing; a call
// of a foreign architecture kills. The order of the rules has no meaning for the
// verdicts, but it is part of the bytes and of the digest.
type Profile struct {
	Name  string
	Rules []Rule
}

// Digest returns "sha256:" and the hex digest of everything that decides the
// compiled bytes: verdicts, calls, conditions, their order and the version of
// libseccomp. Reasons and class names do not count.
func (p Profile) Digest() string {
	s := sha256.Sum256(p.canonical())
	return "sha256:" + hex.EncodeToString(s[:])
}

// canonical is the text Digest hashes. Names stand for numbers here: the call
// table is kernel ABI.
func (p Profile) canonical() []byte {
	major, minor, micro := libraryVersion()
	b := make([]byte, 0, 8<<10)
	b = fmt.Appendf(b, "nsbox-seccomp 1\namd64\nlibseccomp %d.%d.%d\n%q\n", major, minor, micro, p.Name)
	for _, r := range p.Rules {
		b = append(b, r.Verdict...)
		if w := r.When; w != nil {
			b = append(b, " arg"...)
			b = strconv.AppendInt(b, int64(w.Arg), 10)
			b = append(b, '&')
			b = strconv.AppendUint(b, uint64(w.Mask), 16)
			for _, v := range w.In {
				b = append(b, ' ')
				b = strconv.AppendUint(b, uint64(v.N), 16)
			}
			if w.NonNull != 0 {
				b = append(b, " nonnull"...)
				b = strconv.AppendInt(b, int64(w.NonNull), 10)
			}
			for _, m := range w.More {
				b = fmt.Appendf(b, " more%d&%x", m.Arg, m.Mask)
				for _, v := range m.Of {
					b = fmt.Appendf(b, " of%x", v.N)
				}
				for _, v := range m.In {
					b = fmt.Appendf(b, " in%x", v.N)
				}
			}
			b = append(b, " else "...)
			b = append(b, r.Else...)
		}
		for _, name := range r.Syscalls {
			b = append(b, ' ')
			b = append(b, name...)
		}
		b = append(b, '\n')
	}
	return b
}

// check returns every fault of the profile that would make its meaning unclear:
// no reason, unknown call, two verdicts for the same call and arguments.
func (p Profile) check(nr map[string]int) error {
	var errs []error
	seen := map[string][]Rule{}
	for _, r := range p.Rules {
		fault := func(format string, a ...any) {
			errs = append(errs, fmt.Errorf("profile %s, class %q: "+format, append([]any{p.Name, r.Class}, a...)...))
		}
		if r.Class == "" || strings.TrimSpace(r.Why) == "" {
			fault("a rule needs a class and a reason")
		}
		if len(r.Syscalls) == 0 {
			fault("names no system call")
		}
		if !known(r.Verdict) || (r.Else != "" && !known(r.Else)) {
			fault("unknown verdict %q else %q", r.Verdict, r.Else)
		}
		if r.When == nil && r.Else != "" {
			fault("has an else without a condition")
		}
		if w := r.When; w != nil {
			if w.Arg < 0 || w.Arg > 5 || w.NonNull < 0 || w.NonNull > 5 || w.NonNull == w.Arg && w.NonNull != 0 || w.Mask == 0 || len(w.In) == 0 {
				fault("has an empty or impossible condition")
			}
			for i, m := range w.More {
				used := slices.ContainsFunc(w.More[:i], func(o More) bool { return o.Arg == m.Arg })
				if m.Arg < 0 || m.Arg > 5 || m.Arg == w.Arg || used || w.NonNull != 0 || m.Mask == 0 || len(m.In) == 0 || len(m.Of) == 0 {
					fault("has an empty or impossible further condition")
				}
				for _, v := range m.In {
					if v.N&^m.Mask != 0 {
						fault("value %s (%#x) has bits outside the mask %#x", v.Name, v.N, m.Mask)
					}
				}
				for _, v := range m.Of {
					if !slices.Contains(w.In, v) {
						fault("narrows %s, which is not among its values", v.Name)
					}
				}
			}
			for _, v := range w.In {
				if v.N&^w.Mask != 0 {
					fault("value %s (%#x) has bits outside the mask %#x", v.Name, v.N, w.Mask)
				}
			}
		}
		for _, name := range r.Syscalls {
			if _, ok := nr[name]; !ok {
				fault("unknown system call %q", name)
			}
			for _, other := range seen[name] {
				if !disjoint(r, other) {
					fault("system call %q already has a verdict in class %q", name, other.Class)
				}
			}
			seen[name] = append(seen[name], r)
		}
	}
	return errors.Join(errs...)
}

func known(v Verdict) bool { return v == Allow || v == Deny || v == Missing || v == Pretend }

// disjoint says whether no call can match both rules.
func disjoint(a, b Rule) bool {
	if a.When == nil || b.When == nil || a.Else != "" || b.Else != "" {
		return false
	}
	if a.When.Arg != b.When.Arg || a.When.Mask != b.When.Mask || len(a.When.More)+len(b.When.More) > 0 {
		return false
	}
	for _, x := range a.When.In {
		for _, y := range b.When.In {
			if x.N == y.N {
				return false
			}
		}
	}
	return true
}
