package export

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
	"nsbox/tests/racer"
)

// TestS11 races the exporter: whatever is swapped, what is delivered is the
// original file's bytes, or nothing.
func TestS11(t *testing.T) {
	if os.Geteuid() != 0 {
		sealedAgainstCaller(t, harness.NewSite(t, harness.Callers(t)[0]))
		return
	}
	content := []byte(strings.Repeat("Abilene,2000-01,72,5380000,71400,701,6.3\n", 19000))
	code := "put('summary.csv', 'Abilene,2000-01,72,5380000,71400,701,6.3\\n' * 19000)\nprint('ready', flush=True)\nimport time; time.sleep(0.4)\n"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		try(t, s, code, harness.Job{}).wantDelivered(content, 19000)

		verdicts := map[string]int{}
		race := func(t *testing.T, act func(r *racer.Racer, ended <-chan struct{})) {
			t.Helper()
			deliver := s.Folder()
			live := s.Start(harness.Job{Code: prelude + code, Deliver: deliver})
			live.Await("ready\n")
			r := racer.Reach(t, live.Cmd.Process.Pid, target)
			ended, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				if err := r.Become(); err != nil {
					t.Error(err)
					return
				}
				act(r, ended)
			}()
			run := live.Wait()
			close(ended)
			<-done
			tr := &trial{t, s, run, deliver}
			switch a := run.Result.Artifact; a.Outcome {
			case launcher.ArtifactAccepted:
				tr.wantDelivered(content, 19000)
			case launcher.ArtifactRejected:
				tr.run.Want(launcher.Exited, launcher.ExitUndelivered)
				tr.wantNothing()
			default:
				t.Errorf("artifact %+v, reason %+v", a, run.Result.Reason)
			}
			verdicts[run.Result.Artifact.Outcome]++
			if places := run.Holding(canary, deliver); places != nil {
				t.Errorf("the canary stands in %q", places)
			}
		}

		t.Run("while it looks", func(t *testing.T) {
			most := 0
			for round := 0; round < 25 && (most < 50 || round < 3); round++ {
				race(t, func(r *racer.Racer, ended <-chan struct{}) { most = max(most, r.Stops(ended)) })
			}
			t.Logf("up to %d swaps while the exporter existed; verdicts %v", most, verdicts)
			if most < 50 {
				t.Errorf("%d swaps while the exporter existed, want 50", most)
			}
			if verdicts[launcher.ArtifactRejected] == 0 {
				t.Error("no race was noticed")
			}
		})
		t.Run("all the time", func(t *testing.T) {
			total := 0
			for round := 0; round < 6 || round < 40 && total < 50; round++ {
				race(t, func(r *racer.Racer, ended <-chan struct{}) {
					for {
						select {
						case <-ended:
							total += r.Swaps
							return
						case <-time.After(time.Duration(5+15*(round%6)) * time.Millisecond):
							if !r.Swap() {
								return
							}
						}
					}
				})
			}
			t.Logf("%d swaps; verdicts %v", total, verdicts)
			if total < 50 {
				t.Errorf("%d swaps, want 50", total)
			}
		})
		t.Run("sealed", func(t *testing.T) { sealedAgainstCaller(t, s) })
	})
}

// sealedAgainstCaller shows why the racer has to be root: the caller itself
// cannot change the sealed directory, not even by the launcher's descriptor.
func sealedAgainstCaller(t *testing.T, s *harness.Site) {
	t.Helper()
	if s.Caller.UID == 0 {
		return // root is the racer
	}
	deliver := s.Folder()
	live := s.Start(harness.Job{Code: prelude + good + "print('ready', flush=True)\nimport time; time.sleep(1)\n", Deliver: deliver})
	live.Await("ready\n")
	shell := fmt.Sprintf("for d in /proc/%d/fd/*; do [ -e $d/summary.csv ] || continue; echo found; touch $d/new && echo written; rm -f $d/summary.csv && echo removed; done", live.Cmd.Process.Pid)
	cmd := exec.Command("/bin/sh", "-c", shell)
	if s.Caller.UID != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.Caller.UID), Gid: uint32(s.Caller.GID)}}
	}
	out, _ := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("written")) || bytes.Contains(out, []byte("removed")) {
		t.Errorf("the caller changed the directory: %s", out)
	}
	t.Logf("as the caller: %s", out)
	tr := &trial{t, s, live.Wait(), deliver}
	tr.wantDelivered([]byte("a,b\n1,2\n"), 2)
}
