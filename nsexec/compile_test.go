package nsexec

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func boxSpecs() map[string]*Spec {
	return map[string]*Spec{"workload": workloadSpec(), "exporter": exporterSpec(), "endpoints": endpointSpec(), "terminal": terminalSpec(), "live": liveSpec(), "live endpoints": liveEndpointSpec(), "one id": nested(workloadSpec())}
}

func allowUnexported() cmp.Option {
	return cmp.AllowUnexported(Program{}, Step{}, Arg{}, Slot{}, Ref{}, reloc{})
}

func TestCompileIsPure(t *testing.T) {
	for name, s := range boxSpecs() {
		before := *s
		a, af, err := compile(s, fixedFDs(s))
		if err != nil {
			t.Fatal(err)
		}
		b, bf, err := compile(s, fixedFDs(s))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(a, b, allowUnexported()); d != "" {
			t.Errorf("%s: two programs of one Spec differ:\n%s", name, d)
		}
		if !slices.Equal(af, bf) {
			t.Errorf("%s: report fields %v and %v", name, af, bf)
		}
		if d := cmp.Diff(before, *s); d != "" {
			t.Errorf("%s: compile changed its Spec:\n%s", name, d)
		}
		// The control: another Spec is another program.
		s.Hostname = "other"
		if c := mustCompile(t, s); cmp.Equal(a, c, allowUnexported()) {
			t.Errorf("%s: another hostname compiles to the same program", name)
		}
	}
}

func TestStepsAreNamedAndReasoned(t *testing.T) {
	for name, s := range boxSpecs() {
		seen := map[string]bool{}
		for _, step := range mustCompile(t, s).Steps {
			if step.Name == "" || step.Name != strings.ToLower(step.Name) && !strings.Contains(step.Name, ":") {
				t.Errorf("%s: name %q", name, step.Name)
			}
			if seen[step.Name] {
				t.Errorf("%s: step %s stands twice: a failure could not be told apart", name, step.Name)
			}
			seen[step.Name] = true
			if len(step.Why) < 10 {
				t.Errorf("%s: step %s has no reason", name, step.Name)
			}
			if !slices.Contains([]string{"setup", "init", "child"}, step.Stage) {
				t.Errorf("%s: step %s is of stage %q", name, step.Name, step.Stage)
			}
			if step.Nr > 0xffff || len(step.Args) > 6 {
				t.Errorf("%s: step %s does not fit an op", name, step.Name)
			}
		}
	}
}

// scopedSet reads the capability set back out of the program's first step.
func scopedSet(t *testing.T, p *Program) uint64 {
	t.Helper()
	s := p.Steps[0]
	if s.Name != "scope-capabilities" || s.Nr != unix.SYS_CAPSET || len(s.Args) != 2 {
		t.Fatalf("the first step is %s, want scope-capabilities", s.Name)
	}
	d := s.Args[1].data
	word := func(off int) uint64 {
		return uint64(binary.NativeEndian.Uint32(d[off:])) | uint64(binary.NativeEndian.Uint32(d[off+12:]))<<32
	}
	if word(0) != word(4) || word(8) != 0 {
		t.Fatalf("effective %#x, permitted %#x, inheritable %#x", word(0), word(4), word(8))
	}
	return word(0)
}

func TestScopedSetIsTheUnionOfTheSteps(t *testing.T) {
	for name, s := range boxSpecs() {
		p := mustCompile(t, s)
		var union uint64
		for _, step := range p.Steps {
			if step.Cap != noCap {
				union |= 1 << step.Cap
			}
		}
		if got := scopedSet(t, p); got != union || got == 0 {
			t.Errorf("%s: the set-up holds %#x, its steps name %#x", name, got, union)
		}
	}
}

// The order is the design: each row says which of two steps comes first and what
// the other order would open.
func TestOrder(t *testing.T) {
	rows := []struct{ first, then, why string }{
		{"scope-capabilities", "*", "no step may run with more than the steps name"},
		{"die-with-launcher", "fork", "a launcher that dies early must end the box"},
		{"null-to-2", "take-control", "a free low number would be taken by a stream or socket"},
		{"take-control", "close-the-rest", "it would be closed"},
		{"close-the-rest", "open:*", "nothing is opened beside the launcher's descriptors"},
		{"close-the-rest", "fork", "the child would keep the launcher's socket end"},
		{"bound-40", "fork", "the child would keep a bounding set"},
		{"bound-0", "fork", "the same for the lowest"},
		{"open:*", "become-uid-0", "a source may be readable to the operator only"},
		{"private-mounts", "root-tmpfs", "the host would see the mounts"},
		{"wait-for-maps", "become-gid-0", "no id is valid before"},
		{"become-gid-0", "become-uid-0", "a change of uid takes CAP_SETGID's use away"},
		{"become-uid-0", "die-with-launcher-again", "the change of uid clears the death signal"},
		{"no-nested-userns", "pivot-root", "only the old /proc has the file"},
		{"proc:/proc", "detach-old-root", "the kernel refuses a new proc without a visible old one"},
		{"mask:keys", "root-read-only", "the mount points are made while it is writable"},
		{"close-the-rest", "loopback-socket", "no socket of the launcher's may be at a number that is used here"},
		{"fork", "socket:*", "the child must not be born with a listening socket"},
		{"loopback-up", "bind:*", "there is no address to listen on before"},
		{"listen:*", "hand-out-listeners", "what the launcher gets is ready"},
		{"hand-out-listeners", "init-exec", "pid 1's own copies end there"},
		{"landlock-connect-443", "landlock-restrict", "a rule after it would not count"},
		{"landlock-restrict", "probe-connect", "a probe before it proves nothing"},
		{"control-connect", "probe-connect", "a refusal counts only beside a control"},
		{"seccomp", "probe-datagram", "a probe before it proves nothing"},
		{"root-read-only", "pivot-root", "no window in which the root is writable"},
		{"pivot-root", "detach-old-root", "pivot first"},
		{"detach-old-root", "tree-ready", "the child would go on beside the host's tree"},
		{"close-the-rest", "read-old-number", "an answer before it shows nothing"},
		{"scope-capabilities", "read-set-up-capabilities", "the answer is about the scoped set"},
		{"read-set-up-capabilities", "fork", "the child sends it"},
		{"die-with-launcher-again", "read-init-death-signal", "the answer is about the last one set"},
		{"read-init-death-signal", "init-exec", "init gets it as its argument"},
		{"init-no-new-privs", "init-seccomp", "an unprivileged filter needs it"},
		{"init-no-capabilities", "init-seccomp", "a filter loaded with privilege could do without no_new_privs"},
		{"init-seccomp", "init-exec", "init runs filtered from its first instruction"},
		{"wait-for-tree", "no-groups", "the child must not touch the host's tree with other ids"},
		{"wait-for-tree", "landlock-open:/usr", "a rule must bind to the final mount"},
		{"no-groups", "workload-gid", "CAP_SETGID is used before the uid changes"},
		{"no-groups", "workload-uid", "setgroups before setresuid"},
		{"workload-gid", "workload-uid", "setresgid before setresuid"},
		{"workload-uid", "no-capabilities", "SETUID is needed for the change"},
		{"workload-uid", "pipe:stdout", "the pipe's owner must be the workload"},
		{"no-capabilities", "landlock-restrict", "Landlock without privilege is what the kernel attests"},
		{"no-new-privs", "landlock-restrict", "EPERM otherwise: no capability is left"},
		{"no-new-privs", "seccomp", "EACCES otherwise"},
		{"landlock-restrict", "probe-landlock", "a probe before it proves nothing"},
		{"control-landlock", "probe-landlock", "a refusal counts only beside a control"},
		{"landlock-restrict", "seccomp", "the workload's filter need not allow Landlock"},
		{"hand-out", "close-low", "the outer ends are sent, then closed"},
		{"read-descriptors", "rlimit-nofile", "a small limit would fail the set-up's own numbers"},
		{"close-high", "read-descriptors", "the listing shows the final state"},
		{"empty-signal-mask", "ready", "the launcher reads SigBlk"},
		{"read-capabilities", "seccomp", "the filter need not allow the read-backs"},
		{"probe-nested-userns", "seccomp", "the limit must hold without the filter's help"},
		{"seccomp", "probe-seccomp", "a probe before it proves nothing"},
		{"probe-seccomp", "ready", "what is ready is proven"},
		{"ready", "wait-for-go", "go answers ready"},
		{"wait-for-go", "exec-workload", "no instruction of the workload before go"},
	}
	p := mustCompile(t, endpointSpec())
	for _, r := range rows {
		first, then := positions(p, r.first), positions(p, r.then)
		if len(first) == 0 || len(then) == 0 {
			t.Errorf("%s before %s: no such step", r.first, r.then)
			continue
		}
		if r.then == "*" {
			then = then[1:]
		}
		if slices.Max(first) >= slices.Min(then) {
			t.Errorf("%s (%d) must come before %s (%d): %s", r.first, slices.Max(first), r.then, slices.Min(then), r.why)
		}
	}
	// seccomp is the last change: what follows only proves and waits.
	var tail []string
	for _, s := range p.Steps[positions(p, "seccomp")[0]+1:] {
		tail = append(tail, s.Name)
	}
	if want := []string{"probe-seccomp", "control-stream", "probe-datagram", "ready", "wait-for-go", "exec-workload"}; !slices.Equal(tail, want) {
		t.Errorf("after seccomp come %q, want %q", tail, want)
	}
	// pid 1 continues straight into its exec; the child's part starts where fork jumps to.
	if i := positions(p, "init-exec")[0]; p.Steps[i+1].Name != p.Steps[positions(p, "fork")[0]].To {
		t.Errorf("fork continues at %s, after init-exec comes %s", p.Steps[positions(p, "fork")[0]].To, p.Steps[i+1].Name)
	}
}

func positions(p *Program, name string) (at []int) {
	for i, s := range p.Steps {
		prefix, wild := strings.CutSuffix(name, "*")
		if s.Name == name || wild && strings.HasPrefix(s.Name, prefix) {
			at = append(at, i)
		}
	}
	return at
}

// Every path in the program is below the new root or is a source that the Spec
// names; no step reads the environment, a home directory or a relative host path.
func TestProgramOpensOnlyWhatTheSpecNames(t *testing.T) {
	s := workloadSpec()
	allowed := map[string]bool{"/dev/null": true, "/": true, "/proc/sys/user/max_user_namespaces": true, "/proc/self/fd": true, "/proc/self/cgroup": true, "/proc/sys/user/max_inotify_instances": true, "/proc/sys/user/max_inotify_watches": true, s.StagingPoint: true, s.Command.Dir: true, s.Command.Path: true, s.Hold: true}
	for _, n := range s.Root {
		allowed[n.Path], allowed[n.Source] = true, true
	}
	for _, step := range mustCompile(t, s).Steps {
		for _, a := range step.Args {
			if a.kind != argBytes || len(a.data) < 2 || a.data[0] != '/' || a.data[len(a.data)-1] != 0 {
				continue
			}
			if path := string(a.data[:len(a.data)-1]); !allowed[path] {
				t.Errorf("step %s names %s", step.Name, path)
			}
		}
	}
}

// Any Spec that Validate accepts compiles to a program that links.
func TestWhatValidatesCompilesAndLinks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := workloadSpec()
		if rapid.Bool().Draw(r, "exporter") {
			s = exporterSpec()
		} else {
			s.Root = drawNodes(r)
		}
		s.Affinity = rapid.IntRange(-2, 2000).Draw(r, "affinity")
		s.LandlockABI = rapid.IntRange(0, 9).Draw(r, "abi")
		s.CapLast = rapid.IntRange(30, 70).Draw(r, "caplast")
		s.Stdin, s.SharedVM = rapid.Bool().Draw(r, "stdin"), rapid.Bool().Draw(r, "shared")
		if s.Validate() != nil {
			return
		}
		p, fields, err := compile(s, fixedFDs(s))
		if err != nil {
			r.Fatalf("valid, but: %v", err)
		}
		names := map[string]bool{}
		for _, step := range p.Steps {
			if names[step.Name] {
				r.Fatalf("step %s stands twice", step.Name)
			}
			names[step.Name] = true
		}
		for _, f := range fields {
			if f.off+f.len > reportSize {
				r.Fatalf("field %s ends outside of the report", f.name)
			}
		}
		im, err := p.link()
		if err != nil {
			r.Fatalf("compiled, but: %v", err)
		}
		im.free()
	})
}

// drawNodes makes a root of random nodes, parents first.
func drawNodes(r *rapid.T) []Node {
	nodes := []Node{{Path: "/", Kind: Dir, Access: Access(rapid.IntRange(0, 15).Draw(r, "root access"))}}
	dirs := []string{""}
	for range rapid.IntRange(0, 14).Draw(r, "nodes") {
		at := rapid.SampledFrom(dirs).Draw(r, "dir") + "/" + rapid.StringMatching(`[a-c]`).Draw(r, "name")
		if slices.ContainsFunc(nodes, func(n Node) bool { return n.Path == at }) {
			continue
		}
		n := Node{Path: at, Kind: rapid.SampledFrom([]NodeKind{Dir, File, Symlink, BindDir, BindFile, Device, Tmpfs, Storage, Proc}).Draw(r, "kind"),
			Access: Access(rapid.IntRange(0, 15).Draw(r, "access"))}
		switch n.Kind {
		case Symlink:
			n.Source = "to"
		case BindDir, BindFile, Device:
			n.Source = "/usr"
		case Storage:
			n.Source, n.Bytes, n.Inodes = "/usr", 4096, 4
		case Tmpfs:
			n.Bytes, n.Inodes, n.Mode = 4096, 4, 0o700
		case File:
			n.Data = rapid.SliceOfN(rapid.Byte(), 0, 99).Draw(r, "data")
		}
		nodes = append(nodes, n)
		if n.Kind == Dir || n.Kind == BindDir {
			dirs = append(dirs, at)
		}
	}
	return nodes
}
