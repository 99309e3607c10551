package launcher

import (
	"syscall"

	"nsbox/launcher/reason"
)

// The statuses that nsbox itself chooses. A program's own status, 128+n and
// the four cancel statuses are computed.
const (
	ExitOK            = 0
	ExitUndelivered   = 122
	ExitLimit         = 124
	ExitRefused       = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
	exitSignalBase    = 128
)

// ExitRow is one line of the exit-code table.
type ExitRow struct {
	Status string // a number, or a short form such as 128+n
	When   string // one line, no stop
}

// ExitTable is the whole exit-code table. The help text and docs/exit-codes.md
// print it; ExitStatus computes it and a test holds the two equal.
func ExitTable() []ExitRow {
	return []ExitRow{
		{"0", "the program exited 0, and the artifact was delivered or none was asked for"},
		{"N", "the program exited N, not 0; the result says EXITED, so N may be any of the numbers below"},
		{"122", "the program exited 0, but the artifact asked for by --deliver was not delivered"},
		{"124", "a wall, CPU, output or attempt limit ended the run"},
		{"125", "nsbox refused the run, was busy, or failed; the reason id says which"},
		{"126", "the program was found but cannot be executed in the box"},
		{"127", "the program was not found in the box"},
		{"128+n", "signal n ended the program"},
		{"129", "cancelled by SIGHUP"},
		{"130", "cancelled by SIGINT"},
		{"131", "cancelled by SIGQUIT"},
		{"137", "the memory limit ended the run, or signal 9 did; the result says which"},
		{"143", "cancelled by SIGTERM"},
	}
}

// CancelCause is the cause of a context cancelled by a signal to nsbox.
type CancelCause struct{ Signal syscall.Signal }

func (c CancelCause) Error() string { return "cancelled by " + signalName(c.Signal) }

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGHUP:
		return "SIGHUP"
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGQUIT:
		return "SIGQUIT"
	case syscall.SIGTERM:
		return "SIGTERM"
	}
	return s.String()
}

// ExitStatus projects a result onto the status of the nsbox process.
// deliverAsked tells whether --deliver was given. sig is the signal that
// cancelled the run, 0 if none did. Whatever the table does not know is 125:
// an outcome added later can never read as success.
func ExitStatus(r Result, deliverAsked bool, sig syscall.Signal) int {
	switch r.Workload.Outcome {
	case Exited:
		return exitedStatus(r, deliverAsked)
	case Signaled, KilledExternally:
		if n := r.Workload.Signal; n != nil && *n >= 1 && *n <= 64 {
			return exitSignalBase + *n
		}
	case LimitExceededMemory:
		return exitSignalBase + int(syscall.SIGKILL)
	case TimeoutWall, TimeoutAttempt, LimitExceededCPU, LimitExceededOutput:
		return ExitLimit
	case Cancelled:
		switch sig {
		case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
			return exitSignalBase + int(sig)
		}
	case ExecFailed:
		if r.Reason != nil && r.Reason.ID == reason.ProgramNotFound {
			return ExitNotFound
		}
		return ExitNotExecutable
	}
	return ExitRefused
}

func exitedStatus(r Result, deliverAsked bool) int {
	code := r.Workload.ExitCode
	switch {
	case code == nil || *code < 0 || *code > 255:
		return ExitRefused
	case *code != 0:
		return *code
	case deliverAsked && r.Delivery.Outcome != Delivered:
		return ExitUndelivered
	case r.Cleanup.Outcome != CleanupVerified || r.Delivery.Outcome == DeliveryBlocked || r.Reason != nil:
		// Leftovers, what is held back and late failures are nsbox's own, and 0 would hide them.
		return ExitRefused
	}
	return ExitOK
}
