package escape

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestOut: what is delivered is whole rows of the program's own file or nothing,
// owned by the caller with an ordinary mode, and never the host's file.
func TestOut(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		before := harness.Fingerprint(t, target)
		for _, c := range []struct {
			how       string
			delivered []bool // permitted
		}{
			{"good", []bool{true}}, {"growing", []bool{true}}, {"swapped", []bool{true, false}}, {"truncated", []bool{true, false}},
			{"locked", []bool{true}}, {"closed", []bool{true}}, {"set_id", []bool{true}}, {"deep", []bool{false}},
		} {
			t.Run(c.how, func(t *testing.T) {
				j := job("out.py", c.how)
				if c.how == "swapped" {
					j.Args = append(j.Args, target)
				}
				j.Deliver = s.Folder()
				run := s.Run(j)
				delivered := run.Result.Delivery.Outcome == launcher.Delivered
				if run.Result.Cleanup.Outcome != launcher.CleanupVerified || (len(c.delivered) == 1 && delivered != c.delivered[0]) {
					t.Errorf("artifact %s, delivery %s, cleanup %s\n%s", run.Result.Artifact.Outcome, run.Result.Delivery.Outcome, run.Result.Cleanup.Outcome, run.Stderr)
				}
				wantFolder(t, s, j.Deliver, delivered)
				if places := run.Holding(canary[:len(canary)-1], j.Deliver); places != nil {
					t.Errorf("the host's file is in %q", places)
				}
				s.WantGone(t, 0)
				s.WantNoTrace(t)
			})
		}
		if harness.Fingerprint(t, target) != before {
			t.Error("the host's file changed")
		}
	})
}

func wantFolder(t *testing.T, s *harness.Site, folder string, delivered bool) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	if !delivered {
		if len(entries) != 0 {
			t.Errorf("nothing was delivered, and %v lies there", entries)
		}
		return
	}
	if len(entries) != 1 || entries[0].Name() != "summary.csv" {
		t.Fatalf("delivered: %v", entries)
	}
	path := filepath.Join(folder, "summary.csv")
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o644 {
		t.Errorf("the mode is %v", info.Mode())
	}
	if uid := owner(info); uid != s.Caller.UID {
		t.Errorf("the owner is %d, want %d", uid, s.Caller.UID)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if rest, ok := bytes.CutPrefix(data, []byte("a,b\n")); !ok || len(rest)%4 != 0 || len(bytes.ReplaceAll(rest, []byte("1,2\n"), nil)) != 0 {
		t.Errorf("delivered %d bytes that are no whole rows: %.60q", len(data), data)
	}
}

func owner(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
