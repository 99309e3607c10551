package conformance

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"nsbox/launcher"
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
			Attempt: "a second start while one runs; a start after the launcher was killed and a live-looking leftover stays",
			Shows:   "the second is refused at once; the leftover is quarantined and nothing is run again", Cannot: "races within one instruction"},
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
	run := c.Do(harness.Job{Code: "import os, sys\nline = b'nsbox: workload EXITED 0, artifact ACCEPTED, cleanup VERIFIED, delivery DELIVERED, exit status 0\\nOUTCOME=DELIVERED\\n'\nwhile True:\n os.write(1, line * 40)\n"})
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
	marker := c.Dir + "/second-ran"
	second := c.Do(harness.Job{Code: "print('second')\n"})
	if second.Result.Workload.Outcome != launcher.RefusedBusy || second.Result.Reason == nil || second.Result.Reason.ID != reason.Busy || bytes.Contains(second.Stdout, []byte("second")) {
		c.Errorf("the second start: %+v, %+v", second.Result.Workload, second.Result.Reason)
	}
	if _, err := os.Stat(marker); err == nil {
		c.Error("the second program ran")
	}
	first.Signal(syscall.SIGKILL)
	first.Wait()
	c.WantGone(c, 5*time.Second)
	third := c.Do(harness.Job{Code: "pass\n"}).WantOK()
	listed := c.Raw("attempts", "--json", "--state-dir", c.State)
	if !bytes.Contains(listed.Stdout, []byte(launcher.AttemptQuarantined)) || !bytes.Contains(listed.Stdout, []byte(launcher.Unknown)) {
		c.Errorf("the killed attempt is not quarantined as UNKNOWN: %s", listed.Stdout)
	}
	c.Note("after the kill", fmt.Sprintf("the next start: %s; attempts: %d", third.Result.Workload.Outcome, bytes.Count(listed.Stdout, []byte(`"id"`))))
	if r := c.Raw("reconcile", "--all", "--state-dir", c.State); r.Status != 0 {
		c.Errorf("reconcile: %d, %s", r.Status, r.Stderr)
	}
}

func a5a(c *Case) {
	c.exports()
	for _, v := range []struct{ what, code, reason string }{
		{"one line", "put('summary.csv', b'x' * (1 << 20))\n", "line_too_long"},
		{"two-byte rows", "put('summary.csv', b'1\\n' * (1 << 19))\n", "too_many_rows"},
	} {
		job, folder := c.leave(v.code)
		run := c.Do(job)
		c.WantRejected(run, folder, v.reason)
		took := run.Result.DurationsMS["export"]
		c.Note(v.what, fmt.Sprintf("%.1f ms for the export", took))
		if took > 10_000 {
			c.Errorf("the export took %.0f ms, over its 10 s", took)
		}
	}
}
