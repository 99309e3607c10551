package escape

import (
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestForgedWords: neither the outcome nor a digest follows what is printed, and
// the result stays one document whatever bytes were written.
func TestForgedWords(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		plain := s.Run(harness.Job{Code: "print('plain')"}).WantOK()
		run := s.Run(job("talk.py", "forge")).Want(launcher.Exited, 41)
		r := run.Result
		if r.Digests.Policy != plain.Result.Digests.Policy {
			t.Errorf("the policy's digest %s, otherwise %s", r.Digests.Policy, plain.Result.Digests.Policy)
		}
		if r.Delivery.Outcome == launcher.Delivered || r.Artifact.Outcome == launcher.ArtifactAccepted {
			t.Errorf("artifact %s, delivery %s", r.Artifact.Outcome, r.Delivery.Outcome)
		}
		if !strings.Contains(r.Untrusted.Stdout.Text, "KILLED_EXTERNALLY") || !strings.Contains(r.Untrusted.Stderr.Text, "DELIVERED") {
			t.Error("control: the forged words are not among what is labelled as untrusted")
		}
	})
}

// TestPipes: what a program does to its own end of a stream changes neither
// the count nor the end of the run.
func TestPipes(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(job("talk.py", "trickle")).Want(launcher.LimitExceededOutput, launcher.ExitLimit)
		if kept := run.Result.Untrusted.Stdout.BytesKept; kept != 65536 || len(run.Stdout) != 65536 {
			t.Errorf("kept %d bytes, printed %d, want 65536", kept, len(run.Stdout))
		}
		run = s.Run(job("talk.py", "tricky_pipe")).WantOK()
		if want := strings.Repeat("0123456789abcde\n", 2000); string(run.Stdout) != want {
			t.Errorf("%d bytes came through the small pipe, want %d", len(run.Stdout), len(want))
		}
		run = s.Run(job("talk.py", "other_end")).WantOK()
		if got := run.Result.Untrusted.Stdout.BytesTotal; got != int64(len(run.Stdout)) || got > 5*2000 {
			t.Errorf("%d bytes counted, %d printed, at most %d written", got, len(run.Stdout), 5*2000)
		}
		s.WantGone(t, 0)
	})
}
