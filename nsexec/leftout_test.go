package nsexec

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// survivesSpawn lists the steps (of a series or a kind, its first word) without
// which a box still comes up, and who must notice then. "nobody" is a step that
// no read-back shows: its reason is the only thing that keeps it in the program,
// and TestEveryStepFailsOnce that it is obeyed.
func survivesSpawn() map[string]string {
	const (
		inspect  = "launcher: the row of the attestation that reads it"
		mounts   = "launcher: the workload's mount table is compared with the Spec"
		closed   = "the box: less is granted or shown, never more"
		itself   = "it only shows or proves; the row it feeds is a mismatch or missing"
		twice    = "the exec or a later step does it again"
		streams  = "the program's first use of its stream"
		afterGo  = "Release or the Exit: what the program does comes too early or never"
		failures = "a failure of a later step is then only seen as the box's end"
		nobody   = "nobody reads it back"
	)
	return map[string]string{
		"scope-capabilities": inspect, "die-with-launcher": inspect, "die-with-launcher-again": inspect, "umask-open": nobody, "plain-personality": inspect, "read-personality": itself, "read-policy": itself, "read-nice": itself, "read-set-up-capabilities": itself, "read-death-signal": itself, "read-init-death-signal": itself, "read-old-number": itself,
		"null-to-": inspect, "close-the-rest": inspect,
		"report-on-control": failures, "report-on-go": failures, "report-on-kept-go": failures,
		"bound-": inspect, "private-mounts": nobody, "restrict:": mounts, "attach:": mounts, "mask:": mounts, "mask-dir:": mounts, "tmpfs:": mounts, "detach-old-root": mounts, "root-read-only": mounts, "init-no-capabilities": twice,
		"hostname": inspect, "domainname": inspect, "init-cgroup-namespace": inspect, "cgroup-namespace": inspect,
		"link:": closed, "create:": closed, "fill:": closed, "landlock-grant:": closed,
		"init-core": inspect, "init-empty-signal-mask": inspect, "init-seccomp": inspect,
		"own-keyring": inspect, "own-session": inspect, "default-signal-": inspect,
		"no-groups": inspect, "init-no-groups": inspect, "open-max_inotify_instances": inspect, "limit-max_inotify_instances": inspect, "open-max_inotify_watches": inspect, "limit-max_inotify_watches": inspect,
		"read-own-max_inotify_instances": itself, "close-own-max_inotify_instances": inspect, "read-own-max_inotify_watches": itself, "close-own-max_inotify_watches": inspect, "workload-gid": inspect, "no-capabilities": inspect,
		"pipe:": inspect, "stdin": streams, "stdout": streams, "stderr": streams,
		"open-held": inspect,
		"close-low": inspect, "close-high": inspect, "one-cpu": inspect, "rlimit-nproc": inspect, "rlimit-nofile": inspect,
		"umask": inspect, "working-directory": inspect, "empty-signal-mask": inspect,
		"read-uids": itself, "read-gids": itself, "read-groups": itself, "read-capabilities": itself, "read-session": itself, "read-keyring": itself, "read-directory": itself, "read-names": itself, "read-cgroup": itself, "close-cgroup": inspect,
		"read-descriptor-": itself, "landlock-restrict": inspect, "open-userns-limit": inspect, "no-nested-userns": inspect, "seccomp": inspect, "go-closes-on-exec": itself,
		"control-landlock": itself, "probe-landlock": itself, "probe-nested-userns": itself, "probe-seccomp": itself,
		"wait-for-go": afterGo, "exec-workload": afterGo,
	}
}

// racing steps wait for another process; without them it may have been in time.
func racing() []string { return []string{"wait-for-maps", "wait-for-tree"} }

// kind is the row of survivesSpawn that a step belongs to.
func kind(name string) string {
	if before, _, ok := strings.Cut(name, ":"); ok {
		return before + ":"
	}
	prefix, _ := series(name)
	return prefix
}

// Each step is left out once: the box must fail, or the step stands in
// survivesSpawn, because then only the launcher's attestation can notice.
func TestEveryStepLeftOut(t *testing.T) {
	leaveOutEach(t, workloadSpec(), survivesSpawn(), func(string) bool { return true })
}

// The same for what a box with endpoints has besides.
func TestEveryEndpointStepLeftOut(t *testing.T) {
	const itself = "it only shows or proves; the row it feeds is a mismatch or missing"
	plain := mustCompile(t, workloadSpec())
	leaveOutEach(t, endpointSpec(), map[string]string{
		"route:": "launcher: the attestation's routes", "bind:": "launcher: the attestation's listeners", "listen:": "launcher: the attestation's listeners",
		"landlock-connect-": "the box: one port less is granted", "probe-connect-socket": itself, "control-connect": itself, "probe-connect": itself, "probe-connect-close": "nobody: the socket is close-on-exec",
		"control-stream": itself, "probe-datagram": itself,
	}, func(name string) bool { return len(positions(plain, name)) == 0 })
}

// The same for what a box has besides that shows live directories, and for one
// with endpoints too.
func TestEverySocketFileStepLeftOut(t *testing.T) {
	const itself, closed = "it only shows or proves; the row it feeds is a mismatch or missing", "nobody: the socket is close-on-exec"
	plain, endpoints := mustCompile(t, workloadSpec()), mustCompile(t, endpointSpec())
	leaveOutEach(t, liveSpec(), map[string]string{
		"probe-socket-file-datagram": itself, "control-unix-stream": itself, "probe-socket-file": itself,
	}, func(name string) bool { return len(positions(plain, name)) == 0 })
	leaveOutEach(t, liveEndpointSpec(), map[string]string{
		"probe-socket-file-datagram": itself, "control-pair-close-": closed, "probe-socket-file": itself,
	}, func(name string) bool { return len(positions(endpoints, name)) == 0 })
}

// The same for what a box with a terminal and a shared tmpfs has besides.
func TestEveryTerminalStepLeftOut(t *testing.T) {
	const mounts, closed = "launcher: the workload's mount table is compared with the Spec", "the box: less is granted or shown, never more"
	const later = "nobody: the first change of size sets it"
	plain := mustCompile(t, workloadSpec())
	leaveOutEach(t, terminalSpec(), map[string]string{
		"own:": closed, "hide:": mounts, "landlock-open:": closed, "landlock-grant:": closed, "restrict:": mounts, "attach:": mounts, "link:": closed,
		"terminal-size": later, "read-terminal": "it only shows; the row it feeds is a mismatch",
	}, func(name string) bool { return len(positions(plain, name)) == 0 })
}

func leaveOutEach(t *testing.T, spec *Spec, expected map[string]string, only func(name string) bool) {
	files := filesFor(t, spec)
	box, err := Spawn(spec, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	box.Abort()
	before := openFDs(t)
	steps := box.steps
	survived := map[string]bool{}
	noticed := 0
	for i, s := range steps {
		if !only(s.Name) || !long() && !representative(&Program{Steps: steps}, i) {
			continue
		}
		if mask, ok := strings.CutPrefix(s.Name, "open:"); ok && slices.Contains(spec.MaskProc, mask) {
			if _, err := os.Lstat("/proc/" + mask); err != nil {
				continue // nothing to cover on this kernel: the mask is left off anyway
			}
		}
		box, err := spawnAltered(spec, files, soon(t), func(p *Program) { leaveOut(p, i) })
		switch {
		case err != nil:
			noticed++
		case slices.Contains(racing(), s.Name):
		case expected[kind(s.Name)] == "":
			t.Errorf("without %s the box comes up, and survivesSpawn does not say who notices", s.Name)
		default:
			survived[kind(s.Name)] = true
		}
		if err == nil {
			box.Abort()
		}
		nothingLeft(t, before, "without "+s.Name)
	}
	for name := range maps.Keys(expected) {
		if !survived[name] {
			t.Errorf("survivesSpawn names %s, but no box came up without it", name)
		}
	}
	t.Logf("%d steps are missed at once, %d kinds by what comes later", noticed, len(survived))
}

// leaveOut removes step i; a jump to it goes to what follows it.
func leaveOut(p *Program, i int) {
	name := p.Steps[i].Name
	p.Steps = append(p.Steps[:i:i], p.Steps[i+1:]...)
	for j := range p.Steps {
		if p.Steps[j].To == name {
			p.Steps[j].To = p.Steps[i].Name
		}
	}
}

// soon fires when a broken box has had its time: some wait for what never comes.
func soon(t *testing.T) <-chan struct{} {
	stop := make(chan struct{})
	timer := time.AfterFunc(2*time.Second, func() { close(stop) })
	t.Cleanup(func() { timer.Stop() })
	return stop
}
