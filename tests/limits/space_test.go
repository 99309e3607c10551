package limits

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestS6b: 16 times 8 MiB under 64 MiB end by the kernel's memory killer.
func TestS6b(t *testing.T) {
	s := guest(t)
	control := run(t, s, fixture(t, s, profile(t, "TP-MEM"), "allocate", "4"), launcher.Exited, 0)
	if peak := control.Result.Resources.Cgroup.MemoryPeak; peak != -1 && (peak < 32*mib || peak > 64*mib) {
		t.Errorf("control: a peak of %d bytes for 32 MiB", peak)
	}
	r := run(t, s, fixture(t, s, profile(t, "TP-MEM"), "allocate", "16"), launcher.LimitExceededMemory, 137)
	use := r.Result.Resources.Cgroup
	reached, _ := lines(t, r)["held_mib"].(float64)
	if use.OOMKills < 1 || reached >= 64 || lines(t, r)["finished"] != nil {
		t.Errorf("%d kills after %v MiB", use.OOMKills, reached)
	}
	if use.MemoryPeak > 64*mib {
		t.Errorf("peak %d bytes", use.MemoryPeak)
	}
	t.Logf("killed with %v MiB held of 128; memory.events counts %d kills, memory.peak %d bytes, swap peak %d", reached, use.OOMKills, use.MemoryPeak, use.SwapPeak)
}

// TestMemoryVerdict: the verdict is the counter's, whatever the main process's
// own end was: it leaves with 0 at several points of a child's way to the limit.
func TestMemoryVerdict(t *testing.T) {
	s := guest(t)
	ends := map[string]int{}
	for _, at := range []int{8, 40, 48, 50, 52, 54, 56, 58} {
		r := s.Run(fixture(t, s, profile(t, "TP-MEM"), "exit 0 beside it", strconv.Itoa(at)))
		held(t, r)
		kills, outcome := r.Result.Resources.Cgroup.OOMKills, r.Result.Workload.Outcome
		ends[outcome]++
		if (kills > 0) != (outcome == launcher.LimitExceededMemory) || (kills > 0) == (r.Status == 0) {
			t.Errorf("left at %d MiB: %d kills, but %s, status %d", at, kills, outcome, r.Status)
		}
	}
	if ends[launcher.Exited] == 0 {
		t.Errorf("control: no run ended before the limit: %v", ends)
	}
	t.Log(ends)
}

// TestScratchIsCharged: files in /scratch are the job's memory, and full is
// ENOSPC as long as the policy's sum fits. Where it does not, they meet the
// memory limit.
func TestScratchIsCharged(t *testing.T) {
	s := guest(t)
	r := run(t, s, fixture(t, s, profile(t, "TP-PROD"), "fill", "80"), launcher.Exited, 0)
	said, use := lines(t, r), r.Result.Resources.Cgroup
	if said["ended"] != "ENOSPC" || said["free_blocks"] != 0.0 || said["written_mib"].(float64) < 60 {
		t.Errorf("%v", said)
	}
	if use.OOMKills != 0 || use.MemoryPeak != -1 && use.MemoryPeak < 60*mib {
		t.Errorf("%d kills, peak %d bytes", use.OOMKills, use.MemoryPeak)
	}
	t.Logf("full: %v, peak %d bytes", said, use.MemoryPeak)
	bomb := run(t, s, fixture(t, s, profile(t, "TP-MEM"), "fill", "64"), launcher.LimitExceededMemory, 137)
	t.Logf("64 MiB of files under 64 MiB of memory: %d kills, peak %d bytes", bomb.Result.Resources.Cgroup.OOMKills, bomb.Result.Resources.Cgroup.MemoryPeak)
}

// TestHugePages: the host has free huge pages, which no limit on memory counts,
// and the job gets none. Control: this process does.
func TestHugePages(t *testing.T) {
	s := guest(t)
	free := hugePagesFree(t)
	b, err := unix.Mmap(-1, 0, 2*mib, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB)
	if err != nil {
		t.Fatalf("control: %v, with %d free", err, free)
	}
	b[0] = 1
	if left := hugePagesFree(t); left != free-1 {
		t.Errorf("control: %d huge pages were free, with one in use %d", free, left)
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	said := lines(t, run(t, s, fixture(t, s, profile(t, "TP-PROD"), "huge pages"), launcher.Exited, 0))
	// Before Linux 6.3 the flag that the box wants of such a file is not known at all.
	file := "none"
	if fd, err := unix.MemfdCreate("x", unix.MFD_NOEXEC_SEAL); err != nil {
		file = unix.ErrnoName(err.(unix.Errno))
	} else {
		unix.Close(fd)
	}
	for name, want := range map[string]string{"ordinary": "none", "mapping": "EPERM", "ordinary_file": file, "file": "EPERM"} {
		if said[name] != want {
			t.Errorf("%s: %v, want %s", name, said[name], want)
		}
	}
}

func hugePagesFree(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "HugePages_Free:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("/proc/meminfo counts no huge pages")
	return 0
}

// TestS6c: no more than 8 tasks, by the count of the kernel.
func TestS6c(t *testing.T) {
	s := guest(t)
	control := run(t, s, fixture(t, s, append(profile(t, "TP-PID"), harness.Set("tasks_job", 32)), "children", "16"), launcher.Exited, 0)
	if said := lines(t, control); said["forked"] != 16.0 || control.Result.Resources.Cgroup.TasksDenied != 0 {
		t.Errorf("control: %v, %d denied", said, control.Result.Resources.Cgroup.TasksDenied)
	}
	r := run(t, s, fixture(t, s, profile(t, "TP-PID"), "children", "16"), launcher.Exited, 0)
	said, use := lines(t, r), r.Result.Resources.Cgroup
	if said["forked"] != 7.0 || said["ended"] != "EAGAIN" {
		t.Errorf("%v", said)
	}
	if use.TasksDenied < 1 || use.TasksPeak != -1 && use.TasksPeak != 8 {
		t.Errorf("pids.events counts %d denied, pids.peak %d", use.TasksDenied, use.TasksPeak)
	}
	t.Logf("%v, %d denied, peak %d", said, use.TasksDenied, use.TasksPeak)
}
