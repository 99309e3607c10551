package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestEvidenceConfirmsWhatThisHostShows goes from doctor to a confirmed policy.
// Where the boxes of this caller can be made, the points that need no delegated
// controller and no provisioned /out are confirmed, and no other.
func TestEvidenceConfirmsWhatThisHostShows(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		evidence := filepath.Join(s.Dir, "evidence.json")
		run := s.Raw("doctor", "--json", "--state-dir", s.State, "--evidence", evidence)
		var x struct {
			Findings []struct{ Name, Answer, Serves, Next, Shown string }
			Box      []struct{ Restriction, Status string }
			Blockers []launcher.Blocker
		}
		if err := json.Unmarshal(run.Stdout, &x); err != nil || run.Status != 0 {
			t.Fatalf("status %d, %v\n%s\n%s", run.Status, err, run.Stdout, run.Stderr)
		}
		if len(x.Blockers) != 13 || len(x.Box) < 60 {
			t.Errorf("%d blockers, %d rows of the box", len(x.Blockers), len(x.Box))
		}
		for _, f := range x.Findings {
			if f.Answer != "yes" && (f.Next == "" || f.Serves == "every box") {
				t.Errorf("%+v", f)
			}
		}
		e := readEvidence(t, evidence)
		for _, r := range e.Runs {
			if !r.Passed {
				t.Errorf("run %s: want %s, shown %s", r.Name, r.Want, r.Shown)
			}
		}
		confirmed := []string{}
		for _, p := range e.Points {
			if p.Confirmed {
				confirmed = append(confirmed, p.ID)
			}
			t.Logf("%s %v: %s", p.ID, p.Confirmed, p.By)
		}
		for _, must := range []string{"EP1", "EP4", "EP5", "EP6", "EP7"} {
			if !slices.Contains(confirmed, must) {
				t.Errorf("%s is not confirmed", must)
			}
		}
		// Held by the launcher's descriptor, and tmpfs: never, on any host of today.
		for _, never := range []string{"EP8", "EP9"} {
			if slices.Contains(confirmed, never) {
				t.Errorf("%s is confirmed", never)
			}
		}
		out := filepath.Join(s.Dir, "confirmed.json")
		if run := s.Raw("policy", "confirm", "--evidence", evidence, "--output", out, "sales-summary"); run.Status != 0 {
			t.Fatalf("confirm: %s", run.Stderr)
		}
		text, err := os.ReadFile(out)
		if err != nil || strings.Count(string(text), `"CONFIRMED"`) != len(confirmed) || !strings.Contains(string(text), e.Digest) {
			t.Errorf("%v: %d times CONFIRMED for %q", err, strings.Count(string(text), `"CONFIRMED"`), confirmed)
		}
		var list struct{ Attempts []launcher.AttemptInfo }
		if err := json.Unmarshal(s.Raw("attempts", "--json", "--state-dir", s.State).Stdout, &list); err != nil || len(list.Attempts) != len(e.Runs) {
			t.Errorf("%v: %d attempts, doctor made %d", err, len(list.Attempts), len(e.Runs))
		}
		for _, a := range list.Attempts {
			if a.For != "doctor" {
				t.Errorf("attempt %s is not marked as doctor's", a.ID)
			}
		}
		if run := s.Raw("attempts", "--state-dir", s.State); strings.Count(string(run.Stdout), "by doctor") != len(e.Runs) {
			t.Errorf("attempts does not say whose they are:\n%s", run.Stdout)
		}
		// Nothing but attempts, cache and lock stays behind.
		entries, err := os.ReadDir(s.State)
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range entries {
			if strings.HasPrefix(left.Name(), "doctor") {
				t.Errorf("left in the state directory: %s", left.Name())
			}
		}
	})
}

func readEvidence(t *testing.T, path string) *launcher.Evidence {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var e launcher.Evidence
	if err := json.Unmarshal(data, &e); err != nil {
		t.Fatal(err)
	}
	if e.Schema != launcher.EvidenceSchema || !strings.HasPrefix(e.Digest, "sha256:") || e.Host.SeccompProgram == "" || e.Host.OS == "" || e.Binding.Binary == "" {
		t.Errorf("%.600s", data)
	}
	return &e
}

// TestDoctorSaysNo starts doctor where something is missing. In each case exec
// refuses too; the row names what exec names, and a next step.
func TestDoctorSaysNo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only the cases that need no other user are tried")
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		open := s.Folder()
		if err := os.Chmod(open, 0o777); err != nil {
			t.Fatal(err)
		}
		run := s.Raw("doctor", "--json", "--state-dir", open)
		if run.Status != 125 || !strings.Contains(string(run.Stdout), `"state_dir"`) {
			t.Errorf("an open state directory: status %d\n%.1500s", run.Status, run.Stdout)
		}
		if run := s.Raw("doctor", "--state-dir", s.State, "--cgroup", "/proc"); run.Status != 0 || !strings.Contains(string(run.Stdout), "no       delegation") {
			t.Errorf("a cgroup that is none: status %d\n%s", run.Status, run.Stdout)
		}
		// Two user namespaces are allowed to nobody here: only the trials can tell.
		noNS := s.Start(harness.Job{Argv: []string{"true"}, Shell: `exec unshare -r sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && shift 0; exec "$0" doctor --json --state-dir "$1"' "$1" ` + s.State}).Wait()
		if noNS.Status != 125 || !strings.Contains(string(noNS.Stdout), `"name": "user",
      "answer": "`) || strings.Contains(string(noNS.Stdout), `"name": "user",
      "answer": "yes"`) {
			t.Errorf("no namespaces left: status %d\n%.3000s\n%s", noNS.Status, noNS.Stdout, noNS.Stderr)
		}
	})
}
