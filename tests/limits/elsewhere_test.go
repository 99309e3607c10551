package limits

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestRefusedElsewhere: where the memory controller is bound to version 1,
// nothing runs until somebody names what is then weaker.
func TestRefusedElsewhere(t *testing.T) {
	if os.Getenv("NSBOX_VM_TIER") != "" {
		t.Skip("a guest has every controller")
	}
	if !memoryOnV1(t) {
		t.Skip("the memory controller of this machine is on no version 1 hierarchy")
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		job := harness.Job{Code: "print('ran')\nopen('/out/summary.csv', 'w').write('a,b\\n1,2\\n')", Bare: true,
			Flags: []string{"--allow-degraded", "out_storage,launcher_identity"}, Deliver: s.Folder()}
		r := s.Run(job).Want(launcher.SetupFailure, launcher.ExitRefused).WantReason(reason.ControllersBoundToV1)
		if left, err := os.ReadDir(job.Deliver); err != nil || len(left) > 0 {
			t.Errorf("delivered: %v, %v", left, err)
		}
		if bytes.Contains(r.Stdout, []byte("ran")) {
			t.Error("the program ran")
		}
		job.Bare, job.Flags = false, nil
		control := s.Run(job).WantOK()
		if _, err := os.Stat(filepath.Join(job.Deliver, "summary.csv")); err != nil || !bytes.Contains(control.Stdout, []byte("ran")) {
			t.Errorf("control: %v, %q", err, control.Stdout)
		}
	})
}

// memoryOnV1 reads this process's place in each hierarchy: "ID:CONTROLLERS:PATH".
func memoryOnV1(t *testing.T) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if field := strings.Split(line, ":"); len(field) > 1 && slices.Contains(strings.Split(field[1], ","), "memory") {
			return true
		}
	}
	return false
}
