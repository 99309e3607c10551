package export

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// builtShim builds the shim once; it needs no privilege and no cgo.
var builtShim = struct {
	once sync.Once
	data []byte
	err  error
}{}

func shim(t *testing.T) []byte {
	t.Helper()
	builtShim.once.Do(func() {
		dir, err := os.MkdirTemp("", "nsbox-e2e-shim-")
		if err != nil {
			builtShim.err = err
			return
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "shim"), "./shim")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			builtShim.err = fmt.Errorf("%w\n%s", err, out)
			return
		}
		builtShim.data, builtShim.err = os.ReadFile(filepath.Join(dir, "shim"))
	})
	if builtShim.err != nil {
		t.Fatal(builtShim.err)
	}
	return builtShim.data
}

// order runs a job whose artifact is an order to the shim.
func order(t *testing.T, s *harness.Site, text string, j harness.Job) *trial {
	t.Helper()
	return leave(t, s, []byte(text+"\n"), j)
}

// TestA5b attempts from inside the exporter's box what an exporter taken over by
// its input would: each attempt is denied there and succeeds outside.
func TestA5b(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		var hits atomic.Int32
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				hits.Add(1)
				c.Close()
			}
		}()
		secret, home, folder := s.File("mock-secret", canary+"-secret"), s.File("home/canary", canary+"-home"), s.Folder()
		text := fmt.Sprintf("attempt %d %s %s %s", listener.Addr().(*net.TCPAddr).Port, secret, home, folder)
		denied := []string{"connect", "read-secret", "read-home", "write-host-folder", "write-own-root", "write-out", "write-out-openat2", "open-out-for-writing",
			"rename-source", "remove-source", "make-folder", "chmod-out", "chmod-source", "read-proc", "list-root", "fork"}

		outside := s.StandIn(shim(t), text+"\n")
		for _, what := range denied {
			if how := outside[what]; how != "ok" && what != "write-own-root" {
				t.Errorf("control: %s outside: %q, want ok", what, how)
			}
		}
		if hits.Load() != 1 {
			t.Errorf("control: %d connections, want 1", hits.Load())
		}
		if err := os.Remove(folder + "/written"); err != nil {
			t.Error(err)
		}

		s.ReplaceStage(shim(t))
		before := harness.Fingerprint(t, secret, home, folder)
		tr := order(t, s, text, harness.Job{})
		if a := tr.run.Result.Artifact; a.Outcome == launcher.ArtifactAccepted || tr.run.Status == launcher.ExitOK {
			t.Errorf("artifact %+v, status %d without a report", a, tr.run.Status)
		}
		tr.run.WantReason(reason.ExportFailed)
		tr.wantNothing()
		log, err := os.ReadFile(filepath.Join(s.State, "attempts", tr.run.Result.Attempt, "exporter.log"))
		if err != nil {
			t.Fatal(err)
		}
		inside := harness.Attempted(log)
		for _, what := range append(denied, "write-source", "user-namespace", "signal-init") {
			if how := inside[what]; how == "ok" || how == "" {
				t.Errorf("%s inside: %q, want an error", what, how)
			}
		}
		for what, want := range map[string]string{"write-staging": "ok", "read-source": "ok", "list-out": "ok", "uid": "20002:20002", "capabilities": "0", "descriptors": "32"} {
			if inside[what] != want {
				t.Errorf("%s inside: %q, want %q", what, inside[what], want)
			}
		}
		if how, there := inside["write-beyond-the-cap"]; there && how == "ok" {
			t.Error("the staging file can be made longer than the cap")
		}
		t.Logf("inside: %v", inside)
		if hits.Load() != 1 || harness.Fingerprint(t, secret, home, folder) != before {
			t.Errorf("%d connections, want the control's 1; or a file of the host changed", hits.Load())
		}
		// What ends without a verdict is kept until the operator's word.
		if r := s.Raw("reconcile", "--all", "--state-dir", s.State); r.Status != 0 {
			t.Errorf("reconcile: %d, %s", r.Status, r.Stderr)
		}
		s.WantNoTrace(t)
	})
}

// TestLyingExporter: the launcher believes its own reading of the copy only.
func TestLyingExporter(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.ReplaceStage(shim(t))
		t.Run("another digest", func(t *testing.T) {
			tr := order(t, s, "lie-digest", harness.Job{})
			r := tr.run.Result
			if r.Artifact.Outcome != launcher.ArtifactUnverified || r.Cleanup.Outcome != launcher.CleanupQuarantined || r.Delivery.Outcome != launcher.DeliveryBlocked || tr.run.Status == launcher.ExitOK {
				t.Errorf("artifact %+v, cleanup %+v, delivery %+v, status %d", r.Artifact, r.Cleanup, r.Delivery, tr.run.Status)
			}
			tr.wantQuarantine()
		})
		t.Run("another second of two files", func(t *testing.T) {
			tr := try(t, s, "put('summary.csv', 'lie-second\\n')\nput('notes.txt', C)\n", harness.Job{Policy: severalPolicy()})
			if a := tr.run.Result.Artifact; a.Outcome != launcher.ArtifactUnverified || a.Files != nil || a.SHA256 != "" {
				t.Errorf("artifact %+v", a)
			}
			tr.wantQuarantine()
		})
		for _, text := range []string{"lie-name", "silent", "flood"} {
			t.Run(text, func(t *testing.T) {
				tr := order(t, s, text, harness.Job{})
				if a := tr.run.Result.Artifact; a.Outcome != launcher.ArtifactSealFailed || tr.run.Status == launcher.ExitOK {
					t.Errorf("artifact %+v, status %d", a, tr.run.Status)
				}
				tr.run.WantReason(reason.ExportFailed)
				if left := tr.left(); len(left) > 0 {
					t.Errorf("delivered: %q", left)
				}
			})
		}
	})
}

// wantQuarantine wants nothing delivered, what was copied kept for the operator
// to look at, and gone once the operator says so.
func (tr *trial) wantQuarantine() {
	tr.t.Helper()
	r := tr.run.Result
	if left := tr.left(); len(left) > 0 || r.Delivery.Outcome != launcher.DeliveryBlocked || r.Cleanup.Outcome != launcher.CleanupQuarantined || tr.run.Status == launcher.ExitOK {
		tr.t.Errorf("delivered %q: delivery %+v, cleanup %+v, status %d", left, r.Delivery, r.Cleanup, tr.run.Status)
	}
	tr.run.WantReason(reason.ExportFailed)
	if len(tr.copies()) == 0 {
		tr.t.Error("no copy is kept to be looked at")
	}
	if said := tr.site.Raw("reconcile", "--state-dir", tr.site.State, r.Attempt); said.Status != 0 || len(tr.copies()) > 0 {
		tr.t.Errorf("reconcile: status %d, %s; kept are %q", said.Status, said.Stderr, tr.copies())
	}
}

// TestExporterLimits breaks each limit of the exporter's own profile.
func TestExporterLimits(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.ReplaceStage(shim(t))
		const early = 9 * time.Second // before the policy's exporter_wall would end it
		for _, c := range []struct {
			order  string
			policy []harness.Change
		}{
			{"hang", []harness.Change{harness.Set("exporter_wall", 1)}},
			{"spin", []harness.Change{harness.Set("exporter_cpu_total", 1)}},
			{"memory", nil},
			{"log", nil},
		} {
			t.Run(c.order, func(t *testing.T) {
				tr := order(t, s, c.order, harness.Job{Policy: c.policy})
				r := tr.run.Result
				if r.Artifact.Outcome != launcher.ArtifactSealFailed || tr.run.Status == launcher.ExitOK {
					t.Errorf("artifact %+v, status %d", r.Artifact, tr.run.Status)
				}
				tr.run.WantReason(reason.ExportFailed)
				tr.wantNothing()
				took := time.Duration(r.DurationsMS["export"] * float64(time.Millisecond))
				t.Logf("export %s: %+v", took.Round(time.Millisecond), r.Reason)
				if took > early {
					t.Errorf("the export took %s, want at most %s", took, early)
				}
				if log, err := os.ReadFile(filepath.Join(s.State, "attempts", r.Attempt, "exporter.log")); err == nil && (len(log) > 16384 || strings.Contains(string(log), "400 MiB")) {
					t.Errorf("%d bytes of log: %.100q", len(log), log)
				}
				s.WantGone(t, 2*time.Second)
			})
		}
	})
}
