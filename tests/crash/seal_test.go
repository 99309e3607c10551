package crash

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
)

// TestSealFails lets the kernel not answer for the sealed directory: nothing is
// examined, nothing leaves, and the attempt is kept for the operator. The control
// is the same run with an answer.
func TestSealFails(t *testing.T) {
	b := newBench(t)
	for _, broken := range []bool{false, true} {
		out, result := filepath.Join(b.dir, "out"), filepath.Join(b.dir, "result.json")
		mkdir(t, out)
		var said bytes.Buffer
		cmd := b.command(slices.Insert(b.exec(out, job), 1, "--result", result)...)
		cmd.Stderr = &said
		asked := 0
		_, err := trace(cmd, func(_ int, p point) verdict {
			if p.name != "fstatfs" {
				return verdict{}
			}
			asked++
			if broken {
				return verdict{fail: unix.EIO}
			}
			return verdict{}
		})
		if err != nil || asked == 0 {
			t.Fatalf("the seal was looked at %d times: %v", asked, err)
		}
		var res launcher.Result
		data, err := os.ReadFile(result)
		if err != nil || json.Unmarshal(data, &res) != nil {
			t.Fatalf("%v: %s", err, said.String())
		}
		_, err = os.Stat(out + "/summary.csv")
		if !broken {
			if err != nil || res.Artifact.Outcome != launcher.ArtifactAccepted {
				t.Fatalf("the control: %v, %+v", err, res.Artifact)
			}
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err == nil || res.Artifact.Outcome != launcher.ArtifactSealFailed || res.Cleanup.Outcome != launcher.CleanupQuarantined || res.Delivery.Outcome != launcher.DeliveryBlocked || res.ExitStatus == launcher.ExitOK {
			t.Errorf("artifact %+v, cleanup %+v, delivery %+v, status %d", res.Artifact, res.Cleanup, res.Delivery, res.ExitStatus)
		}
		if a := b.attempts(); a[len(a)-1].State != launcher.AttemptQuarantined {
			t.Errorf("%+v", a[len(a)-1])
		}
		b.nextRuns(t.Errorf)
		if said, status := b.nsbox("reconcile", "--all", "--state-dir", b.state); status != 0 {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
	}
}
