package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

const mockToken = "MOCK-TOKEN-NOT-REAL-6f1d2c"

// plantToken makes the specification's mock secret, readable for everybody, so
// that only its absence from the box can hide it. Only root may use its path;
// others get one in the site.
func plantToken(t *testing.T, s *harness.Site) string {
	t.Helper()
	const path = "/opt/sbx-test/mock-secret/token.txt"
	if os.Geteuid() != 0 {
		return s.File("mock-secret/token.txt", mockToken)
	}
	var made []string
	for _, dir := range []string{"/opt", "/opt/sbx-test", "/opt/sbx-test/mock-secret"} {
		if err := os.Mkdir(dir, 0o755); err == nil {
			made = append(made, dir)
		} else if !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		os.Remove(path)
		for i := len(made) - 1; i >= 0; i-- {
			os.Remove(made[i])
		}
	})
	if err := os.WriteFile(path, []byte(mockToken), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestS2 looks for a secret of the host by six ways.
func TestS2(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		token := plantToken(t, s)
		before := harness.Fingerprint(t, token)
		job := harness.Job{Script: script("s2.py"), Args: []string{token}}
		run := s.Run(job).WantOK()
		absent := []string{"ENOENT", "EACCES"}
		wantReport(t, run.Report(), map[string][]string{
			"direct": absent, "traversal": absent, "own root": absent, "init's root": absent, "working directory": absent, "symbolic link": absent,
		})
		if places := run.Holding(mockToken); places != nil {
			t.Errorf("the token is in %q", places)
		}
		if harness.Fingerprint(t, token) != before {
			t.Error("the token changed")
		}

		// The caller can read it on the host, and where it is an input the program
		// finds it and the search for it does.
		if got := s.OnHost(harness.Job{Argv: []string{"/bin/cat", token}}); string(got.Stdout) != mockToken {
			t.Errorf("control: the caller read %q", got.Stdout)
		}
		job.In, job.Args = []string{s.File("token.txt", mockToken)}, []string{token, "/in/token.txt"}
		control := s.Run(job).WantOK()
		if got := control.Report()["control"]; got != "ok "+mockToken {
			t.Errorf("control: the staged token read as %q", got)
		}
		if len(control.Holding(mockToken)) < 3 {
			t.Errorf("control: the token is only found in %q", control.Holding(mockToken))
		}
	})
}

// TestS3 writes one byte to eight places.
func TestS3(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		victim := s.File("victim.csv", "a,b\n1,2\n")
		interpreter, err := filepath.EvalSymlinks("/usr/bin/python3")
		if err != nil {
			t.Fatal(err)
		}
		targets := []string{victim, "/etc/passwd", "/etc/hosts", interpreter, "/proc/sys/kernel/hostname", "/written", "/usr/lib/written", "/sys/kernel/written"}
		before := harness.Fingerprint(t, targets...)
		run := s.Run(harness.Job{Script: script("s3.py"), In: []string{victim}}).WantOK()
		denied := []string{"EROFS", "EACCES", "EPERM"}
		wantReport(t, run.Report(), map[string][]string{
			"root": denied, "in": denied, "etc": denied, "usr": denied, "interpreter": denied, "proc sys": denied,
			"sys": append(denied, "ENOENT"), "traversal": denied,
			"control": one("ok x"), "unchanged": one("True"), "written": one("False"),
		})
		if harness.Fingerprint(t, targets...) != before {
			t.Error("a target on the host changed")
		}
		if got := run.Result.Digests.Inputs; len(got) != 3 {
			t.Errorf("staged inputs %+v", got)
		}
	})
}

// TestView holds what the box shows against the host.
func TestView(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(harness.Job{Script: script("view.py")}).WantOK()
		report := run.Report()
		hidden := []string{"ENOENT", "EACCES", "EPERM"}
		want := map[string][]string{
			"root": one("bin dev etc in lib lib64 out proc sbin scratch usr"),
			"pids": one("2"), "self": one("2"), "open init environ": hidden,
			"cgroup": one("0::/"), "devices": one("fd null stderr stdin stdout urandom zero"),
			"interfaces": one("lo"), "hostname": one("nsbox"), "streams": {"/dev/null pipe pipe", "/null pipe pipe"},
			"terminal": one("[False, False, False]"), "environment": one("LANG PATH PYTHONDONTWRITEBYTECODE"),
			"working directory": one("/scratch"), "umask": one("022"),
			"kcore": {"ENOENT", "EACCES", "EPERM", "ok ''"}, "sysrq": {"ENOENT", "EACCES", "EPERM", "EROFS"},
			"null device": one("ok"), "zero device": one("ok 00"), "random device": one("ok 8"), "write zero device": {"EACCES", "EROFS", "EPERM"},
			"full device": one("EROFS"),
		}
		for _, name := range []string{"environ", "mem", "maps", "fd", "root", "exe", "status", "cmdline"} {
			want["init "+name] = hidden
		}
		for _, path := range []string{"/sys", "/run", "/var", "/tmp", "/home", "/root", "/opt", "/boot", "/mnt", "/dev/tty", "/dev/shm", "/dev/mem", "/dev/kmsg", "/dev/ptmx"} {
			want["stat "+path] = one("ENOENT")
		}
		for _, name := range []string{"keys", "key-users", "kallsyms", "timer_list"} {
			want["masked "+name] = []string{"ok ''", "ENOENT", "EACCES"}
		}
		want["full device"] = []string{"EROFS", "EACCES", "EPERM", "ENOENT"}
		wantReport(t, report, want)
		wantMounts(t, s, report["mountinfo"])
		for _, path := range []string{"/sys", "/run", "/tmp", "/etc/passwd", "/proc/1/environ"} {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("control: the host has no %s", path)
			}
		}
	})
}

// wantMounts allows the box's own tmpfs and proc, the staged inputs, the devices
// and what lies below /usr of the host, all but /scratch and /out read-only.
func wantMounts(t *testing.T, s *harness.Site, mountinfo string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(mountinfo), "\n")
	if len(lines) < 10 {
		t.Fatalf("mountinfo has %d lines", len(lines))
	}
	attempts := s.Attempts()
	staged := filepath.Join(attempts[len(attempts)-1], "in")
	for _, line := range lines {
		f := strings.Fields(line)
		source, target, options := f[3], f[4], f[5]
		if target != "/scratch" && target != "/out" && !strings.HasPrefix(options, "ro,") {
			t.Errorf("%s is writable: %s", target, line)
		}
		if !strings.Contains(options, "nosuid") {
			t.Errorf("%s lacks nosuid: %s", target, line)
		}
		switch {
		case source == "/", strings.HasPrefix(source, "/usr/"), source == staged:
		case source == "/null" || source == "/zero" || source == "/urandom":
		default:
			t.Errorf("%s shows %s of the host", target, source)
		}
	}
}

// TestLandlockAlone wants a denial that no mount and no mode makes: the device
// node is world-writable on a mount that lets devices be written.
func TestLandlockAlone(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(harness.Job{Script: script("view.py")}).WantOK()
		wantReport(t, run.Report(), map[string][]string{"write zero device": one("EACCES"), "null device": one("ok"), "zero device": one("ok 00")})
		for _, row := range run.Result.Attestation {
			if strings.Contains(row.Restriction, "landlock") {
				t.Logf("%s: %s (%s)", row.Restriction, row.Shown, row.Grade)
			}
		}
		if got := s.OnHost(harness.Job{Code: "open('/dev/zero', 'wb').write(b'x')"}); got.Status != 0 {
			t.Errorf("control: the caller cannot write to /dev/zero on the host: %s", got.Stderr)
		}
		if run.Result.Workload.Outcome == launcher.Exited {
			for _, d := range run.Result.Degraded {
				if d.Dimension == "landlock" {
					t.Error("Landlock is degraded")
				}
			}
		}
	})
}
