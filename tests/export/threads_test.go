package export

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/exporter"
	"nsbox/tests/harness"
)

// TestSlowReadsCallNoThread: however long the kernel takes to answer the
// exporter, the Go runtime hands its processor to no other thread. A hand-over is
// a futex call and may be a thread more; four tasks are all that the policy gives.
// Here strace(1) makes each read last 5 ms, 250 times what the runtime waits.
func TestSlowReadsCallNoThread(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	s.Run(harness.Job{Code: "pass\n"}).WantOK()
	stages, _ := filepath.Glob(filepath.Join(s.State, "cache", "stage-*"))
	if len(stages) != 1 {
		t.Fatalf("stage images %q", stages)
	}
	const row = "a,0123456789\n"
	source, staging := s.File("out/summary.csv", strings.Repeat(row, 15_000)), s.File("staging", "")
	info, err := os.Stat(source)
	if err != nil {
		t.Fatal(err)
	}
	req := exporter.Request{Names: []exporter.Handle{{Name: "summary.csv", FD: 5}}, OwnerUID: uint32(s.Caller.UID), OwnerGID: uint32(s.Caller.GID),
		Bounds: exporter.Bounds{FileBytes: info.Size(), FileCount: 1, MaxLine: 64, MaxRows: 20_000, MaxEntries: 4, AllowedNames: []string{"summary.csv"}}}
	argv, err := req.Argv()
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(s.Dir, "trace")
	// taskset and the two variables are what the box has; bash names the stage.
	cmd := exec.Command("strace", "-f", "-o", trace, "-e", "trace=pread64,futex", "-e", "inject=pread64:delay_enter=5000",
		"taskset", "1", "bash", "-c", `exec -a `+exporter.StageName+` "$0" "$1"`, stages[0], argv[1])
	cmd.Env = []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=1", "GOGC=off"}
	for _, of := range []struct {
		path  string
		flags int
	}{{filepath.Dir(source), os.O_RDONLY}, {staging, os.O_WRONLY}, {source, os.O_RDONLY}} {
		f, err := os.OpenFile(of.path, of.flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	report, err := cmd.Output()
	if err != nil || !strings.Contains(string(report), exporter.Accepted) {
		t.Fatalf("%v\n%s", err, report)
	}
	log, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	reads, wakes := 0, 0
	for line := range strings.Lines(string(log)) {
		switch {
		case strings.Contains(line, " pread64(5,"):
			reads++
		case reads > 0 && strings.Contains(line, "futex("):
			wakes++
		}
	}
	if reads < 4 || wakes >= reads {
		t.Errorf("%d slow reads, %d calls of other threads beside them", reads, wakes)
	}
}
