package provision

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// TestAKilledLaunchersContentIsKept: what was in the slot stays until the operator
// says otherwise; the next run has another slot, or none. Then a box with the same
// ids removes it, whatever it is called, and nothing else.
func TestAKilledLaunchersContentIsKept(t *testing.T) {
	o := newOperator(t, "--policy", inodes(t, 3000))
	o.apply()
	s := harness.NewSite(t, o.Caller())
	policy := s.Policy(harness.Set("out_inodes", 3000))
	target := s.File("target/kept", "canary")
	before := harness.Fingerprint(t, target)
	filler := harness.Job{Code: hostile(t), Args: []string{"2200", "wait"}, PolicyArg: policy, Bare: true, Flags: degrade()}
	plain := harness.Job{Code: "print(1)", PolicyArg: policy, Bare: true, Flags: degrade()}
	kill := func(n int) {
		t.Helper()
		live := s.Start(filler)
		live.Await("full 28 ")
		live.Signal(syscall.SIGKILL)
		live.Wait()
		if seen := o.look(n); seen.Used != 3000-1 || seen.Mode != 0 {
			t.Fatalf("slot %d after the kill: %+v", n, seen)
		}
	}
	kill(0)
	wantProvisioned(t, s.Run(plain).WantOK()) // in slot 1
	if o.look(0).Used != 3000-1 {
		t.Error("the next run emptied a slot that was not its own")
	}
	kill(1)
	if r := s.Run(plain); r.Status != launcher.ExitRefused || r.Result.Reason.ID != reason.OutSlotsTaken {
		t.Errorf("no slot is free: %d, %+v", r.Status, r.Result.Reason)
	}
	o.refused(reason.ProvisionInUse, "--undo")
	if r := s.Raw("reconcile", "--dry-run", "--state-dir", s.State); r.Status != 0 || strings.Count(string(r.Stdout), "remove what is in "+o.Dir) != 2 || o.look(0).Left() == "" {
		t.Errorf("dry run: %d\n%s%s", r.Status, r.Stdout, r.Stderr)
	}
	if r := s.Raw("reconcile", "--state-dir", s.State); r.Status != 0 {
		t.Errorf("reconcile: %d\n%s%s", r.Status, r.Stdout, r.Stderr)
	}
	for n := range 2 {
		if left := o.look(n).Left(); left != "" {
			t.Errorf("slot %d still has %s", n, left)
		}
	}
	if harness.Fingerprint(t, target) != before {
		t.Error("a file outside of the slot was changed")
	}
	wantProvisioned(t, s.Run(plain).WantOK())
}

// TestAKilledWipe: a launcher is killed while it empties a slot, in a run and in a
// reconcile. Whatever was left by then, no process of it stays, nobody gets a
// half-emptied slot, and the next reconcile ends it.
func TestAKilledWipe(t *testing.T) {
	const many = 20000
	o := newOperator(t, "--slots", "1", "--policy", inodes(t, many))
	o.apply()
	s := harness.NewSite(t, o.Caller())
	policy := s.Policy(harness.Set("out_inodes", many))
	fill := func(what string) *harness.Live {
		live := s.Start(harness.Job{Code: hostile(t), Args: []string{"100", what}, PolicyArg: policy, Bare: true, Flags: degrade()})
		live.Await("full 28 ")
		return live
	}
	// begun waits until the emptying has begun, or was over before anybody looked.
	begun := func(over func() bool) {
		t.Helper()
		for most := time.Now().Add(time.Minute); o.look(0).Used == many-1 && !over(); {
			if time.Now().After(most) {
				t.Fatal("nothing empties the slot")
			}
			time.Sleep(time.Millisecond)
		}
	}
	live := fill("end")
	begun(func() bool { return live.Cmd.Process.Signal(syscall.Signal(0)) != nil })
	live.Signal(syscall.SIGKILL)
	live.Wait()
	s.WantGone(t, 20*time.Second)
	t.Logf("in a run: killed with %d of %d entries left", o.look(0).Used, many-1)
	r := s.Run(harness.Job{Code: "print(1)", PolicyArg: policy, Bare: true, Flags: degrade()})
	if left := o.look(0).Left(); left != "" && (r.Status != launcher.ExitRefused || r.Result.Reason.ID != reason.OutSlotsTaken) {
		t.Errorf("a slot with %s was given out: %d, %+v", left, r.Status, r.Result.Reason)
	}
	reconciled := func() {
		t.Helper()
		if r := s.Raw("reconcile", "--state-dir", s.State); r.Status != 0 || o.look(0).Left() != "" {
			t.Errorf("reconcile: %d, left %q\n%s%s", r.Status, o.look(0).Left(), r.Stdout, r.Stderr)
		}
	}
	reconciled()

	live = fill("wait")
	live.Signal(syscall.SIGKILL)
	live.Wait()
	s.WantGone(t, 20*time.Second)
	cmd := exec.Command(harness.Binary(t), "reconcile", "--state-dir", s.State)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.Caller.UID), Gid: uint32(s.Caller.GID)}}
	cmd.Dir = s.Dir
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begun(func() bool { return len(ended) > 0 })
	cmd.Process.Kill()
	<-ended
	t.Logf("in a reconcile: killed with %d of %d entries left", o.look(0).Used, many-1)
	reconciled()
	wantProvisioned(t, s.Run(harness.Job{Code: "print(1)", PolicyArg: policy, Bare: true, Flags: degrade()}).WantOK())
}

func hostile(t *testing.T) string {
	t.Helper()
	code, err := os.ReadFile("testdata/hostile.py")
	if err != nil {
		t.Fatal(err)
	}
	return string(code)
}
