package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/journal"
)

// times is how often something is repeated: n with -long.
func times(few, n int) int {
	if *long {
		return n
	}
	return few
}

// belongings counts what the attempts of this state directory have on the host
// beside their records.
func (b *bench) belongings() []string {
	var found []string
	ids, _ := os.ReadDir(b.state + "/attempts")
	known := map[string]bool{}
	for _, id := range ids {
		known[id.Name()] = true
		if _, err := os.Lstat(b.state + "/attempts/" + id.Name() + "/in"); err == nil {
			found = append(found, id.Name()+"/in")
		}
	}
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		groups, _ := filepath.Glob(mount + "/nsbox-*")
		for _, g := range groups {
			if known[strings.TrimPrefix(filepath.Base(g), "nsbox-")] {
				found = append(found, g)
			}
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, b.dir) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	open, _ := os.ReadDir(b.state + "/open")
	for _, o := range open {
		found = append(found, "open/"+o.Name())
	}
	return append(found, b.survivors()...)
}

// TestManyEndings runs attempts in a row, each cancelled, killed or let be at a
// random moment, and then counts.
func TestManyEndings(t *testing.T) {
	b := newBench(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	tally := map[string]int{}
	rounds := times(25, 2000)
	for n := range rounds {
		cmd := b.command(b.exec("", "import time\ntime.sleep(0.02)")...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		sig := []syscall.Signal{0, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[rnd.IntN(4)]
		time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
		if sig != 0 {
			_ = cmd.Process.Signal(sig)
		}
		_ = cmd.Wait()
		status := cmd.ProcessState.ExitCode()
		tally[fmt.Sprintf("%v: status %d", sig, status)]++
		// An interrupt in the first instant finds no handler yet; later it is a cancellation.
		if want := map[syscall.Signal][]int{0: {0}, syscall.SIGINT: {0, 130, -1}, syscall.SIGTERM: {0, 143, -1}, syscall.SIGKILL: {0, -1}}[sig]; !slices.Contains(want, status) {
			t.Errorf("round %d, signal %v: status %d: %s", n, sig, status, said.String())
		}
		b.noSurvivor(t.Errorf)
	}
	if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
		t.Errorf("reconcile ends with %d: %s", status, said)
	}
	if left := b.belongings(); len(left) > 0 {
		t.Errorf("after %d attempts there are %d things left, first %s", rounds, len(left), left[0])
	}
	for _, a := range b.attempts() {
		if a.State != launcher.AttemptClosed {
			t.Errorf("%+v", a)
		}
	}
	t.Logf("%d attempts: %v", rounds, tally)
}

// race runs a program that ends around the same instant as something else, and
// wants one terminal event, the same in journal, result and exit status.
func (b *bench) race(code string, flags []string, cancelAfter time.Duration, fits map[string][]int) string {
	b.t.Helper()
	result := filepath.Join(b.dir, "race.json")
	os.Remove(result)
	args := slices.Insert(b.exec("", code), 1, append([]string{"--result", result}, flags...)...)
	cmd := b.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if cancelAfter > 0 {
		time.Sleep(cancelAfter)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	_ = cmd.Wait()
	data, err := os.ReadFile(result)
	if err != nil {
		return "no result" // cancelled before there was a handler
	}
	var res launcher.Result
	if err := json.Unmarshal(data, &res); err != nil {
		b.t.Fatal(err)
	}
	outcome := res.Workload.Outcome
	if status := cmd.ProcessState.ExitCode(); !slices.Contains(fits[outcome], status) || res.ExitStatus != status || res.Cleanup.Outcome != launcher.CleanupVerified {
		b.t.Errorf("%s with status %d (result: %d, cleanup %s): %s", outcome, status, res.ExitStatus, res.Cleanup.Outcome, said.String())
	}
	if res.Attempt == "" {
		return outcome
	}
	recs, _, err := journal.Read(filepath.Join(b.state, "attempts", res.Attempt, "journal"))
	if err != nil {
		b.t.Fatal(err)
	}
	var terminals []string
	for _, r := range recs {
		if r.Event == journal.Terminal {
			terminals = append(terminals, r.Data["outcome"])
		}
	}
	if len(terminals) != 1 || terminals[0] != outcome {
		b.t.Errorf("the result says %s and the journal %v", outcome, terminals)
	}
	return outcome
}

func TestRaces(t *testing.T) {
	b := newBench(t)
	both := func(other string, status int) map[string][]int {
		return map[string][]int{launcher.Exited: {0}, other: {status}}
	}
	rounds := times(8, 500)
	const short = "import time\ntime.sleep(0.01)"
	usual := time.Hour // how long an undisturbed run takes here and now
	for range 5 {
		began := time.Now()
		b.race(short, nil, 0, both(launcher.Cancelled, 143))
		usual = min(usual, time.Since(began))
	}
	for name, run := range map[string]func(n int) string{
		"exit against timeout": func(n int) string {
			// Python's own start takes about 20 ms of the wall limit.
			return b.race(fmt.Sprintf("import time\ntime.sleep(%f)", 0.180+float64(n%100)*0.001), []string{"--limit", "wall=250ms"}, 0, both(launcher.TimeoutWall, 124))
		},
		"exit against cancel": func(n int) string {
			return b.race(short, nil, usual*time.Duration(70+n%45)/100, both(launcher.Cancelled, 143))
		},
		"exit against the output limit": func(n int) string {
			return b.race(fmt.Sprintf("import sys\nsys.stdout.write('x'*%d)", 4096-3+n%6), []string{"--limit", "stdout=4096"}, 0, both(launcher.LimitExceededOutput, 124))
		},
	} {
		tally := map[string]int{}
		for n := range rounds {
			tally[run(n*7)]++
		}
		t.Logf("%s, %d times: %v", name, rounds, tally)
	}
}
