package seccompgen

import (
	"fmt"
	"strings"
)

// Explain renders p for people: every class with its verdict, its reason and its
// calls, the allowed ones first. The text is stable for one profile.
func Explain(p Profile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seccomp profile %q, x86-64\n", p.Name)
	fmt.Fprintf(&b, "calls not listed: ENOSYS · calls of another architecture (i386, x32): the process is killed\n")
	section(&b, "allowed: the kernel decides", p, Allow)
	section(&b, "refused with EPERM", p, Deny)
	section(&b, "refused with ENOSYS, as if the kernel lacked them", p, Missing)
	section(&b, "answered with success, without effect", p, Pretend)
	return b.String()
}

func section(b *strings.Builder, title string, p Profile, v Verdict) {
	fmt.Fprintf(b, "\n%s\n", title)
	for _, r := range p.Rules {
		if r.Verdict != v {
			continue
		}
		fmt.Fprintf(b, "\n  %s: %s\n", r.Class, r.Why)
		wrap(b, "    ", 96, r.Syscalls)
		if r.When == nil {
			continue
		}
		fmt.Fprintf(b, "    if argument %d:\n", r.When.Arg+1)
		wrap(b, "      ", 96, strings.Fields(r.When.String()))
		switch {
		case r.ElseIs != "":
			fmt.Fprintf(b, "    otherwise %s (%s)\n", r.Else, r.ElseIs)
		case r.Else != "":
			fmt.Fprintf(b, "    otherwise %s\n", r.Else)
		default:
			fmt.Fprintf(b, "    otherwise %s, unless another class says more\n", Missing)
		}
	}
}

// String renders the condition, as in "request is TIOCSTI or TIOCLINUX".
func (w *When) String() string {
	text := w.What + " " + nameList(w.In, " or ")
	for _, m := range w.More {
		text += fmt.Sprintf("; for %s also argument %d: %s %s", nameList(m.Of, " and "), m.Arg+1, m.What, nameList(m.In, " or "))
	}
	if w.NonNull != 0 {
		text += fmt.Sprintf(" and argument %d is not NULL", w.NonNull+1)
	}
	return text
}

func nameList(values []Value, between string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = v.Name
	}
	return strings.Join(list, between)
}

// wrap writes words in lines of at most width columns.
func wrap(b *strings.Builder, indent string, width int, words []string) {
	line := indent
	for _, w := range words {
		if len(line)+len(w)+1 > width && line != indent {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = indent
		}
		line += w + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
