package e2e

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

const mib = 1 << 20

func limits(policy []harness.Change, args ...string) harness.Job {
	return harness.Job{Script: script("limits.py"), Args: args, Policy: policy}
}

func number(t *testing.T, report map[string]string, name string) int {
	t.Helper()
	n, err := strconv.Atoi(report[name])
	if err != nil {
		t.Errorf("%s is %q in %v", name, report[name], report)
	}
	return n
}

// TestS6d opens one file until it cannot.
func TestS6d(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		report := s.Run(limits(s.Profile("TP-FD"), "descriptors")).WantOK().Report()
		wantReport(t, report, map[string][]string{"ended": one("EMFILE"), "highest": one("63"), "limit": one("(64, 64)")})
		if n := number(t, report, "opened"); n < 50 {
			t.Errorf("control: only %d files could be opened", n)
		}
	})
}

// TestS6e writes to and past the cap of stdout.
func TestS6e(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		control := s.Run(limits(s.Profile("TP-LOG"), "print", "16", "4096")).WantOK()
		if got := control.Result.Untrusted.Stdout; got.BytesTotal != 65536 || got.BytesKept != 65536 || got.Truncated {
			t.Errorf("control: exactly the cap gives %d of %d bytes, truncated %v", got.BytesKept, got.BytesTotal, got.Truncated)
		}
		run := s.Run(limits(s.Profile("TP-LOG"), "print", "64", "4096")).Want(launcher.LimitExceededOutput, launcher.ExitLimit)
		got := run.Result.Untrusted.Stdout
		if got.BytesKept != 65536 || got.BytesTotal <= 65536 || got.BytesTotal > 256<<10 || !got.Truncated || len(got.Text) != 65536 {
			t.Errorf("past the cap: %d kept of %d, truncated %v, text of %d", got.BytesKept, got.BytesTotal, got.Truncated, len(got.Text))
		}
		if !bytes.Equal(run.Stdout, bytes.Repeat([]byte("x"), 65536)) {
			t.Errorf("%d bytes came out live, want the first 65536", len(run.Stdout))
		}
		if run.Result.Artifact.Outcome == launcher.ArtifactAccepted {
			t.Error("the artifact of a run that broke a limit was accepted")
		}
	})
}

// TestS6f fills /scratch and /out by bytes and by files.
func TestS6f(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, c := range []struct {
			folder string
			bytes  int
			inodes int
		}{{"/scratch", 64 * mib, 256}, {"/out", 8 * mib, 64}} {
			report := s.Run(limits(s.Profile("TP-SCR"), "fill", c.folder, "8", itoa(c.bytes/4))).Report()
			if n := number(t, report, "bytes"); n > c.bytes || n < c.bytes*9/10 {
				t.Errorf("%s took %d bytes, want about %d", c.folder, n, c.bytes)
			}
			wantReport(t, report, map[string][]string{"ended": one("ENOSPC"), "free blocks": one("0")})
			report = s.Run(limits(s.Profile("TP-SCR"), "create", c.folder, itoa(2*c.inodes))).Report()
			if n := number(t, report, "files"); n > c.inodes || n < c.inodes-4 || report["listed"] != itoa(n) {
				t.Errorf("%s took %d files, want about %d; listed %s", c.folder, n, c.inodes, report["listed"])
			}
			wantReport(t, report, map[string][]string{"ended": one("ENOSPC")})
		}
		control := s.Run(limits(s.Profile("TP-SCR"), "fill", "/scratch", "2", itoa(16*mib))).WantOK().Report()
		wantReport(t, control, map[string][]string{"ended": one("none"), "bytes": one(itoa(32 * mib))})
	})
}

// TestFileSize holds RLIMIT_FSIZE; the program decides whether its signal kills.
func TestFileSize(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		small := []harness.Change{harness.Set("workload_file_size", 1)}
		wantReport(t, s.Run(limits(small, "one file", itoa(2*mib))).WantOK().Report(), map[string][]string{"ended": one("EFBIG"), "size": one(itoa(mib)), "written": one(itoa(mib))})
		wantReport(t, s.Run(limits(small, "one file", itoa(mib))).WantOK().Report(), map[string][]string{"ended": one("none"), "size": one(itoa(mib))})
		run := s.Run(limits(small, "one file", itoa(2*mib), "signal")).Want(launcher.Signaled, 128+25)
		if sig := run.Result.Workload.Signal; sig == nil || *sig != 25 {
			t.Errorf("signal %v, want 25", sig)
		}
	})
}

// TestProcessCPU holds RLIMIT_CPU of one process below the budget of the tree.
func TestProcessCPU(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		changes := []harness.Change{harness.Set("cpu_per_process_rlimit", 1), harness.Set("cpu_total", 10), harness.Set("wall_workload", 15)}
		s.Run(limits(changes, "burn", "0.6")).WantOK()
		for _, how := range []string{"obeys", "ignore"} {
			run := s.Run(limits(changes, "burn", "8", how)).Want(launcher.LimitExceededCPU, launcher.ExitLimit)
			// The kernel holds this limit by counting ticks, which run ahead of the
			// time really used where others compete for the cpu.
			low, high := int64(600_000), int64(1_400_000)
			if how == "ignore" {
				low, high = 1_200_000, 2_400_000
			}
			if used := run.Result.Resources.CPUUsec; used < low || used > high {
				t.Errorf("%s SIGXCPU: %d µs of cpu used, want %d to %d", how, used, low, high)
			}
			t.Logf("%s SIGXCPU: ended after %.3f s of cpu; %s", how, float64(run.Result.Resources.CPUUsec)/1e6, run.Result.Workload.Detail)
		}
	})
}

// TestForkBomb lets every process fork for ever.
func TestForkBomb(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		wantReport(t, s.Run(limits(s.Profile("TP-PID"), "children", "16")).WantOK().Report(), map[string][]string{"forked": one("7"), "ended": one("EAGAIN")})
		wantReport(t, s.Run(limits(nil, "children", "16")).WantOK().Report(), map[string][]string{"forked": one("16"), "ended": one("none")})

		live := s.Start(limits([]harness.Change{harness.Set("wall_workload", 2)}, "bomb"))
		live.Await("EAGAIN\n")
		time.Sleep(300 * time.Millisecond)
		workers := 0
		for _, p := range s.Processes() {
			if strings.HasPrefix(p.Command, "python3 ") {
				workers++
			}
		}
		run := live.Wait().Want(launcher.TimeoutWall, launcher.ExitLimit)
		if workers > 32 || workers < 30 {
			t.Errorf("%d processes of the bomb live on the host, want 31 or 32", workers)
		}
		if run.Result.Resources.WallOvershoot > late || run.Took > 3*late*time.Millisecond {
			t.Errorf("the bomb ended %.0f ms late, nsbox after %s", run.Result.Resources.WallOvershoot, run.Took)
		}
		s.WantGone(t, 0)
		s.WantNoTrace(t)
		t.Logf("%d processes, stopped %.1f ms after the wall, nsbox took %s", workers, run.Result.Resources.WallOvershoot, run.Took)
	})
}

// TestOutputFlood compares the launcher's peak memory with that of a quiet run.
func TestOutputFlood(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		peak := func(job harness.Job) (int64, *harness.Run) {
			live := s.Start(job)
			ended := make(chan *harness.Run)
			go func() {
				defer close(ended)
				ended <- live.Wait()
			}()
			var most int64
			for {
				select {
				case run, ok := <-ended:
					if !ok {
						t.FailNow()
					}
					return most, run
				case <-time.After(time.Millisecond):
					most = max(most, harness.PeakMemory(live.Cmd.Process.Pid))
				}
			}
		}
		quiet, run := peak(harness.Job{Code: "import time; time.sleep(0.2)"})
		run.WantOK()
		loud, run := peak(limits(s.Profile("TP-LOG"), "flood"))
		run.Want(launcher.LimitExceededOutput, launcher.ExitLimit)
		if grown := loud - quiet; quiet == 0 || grown > 8*mib {
			t.Errorf("the launcher's peak is %d bytes in a quiet run and %d more in a flood", quiet, grown)
		}
		if len(run.Stdout) != 65536 {
			t.Errorf("%d bytes came out", len(run.Stdout))
		}
		t.Logf("launcher's VmHWM: quiet %.1f MiB, flood %.1f MiB; %d bytes were read of the flood", float64(quiet)/mib, float64(loud)/mib, run.Result.Untrusted.Stdout.BytesTotal)
	})
}

// TestMemory lets four processes hold more than the job may.
func TestMemory(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.Run(limits(nil, "memory", "2", "20")).WantOK()
		run := s.Run(limits(nil, "memory", "4", "100")).Want(launcher.LimitExceededMemory, 137)
		run.NotShown(policy.DimMemory)
		t.Logf("ended after %.0f ms: %s", run.Result.Resources.WallMS, run.Result.Workload.Detail)
	})
}
