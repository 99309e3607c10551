package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/tests/harness"
)

// TestUnderLoad starts boxes while every cpu is busy. A restriction that belongs
// to a thread and was set on another one would show as a write that succeeds.
func TestUnderLoad(t *testing.T) {
	const lanes = 3 // of each caller, each with a state directory of its own
	runs := harness.Series(500, 120, 40)
	const code = `
import errno
def tries(path):
    try:
        open(path, 'wb').close()
        return 'WRITTEN'
    except OSError as e:
        return errno.errorcode[e.errno]
open('/scratch/control', 'wb').close()
print(tries('/usr/x'), tries('/dev/zero'), 'control')
`
	// Ended by Cleanup, not defer: the parallel subtests outlive this function.
	ctx, stop := context.WithTimeout(context.Background(), 8*time.Minute)
	var load []*exec.Cmd
	t.Cleanup(func() {
		stop()
		for _, busy := range load {
			busy.Wait()
		}
	})
	for range 2 {
		busy := exec.CommandContext(ctx, "/bin/sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		load = append(load, busy)
	}
	target := "/usr/x"
	if _, err := os.Lstat(target); err == nil {
		t.Fatalf("%s exists on this host", target)
	}
	for _, c := range harness.Callers(t) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			results := make(chan string)
			for lane := range lanes {
				s := harness.NewSite(t, c)
				path := s.File("forbidden.py", code)
				job := harness.Job{Argv: []string{"python3", "-I", "-S", "/in/forbidden.py"}, In: []string{path}, Flags: []string{"--quiet"}}
				go func() {
					for range runs/lanes + min(1, max(0, runs%lanes-lane)) {
						run := s.Run(job)
						results <- fmt.Sprintf("status %d: %s%s", run.Status, run.Stdout, run.Stderr)
					}
				}()
			}
			seen := map[string]int{}
			for range runs {
				select {
				case line := <-results:
					seen[strings.TrimSpace(line)]++
				case <-ctx.Done():
					t.Fatalf("after %s only %v of %d runs were over", time.Since(began), seen, runs)
				}
			}
			for _, busy := range load {
				if err := busy.Process.Signal(syscall.Signal(0)); err != nil {
					t.Errorf("the load ended before the runs did: %v", err)
				}
			}
			want := "status 0: EROFS EACCES control"
			if seen[want] != runs {
				t.Errorf("of %d runs: %v", runs, seen)
			}
			if _, err := os.Lstat(target); err == nil {
				t.Errorf("%s was made on the host", target)
			}
			t.Logf("%d of %d runs under load were denied both writes, %s each in %d lanes", seen[want], runs, (time.Since(began) * lanes / time.Duration(runs)).Round(time.Millisecond), lanes)
		})
	}
}
