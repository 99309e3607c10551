package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestExitTable walks the table of `nsbox exec --help` row by row.
func TestExitTable(t *testing.T) {
	exits := func(code string) harness.Job { return harness.Job{Code: "import os, sys, signal\n" + code} }
	wall := []harness.Change{harness.Set("wall_workload", 1)}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, row := range []struct {
			name, outcome string
			job           harness.Job
			status        int
		}{
			{"0", launcher.Exited, exits("open('/out/summary.csv', 'w').write('a\\n')"), 0},
			{"N", launcher.Exited, exits("sys.exit(3)"), 3},
			{"122", launcher.Exited, harness.Job{Code: "pass", Deliver: s.Folder()}, 122},
			{"124", launcher.TimeoutWall, harness.Job{Code: "import time; time.sleep(9)", Policy: wall}, 124},
			{"125", launcher.SetupFailure, harness.Job{Code: "pass", Bare: true}, 125},
			{"126", launcher.ExecFailed, harness.Job{Argv: []string{"/etc/passwd"}}, 126},
			{"127", launcher.ExecFailed, harness.Job{Argv: []string{"no-such-program"}}, 127},
			{"128+n", launcher.Signaled, exits("os.kill(os.getpid(), signal.SIGUSR1)"), 128 + 10},
			{"137", launcher.KilledExternally, exits("os.kill(os.getpid(), 9)"), 137},
			// 129, 130 and 143 are TestCancel's.
		} {
			t.Run(row.name, func(t *testing.T) {
				run := s.Run(row.job).Want(row.outcome, row.status)
				code, sig := run.Result.Workload.ExitCode, run.Result.Workload.Signal
				switch {
				case row.outcome == launcher.Exited && (code == nil || *code != row.status%122 || sig != nil):
					t.Errorf("exit code %v, signal %v", code, sig)
				case row.outcome != launcher.Exited && code != nil:
					t.Errorf("%s has the exit code %d", row.outcome, *code)
				}
			})
		}
		help := s.Raw("exec", "--help")
		for _, row := range launcher.ExitTable() {
			if !strings.Contains(string(help.Stdout), row.Status) {
				t.Errorf("the help has no row %s", row.Status)
			}
		}
	})
}

// TestOwnCodesOfTheProgram: codes that nsbox uses itself stay the program's.
func TestOwnCodesOfTheProgram(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, code := range []int{1, 3, 122, 124, 125, 126, 127, 130, 137, 255} {
			run := s.Run(harness.Job{Argv: []string{"python3", "-I", "-S", "-c", "import os; os._exit(" + itoa(code) + ")"}}).Want(launcher.Exited, code)
			if got := run.Result.Workload; got.ExitCode == nil || *got.ExitCode != code || got.Signal != nil || run.Result.Reason != nil {
				t.Errorf("exit code %d: %+v, reason %+v", code, got, run.Result.Reason)
			}
			if run.Result.Artifact.Outcome != launcher.ArtifactNotExported {
				t.Errorf("exit code %d: artifact %s", code, run.Result.Artifact.Outcome)
			}
		}
	})
}

// TestArtifactOutcomes: nothing in /out is EMPTY, and only a success exports.
func TestArtifactOutcomes(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		write := "open('/out/summary.csv', 'w').write('city,n\\nx,1\\n')\n"
		for _, c := range []struct{ code, outcome string }{
			{"pass", launcher.ArtifactEmpty},
			{write, launcher.ArtifactAccepted},
			{write + "raise SystemExit(4)", launcher.ArtifactNotExported},
			{"open('/out/other.csv', 'w').write('x\\n')", launcher.ArtifactRejected},
			{write + "open('/out/other.csv', 'w').write('x\\n')", launcher.ArtifactRejected},
			{"import os; os.symlink('/etc/passwd', '/out/summary.csv')", launcher.ArtifactRejected},
			{write + "import os; os.link('/out/summary.csv', '/out/second')", launcher.ArtifactRejected},
			{"import os; os.mkfifo('/out/summary.csv')", launcher.ArtifactRejected},
			{"import os; os.mkdir('/out/summary.csv')", launcher.ArtifactRejected},
			{"open('/out/summary.csv', 'wb').write(b'a\\0b\\n')", launcher.ArtifactRejected},
			{"open('/out/summary.csv', 'wb').write(b'\\xff\\xfe\\n')", launcher.ArtifactRejected},
			{"open('/out/summary.csv', 'w').write('xxxxxxx\\n' * 262144)", launcher.ArtifactRejected},
		} {
			folder := s.Folder()
			run := s.Run(harness.Job{Code: c.code, Deliver: folder})
			if got := run.Result.Artifact; got.Outcome != c.outcome || (c.outcome == launcher.ArtifactRejected) != (len(got.Reasons) > 0) {
				t.Errorf("%s: %s %q, want %s", c.code, got.Outcome, got.Reasons, c.outcome)
			}
			entries, _ := os.ReadDir(folder)
			if want := c.outcome == launcher.ArtifactAccepted; (len(entries) == 1) != want || (run.Status == 0) != want {
				t.Errorf("%s: status %d, delivered %v", c.code, run.Status, entries)
			}
		}
		s.WantNoTrace(t)
	})
}

// TestJSON wants one document on standard output and the streams beside it.
func TestJSON(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(harness.Job{Code: "import sys; print('{\"forged\": 1}'); print('to stderr', file=sys.stderr)", Flags: []string{"--json"}}).WantOK()
		printed := harness.DecodeResult(t, run.Stdout)
		if printed.Attempt == "" || printed.Attempt != run.Result.Attempt {
			t.Errorf("printed attempt %q, in the file %q", printed.Attempt, run.Result.Attempt)
		}
		for _, text := range []string{"{\"forged\": 1}", "to stderr"} {
			if !strings.Contains(string(run.Stderr), text) {
				t.Errorf("standard error lacks %q:\n%s", text, run.Stderr)
			}
		}
		if out := run.Result.Untrusted; out.Stdout.Text != "{\"forged\": 1}\n" || out.Stderr.Text != "to stderr\n" || out.Note == "" {
			t.Errorf("untrusted: %+v", out)
		}
		// Without --json the streams are where they belong.
		run = s.Run(harness.Job{Code: "import sys; print('out'); print('err', file=sys.stderr)", Flags: []string{"--quiet"}}).WantOK()
		if string(run.Stdout) != "out\n" || string(run.Stderr) != "err\n" {
			t.Errorf("streams %q and %q", run.Stdout, run.Stderr)
		}
	})
}

// TestExactBytes: what the program writes is kept and passed on byte for byte.
func TestExactBytes(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		want := []byte("\x00\x01\x1b[31m\xff\xfe\u20ac\r\n")
		run := s.Run(harness.Job{Code: `import os; os.write(1, b"\x00\x01\x1b[31m\xff\xfe\xe2\x82\xac\r\n")`}).WantOK()
		if !bytes.Equal(run.Stdout, want) {
			t.Errorf("live %q, want %q", run.Stdout, want)
		}
		attempts := s.Attempts()
		kept, err := os.ReadFile(filepath.Join(attempts[len(attempts)-1], "stdout"))
		if err != nil || !bytes.Equal(kept, want) {
			t.Errorf("kept %q, %v", kept, err)
		}
		raw, err := os.ReadFile(run.ResultFile)
		if err != nil || bytes.ContainsAny(raw, "\x00\x01\x1b") || bytes.Contains(raw, []byte{0xff}) {
			t.Errorf("the result holds control bytes: %v", err)
		}
		// A character that the cap splits is dropped from the text, not from the bytes.
		run = s.Run(harness.Job{Code: `import os; os.write(1, b"a" * 65535 + "\U0001F600".encode())`}).Want(launcher.LimitExceededOutput, 124)
		if out := run.Result.Untrusted.Stdout; out.BytesKept != 65536 || out.BytesTotal != 65539 || out.Text != strings.Repeat("a", 65535) {
			t.Errorf("kept %d of %d, text of %d", out.BytesKept, out.BytesTotal, len(out.Text))
		}
		for range 10 {
			if run := s.Run(harness.Job{Code: "print('x' * 60000)"}).WantOK(); len(run.Stdout) != 60001 {
				t.Errorf("%d bytes of 60001 came out", len(run.Stdout))
			}
		}
	})
}

// TestRefusals leave a result and start nothing.
func TestRefusals(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.Run(harness.Job{Code: "pass"}).WantOK() // makes the state directory
		before := len(s.Attempts())
		for _, c := range []struct {
			id  reason.ID
			job harness.Job
		}{
			{reason.Usage, harness.Job{Code: "pass", Flags: []string{"--no-such-flag"}}},
			{reason.PolicyUnknownPreset, harness.Job{Code: "pass", PolicyArg: "no-such-preset"}},
			{reason.PolicyInvalid, harness.Job{Code: "pass", PolicyArg: s.File("broken.json", "{}")}},
			{reason.LimitLoosens, harness.Job{Code: "pass", Flags: []string{"--limit", "wall=10m"}}},
			{reason.DegradeUnknown, harness.Job{Code: "pass", Flags: []string{"--allow-degraded", "everything"}}},
			{reason.ExecNotAllowed, harness.Job{Argv: []string{"/bin/sh", "-c", "true"}}},
			{reason.InputMissing, harness.Job{Code: "pass", In: []string{filepath.Join(s.Dir, "nothing")}}},
			{reason.DeliverDir, harness.Job{Code: "pass", Deliver: filepath.Join(s.Dir, "nothing")}},
		} {
			run := s.Run(c.job)
			if run.Status != launcher.ExitRefused || !run.HasResult || run.Result.ExitStatus != launcher.ExitRefused {
				t.Errorf("%s: status %d, result %v", c.id, run.Status, run.HasResult)
			}
			run.WantReason(c.id)
			if r := run.Result.Reason; r != nil && (r.What == "" || r.Why == "" || r.Next == "") {
				t.Errorf("%s: what %q, why %q, next %q", c.id, r.What, r.Why, r.Next)
			}
			if !strings.Contains(string(run.Stderr), "(reason "+string(c.id)+")") || len(run.Stdout) != 0 {
				t.Errorf("%s: printed %q and %q", c.id, run.Stdout, run.Stderr)
			}
		}
		for _, attempt := range s.Attempts()[before:] {
			entries, _ := os.ReadDir(attempt)
			t.Logf("a refused run left %s with %d entries", filepath.Base(attempt), len(entries))
		}
		s.WantNoTrace(t)
	})
}

// TestBusy: a second run on the same state directory is refused and named whom
// it waits for; the first is not disturbed.
func TestBusy(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		live := s.Start(harness.Job{Code: "print('ready', flush=True)\nimport time; time.sleep(1)\nprint('done')"})
		live.Await("ready\n")
		holder := filepath.Base(s.Attempts()[0])
		second := s.Run(harness.Job{Code: "open('/scratch/x', 'w')"}).Want(launcher.RefusedBusy, launcher.ExitRefused).WantReason(reason.Busy)
		if r := second.Result.Reason; r == nil || !strings.Contains(r.What, holder) || !strings.Contains(r.What, itoa(live.Cmd.Process.Pid)) {
			t.Errorf("the refusal names %+v, not attempt %s of pid %d", r, holder, live.Cmd.Process.Pid)
		}
		if n := len(s.Attempts()); n != 1 {
			t.Errorf("%d attempts exist", n)
		}
		// Another state directory is another matter.
		harness.NewSite(t, s.Caller).Run(harness.Job{Code: "pass"}).WantOK()
		if run := live.Wait().WantOK(); string(run.Stdout) != "ready\ndone\n" {
			t.Errorf("the first run printed %q", run.Stdout)
		}
		s.Run(harness.Job{Code: "pass"}).WantOK()
	})
}

// TestDeliverNeverOverwrites: not what is there, and not what comes meanwhile.
func TestDeliverNeverOverwrites(t *testing.T) {
	const write = "open('/out/summary.csv', 'w').write('new\\n')\n"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		folder := s.Folder()
		s.Run(harness.Job{Code: write, Deliver: folder}).WantOK()
		before := harness.Fingerprint(t, folder)
		run := s.Run(harness.Job{Code: write, Deliver: folder}).WantReason(reason.DeliverExists)
		if run.Status != launcher.ExitRefused {
			t.Errorf("status %d", run.Status)
		}
		if harness.Fingerprint(t, folder) != before {
			t.Error("the delivered file was touched")
		}

		for _, link := range []string{"dangling", s.File("victim", "precious")} {
			folder = s.Folder()
			if err := os.Symlink(link, filepath.Join(folder, "summary.csv")); err != nil {
				t.Fatal(err)
			}
			before = harness.Fingerprint(t, folder, link)
			s.Run(harness.Job{Code: write, Deliver: folder}).WantReason(reason.DeliverExists)
			if harness.Fingerprint(t, folder, link) != before {
				t.Errorf("a link to %s was followed or replaced", link)
			}
		}

		folder = s.Folder()
		live := s.Start(harness.Job{Code: write + "print('ready', flush=True)\nimport time; time.sleep(0.5)", Deliver: folder})
		live.Await("ready\n")
		if err := os.WriteFile(filepath.Join(folder, "summary.csv"), []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
		late := live.Wait()
		if late.Status == 0 || late.Result.Delivery.Outcome == launcher.Delivered {
			t.Errorf("status %d, delivery %+v", late.Status, late.Result.Delivery)
		}
		got, _ := os.ReadFile(filepath.Join(folder, "summary.csv"))
		if entries, _ := os.ReadDir(folder); string(got) != "precious" || len(entries) != 1 {
			t.Errorf("the folder holds %v, the file %q", entries, got)
		}
		t.Logf("a file that came meanwhile: status %d, delivery %s, reason %+v", late.Status, late.Result.Delivery.Outcome, late.Result.Reason)
	})
}
