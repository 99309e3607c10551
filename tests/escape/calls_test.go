package escape

import (
	"encoding/json"
	"os/exec"
	"testing"

	"nsbox/tests/harness"
)

func TestCalls(t *testing.T) {
	const killed = "ok signal 31" // SIGSYS: the filter
	forEachTry(t, []try{
		{name: "other calling conventions", script: "calls.py", args: []string{"conventions"},
			report: with(all("x32_getpid x32_unshare x32_ptrace", killed), all("int_0x80_getpid int_0x80_unshare", int80(t, killed)),
				// Undefined, a fault or the filter, as the processor has it: never a result.
				all("sysenter", killed, "ok signal 4", "ok signal 11"), all("control_getpid", "ok returned a value"))},
		{name: "namespaces", script: "calls.py", args: []string{"namespaces"}, watch: unchanged("/proc/self/ns/user", "/proc/sys/user/max_user_namespaces"),
			report: with(all("clone_mnt clone_cgroup clone_uts clone_ipc clone_user clone_pid clone_net unshare_mnt unshare_cgroup unshare_uts unshare_ipc unshare_user "+
				"unshare_pid unshare_net unshare_time clone_user_under_high_bits setns_user setns_mnt setns_net setns_pid parent_of_user parent_of_pid", "EPERM"),
				all("next_mount_namespace last_mount_namespace", "EPERM", "ENOTTY"), all("clone3", "ENOSYS"), all("control", "ok returned"), all("capabilities", "0000000000000000"))},
		{name: "processes and kernel interfaces", script: "calls.py", args: []string{"processes"},
			report: with(all("attach seize read_memory write_memory take_a_descriptor compare listener listener_with_wait bpf perf userfaultfd key session_key key_request kernel_log ports personality", "EPERM"),
				all("io_uring segments", "ENOSYS"), all("control_signal", "ok"), all("control_wait", "-9"))},
		{name: "process 1", script: "calls.py", args: []string{"init"},
			report: with(all("signal_9 signal_19 signal_15 signal_11 signal_40 by_descriptor queued limits priority scheduler io_priority robust_list", "EPERM", "ESRCH"),
				all("group", "EPERM", "ESRCH"), all("control", "ok"))},
	})
}

// int80 is how the 32-bit entry must end in a box: by the filter, unless this
// kernel has none for anybody, which the same code outside any box shows.
func int80(t *testing.T, filtered string) string {
	t.Helper()
	const fault = "ok signal 11" // SIGSEGV: the gate itself
	out, err := exec.Command("/usr/bin/python3", "-B", "testdata/calls.py", "conventions").Output()
	outside := map[string]string{}
	if err == nil {
		err = json.Unmarshal(out, &outside)
	}
	switch {
	case err != nil:
		t.Fatal("the control outside a box: ", err)
	case outside["int 0x80 getpid"] == fault:
		t.Log("this kernel lets nobody in by int 0x80: the filter's answer is not shown here")
		return fault
	}
	return filtered
}

// TestScheduling starts nsbox, where root may do that, with rights of scheduling
// that a box must not inherit: audio workstations give them to users.
func TestScheduling(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		j := job("calls.py", "scheduling")
		j.Shell = `for l in rtprio=50:50 nice=40:40; do prlimit --pid $$ --$l 2>/dev/null; done; exec "$@"`
		want := with(all("real_time round_robin deadline", "EPERM"), all("nicer", "EPERM", "EACCES"), all("more_tasks more_memory_locked", "ValueError"), all("control", "ok"))
		wantReport(t, reportOf(t, s.Run(j).WantOK()), want)
		if host := s.OnHost(harness.Job{Shell: j.Shell, Code: "import os\nos.nice(-1)\n"}); host.Status != 0 {
			t.Logf("this caller cannot raise its priority on the host either: the refusal of it shows nothing")
		}
	})
}

// TestStanding starts nsbox ahead of others, where root may do that: in real time
// for cpu and disk, with a negative nice value and without address randomization.
// No namespace divides any of it, and a box must inherit none.
func TestStanding(t *testing.T) {
	const shell = `exec setarch -R nice -n -5 ionice -c 1 -n 2 chrt -f 5 "$@"`
	report := harness.Job{Script: "testdata/calls.py", Args: []string{"standing"}, Shell: shell}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		if s.Caller.UID != 0 {
			report.Shell = `exec setarch -R nice -n 7 "$@"` // all that others may do: what puts it behind stays
		}
		ahead := reportOf(t, s.OnHost(report))
		if ahead["personality"] == "0" || s.Caller.UID == 0 && (ahead["policy"] != "1" || ahead["disk"] == "0") {
			t.Fatalf("control: nothing of it reached the program on the host: %v", ahead)
		}
		want := map[string][]string{"personality": {"0"}, "policy": {"0"}, "disk": {"0"}, "nice": {"0"}}
		if s.Caller.UID != 0 {
			want["nice"] = []string{"7"}
		}
		wantReport(t, reportOf(t, s.Run(report).WantOK()), want)
	})
}
