package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nsbox/launcher"
)

// TestQuitCancelsAndTheTerminalCannotStop: SIGQUIT would print a trace and
// leave the box to the kernel; a stopped launcher would hold no limit.
func TestQuitCancelsAndTheTerminalCannotStop(t *testing.T) {
	c := &console{out: &stream{to: io.Discard}, err: &stream{to: io.Discard}}
	stops := []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}
	run := func(ctx context.Context, _ launcher.Request, _ launcher.Streams) launcher.Result {
		if ignored(t, syscall.SIGTERM) {
			t.Error("the look at the kernel tells nothing")
		}
		for _, s := range stops {
			if !ignored(t, s) {
				t.Errorf("%s would stop nsbox", s)
			}
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		<-ctx.Done()
		cause, _ := context.Cause(ctx).(launcher.CancelCause)
		r := good()
		r.Workload = launcher.WorkloadResult{Outcome: launcher.Cancelled}
		r.ExitStatus = launcher.ExitStatus(r, false, cause.Signal)
		return r
	}
	if status := commandLine([]string{"exec", "--policy", "p", "--", "x"}, c, run); status != 131 {
		t.Errorf("status %d", status)
	}
}

// ignored asks the kernel; os/signal remembers what it was once told.
func ignored(t *testing.T, s syscall.Signal) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	_, rest, found := strings.Cut(string(data), "SigIgn:")
	mask, parseErr := strconv.ParseUint(strings.Fields(rest + " -")[0], 16, 64)
	if err != nil || !found || parseErr != nil {
		t.Fatal(err, parseErr)
	}
	return mask&(1<<(s-1)) != 0
}

func TestSignalsCancelOnceAndAreAbsorbed(t *testing.T) {
	stderr := &watched{text: "is being stopped already", seen: make(chan struct{}, 1)}
	c := &console{out: &stream{to: io.Discard}, err: &stream{to: stderr}}
	run := func(ctx context.Context, _ launcher.Request, _ launcher.Streams) launcher.Result {
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		<-ctx.Done()
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		<-stderr.seen
		cause, _ := context.Cause(ctx).(launcher.CancelCause)
		r := good()
		r.Workload = launcher.WorkloadResult{Outcome: launcher.Cancelled}
		r.ExitStatus = launcher.ExitStatus(r, false, cause.Signal)
		return r
	}
	status := commandLine([]string{"exec", "--policy", "p", "--", "x"}, c, run)
	if got := stderr.String(); status != 143 || !strings.Contains(got, "nsbox: cancelled by SIGTERM; stopping the box\n") {
		t.Errorf("status %d, stderr %q", status, got)
	}
}
