package crash

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

// TestRunLeavesNothingInItsProcess runs attempts in this process, as a program
// that uses the launcher as a library does, some cancelled on the way: no
// descriptor, child, goroutine or mount is left.
func TestRunLeavesNothingInItsProcess(t *testing.T) {
	dir := t.TempDir()
	script := dir + "/job.py"
	if err := os.WriteFile(script, []byte("open('/out/summary.csv', 'w').write('a\\n1\\n')\nimport time\ntime.sleep(0.02)"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(cancelAfter time.Duration) launcher.Result {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if cancelAfter > 0 {
			defer time.AfterFunc(cancelAfter, cancel).Stop()
		}
		return launcher.Run(ctx, launcher.Request{PolicyArg: "sales-summary", StateDir: dir + "/state", AllowDegraded: strings.Split(degrade, ","),
			Inputs: []launcher.Input{{Path: script, Name: "job.py"}}, Argv: []string{"python3", "/in/job.py"}}, launcher.Streams{Stdout: io.Discard, Stderr: io.Discard})
	}
	began := time.Now()
	r := run(0)
	if r.Reason != nil && r.Reason.ID == reason.LauncherNotStatic {
		t.Skip("this test binary is dynamic, so no box can be made from it; make test links statically")
	}
	if r.ExitStatus != 0 {
		t.Fatalf("status %d: %+v, %+v", r.ExitStatus, r.Workload, r.Reason)
	}
	usual := time.Since(began)
	count := func() map[string]int {
		fds, _ := os.ReadDir("/proc/self/fd")
		mounts, _ := os.ReadFile("/proc/self/mountinfo")
		return map[string]int{"descriptors": len(fds), "children": len(children(os.Getpid())), "goroutines": runtime.NumGoroutine(), "mounts of it": strings.Count(string(mounts), dir)}
	}
	run(0) // what is made once per process is made
	before := count()
	rounds, tally := times(10, 200), map[string]int{}
	for n := range rounds {
		after := time.Duration(0)
		if n%2 == 1 {
			after = usual*time.Duration(1+n*7%19)/20 + 1
		}
		tally[run(after).Workload.Outcome]++
	}
	// Goroutines that were told to end may need a moment on a busy machine.
	var now map[string]int
	for range 500 {
		if now = count(); now["goroutines"] <= before["goroutines"] && now["descriptors"] <= before["descriptors"] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for what, n := range now {
		if n > before[what] {
			t.Errorf("%d %s before and %d after %d attempts", before[what], what, n, rounds)
		}
	}
	if tally[launcher.Exited] < rounds/2 {
		t.Errorf("outcomes: %v", tally)
	}
	t.Logf("%d attempts: %v; %v", rounds, tally, now)
}
