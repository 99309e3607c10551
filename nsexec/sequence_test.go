package nsexec

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nsbox/nsexec/caps/names"
)

var update = flag.Bool("update", false, "rewrite SEQUENCE.md and the golden files in testdata")

const sequenceHead = `# The set-up, step by step

Generated from the compiled programs of representative boxes by
` + "`go test ./nsexec -run Doc -args -update`" + `; a test fails if it is stale. doc.go tells
how it works; this page is what the kernel is asked, in order. Paths and counts
depend on the policy. *setup* is pid 1 until its exec, *init* its last steps
before it, *child* pid 2 until the workload's exec: fork comes early, and what
follows it in *setup* runs beside the first steps of *child*.
`

// The page and the program cannot drift apart: both come from compile.
func TestSequenceDoc(t *testing.T) {
	var b strings.Builder
	b.WriteString(sequenceHead)
	for _, box := range []struct {
		title string
		spec  *Spec
	}{{"The workload's box", workloadSpec()}, {"The exporter's box", exporterSpec()}, {"What a box with endpoints has besides", endpointSpec()}, {"What a box that shows live directories has besides", liveSpec()}, {"What a box with both has besides either", liveEndpointSpec()}, {"What a box with a terminal and a shared tmpfs has besides", terminalSpec()},
		{"What the box of a caller with one id has besides", nested(workloadSpec())}} {
		box.spec.Identity.Kind = ""      // not part of the program
		box.spec.LandlockABI = newestABI // whatever kernel writes the page
		fmt.Fprintf(&b, "\n## %s\n\n", box.title)
		p := mustCompile(t, box.spec)
		if len(box.spec.Listen) > 0 || box.spec.Terminal != nil || box.spec.NoUnixPaths || box.spec.Identity.Nested {
			onlyNewSteps(t, p, workloadSpec())
		}
		if len(box.spec.Listen) > 0 && box.spec.NoUnixPaths {
			onlyNewSteps(t, p, endpointSpec())
		}
		writeSequence(&b, p)
	}
	got := b.String()
	if *update {
		if err := os.WriteFile("SEQUENCE.md", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("SEQUENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("SEQUENCE.md is stale (go test -run Doc -args -update rewrites it):\n%s", diff)
	}
}

// onlyNewSteps leaves the steps that the box without what is new lacks.
func onlyNewSteps(t *testing.T, p *Program, without *Spec) {
	t.Helper()
	plain := mustCompile(t, without)
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return len(positions(plain, s.Name)) > 0 })
}

func writeSequence(b *strings.Builder, p *Program) {
	users := map[int][]string{}
	var mask uint64
	b.WriteString("| # | stage | step | system call | capability | goes on if | why |\n|---|---|---|---|---|---|---|\n")
	for i := 0; i < len(p.Steps); {
		s, n := p.Steps[i], 1
		prefix, _ := series(s.Name)
		for i+n < len(p.Steps) && prefix != s.Name && sameSeries(s, p.Steps[i+n], prefix) {
			n++
		}
		number, name := fmt.Sprint(i+1), "`"+s.Name+"`"
		if n > 1 {
			number, name = fmt.Sprintf("%d–%d", i+1, i+n), "`"+s.Name+"` … `"+p.Steps[i+n-1].Name+"`"
		}
		capability := ""
		if s.Cap != noCap {
			capability = names.Of(s.Cap)
			users[s.Cap] = append(users[s.Cap], name)
			mask |= 1 << s.Cap
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s | %s |\n", number, s.Stage, name, syscallName(s.Nr), capability, ruleText(s), s.Why)
		i += n
	}
	if mask == 0 {
		return
	}
	b.WriteString("\nCapabilities of the set-up, in its own user namespace, and who needs each:\n\n")
	for c := range 64 {
		if mask&(1<<c) != 0 {
			who := users[c]
			text := strings.Join(who[:min(len(who), 4)], ", ")
			if len(who) > 4 {
				text += fmt.Sprintf(" and %d more", len(who)-4)
			}
			fmt.Fprintf(b, "- %s: %s\n", names.Of(c), text)
		}
	}
}

func sameSeries(a, b Step, prefix string) bool {
	p, n := series(b.Name)
	return n >= 0 && p == prefix && a.Nr == b.Nr && a.Cap == b.Cap && a.Rule == b.Rule && a.Want == b.Want && a.Stage == b.Stage && a.Why == b.Why
}

func ruleText(s Step) string {
	want := fmt.Sprintf("the result is %d", s.Want)
	if s.Want < 0 {
		want = "it fails with " + unix.ErrnoName(unix.Errno(-s.Want))
	}
	switch s.Rule {
	case NoError:
		return "no error"
	case Any:
		return "always; a failure is data"
	case Exactly:
		return want
	case Tolerate:
		return "no error, or " + want
	case Branch:
		return "no error; on 0 continues at `" + s.To + "`"
	}
	return "?"
}

func syscallName(nr uintptr) string {
	names := map[uintptr]string{
		pseudoReport:    "(none: failures are reported on this descriptor from here on)",
		unix.SYS_CAPGET: "capget", unix.SYS_CAPSET: "capset", unix.SYS_CHDIR: "chdir", unix.SYS_CLONE3: "clone3", unix.SYS_CLOSE: "close",
		unix.SYS_CLOSE_RANGE: "close_range", unix.SYS_DUP3: "dup3", unix.SYS_EXECVE: "execve", unix.SYS_EXECVEAT: "execveat", unix.SYS_FCHMOD: "fchmod",
		unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat", unix.SYS_FCNTL: "fcntl", unix.SYS_FSTAT: "fstat", unix.SYS_POLL: "poll", unix.SYS_IOCTL: "ioctl", unix.SYS_GETCWD: "getcwd", unix.SYS_UNAME: "uname", unix.SYS_GETDENTS64: "getdents64", unix.SYS_GETGROUPS: "getgroups",
		unix.SYS_GETPRIORITY: "getpriority", unix.SYS_PERSONALITY: "personality", unix.SYS_SCHED_GETSCHEDULER: "sched_getscheduler",
		unix.SYS_GETPID: "getpid", unix.SYS_GETRESGID: "getresgid", unix.SYS_GETRESUID: "getresuid", unix.SYS_GETSID: "getsid", unix.SYS_KEYCTL: "keyctl",
		unix.SYS_LANDLOCK_ADD_RULE: "landlock_add_rule", unix.SYS_LANDLOCK_CREATE_RULESET: "landlock_create_ruleset", unix.SYS_LANDLOCK_RESTRICT_SELF: "landlock_restrict_self",
		unix.SYS_MKDIRAT: "mkdirat", unix.SYS_MKNODAT: "mknodat", unix.SYS_MOUNT: "mount", unix.SYS_MOUNT_SETATTR: "mount_setattr", unix.SYS_MOVE_MOUNT: "move_mount",
		unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_OPEN_TREE: "open_tree", unix.SYS_PIPE2: "pipe2", unix.SYS_PIVOT_ROOT: "pivot_root",
		unix.SYS_PRCTL: "prctl", unix.SYS_PRLIMIT64: "prlimit64", unix.SYS_READ: "read", unix.SYS_RT_SIGACTION: "rt_sigaction", unix.SYS_RT_SIGPROCMASK: "rt_sigprocmask",
		unix.SYS_SCHED_SETAFFINITY: "sched_setaffinity", unix.SYS_SECCOMP: "seccomp", unix.SYS_SENDMSG: "sendmsg", unix.SYS_SETDOMAINNAME: "setdomainname",
		unix.SYS_SETGROUPS: "setgroups", unix.SYS_SETHOSTNAME: "sethostname", unix.SYS_SETRESGID: "setresgid", unix.SYS_SETRESUID: "setresuid", unix.SYS_SETSID: "setsid",
		unix.SYS_SYMLINKAT: "symlinkat", unix.SYS_UMASK: "umask", unix.SYS_UMOUNT2: "umount2", unix.SYS_UNSHARE: "unshare", unix.SYS_WRITE: "write",
		unix.SYS_BIND: "bind", unix.SYS_CONNECT: "connect", unix.SYS_LISTEN: "listen", unix.SYS_SENDTO: "sendto", unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_SOCKET: "socket", unix.SYS_SOCKETPAIR: "socketpair",
	}
	if name, ok := names[nr]; ok {
		return name
	}
	return fmt.Sprintf("system call %d", nr)
}

// A call without a name in the table would make the page useless.
func TestEveryCallHasAName(t *testing.T) {
	for _, s := range []*Spec{endpointSpec(), exporterSpec(), terminalSpec(), liveEndpointSpec(), nested(workloadSpec())} {
		for _, step := range mustCompile(t, s).Steps {
			if strings.HasPrefix(syscallName(step.Nr), "system call") {
				t.Errorf("step %s: call %d is not named", step.Name, step.Nr)
			}
			if ruleText(step) == "?" {
				t.Errorf("step %s: rule %d is not named", step.Name, step.Rule)
			}
		}
	}
}
