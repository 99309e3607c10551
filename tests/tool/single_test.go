package tool

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// unranged is an account without a subordinate range, or, where the tests are no
// root that could be another, one under no_new_privs, which can use no range.
func unranged() (c harness.Caller, shell string, cause reason.ID) {
	const nobodys = 64200
	if os.Geteuid() == 0 {
		return harness.Caller{Name: "unranged", UID: nobodys, GID: nobodys}, "", reason.SubordinateRangeMissing
	}
	return harness.Caller{Name: "self", UID: os.Geteuid(), GID: os.Getegid()}, `exec setpriv --no-new-privs "$@"`, reason.NoNewPrivsSet
}

// alone is a job under the operator's word that the caller's id will do.
func alone(shell string, argv ...string) harness.Job {
	j := everyday(argv...)
	j.Shell, j.Flags = shell, []string{"--allow-degraded", policy.DimIdentity}
	return j
}

// Without a range a box is refused until somebody says that the caller's own id
// will do; then it runs, and everything that shows it is in the result.
func TestWithoutARange(t *testing.T) {
	c, shell, cause := unranged()
	s := harness.NewSite(t, c)
	j := everyday("true")
	j.Shell = shell
	run := s.Run(j).WantReason(cause)
	if next := run.Result.Reason.Next; run.Status != launcher.ExitRefused || !strings.Contains(next, "--allow-degraded identity") {
		t.Errorf("status %d, next %q", run.Status, next)
	}

	const look = `import os
print(os.getuid(), os.getgid(), os.stat('/scratch').st_uid, os.path.exists('/proc/1'))
try: os.setuid(0); print('root')
except OSError as e: print(e.strerror)`
	if os.Geteuid() == 0 {
		word := s.File("policy.json", `{"extends": "tool", "policy_id": "alone", "loosen": true, "degrade": ["memory", "cpu_rate", "cpu_total", "launcher_identity", "out_storage", "identity"]}`)
		s.Run(harness.Job{PolicyArg: word, Argv: []string{"true"}, Bare: true}).WantOK()
	}
	run = s.Run(alone(shell, "/usr/bin/python3", "-c", look)).WantOK()
	if got := string(run.Stdout); got != "10001 10001 10001 False\nInvalid argument\n" { // there is no 0
		t.Errorf("inside:\n%s", got)
	}
	if !slices.ContainsFunc(run.Result.Degraded, func(d launcher.Degradation) bool { return d.Dimension == policy.DimIdentity }) {
		t.Errorf("degraded: %+v", run.Result.Degraded)
	}
	own := strconv.Itoa(c.UID)
	for name, want := range map[string]string{"workload-uid": strings.Repeat(" "+own, 4)[1:], "init-uid": strings.Repeat(" "+own, 4)[1:], "uid_map": "10001 " + own + " 1",
		"gid_map": fmt.Sprintf("10001 %d 1", c.GID), "nested-user-namespaces": "ENOSPC", "capabilities-CapBnd": "0000000000000000"} {
		i := slices.IndexFunc(run.Result.Attestation, func(r attest.Row) bool { return r.Restriction == name })
		if i < 0 || run.Result.Attestation[i].Shown != want || run.Result.Attestation[i].Status != attest.Enforced {
			t.Errorf("attested %s, want %q: %+v", name, want, run.Result.Attestation[max(i, 0)])
		}
	}
	if i := slices.IndexFunc(run.Result.Attestation, func(r attest.Row) bool { return r.Restriction == "ids" }); i < 0 || run.Result.Attestation[i].Status != attest.Degraded {
		t.Error("the row of the ids does not say that they are weaker")
	}
}

// What may leave leaves, as from any box: the exporter's has the same one id.
func TestExportWithoutARange(t *testing.T) {
	c, shell, _ := unranged()
	s := harness.NewSite(t, c)
	out := s.Folder()
	j := harness.Job{Code: "open('/out/summary.csv', 'w').write('city,sales\\nHouston,1\\n')", Shell: shell, Deliver: out, Flags: []string{"--allow-degraded", policy.DimIdentity}}
	run := s.Run(j).WantOK()
	if got, err := os.ReadFile(filepath.Join(out, "summary.csv")); err != nil || string(got) != "city,sales\nHouston,1\n" {
		t.Errorf("%v: %q\n%s", err, got, run.Stderr)
	}
	j.Code, j.Deliver = "import os; os.symlink('/etc/passwd', '/out/summary.csv')", ""
	if run := s.Run(j); run.Result.Artifact.Outcome != launcher.ArtifactRejected {
		t.Errorf("a link: %+v", run.Result.Artifact)
	}
}

// A group that gives power on the host would stay with the program.
func TestGroupsThatMustNotStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be a member of another group; the pure decision is tested in launcher/probe")
	}
	disk, err := user.LookupGroup("disk")
	if err != nil {
		t.Fatal(err)
	}
	c, _, cause := unranged()
	if c.GID, err = strconv.Atoi(disk.Gid); err != nil {
		t.Fatal(err)
	}
	s := harness.NewSite(t, c)
	run := s.Run(alone("", "true")).WantReason(cause)
	if why := run.Result.Reason.Why; !strings.Contains(why, "the group disk") {
		t.Errorf("the group is not named: %s", why)
	}
}

// With a shared id nothing but an empty account proves an end: while another box
// runs, what a killed launcher left stays set aside; afterwards it is closed.
func TestOrphanWithoutARange(t *testing.T) {
	c, shell, _ := unranged()
	s, other := harness.NewSite(t, c), harness.NewSite(t, c)
	j := alone(shell, "sh", "-c", "echo up; exec sleep 100")
	orphan := s.Start(j)
	orphan.Await("up")
	j.Argv[2] = "echo up; read line"
	j.Flags = append(j.Flags, "--stdin")
	stdin, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j.Stdin = stdin
	bystander := other.Start(j)
	bystander.Await("up")
	orphan.Signal(syscall.SIGKILL)
	orphan.Wait()
	s.Run(alone(shell, "true")).WantReason(reason.QuarantinedLeftover)
	release.Close()
	if run := bystander.Wait(); run.Result.Cleanup.Outcome != launcher.CleanupVerified {
		t.Errorf("the bystander: %+v", run.Result.Cleanup)
	}
	s.Run(alone(shell, "true")).WantOK()
}

// In a container's user namespace, where no range is mapped, the same word helps,
// whether its user is a number or 0; the host's 0 is behind neither.
func TestInsideAnotherNamespace(t *testing.T) {
	if err := exec.Command("unshare", "--version").Run(); err != nil {
		t.Fatal(err)
	}
	callers := harness.Callers(t)
	for _, as := range []string{"--map-root-user", "--map-current-user"} {
		s := harness.NewSite(t, callers[len(callers)-1])
		shell := `exec unshare --user ` + as + ` "$@"`
		run := s.Run(alone(shell, "id", "-u")).WantOK()
		if string(run.Stdout) != "10001\n" {
			t.Errorf("%s: %q", as, run.Stdout)
		}
	}
}
