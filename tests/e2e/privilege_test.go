package e2e

import (
	"os"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// TestA1a tries ten privileged operations.
func TestA1a(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		idMap := harness.Fingerprint(t, "/proc/self/uid_map")
		job := harness.Job{Script: script("a1a.py")}
		report := s.Run(job).WantOK().Report()
		zero := one("0000000000000000")
		wantReport(t, report, map[string][]string{
			"setuid": one("EPERM"), "setgid": one("EPERM"), "mount": one("EPERM"), "unshare user": one("EPERM"), "cgroup file": {"EPERM", "EACCES", "ENOENT", "EROFS"},
			"ptrace init": one("EPERM"), "init's environ": {"EPERM", "EACCES", "ENOENT"}, "chown": one("EPERM"), "keyctl": one("EPERM"),
			"uid_map":        {"EPERM", "EACCES", "EROFS"},
			"control setuid": one("ok"), "control chown": one("ok"), "control environ": one("ok "),
			"ids": one("(10001, 10001, 10001) (10001, 10001, 10001) []"), "session": one("True"),
			"status CapInh": zero, "status CapPrm": zero, "status CapEff": zero, "status CapBnd": zero, "status CapAmb": zero, "status SigBlk": zero,
			"status NoNewPrivs": one("1"), "status Seccomp": one("2"), "status Groups": one(""), "status TracerPid": one("0"),
			"status Uid": one("10001\t10001\t10001\t10001"), "status Gid": one("10001\t10001\t10001\t10001"),
		})
		if harness.Fingerprint(t, "/proc/self/uid_map") != idMap {
			t.Error("the host's uid_map changed")
		}
		// The launcher's own side, looked at in the same way; the operations
		// themselves are never tried on the host.
		host := s.OnHost(harness.Job{Argv: []string{"/bin/cat", "/proc/self/status"}})
		for _, line := range []string{"CapBnd:\t0000000000000000\n", "Uid:\t10001\t10001\t10001\t10001\n"} {
			if host.Status != 0 || strings.Contains(string(host.Stdout), line) {
				t.Errorf("control: the caller's own status has %q too", line)
			}
		}
	})
}

// TestHostIdentity looks at a running workload from outside: none of its ids is
// the caller's or root's.
func TestHostIdentity(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		live := s.Start(harness.Job{Code: "print('ready', flush=True)\nimport time; time.sleep(3)\n"})
		live.Await("ready\n")
		looked := 0
		for _, p := range s.Processes() {
			if p.PID == live.Cmd.Process.Pid {
				continue
			}
			looked++
			for line := range strings.Lines(hostStatus(t, p.PID)) {
				f := strings.Fields(line)
				switch {
				case len(f) == 0:
				case f[0] == "Uid:" || f[0] == "Gid:":
					for _, id := range f[1:] {
						if id == "0" || id == itoa(s.Caller.UID) || id == itoa(s.Caller.GID) {
							t.Errorf("%v runs as %s", p, strings.TrimSpace(line))
						}
					}
				case f[0] == "CapEff:" || f[0] == "CapBnd:" || f[0] == "CapPrm:":
					if f[1] != "0000000000000000" {
						t.Errorf("%v has %s", p, strings.TrimSpace(line))
					}
				case f[0] == "NoNewPrivs:" && f[1] != "1", f[0] == "Seccomp:" && f[1] != "2":
					t.Errorf("%v has %s", p, strings.TrimSpace(line))
				}
			}
		}
		want := 2 // workload and init; without root's rights init's image cannot be looked at
		if os.Geteuid() != 0 {
			want = 1
		}
		if looked != want {
			t.Errorf("looked at %d processes, want %d", looked, want)
		}
		live.Signal(15)
		live.Wait()
	})
}

// TestA1b and its kin: nothing of the caller's descriptors and environment.
func TestA1b(t *testing.T) {
	const secret = "E2E-SECRET-OF-THE-CALLER-81c3"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		var files []*os.File
		for range 20 {
			f, err := os.Open(s.File("inherited", secret))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files = append(files, f)
		}
		job := harness.Job{Script: script("descriptors.py"), Files: files, Env: []string{"E2E_TOKEN=" + secret, "LD_PRELOAD=/e2e-" + secret + ".so", "PYTHONSTARTUP=" + secret}}
		run := s.Run(job).WantOK()
		report := run.Report()
		wantReport(t, report, map[string][]string{"descriptors": one("0 1 2")})
		if strings.Contains(report["environments"], secret) {
			t.Error("the caller's secret is readable in the box")
		}
		if places := run.Holding(secret); places != nil {
			t.Errorf("the caller's secret is in %q", places)
		}
		host := s.OnHost(job).Report()
		if len(strings.Fields(host["descriptors"])) < 23 || !strings.Contains(host["environments"], secret) {
			t.Errorf("control: on the host the script sees descriptors %q, secret %v", host["descriptors"], strings.Contains(host["environments"], secret))
		}
		if report["readable"] == "0" {
			t.Error("control: not even the workload's own environ was read")
		}
	})
}

// TestSignalDispositions starts nsbox as nohup, make or a background job would.
// The program is cat: an interpreter of its own changes dispositions.
func TestSignalDispositions(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		job := harness.Job{
			Argv: []string{"/bin/cat", "/proc/self/status"}, Shell: `trap '' PIPE HUP INT QUIT TERM; exec "$@"`,
			Policy: []harness.Change{{Path: "process_policy.exec_allowlist", Value: "named_program_only"}},
		}
		run := s.Run(job).WantOK()
		for _, line := range []string{"SigIgn:\t0000000000000000\n", "SigBlk:\t0000000000000000\n", "SigCgt:\t0000000000000000\n", "ShdPnd:\t0000000000000000\n"} {
			if !strings.Contains(string(run.Stdout), line) {
				t.Errorf("no %q in\n%s", line, run.Stdout)
			}
		}
		if host := s.OnHost(job); strings.Contains(string(host.Stdout), "SigIgn:\t0000000000000000") {
			t.Error("control: on the host nothing is ignored")
		}
	})
}
