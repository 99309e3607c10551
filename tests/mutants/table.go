package mutants

import "strings"

// edit is one change of source; in New, MUTANT(x) asks whether this copy is x.
type edit struct{ file, old, new string }

// edits are all places where a mutant differs from the product.
func edits() []edit {
	return []edit{
		{"launcher/attest/attest.go", "if r.Status == Mismatch {", "if r.Status == Mismatch && mutant.Name() == \"\" {"},
		{"nsexec/spawn.go", "return spawnAltered(spec, files, stop, nil)", "return spawnAltered(spec, files, stop, leaveOut)"},
		{"nsexec/spawn.go", "flags: cloneFlags,", "flags: lessFlags(cloneFlags),"},
		{"nsexec/compile_root.go", `str("hidepid=invisible")`, `str(hidepid())`},
		{"nsexec/compile_root.go", `	opts := fmt.Sprintf("size=%d,nr_inodes`, `	if mutant.Is("tmpfs bytes") {
		n.Bytes *= 4
	}
	if mutant.Is("tmpfs inodes") {
		n.Inodes *= 4
	}
	opts := fmt.Sprintf("size=%d,nr_inodes`},
		{"seccompgen/refused.go", "func refused() []Rule {\n\treturn []Rule{", "func refused() []Rule {\n\treturn without([]Rule{"},
		{"seccompgen/refused.go", "Syscalls: calls(`memfd_secret`)},\n\t}\n", "Syscalls: calls(`memfd_secret`)},\n\t})\n"},
		{"seccompgen/workload.go", "	if s == UnixSockets || s == AnySocket && noFiles {", "	if mutant.Is(\"class socket_non_AF_UNIX\") {\n\t\treturn []Rule{{Class: only.Class, Verdict: Allow, Why: only.Why, Syscalls: only.Syscalls}}\n\t}\n	if s == UnixSockets || s == AnySocket && noFiles {"},
		{"exporter/report.go", "	r.Reasons = append(r.Reasons, Finding{code,", "	if mutant.Is(\"finding \" + code) {\n\t\treturn\n\t}\n	r.Reasons = append(r.Reasons, Finding{code,"},
		{"exporter/checks.go", "		if f := one.Write(chunk); f.code != \"\" {", "		if f := one.Write(chunk); f.code != \"\" && !mutant.Is(\"finding \"+f.code) {"},
		{"exporter/checks.go", "		if f := one.Close(); f.code != \"\" {", "		if f := one.Close(); f.code != \"\" && !mutant.Is(\"finding \"+f.code) {"},
		{"launcher/monitor.go", "released.Add(l.Wall)", "released.Add(forever(\"wall\", l.Wall))"},
		{"launcher/monitor.go", "			if left <= 0 {", "			if left <= 0 && !mutant.Is(\"cpu budget\") {"},
		{"launcher/monitor.go", "// run blocks until the box", "func forever(name string, d time.Duration) time.Duration {\n\tif mutant.Is(name) {\n\t\treturn time.Hour\n\t}\n\treturn d\n}\n\n// run blocks until the box"},
		{"launcher/streams.go", "		passed := !c.endless &&", "		passed := !mutant.Is(\"output cap\") && !c.endless &&"},
		{"launcher/slots_place.go", "unix.LOCK_EX|unix.LOCK_NB); err != nil {", "unix.LOCK_EX|unix.LOCK_NB); err != nil && !mutant.Is(\"lock\") {"},
		{"launcher/copies.go", "if err == nil && (bytes != f.Bytes", "if err == nil && !mutant.Is(\"second digest\") && (bytes != f.Bytes"},
		{"launcher/recover_stop.go", "	switch {\n	case r.marker.Boot != \"\" &&", "	if mutant.Is(\"proof of the end\") {\n\t\treturn \"believed\", nil\n\t}\n	switch {\n	case r.marker.Boot != \"\" &&"},
		{"launcher/lockfile/lockfile.go", "func Match(pins []Pin, files []File) error {", "func Match(pins []Pin, files []File) error {\n\tif mutant.Is(\"wheel digest\") {\n\t\treturn nil\n\t}"},
		{"launcher/monitor.go", `name != "" && e.outcome == Exited {`, `name != "" && e.outcome == Exited && !mutant.Is("output cap") {`},
		{"launcher/lockfile/lockfile.go", "	var b strings.Builder\n	for _, p := range pins {", "	var b strings.Builder\n	for _, p := range pins {\n		if mutant.Is(\"wheel digest\") {\n			fmt.Fprintf(&b, \"%s==%s\\n\", p.Name, p.Version)\n			continue\n		}"},
		{"launcher/prep.go", `"--require-hashes", `, `pipHashes(), `},
		{"launcher/prep.go", "// quarantine keeps what was refused and why", "func pipHashes() string {\n\tif mutant.Is(\"wheel digest\") {\n\t\treturn \"--no-deps\"\n\t}\n\treturn \"--require-hashes\"\n}\n\n// quarantine keeps what was refused and why"},
	}
}

// added are the files that only the mutants have.
func added() map[string]string {
	return map[string]string{
		"mutant/mutant.go": `package mutant

import "strings"

var name = "` + placeholder() + `"

// Name is which mutant this is, or empty.
func Name() string { return strings.TrimRight(name[len("MUTANT:"):], ".") }

// Is compares it.
func Is(x string) bool { return Name() == x }
`,
		"nsexec/leave_out.go": `package nsexec

import (
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/mutant"
)

func leaveOut(p *Program) {
	list, ok := strings.CutPrefix(mutant.Name(), "step ")
	if !ok {
		return
	}
	gone := func(step string) bool {
		for _, name := range strings.Fields(list) {
			if prefix, ok := strings.CutSuffix(name, "*"); step == name || ok && strings.HasPrefix(step, prefix) {
				return true
			}
		}
		return false
	}
	var kept []Step
	next := map[string]string{} // where a jump to a missing step leads
	var waiting []string
	for _, s := range p.Steps {
		if gone(s.Name) {
			waiting = append(waiting, s.Name)
			continue
		}
		for _, w := range waiting {
			next[w] = s.Name
		}
		waiting = nil
		kept = append(kept, s)
	}
	for i := range kept {
		if to, ok := next[kept[i].To]; ok {
			kept[i].To = to
		}
	}
	p.Steps = kept
}

func lessFlags(flags uint64) uint64 {
	switch mutant.Name() {
	case "namespace net":
		flags &^= unix.CLONE_NEWNET
	case "namespace ipc":
		flags &^= unix.CLONE_NEWIPC
	}
	return flags
}

func hidepid() string {
	if mutant.Is("hidepid") {
		return "hidepid=off"
	}
	return "hidepid=invisible"
}
`,
		"seccompgen/without.go": `package seccompgen

import "nsbox/mutant"

func without(rules []Rule) []Rule {
	for i := range rules {
		if mutant.Is("class " + rules[i].Class) {
			rules[i].Verdict, rules[i].Else, rules[i].When = Allow, "", nil
		}
	}
	return rules
}
`,
	}
}

// placeholder is what stands where a copy's name goes: 128 bytes found once in
// each program of the build.
func placeholder() string { return named("") }

func named(name string) string {
	text := "MUTANT:" + name
	return text + strings.Repeat(".", 128-len(text))
}

// mutant is one missing enforcement and the fixtures that may miss it, the most
// likely first.
type mutant struct {
	name     string
	fixtures []string
	usual    bool // part of a usual run of all tests
}

// mutants are all of them.
func mutants() (all []mutant) {
	add := func(fixtures string, names ...string) {
		for _, n := range names {
			all = append(all, mutant{name: strings.TrimPrefix(n, "!"), fixtures: strings.Fields(fixtures), usual: strings.HasPrefix(n, "!")})
		}
	}
	add("A1a B2", "step bound-*", "step no-groups", "!step workload-gid", "step workload-uid no-capabilities", "step seccomp", "step init-no-groups", "step init-no-new-privs", "step init-seccomp", "step init-core")
	add("B2", "!step landlock-*", "step restrict:*", "step root-read-only", "step detach-old-root", "step private-mounts", "step mask:*", "step mask-dir:*",
		"step open-userns-limit no-nested-userns", "step open-max_inotify_instances limit-max_inotify_instances", "step open-max_inotify_watches limit-max_inotify_watches",
		"step own-keyring", "step own-session", "step hostname", "step domainname", "step empty-signal-mask", "step cgroup-namespace", "step one-cpu", "step umask",
		"step die-with-launcher*", "step rlimit-core", "step rlimit-nproc", "step rlimit-fsize", "step rlimit-cpu", "step rlimit-memlock", "step rlimit-msgqueue", "step rlimit-sigpending", "step rlimit-stack")
	add("S6d B2", "step rlimit-nofile")
	add("A1b B2", "step close-low close-high", "step null-to-*", "hidepid")
	add("S5 B2", "namespace net")
	add("B2", "namespace ipc", "!class mount", "class unshare", "class setns", "class ptrace", "class keyctl", "class bpf", "class perf_event_open", "class userfaultfd", "class io_uring")
	add("A2a B2", "class socket_non_AF_UNIX")
	add("S6f S10", "tmpfs bytes", "tmpfs inodes")
	add("S13a", "!wall")
	add("S6a S13b", "cpu budget")
	add("S6e A2b", "output cap")
	add("A4-L", "lock", "proof of the end")
	add("A5b", "second digest")
	add("S8", "wheel digest")
	add("S4", "!finding symlink", "finding hardlink", "finding fifo")
	add("S10", "finding name_not_allowed", "finding too_many_files", "finding too_large")
	add("S16", "finding compressed_magic")
	add("A5a", "finding line_too_long", "finding too_many_rows")
	add("B6", "finding directory", "finding socket", "finding nul_byte", "finding not_utf8", "finding archive_magic", "finding executable_magic")
	return all
}
