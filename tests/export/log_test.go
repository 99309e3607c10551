package export

import (
	"os"
	"path/filepath"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestRuntimeLogIsCapped: what is kept of the exporter's log and the audit lines
// of its attempt are together within runtime_log_bytes.
func TestRuntimeLogIsCapped(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		s.ReplaceStage(shim(t))
		size := func(path string) int64 {
			info, err := os.Stat(path)
			if err != nil {
				return 0
			}
			return info.Size()
		}
		audit := int64(0)
		for _, c := range []struct {
			limit int
			most  int64 // of the exporter's log
			kept  bool
		}{{131072, 16384, true}, {9000, 9000 - 8192, true}, {8192, 0, false}} {
			run := order(t, s, "log", harness.Job{Policy: []harness.Change{harness.Set("runtime_log_bytes", c.limit)}}).run
			if run.Result.Artifact.Outcome != launcher.ArtifactSealFailed {
				t.Errorf("control: artifact %+v", run.Result.Artifact)
			}
			log := size(filepath.Join(s.State, "attempts", run.Result.Attempt, "exporter.log"))
			now := size(s.State + "/audit.log")
			if log > c.most || (log > 0) != c.kept || log+now-audit > int64(c.limit) || now == audit {
				t.Errorf("runtime_log_bytes %d: %d bytes of exporter's log and %d of the audit log", c.limit, log, now-audit)
			}
			audit = now
		}
	})
}
