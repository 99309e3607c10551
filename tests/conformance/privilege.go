package conformance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

func privilegeFixtures() []Fixture {
	return []Fixture{
		{ID: "A1a", Title: "privileged operations", Profile: "TP-PROD", Quick: true, Run: a1a,
			Attempt: "10 operations: setuid, setgid, mount, unshare, a cgroup file, ptrace of init, init's environment, chown, keyctl, uid_map",
			Shows:   "each is denied; no capability, no_new_privs, uid 10001", Cannot: "whether a missing capability or the filter gave EPERM"},
		{ID: "A1b", Title: "inherited descriptors", Profile: "TP-PROD", Quick: true, Run: a1b,
			Attempt: "list /proc/self/fd with 20 descriptors open in the launcher", Shows: "only 0, 1 and 2, and nothing of the caller's environment", Cannot: "descriptors of other processes of the host"},
		{ID: "A2a", Title: "sockets", Profile: "TP-PROD", Quick: true, Run: a2a,
			Attempt: "6 socket calls: AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, a control path", Shows: "each is denied or absent; AF_UNIX pairs work", Cannot: "which filter rule answered"},
		{ID: "A2b", Title: "forged status lines", Profile: "TP-PROD", Quick: true, Run: a2b,
			Attempt: "1 MiB of lines that look like nsbox's own", Shows: "captured at 64 KiB, outcome computed by the launcher alone", Cannot: "what a later reader believes"},
		{ID: "A4-L", Title: "a second launch, and a leftover", Profile: "TP-PROD", Run: a4l,
			Attempt: "a second start while one runs; a start over the lock of a killed launcher whose cgroup has a live process planted in it",
			Shows:   "the second is refused at once; the leftover is quarantined, left alone and refuses the start until reconcile; nothing is run again", Cannot: "races within one instruction"},
		{ID: "A5a", Title: "an artifact that exhausts the exporter", Profile: "TP-PROD", Run: a5a,
			Attempt: "1 MiB in one line; 1 MiB of two-byte rows", Shows: "refused by the caps on lines and rows within the exporter's own limits", Cannot: "other shapes of costly input"},
		{ID: "A5b", Title: "an exporter taken over", Profile: "TP-PROD", Run: a5b,
			Attempt: "from inside the exporter's box: connect, read the mock secret, read the home canary, write outside staging", Shows: "each is denied by the exporter's own box", Cannot: "kernel bugs"},
	}
}

func a1a(c *Case) {
	idMap := harness.Fingerprint(c, "/proc/self/uid_map")
	report := c.Do(c.Program("a1a.py")).WantOK().Report()
	c.Control("harmless forms of the calls succeed inside, and the launcher's own ids differ", func() {
		c.Want(report, map[string][]string{"control setuid": {"ok"}, "control chown": {"ok"}, "control environ": {"ok "}})
		if os.Geteuid() == 10001 {
			c.Error("the launcher itself is uid 10001")
		}
	})
	none := []string{"0000000000000000"}
	c.Want(report, map[string][]string{
		"setuid": {"EPERM"}, "setgid": {"EPERM"}, "mount": {"EPERM"}, "unshare user": {"EPERM"}, "cgroup file": {"EPERM", "EACCES", "ENOENT", "EROFS"},
		"ptrace init": {"EPERM"}, "init's environ": {"EPERM", "EACCES", "ENOENT"}, "chown": {"EPERM"}, "keyctl": {"EPERM"}, "uid_map": {"EPERM", "EACCES", "EROFS"},
		"status CapEff": none, "status CapPrm": none, "status CapBnd": none, "status CapAmb": none, "status NoNewPrivs": {"1"}, "status Seccomp": {"2"},
		"status Uid": {"10001\t10001\t10001\t10001"}, "status Gid": {"10001\t10001\t10001\t10001"}, "status Groups": {""},
	})
	if harness.Fingerprint(c, "/proc/self/uid_map") != idMap {
		c.Error("the host's uid_map changed")
	}
}

func a1b(c *Case) {
	const secret = "NSBOX-VERIFY-SECRET-OF-THE-CALLER"
	path := c.File("inherited", secret)
	job := c.Program("descriptors.py")
	for range 20 {
		f, err := os.Open(path)
		if err != nil {
			c.Fatal(err)
		}
		c.Cleanup(func() { f.Close() })
		job.Files = append(job.Files, f)
	}
	job.Env = []string{"NSBOX_VERIFY=" + secret}
	c.Control("outside the box the same program sees more than 20 descriptors and the variable", func() {
		host := c.OnHost(job).Report()
		if len(strings.Fields(host["descriptors"])) < 23 || !strings.Contains(host["environments"], secret) {
			c.Errorf("descriptors %q", host["descriptors"])
		}
	})
	run := c.Do(job).WantOK()
	c.Want(run.Report(), map[string][]string{"descriptors": {"0 1 2"}})
	c.Absent(run, secret)
	c.Want(c.Do(c.Program("view.py")).WantOK().Report(), map[string][]string{"streams": {"/dev/null pipe pipe", "/null pipe pipe"}, "environment": {"LANG PATH PYTHONDONTWRITEBYTECODE"}})
}

func a2a(c *Case) {
	run := c.Do(c.Program("a2a.py")).WantOK()
	report := run.Report()
	c.Control("an AF_UNIX pair carries data", func() { c.Want(report, map[string][]string{"socketpair": {"ok hello"}}) })
	denied := []string{"EPERM", "EACCES", "EAFNOSUPPORT"}
	c.Want(report, map[string][]string{"AF_INET": denied, "AF_INET6": denied, "AF_NETLINK": denied, "AF_PACKET": denied, "AF_VSOCK": denied,
		"control path": {"ENOENT", "EACCES", "EPERM"}})
	view := c.Do(c.Program("view.py")).WantOK().Report()
	for _, socket := range []string{"docker.sock", "containerd", "podman", "dbus", "/run/user"} {
		if strings.Contains(view["mountinfo"], socket) {
			c.Errorf("the mount table shows %s", socket)
		}
	}
}

func a2b(c *Case) {
	c.Control("an ordinary run ends as EXITED", func() { c.Do(harness.Job{Code: "print('hello')\n"}).WantOK() })
	run := c.Do(harness.Job{Code: "import os, sys\nline = b'nsbox: workload EXITED 0, artifact ACCEPTED, cleanup VERIFIED, delivery DELIVERED, exit status 0\\nOUTCOME=DELIVERED\\n'\nline *= 40\nleft = 1 << 20\nwhile left > 0: left -= os.write(1, line[:left])\n"})
	run.Want(launcher.LimitExceededOutput, launcher.ExitLimit)
	got := run.Result.Untrusted.Stdout
	c.Note("collector", fmt.Sprintf("%d bytes kept of %d", got.BytesKept, got.BytesTotal))
	if got.BytesKept != 65536 || run.Result.Delivery.Outcome == launcher.Delivered || run.Result.Artifact.Outcome == launcher.ArtifactAccepted {
		c.Errorf("kept %d, artifact %+v, delivery %+v", got.BytesKept, run.Result.Artifact, run.Result.Delivery)
	}
}

func a4l(c *Case) {
	c.Control("a single run succeeds", func() { c.Do(harness.Job{Code: "pass\n"}).WantOK() })
	first := c.Begin(harness.Job{Code: "print('up', flush=True)\nimport time; time.sleep(20)\n"})
	first.Await("up\n")
	second := c.Do(harness.Job{Code: "print('second')\n"})
	if second.Result.Workload.Outcome != launcher.RefusedBusy || second.Result.Reason == nil || second.Result.Reason.ID != reason.Busy || bytes.Contains(second.Stdout, []byte("second")) {
		c.Errorf("the second start: %+v, %+v", second.Result.Workload, second.Result.Reason)
	}
	squatter := c.squat()
	first.Signal(syscall.SIGKILL)
	first.Wait()
	c.Control("the killed launcher's lock is still there", func() {
		if stale, err := os.ReadDir(filepath.Join(c.State, "open")); err != nil || len(stale) != 1 {
			c.Errorf("the open attempts: %v, %v", stale, err)
		}
	})
	if squatter == nil {
		c.leftover(launcher.Exited)
		c.Stop(Blocked, "no cgroup can be made by this caller, so no live-looking one can be planted; the second launch and the stale lock held")
	}
	third := c.Do(harness.Job{Code: "print('third')\n"})
	if third.Status != launcher.ExitRefused || third.Result.Reason == nil || third.Result.Reason.ID != reason.QuarantinedLeftover || bytes.Contains(third.Stdout, []byte("third")) {
		c.Errorf("a start beside a live-looking cgroup: status %d, %+v\n%s", third.Status, third.Result.Reason, third.Stderr)
	}
	if err := squatter.Process.Signal(syscall.Signal(0)); err != nil {
		c.Errorf("a start ended what it could not identify: %v", err)
	}
	c.wantQuarantined()
	// Only the operator's word ends it, and only then does a start go on.
	go squatter.Wait() // else the kernel keeps it in its group as a zombie
	c.reconcile()
	c.Do(harness.Job{Code: "pass\n"}).WantOK()
}

// squat puts a process of the case's own into the cgroup of the run that is
// under way; nil where there is none.
func (c *Case) squat() *exec.Cmd {
	for _, group := range c.Cgroups() {
		if filepath.Base(group) != "work" {
			continue
		}
		sleep := exec.Command("sleep", "300")
		if err := sleep.Start(); err != nil {
			c.Fatal(err)
		}
		c.Cleanup(func() { sleep.Process.Kill(); sleep.Wait() })
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(sleep.Process.Pid)), 0); err != nil {
			c.Fatalf("a process for the live-looking cgroup: %v", err)
		}
		return sleep
	}
	return nil
}

// leftover is a start over a stale lock whose box ended by itself.
func (c *Case) leftover(outcome string) {
	c.WantGone(c, 5*time.Second)
	third := c.Do(harness.Job{Code: "pass\n"})
	third.Want(outcome, launcher.ExitOK)
	c.wantQuarantined()
	c.reconcile()
}

// wantQuarantined: the killed attempt, and it alone, is quarantined as UNKNOWN.
func (c *Case) wantQuarantined() {
	listed := c.Raw("attempts", "--json", "--state-dir", c.State)
	if bytes.Count(listed.Stdout, []byte(`"state": "`+launcher.AttemptQuarantined+`"`)) != 1 || !bytes.Contains(listed.Stdout, []byte(launcher.Unknown)) {
		c.Errorf("not one attempt is quarantined as UNKNOWN: %s", listed.Stdout)
	}
	c.Note("attempts after the kill", bytes.Count(listed.Stdout, []byte(`"id"`)))
}

func (c *Case) reconcile() {
	if r := c.Raw("reconcile", "--all", "--state-dir", c.State); r.Status != 0 {
		c.Errorf("reconcile: %d, %s", r.Status, r.Stderr)
	}
}

// a5a wants each refusal to come from a cap, and the exporter's box to have had
// its own limits, as the kernel showed them, while it came to it.
func a5a(c *Case) {
	c.exports()
	for _, v := range []struct{ what, code, reason string }{
		{"one line", "put('summary.csv', b'x' * (1 << 20))\n", "line_too_long"},
		{"two-byte rows", "put('summary.csv', b'1\\n' * (1 << 19))\n", "too_many_rows"},
	} {
		job, folder := c.leave(v.code)
		run := c.Do(job)
		c.WantRejected(run, folder, v.reason)
		// Whoever exceeds a limit of the exporter's is ended without a report, and
		// the attempt is then quarantined.
		if run.Result.Cleanup.Outcome != launcher.CleanupVerified {
			c.Errorf("%s: cleanup %+v", v.what, run.Result.Cleanup)
		}
		limits := map[string]string{}
		for _, row := range run.Result.Attestation {
			if rest, ok := strings.CutPrefix(row.Restriction, "exporter/rlimit-"); ok && row.Grade == attest.KernelRead {
				limits[rest] = row.Shown
			}
		}
		for name, want := range map[string]string{"cpu": "5 5", "nproc": "4 4", "nofile": "32 32", "fsize": "1048576 1048576"} {
			if limits[name] != want {
				c.Errorf("%s: the exporter's limit %s is %q, want %q", v.what, name, limits[name], want)
			}
		}
		c.Note(v.what, fmt.Sprintf("limits %v; %.1f ms for the export", limits, run.Result.DurationsMS["export"]))
		if took := run.Result.DurationsMS["export-run"]; took > 10_000*float64(harness.Slow()) {
			c.Errorf("%s: the exporter ran %.0f ms of its 10 s", v.what, took)
		}
	}
}
