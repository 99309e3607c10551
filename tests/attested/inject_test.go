package attested

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/tests/harness"
)

// fault is one system call that fails once in every process and thread of a run:
// strace counts the calls of each for itself.
type fault struct {
	call  string
	when  int
	errno string
}

func (f fault) String() string { return fmt.Sprintf("%s-%d-%s", f.call, f.when, f.errno) }

func (f fault) strace() string {
	return fmt.Sprintf(`exec strace -f -qq -e signal=none -o /dev/null -e trace=%s -e inject=%s:error=%s:when=%d "$@"`, f.call, f.call, f.errno, f.when)
}

// faults are derived from a whole run: every call that the two set-up processes
// make before their exec, as often as the one of them that makes it most often.
func faults(t *testing.T, log string) (all []fault) {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	counts, setUp := map[string]map[string]int{}, map[string]bool{}
	line := regexp.MustCompile(`^(\d+) +(\w+)\(`)
	over := map[string]bool{}
	for l := range strings.Lines(string(data)) {
		m := line.FindStringSubmatch(l)
		if m == nil || over[m[1]] {
			continue
		}
		pid, call := m[1], m[2]
		if counts[pid] == nil {
			counts[pid] = map[string]int{}
		}
		counts[pid][call]++
		setUp[pid] = setUp[pid] || call == "pivot_root" || call == "landlock_restrict_self"
		over[pid] = setUp[pid] && strings.HasPrefix(call, "execve")
	}
	most := map[string]int{}
	for pid, calls := range counts {
		for call, n := range calls {
			if setUp[pid] {
				most[call] = max(most[call], n)
			}
		}
	}
	if len(setUp) == 0 || most["pivot_root"] != 1 || most["setresuid"] != 1 || most["mount"] < 3 {
		t.Fatalf("the trace does not show a set-up: %v", most)
	}
	for _, call := range slices.Sorted(maps.Keys(most)) {
		for n := 1; n <= most[call]; n++ {
			all = append(all, fault{call, n, "EPERM"})
		}
		all = append(all, fault{call, 1, "ENOSYS"})
	}
	return all
}

// some are the faults of a usual test run: the first and the last of each call.
func some(all []fault) (out []fault) {
	if harness.Whole() {
		return all
	}
	for i, f := range all {
		if f.errno == "EPERM" && (f.when == 1 || all[i+1].call != f.call || all[i+1].errno != f.errno) {
			out = append(out, f)
		}
	}
	return out
}

// TestOneFailingCallNeverWeakensABox: whatever single call fails, the program
// either does not begin, or finds a box that is as closed as a whole one and is
// attested as such; and nothing of the run stays.
func TestOneFailingCallNeverWeakensABox(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatalf("%v: run sh tests/setup.sh test first", err)
	}
	first := harness.NewSite(t, harness.Callers(t)[0])
	log := filepath.Join(first.Dir, "trace")
	run, whole, ran := look(t, first, viewPolicy(first), fmt.Sprintf(`exec strace -f -qq -e signal=none -o %s "$@"`, log))
	if !ran || run.Result.Artifact.Outcome != launcher.ArtifactAccepted {
		t.Fatalf("a traced run with no fault: %s", run.Stderr)
	}
	attested := standing(run.Result.Attestation)
	if _, again, _ := look(t, first, viewPolicy(first), `exec "$@"`); len(differ(whole, again, false)) > 0 {
		t.Fatalf("an untraced run differs: %q", differ(whole, again, false))
	}
	all := faults(t, log)
	list, by, longest := some(all), map[string]int{}, time.Duration(0)
	for _, f := range list {
		t.Run(f.String(), func(t *testing.T) {
			s := harness.NewSite(t, harness.Callers(t)[0])
			warm(t, first, s)
			run, view, ran := look(t, s, viewPolicy(s), f.strace())
			longest = max(longest, run.Took)
			switch {
			case !ran:
				by["the program did not begin"]++
			default:
				by["the program began"]++
				if weak := weaker(whole, view); len(weak) > 0 {
					t.Errorf("the program found: %q", weak)
				}
				if got := standing(run.Result.Attestation); run.HasResult && !slices.Equal(got, attested) {
					t.Errorf("it began, and its attestation is another one: %q", difference(attested, got))
				}
			}
		})
	}
	t.Logf("%d of %d faults; the longest run took %s", len(list), len(all), longest.Round(time.Millisecond))
	for _, k := range slices.Sorted(maps.Keys(by)) {
		t.Logf("%4d  %s", by[k], k)
	}
}

// warm gives a site the caches of another, which cost more than a run.
func warm(t *testing.T, from, to *harness.Site) {
	t.Helper()
	if err := os.Mkdir(to.State, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(from.State, "cache"), to.State).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// standing is an attestation's rows of the workload's box, each with where it
// stands. The exporter's come later and have their own end.
func standing(rows []attest.Row) (out []string) {
	for _, r := range rows {
		if !strings.HasPrefix(r.Restriction, "exporter/") {
			out = append(out, r.Restriction+" "+string(r.Status))
		}
	}
	return out
}

func difference(a, b []string) (out []string) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, "without "+x)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			out = append(out, "with "+x)
		}
	}
	return out
}

// weaker lists where a view shows more than the whole box's. The fault may have
// hit the program itself, which then sees less, or an error in place of a value.
func weaker(whole, other map[string]string) (out []string) {
	for k, v := range other {
		w, known := whole[k]
		refusal := strings.Contains(v, "[Errno ") || strings.Contains(v, "not permitted") || strings.Contains(v, "not implemented")
		switch {
		case k == "output" || v == w && known || refusal:
		case strings.HasPrefix(k, "status ") && strings.HasSuffix(k, " unreadable"):
		default:
			out = append(out, fmt.Sprintf("%s: %q, not %q", k, v, w))
		}
	}
	return out
}
