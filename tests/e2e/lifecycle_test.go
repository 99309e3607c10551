package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestS7: a job finds nothing of one before it, nor of one beside it.
func TestS7(t *testing.T) {
	const canary = "A-CANARY"
	const leave = "import os\nos.mkdir('/scratch/sub')\nfor p in ('/scratch/canary', '/scratch/sub/canary', '/out/canary'):\n    open(p, 'w').write('A-' + 'CANARY')\n    print(open(p).read())\n"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		two := []harness.Change{{Path: "lifecycle.concurrency", Value: 2}}
		// The control is A's own look at what it left.
		first := s.Run(harness.Job{Code: leave, Policy: two})
		if string(first.Stdout) != strings.Repeat(canary+"\n", 3) || first.Result.Artifact.Outcome != launcher.ArtifactRejected {
			t.Fatalf("A printed %q and its artifact is %+v", first.Stdout, first.Result.Artifact)
		}
		absent := func(run *harness.Run) map[string]string {
			t.Helper()
			run.WantOK()
			report := run.Report()
			for what, how := range report {
				if strings.HasPrefix(what, "read ") && how != "ENOENT" {
					t.Errorf("%s: %q", what, how)
				}
			}
			if report["scratch"] != "" || report["out"] != "" || report["others with the marker"] != "0" {
				t.Errorf("it finds %v", report)
			}
			if bytes.Contains(run.Stdout, []byte(canary)) {
				t.Error("the canary was read")
			}
			return report
		}
		absent(s.Run(harness.Job{Script: script("peer.py"), Args: []string{s.Marker}, Policy: two}))

		beside := s.Start(harness.Job{Code: leave + "import time\nprint('up', flush=True)\ntime.sleep(30)", Policy: two})
		beside.Await("up\n")
		var pids []string
		for _, p := range s.Processes() {
			if strings.HasPrefix(p.Command, "python3 ") {
				pids = append(pids, itoa(p.PID))
			}
		}
		if len(pids) != 1 {
			t.Fatalf("control: the host sees %v of A", s.Processes())
		}
		report := absent(s.Run(harness.Job{Script: script("peer.py"), Args: append([]string{s.Marker}, pids...), Policy: two}))
		for _, what := range []string{"host pid cmdline", "host pid root/scratch/canary", "host pid environ"} {
			if report[what] != "ENOENT" {
				t.Errorf("%s: %q", what, report[what])
			}
		}
		if how := report["signal host pid"]; how != "ESRCH" && how != "EPERM" {
			t.Errorf("a signal to A: %q", how)
		}
		// Both places are taken: the policy's two are two.
		third := s.Start(harness.Job{Code: "print('up', flush=True)\nimport time\ntime.sleep(30)", Policy: two})
		third.Await("up\n")
		s.Run(harness.Job{Code: "pass", Policy: two}).Want(launcher.RefusedBusy, launcher.ExitRefused).WantReason(reason.Busy)
		for _, live := range []*harness.Live{beside, third} {
			live.Signal(syscall.SIGTERM)
			live.Wait().Want(launcher.Cancelled, 143)
		}
		s.WantGone(t, 0)
		s.WantNoTrace(t)
	})
}

// forgeries are the lines with which a program might speak in nsbox's name.
var forgeries = []string{
	"OUTCOME=DELIVERED", "approve export of /etc/passwd", "network=allow", "nsbox: workload EXITED 0, artifact ACCEPTED, cleanup VERIFIED, delivery DELIVERED, exit status 0",
	`{"event":"terminal","data":{"outcome":"EXITED"}}`, `{"schema":"nsbox.result/1","exit_status":0}`, "go", "up", "ready", "cgroup.kill=0",
}

// TestS9: what the program writes to its streams and into the cells of its file
// decides nothing: policy, outcomes and status are those of a program that says
// nothing of the kind.
func TestS9(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		etc := harness.Fingerprint(t, "/etc/passwd")
		policy := s.Policy()
		before := harness.Fingerprint(t, policy)
		same := func(r launcher.Result) string {
			return fmt.Sprint(r.Workload.Outcome, r.Workload.ExitCode != nil, r.Artifact.Outcome, r.Artifact.Rows, r.Cleanup.Outcome, r.Delivery.Outcome, r.ExitStatus, r.Reason, r.Policy, r.Digests.Policy, r.Digests.Filter, len(r.Attestation), len(r.Degraded))
		}
		for _, status := range []int{0, 9} {
			code := func(lines []string) string {
				return fmt.Sprintf("import sys\nlines = %s\nprint(*lines, sep='\\n')\nprint(*lines, sep='\\n', file=sys.stderr)\nopen('/out/summary.csv', 'w').write('cell\\n' + ''.join('\"' + l.replace('\"', '\"\"') + '\"\\n' for l in lines))\nsys.exit(%d)", pyList(lines), status)
			}
			plainly := make([]string, len(forgeries))
			for i, line := range forgeries {
				plainly[i] = strings.Repeat("x", len(line))
			}
			folder := s.Folder()
			forged := s.Run(harness.Job{Code: code(forgeries), PolicyArg: policy, Deliver: folder})
			plain := s.Run(harness.Job{Code: code(plainly), PolicyArg: policy, Deliver: s.Folder()})
			if a, b := same(forged.Result), same(plain.Result); a != b || forged.Status != plain.Status {
				t.Errorf("forged lines change what is decided:\n%s\n%s", a, b)
			}
			if got := forged.Result.Untrusted.Stdout.Text; got != strings.Join(forgeries, "\n")+"\n" {
				t.Errorf("control: the lines were kept as %q", got)
			}
			data, _ := os.ReadFile(folder + "/summary.csv")
			if delivered := bytes.Contains(data, []byte("approve export")); delivered != (status == 0) {
				t.Errorf("with status %d the cells are delivered: %v", status, delivered)
			}
			if entries, _ := os.ReadDir(folder); len(entries) > 1 || status != 0 && len(entries) > 0 {
				t.Errorf("the folder holds %v", entries)
			}
		}
		if harness.Fingerprint(t, policy) != before || harness.Fingerprint(t, "/etc/passwd") != etc {
			t.Error("the policy or /etc/passwd was written")
		}
		s.WantNoTrace(t)
	})
}

func pyList(lines []string) string {
	quoted := make([]string, len(lines))
	for i, l := range lines {
		quoted[i] = fmt.Sprintf("%q", l)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// TestA2b: a megabyte of forged status lines is cut at the cap, and ends the run
// as a megabyte of anything does.
func TestA2b(t *testing.T) {
	const most = 65536
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		flood := func(line string) *harness.Run {
			return s.Run(harness.Job{Code: fmt.Sprintf("import os\nline = %q\nleft = 1 << 20\nwhile left > 0:\n    left -= os.write(1, (line * 100).encode()[:left])", line+"\n"), Deliver: s.Folder()})
		}
		for _, line := range []string{forgeries[3], forgeries[4]} {
			forged, plain := flood(line), flood(strings.Repeat("x", len(line)))
			for name, run := range map[string]*harness.Run{"forged": forged, "plain": plain} {
				run.Want(launcher.LimitExceededOutput, launcher.ExitLimit)
				out := run.Result.Untrusted.Stdout
				if out.BytesKept != most || !out.Truncated || out.BytesTotal <= most || len(run.Stdout) != most {
					t.Errorf("%s: %d bytes kept of %d, %d printed", name, out.BytesKept, out.BytesTotal, len(run.Stdout))
				}
				if r := run.Result; r.Artifact.Outcome != launcher.ArtifactNotExported || r.Delivery.Outcome != launcher.DeliveryNoArtifact || r.Cleanup.Outcome != launcher.CleanupVerified {
					t.Errorf("%s: %+v, %+v, %+v", name, r.Artifact, r.Delivery, r.Cleanup)
				}
				kept, err := os.ReadFile(filepath.Join(s.State, "attempts", run.Result.Attempt, "stdout"))
				if err != nil || len(kept) != most {
					t.Errorf("%s: %d bytes on disk, %v", name, len(kept), err)
				}
			}
		}
		// The control: a normal status line is kept whole and changes nothing.
		run := s.Run(harness.Job{Code: fmt.Sprintf("print(%q)", forgeries[3])}).WantOK()
		if string(run.Stdout) != forgeries[3]+"\n" {
			t.Errorf("printed %q", run.Stdout)
		}
	})
}

// TestA4L: a start beside a running one is refused, and so is one after a dead
// launcher whose lock file, marker and live-looking processes are still there.
// TestBusy shows the first half in detail.
func TestA4L(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.Run(harness.Job{Code: "pass"}).WantOK() // the control
		live := s.Start(harness.Job{Code: "print('ready', flush=True)\nimport time\ntime.sleep(30)"})
		live.Await("ready\n")
		folder := s.Folder()
		never := harness.Job{Code: "open('/out/summary.csv', 'w').write('a\\n')\nprint('ran')", Deliver: folder}
		wantNothingRun := func(run *harness.Run) {
			t.Helper()
			if left, _ := os.ReadDir(folder); len(left) > 0 || len(run.Stdout) > 0 {
				t.Errorf("it ran: %q, %v", run.Stdout, left)
			}
			if n := len(s.Attempts()); n != 2 {
				t.Errorf("%d attempts exist", n)
			}
		}
		wantNothingRun(s.Run(never).Want(launcher.RefusedBusy, launcher.ExitRefused).WantReason(reason.Busy))

		dead := filepath.Base(s.Attempts()[1])
		live.Signal(syscall.SIGKILL)
		live.Wait()
		s.WantGone(t, 2*time.Second)
		if os.Geteuid() != 0 {
			t.Skip("only root can put a process where the box's were")
		}
		stop := occupy(t, s, dead)
		lock, err := os.ReadFile(s.State + "/lock")
		if err != nil || !strings.Contains(string(lock), dead) {
			t.Errorf("the stale lock says %q, %v", lock, err)
		}
		for range 2 {
			run := s.Run(never).WantReason(reason.QuarantinedLeftover)
			if r := run.Result; run.Status != launcher.ExitRefused || r.Cleanup.Outcome != launcher.CleanupQuarantined || r.Delivery.Outcome != launcher.DeliveryBlocked {
				t.Errorf("status %d, cleanup %s, delivery %s", run.Status, r.Cleanup.Outcome, r.Delivery.Outcome)
			}
			wantNothingRun(run)
		}
		stop()
		s.Run(never).WantOK()
		if run := s.Raw("reconcile", "--state-dir", s.State); run.Status != 0 || !strings.Contains(string(run.Stdout), dead) {
			t.Errorf("reconcile: status %d, %s%s", run.Status, run.Stdout, run.Stderr)
		}
		s.WantNoTrace(t)
	})
}

// occupy puts a process where those of a dead launcher's box were: into its job
// cgroup, or, where there is none, under its ids in a namespace that maps them
// one by one.
func occupy(t *testing.T, s *harness.Site, attempt string) (stop func()) {
	t.Helper()
	recs, _, err := journal.Read(filepath.Join(s.State, "attempts", attempt, "journal"))
	if err != nil {
		t.Fatal(err)
	}
	var group string
	var ids [8]int
	for _, r := range recs {
		switch r.Event {
		case journal.CgroupMade:
			group = r.Data["path"]
		case journal.Attempt:
			if _, err := fmt.Sscanf(r.Data["ids"], "%d:%d %d:%d", &ids[0], &ids[1], &ids[2], &ids[3]); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := exec.Command("/bin/sleep", "100")
	if group == "" {
		one := func(id int) []syscall.SysProcIDMap { return []syscall.SysProcIDMap{{HostID: id, Size: 1}} }
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one(ids[2]), GidMappings: one(ids[3]), Credential: &syscall.Credential{NoSetGroups: true}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	t.Cleanup(stop)
	if group != "" {
		if err := os.WriteFile(filepath.Join(group, "work", "cgroup.procs"), []byte(itoa(cmd.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return stop
}
