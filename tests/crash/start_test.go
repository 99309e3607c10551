package crash

import (
	"bytes"
	"fmt"
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

// TestManyOldAttemptsDoNotSlowAStart compares starts with and without 10,000
// closed attempts in the state directory: in turns, by processor time, the
// cheapest of each, so that a busy machine slows both alike.
func TestManyOldAttemptsDoNotSlowAStart(t *testing.T) {
	few := newBench(t)
	start := func(state string) time.Duration {
		args := few.exec("", "pass")
		args[slices.Index(args, "--state-dir")+1] = state
		cmd := few.command(args...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	start(few.state)
	record, err := os.ReadFile(few.attempts()[0].Dir + "/journal")
	if err != nil {
		t.Fatal(err)
	}
	const many = 10000
	crowded := *few
	crowded.state = few.dir + "/crowded"
	start(crowded.state)
	for n := range many {
		dir := fmt.Sprintf("%s/attempts/01KM8Q%020d", crowded.state, n)
		mkdir(t, dir)
		if err := os.WriteFile(dir+"/journal", record, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(crowded.attempts()); got < many {
		t.Fatalf("only %d attempts are listed", got)
	}
	list := few.command("attempts", "--state-dir", crowded.state)
	out, err := list.Output()
	if took := list.ProcessState.UserTime() + list.ProcessState.SystemTime(); err != nil || bytes.Count(out, []byte("\n")) < many || took > many*time.Millisecond {
		t.Errorf("a list of %d lines takes %s of processor time, %v", bytes.Count(out, []byte("\n")), took, err)
	} else {
		t.Logf("the list of %d attempts takes %s of processor time", many, took)
	}
	without, with := time.Hour, time.Hour
	for range 12 {
		without, with = min(without, start(few.state)), min(with, start(crowded.state))
	}
	t.Logf("least processor time of 12 starts: %s, with %d old attempts %s", without, many, with)
	if with > without*3/2+10*time.Millisecond {
		t.Errorf("a start takes %s of processor time with %d old attempts and %s without", with, many, without)
	}
}

// sleeper starts a run and returns once its program runs.
func (b *bench) sleeper(state string, flags ...string) (kill func(syscall.Signal), id string) {
	b.t.Helper()
	args := b.exec("", `import sys,time
print("up", flush=True)
time.sleep(30)`)
	args[slices.Index(args, "--state-dir")+1] = state
	args = slices.Insert(args, 1, flags...)
	cmd := b.command(args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	buf := make([]byte, 2)
	if _, err := out.Read(buf); err != nil {
		b.t.Fatalf("the sleeper did not start: %v", err)
	}
	ids, err := os.ReadDir(state + "/open")
	if err != nil || len(ids) != 1 {
		b.t.Fatalf("open attempts: %v, %v", ids, err)
	}
	ended := false
	kill = func(s syscall.Signal) {
		if !ended {
			ended = true
			_ = cmd.Process.Signal(s)
			_ = cmd.Wait()
		}
	}
	b.t.Cleanup(func() { kill(syscall.SIGKILL) })
	return kill, ids[0].Name()
}

func idsOf(t *testing.T, state, id string) string {
	t.Helper()
	recs, _, err := journal.Read(filepath.Join(state, "attempts", id, "journal"))
	if err != nil || len(recs) == 0 || recs[0].Data["ids"] == "" {
		t.Fatalf("%v: %+v", err, recs)
	}
	return recs[0].Data["ids"]
}

// TestSecondStartIsRefused is the first half of A4-L, and what becomes of the
// second start once the first one's launcher is killed.
func TestSecondStartIsRefused(t *testing.T) {
	b := newBench(t)
	kill, id := b.sleeper(b.state)
	result := b.dir + "/busy.json"
	args := slices.Insert(b.exec("", "pass"), 1, "--result", result)
	began := time.Now()
	said, status := b.nsbox(args...)
	data, _ := os.ReadFile(result)
	if status != 125 || !strings.Contains(said, id) || !strings.Contains(string(data), `"`+launcher.RefusedBusy+`"`) || time.Since(began) > 5*time.Second {
		t.Errorf("status %d after %s: %s\n%s", status, time.Since(began), said, data)
	}
	if said, status := b.nsbox("reconcile", id, "--state-dir", b.state); status != 125 || !strings.Contains(said, "attempt_running") {
		t.Errorf("reconcile of a running attempt: %d, %s", status, said)
	}
	kill(syscall.SIGKILL)
	if said, status := b.nsbox(b.exec("", "pass")...); status != 0 {
		t.Errorf("after the launcher was killed a start ends with %d: %s", status, said)
	}
	all := b.attempts()
	at := slices.IndexFunc(all, func(a launcher.AttemptInfo) bool { return a.ID == id })
	if at < 0 || all[at].State != launcher.AttemptQuarantined || all[at].Workload != launcher.Unknown {
		t.Errorf("%+v", all)
	}
}

// TestStateDirectoriesShareNoIDs: one account, two state directories.
func TestStateDirectoriesShareNoIDs(t *testing.T) {
	b := newBench(t)
	other := b.dir + "/other"
	_, first := b.sleeper(b.state)
	_, second := b.sleeper(other)
	if x, y := idsOf(t, b.state, first), idsOf(t, other, second); x == y {
		t.Errorf("both have the ids %s", x)
	}
}

// TestReconcileOnAFullDisk fills the state directory's file system after a kill.
func TestReconcileOnAFullDisk(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		small := b.small()
		b.state = small + "/state"
		kill, id := b.sleeper(b.state)
		kill(syscall.SIGKILL)
		b.site.WantGone(t, endWithin)
		b.fill(small)
		if said, status := b.nsbox("reconcile", "--all", "--state-dir", b.state); status != 0 {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
		for _, a := range b.attempts() {
			if a.State != launcher.AttemptClosed {
				t.Errorf("%+v", a)
			}
		}
		if _, err := os.Stat(b.state + "/attempts/" + id + "/in"); err == nil {
			t.Error("the staged inputs are there")
		}
	})
}
