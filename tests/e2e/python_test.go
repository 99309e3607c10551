package e2e

import (
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// TestLibrary uses what ordinary programs use; nothing but the box's own programs
// and devices is missing.
func TestLibrary(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(harness.Job{Script: script("library.py")}).WantOK()
		report := run.Report()
		wantReport(t, report, map[string][]string{
			"threads": one("ok True"), "tempfile": one("ok /scratch"), "sqlite3": one("ok 42"), "ssl": one("ok True"), "decimal": one("ok 0.3"),
			"json": one("ok 1"), "ctypes": one("ok 3"), "compression": one("ok True"), "hashes": one("ok 100"), "process": one("ok True"),
			"child of the same interpreter": one("ok 42"), "shell": one("ENOENT"), "os.system": {"ok 32512", "ENOENT"},
			"lock in /dev/shm": {"ENOENT", "EACCES", "ENOSYS"}, "timer": one("ok"), "user": one("ok 10001"),
			"encodings": {"ok utf-8 utf-8 UTF-8", "ok utf-8 utf-8 utf-8"},
		})
		if !strings.HasPrefix(report["time zone"], "ok ") {
			t.Error("the time zone could not be asked")
		}
		t.Logf("cpus the program may use: %s; locale %s; zone %s", report["cpu count"], report["locale"], report["time zone"])
	})
}
