package launcher

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nsbox/launcher/reason"
)

func num(n int) *int { return &n }

func TestExitStatus(t *testing.T) {
	base := func(outcome string) Result {
		return Result{
			Workload: WorkloadResult{Outcome: outcome},
			Cleanup:  CleanupResult{Outcome: CleanupVerified},
			Delivery: DeliveryResult{Outcome: DeliveryNoArtifact},
		}
	}
	exited := func(code *int) Result {
		r := base(Exited)
		r.Workload.ExitCode = code
		return r
	}
	with := func(r Result, change func(*Result)) Result { change(&r); return r }
	delivered := func(r *Result) { r.Delivery.Outcome = Delivered }
	quarantined := func(r *Result) { r.Cleanup.Outcome = CleanupQuarantined; r.Delivery.Outcome = DeliveryBlocked }
	failed := func(r *Result) { r.Reason = &Reason{ID: "journal_write"} }
	signal := func(n int) func(*Result) { return func(r *Result) { r.Workload.Signal = num(n) } }
	because := func(id string) func(*Result) { return func(r *Result) { r.Reason = &Reason{ID: reason.ID(id)} } }

	for _, tc := range []struct {
		name  string
		r     Result
		asked bool
		sig   syscall.Signal
		want  int
	}{
		{"exited 0, nothing asked", exited(num(0)), false, 0, 0},
		{"exited 0, delivered", with(exited(num(0)), delivered), true, 0, 0},
		{"exited 0, asked, no artifact", exited(num(0)), true, 0, 122},
		{"exited 0, asked, blocked by quarantine", with(exited(num(0)), quarantined), true, 0, 122},
		{"exited 0, not asked, quarantine", with(exited(num(0)), quarantined), false, 0, 125},
		{"exited 0, not asked, nsbox failed late", with(exited(num(0)), failed), false, 0, 125},
		{"exited 0, delivered, nsbox failed late", with(with(exited(num(0)), delivered), failed), true, 0, 125},
		{"exited 3", exited(num(3)), false, 0, 3},
		{"exited 3 wins over delivery", exited(num(3)), true, 0, 3},
		{"exited 3 wins over quarantine", with(exited(num(3)), quarantined), false, 0, 3},
		{"exited 125 is the program's own", exited(num(125)), false, 0, 125},
		{"exited 255", exited(num(255)), false, 0, 255},
		{"exited without a code", exited(nil), false, 0, 125},
		{"exited with a code nobody can have", exited(num(256)), false, 0, 125},
		{"exited with a negative code", exited(num(-1)), false, 0, 125},
		{"signal 11", with(base(Signaled), signal(11)), false, 0, 139},
		{"signal 64", with(base(Signaled), signal(64)), false, 0, 192},
		{"signal out of range", with(base(Signaled), signal(65)), false, 0, 125},
		{"signal unknown", base(Signaled), false, 0, 125},
		{"killed from outside", with(base(KilledExternally), signal(9)), false, 0, 137},
		{"memory", base(LimitExceededMemory), false, 0, 137},
		{"wall", base(TimeoutWall), true, 0, 124},
		{"attempt", base(TimeoutAttempt), false, 0, 124},
		{"cpu", base(LimitExceededCPU), false, 0, 124},
		{"output", base(LimitExceededOutput), false, 0, 124},
		{"limit with exit code 0 is no success", with(base(TimeoutWall), func(r *Result) { r.Workload.ExitCode = num(0) }), false, 0, 124},
		{"SIGINT", base(Cancelled), false, syscall.SIGINT, 130},
		{"SIGQUIT", base(Cancelled), false, syscall.SIGQUIT, 131},
		{"SIGTERM", base(Cancelled), false, syscall.SIGTERM, 143},
		{"SIGHUP", base(Cancelled), false, syscall.SIGHUP, 129},
		{"cancelled by the caller", base(Cancelled), false, 0, 125},
		{"a late signal does not rename a success", exited(num(0)), false, syscall.SIGINT, 0},
		{"not found", with(base(ExecFailed), because("program_not_found")), false, 0, 127},
		{"not executable", with(base(ExecFailed), because("program_not_executable")), false, 0, 126},
		{"loader missing", with(base(ExecFailed), because("loader_missing")), false, 0, 126},
		{"exec failed without a reason", base(ExecFailed), false, 0, 126},
		{"setup", base(SetupFailure), false, 0, 125},
		{"busy", base(RefusedBusy), false, 0, 125},
		{"policy", base(RefusedPolicy), false, 0, 125},
		{"internal", base(InternalError), false, 0, 125},
		{"unknown", base(Unknown), false, 0, 125},
		{"a word of the future", base("NEW_WORD"), false, 0, 125},
		{"no word at all", Result{}, false, 0, 125},
	} {
		if got := ExitStatus(tc.r, tc.asked, tc.sig); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

// TestExitTableNamesEveryStatus runs ExitStatus over every outcome and wants a
// row for each status it can give, and a use for each row.
func TestExitTableNamesEveryStatus(t *testing.T) {
	rows := map[string]bool{}
	for _, r := range ExitTable() {
		if rows[r.Status] || r.When == "" || strings.HasSuffix(r.When, ".") {
			t.Errorf("row %q is doubled, empty or ends in a stop", r.Status)
		}
		rows[r.Status] = false
	}
	mark := func(status int, forms ...string) {
		t.Helper()
		known := false
		for _, f := range append(forms, strconv.Itoa(status)) {
			if _, ok := rows[f]; ok {
				rows[f], known = true, true
			}
		}
		if !known {
			t.Errorf("status %d has no row", status)
		}
	}
	for _, o := range []string{Exited, Signaled, TimeoutWall, TimeoutAttempt, LimitExceededCPU, LimitExceededMemory, LimitExceededOutput,
		Cancelled, ExecFailed, SetupFailure, RefusedBusy, RefusedPolicy, KilledExternally, InternalError, Unknown} {
		for _, sig := range []syscall.Signal{0, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
			mark(ExitStatus(Result{Workload: WorkloadResult{Outcome: o}}, false, sig))
		}
	}
	ok := Result{Workload: WorkloadResult{Outcome: Exited, ExitCode: num(0)}, Cleanup: CleanupResult{Outcome: CleanupVerified}}
	mark(ExitStatus(ok, false, 0))
	mark(ExitStatus(ok, true, 0))
	mark(ExitStatus(Result{Workload: WorkloadResult{Outcome: Exited, ExitCode: num(7)}}, false, 0), "N")
	mark(ExitStatus(Result{Workload: WorkloadResult{Outcome: Signaled, Signal: num(6)}}, false, 0), "128+n")
	mark(ExitStatus(Result{Workload: WorkloadResult{Outcome: ExecFailed}, Reason: &Reason{ID: reason.ProgramNotFound}}, false, 0))
	for status, used := range rows {
		if !used {
			t.Errorf("row %q is never given by ExitStatus", status)
		}
	}
}

func TestCancelCauseText(t *testing.T) {
	if got := (CancelCause{syscall.SIGTERM}).Error(); got != "cancelled by SIGTERM" {
		t.Error(got)
	}
}
