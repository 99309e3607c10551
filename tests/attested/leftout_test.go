package attested

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// altered is the nsbox whose boxes can lack a step.
var altered struct{ dir string }

// leaving is laid beside nsexec: it writes down the steps of every box and
// leaves out the one that the environment names, "BOX STEP".
const leaving = `package nsexec

import (
	"os"
	"strings"
)

func leaveOutOne(p *Program) {
	box := "workload"
	for _, s := range p.Steps {
		if s.Name == "seal-mode" {
			box = "exporter"
		}
	}
	if f, err := os.OpenFile(os.Getenv("NSBOX_TEST_STEPS"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600); err == nil {
		for _, s := range p.Steps {
			f.WriteString(box + " " + s.Name + "\n")
		}
		f.Close()
	}
	where, name, _ := strings.Cut(os.Getenv("NSBOX_TEST_LEAVE_OUT"), " ")
	for i := range p.Steps {
		if where != box || p.Steps[i].Name != name {
			continue
		}
		p.Steps = append(p.Steps[:i:i], p.Steps[i+1:]...)
		for j := range p.Steps {
			if p.Steps[j].To == name {
				p.Steps[j].To = p.Steps[i].Name
			}
		}
		return
	}
}
`

// buildAltered lays the change over the product's own source; the call that it
// changes is the one between compile and link.
func buildAltered(t *testing.T) string {
	t.Helper()
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "nsbox-altered-")
	if err != nil {
		t.Fatal(err)
	}
	altered.dir = dir
	original := filepath.Join(root, "nsexec", "spawn.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	const plain = "return spawnAltered(spec, files, stop, nil)"
	if strings.Count(string(source), plain) != 1 {
		t.Fatalf("%s has no %q any more: this test no longer knows where a program can be changed", original, plain)
	}
	over := map[string]string{original: dir + "/spawn.go", filepath.Join(root, "nsexec", "leave_out_one.go"): dir + "/leave_out_one.go"}
	table, err := json.Marshal(map[string]any{"Replace": over})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"spawn.go": strings.Replace(string(source), plain, "return spawnAltered(spec, files, stop, leaveOutOne)", 1),
		"leave_out_one.go": leaving, "overlay.json": string(table)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goBuild(t, dir+"/overlay.json", dir+"/nsbox")
	return dir + "/nsbox"
}

// stepsOf reads what the altered nsbox wrote down, without repetition.
func stepsOf(t *testing.T, file string) (steps []string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if s := strings.TrimSpace(line); !slices.Contains(steps, s) {
			steps = append(steps, s)
		}
	}
	return steps
}

// kindOf is a step without the path or number that tells it from its like.
func kindOf(step string) string {
	kind, _, found := strings.Cut(step, ":")
	if !found {
		return strings.TrimRight(step, "0123456789")
	}
	return kind + ":"
}

// chosen are all steps, or of each kind the first, the middle and the last.
func chosen(steps []string) []string {
	if harness.Whole() {
		return steps
	}
	byKind := map[string][]string{}
	for _, s := range steps {
		byKind[kindOf(s)] = append(byKind[kindOf(s)], s)
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s string) bool {
		like := byKind[kindOf(s)]
		return s != like[0] && s != like[len(like)/2] && s != like[len(like)-1]
	})
}

// coversNothing: a mask of a name in /proc that this kernel has not is left off anyway.
func coversNothing(step string) bool {
	_, name, _ := strings.Cut(step, " ")
	kind, what, _ := strings.Cut(name, ":")
	if strings.HasPrefix(what, "/") || !slices.Contains([]string{"open", "restrict", "mask", "mask-dir"}, kind) {
		return false
	}
	_, err := os.Lstat("/proc/" + what)
	return errors.Is(err, fs.ErrNotExist)
}

func TestNoBoxStartsWithoutOneStep(t *testing.T) {
	binary, self := buildAltered(t), must(os.Executable())
	s := harness.NewSite(t, harness.Callers(t)[0])
	if s.Caller.UID != 0 {
		t.Fatal("only root can be a caller that has everything a box must lose")
	}
	policy, list := viewPolicy(s), filepath.Join(s.Dir, "steps")
	shell := fmt.Sprintf("shift; exec %s %s \"$@\"", self, binary)
	run, whole, ran := look(t, s, policy, shell, asCaller+"=1", "NSBOX_TEST_STEPS="+list)
	if !ran || run.Result.Artifact.Outcome != launcher.ArtifactAccepted {
		t.Fatalf("the whole box: ran %v, artifact %s\n%s", ran, run.Result.Artifact.Outcome, run.Stderr)
	}
	_, again, _ := look(t, s, policy, shell, asCaller+"=1")
	if d := differ(whole, again, false); len(d) > 0 {
		t.Fatalf("two whole boxes differ: %q", d)
	}
	all := stepsOf(t, list)
	steps, by := slices.DeleteFunc(chosen(all), coversNothing), map[string]int{}
	for _, step := range steps {
		run, view, ran := look(t, s, policy, shell, asCaller+"=1", "NSBOX_TEST_LEAVE_OUT="+step)
		box, name, _ := strings.Cut(step, " ")
		who := noticedBy(run, box)
		t.Logf("%s: %s", step, who)
		why, harmless := harmlessWithout()[kindOf(name)]
		switch {
		case who == "":
			if d := differ(whole, view, why.less); !harmless || len(d) > 0 {
				t.Errorf("without %s nothing is missed (%s); the program saw: %q", step, why.why, d)
			}
			by["nobody: "+why.why]++
		case box == "workload" && ran:
			t.Errorf("without %s: %s, but the program ran", step, who)
		case box == "exporter" && run.Result.Delivery.Outcome == launcher.Delivered:
			t.Errorf("without %s: %s, but its file was delivered", step, who)
		default:
			by[strings.Fields(who)[0]]++
		}
	}
	t.Logf("%d of %d steps left out", len(steps), len(all))
	for _, k := range slices.Sorted(maps.Keys(by)) {
		t.Logf("%4d  %s", by[k], k)
	}
}

// noticedBy names what stopped a run, or "".
func noticedBy(run *harness.Run, box string) string {
	if !run.HasResult {
		return fmt.Sprintf("NO RESULT: status %d, signal %v: %s", run.Status, run.Killed, run.Stderr)
	}
	res := run.Result
	if res.Workload.Outcome == launcher.Exited && (box == "workload" || res.Artifact.Outcome == launcher.ArtifactAccepted) {
		return ""
	}
	if res.Reason == nil {
		return "outcome " + res.Workload.Outcome + ", artifact " + res.Artifact.Outcome
	}
	text := res.Reason.What + " " + res.Reason.Why
	if res.Reason.ID == reason.AttestMismatch || strings.Contains(text, "kernel shows") {
		return "attestation " + text
	}
	return "set-up " + text
}

// harmless says why a box may come up without a step.
type harmless struct {
	why  string
	less bool // the program finds less in its root
}

// harmlessWithout are the steps without which a box comes up and is as closed
// as a whole one: the program has to find the same, or less.
func harmlessWithout() map[string]harmless {
	const (
		report = "only where a failure is told: a later one is then seen as the box's end"
		inTime = "it waits for another process, which this once was ready before it was asked"
		twice  = "the exec does it again: the bounding set, which has rows, is empty"
		less   = "without it the program finds or may do less"
		atRest = "the signal was at its default: nsbox's own handlers go with the clone"
		same   = "nsbox's own umask is the exporter's, and the row that reads it says so"
		caller = "the caller could not be given more than the policy allows"
	)
	return map[string]harmless{
		"report-on-control": {report, false}, "report-on-go": {report, false}, "report-on-kept-go": {report, false},
		"wait-for-maps": {inTime, false}, "wait-for-tree": {inTime, true}, "init-no-capabilities": {twice, false}, "default-signal-": {atRest, false},
		"link:": {less, true}, "create:": {less, true}, "fill:": {less, true}, "mkdir:": {less, true}, "landlock-grant:": {less, true}, "landlock-open:": {less, true},
		"umask": {same, false}, "rlimit-rtprio": {caller, false}, "rlimit-nice": {caller, false},
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
