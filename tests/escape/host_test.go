package escape

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

// held runs host.py until it has reported, looks at the host, and ends the run.
// The report is nil if nsbox ended the program before that.
func held(t *testing.T, s *harness.Site, j harness.Job, look func()) (*harness.Run, map[string]string) {
	t.Helper()
	live := s.Start(j)
	live.Await("}\n")
	look()
	live.Signal(syscall.SIGTERM)
	run := live.Wait()
	if run.Result.Workload.Outcome != launcher.Cancelled && run.Result.Workload.Outcome != launcher.LimitExceededMemory {
		t.Errorf("the program should have waited: %+v\n%s", run.Result.Workload, run.Stderr)
	}
	s.WantGone(t, 0)
	return run, reportOf(t, run)
}

// kernelMiB is a figure of /proc/meminfo.
func kernelMiB(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); f[0] == name+":" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatalf("/proc/meminfo has no %s", name)
	return 0
}

// counted says whether the kernel counts the memory of the box, its own
// structures with it: then the limit holds wherever the memory is.
func counted(r *harness.Run) bool {
	return !slices.ContainsFunc(r.Result.Degraded, func(d launcher.Degradation) bool { return d.Dimension == policy.DimMemory })
}

// TestKernelMemory: where memory is only limited per process, what the kernel
// keeps for a process has to be small.
func TestKernelMemory(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, c := range []struct {
			how, figure string
			most        int // MiB the host may lose, what others do in that time with it
		}{{"semaphores", "SUnreclaim", 30}, {"messages", "SUnreclaim", 30}, {"forgotten", "Shmem", 140}} {
			t.Run(c.how, func(t *testing.T) {
				j := job("host.py", c.how)
				j.Policy = []harness.Change{harness.Set("memory_workload", 128)}
				before, more := kernelMiB(t, c.figure), 0
				run, report := held(t, s, j, func() { more = kernelMiB(t, c.figure) - before })
				if counted(run) {
					t.Skip("the kernel counts this memory for the job here")
				}
				if more > c.most {
					t.Errorf("the host's %s grew by %d MiB: %v", c.figure, more, report)
				}
			})
		}
		t.Run("socket buffers", func(t *testing.T) {
			run, report := held(t, s, job("host.py", "buffers"), func() {})
			n, err := strconv.Atoi(report["bytes"])
			if err != nil || n == 0 {
				t.Fatalf("control: nothing was sent: %v", report)
			}
			if !counted(run) && n > 1<<20 {
				t.Errorf("one socket holds %d bytes; a job can have tasks × descriptors of them", n)
			}
		})
	})
}

// TestCommonCounts: limits that a user's processes share with the box must not
// be used up by it.
func TestCommonCounts(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		t.Run("inotify instances", func(t *testing.T) {
			most := 128
			if s.Caller.UID == 0 {
				most = 24 // all of root's would keep every other test from having one
			}
			host := harness.Job{Code: "import ctypes, sys\nsys.exit(ctypes.CDLL(None).inotify_init1(0) < 0)\n"}
			if s.OnHost(host).Status != 0 {
				t.Fatal("control: the caller can have no instance even before")
			}
			_, report := held(t, s, job("host.py", "watches", strconv.Itoa(most)), func() {
				if s.OnHost(host).Status != 0 {
					t.Error("while the box runs its caller can have no instance of inotify")
				}
			})
			if n, err := strconv.Atoi(report["instances"]); err != nil || n > 16 {
				t.Errorf("the box has %s instances of the caller's 128", report["instances"])
			}
		})
		t.Run("queued signals", func(t *testing.T) {
			_, report := held(t, s, job("host.py", "signals"), func() {
				status := s.OnHost(harness.Job{Argv: []string{"/bin/cat", "/proc/self/status"}}).Stdout
				_, after, _ := strings.Cut(string(status), "SigQ:\t")
				n, err := strconv.Atoi(strings.SplitN(after, "/", 2)[0])
				if err != nil || n > 1000 {
					t.Errorf("%d signals are queued for the caller on the host: %v", n, err)
				}
			})
			if report["queued"] == "0" {
				t.Error("control: not one signal was queued")
			}
		})
	})
}

// TestCoreLimit reads the limit of the waiting program from outside.
func TestCoreLimit(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		looked := 0
		_, report := held(t, s, job("host.py", "core"), func() {
			for _, p := range s.Processes() {
				limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.PID))
				// nsbox's own command line has the marker too, but ends otherwise.
				if err != nil || !strings.HasPrefix(p.Command, "python3 ") {
					continue
				}
				looked++
				for line := range strings.Lines(string(limits)) {
					if f := strings.Fields(line); strings.HasPrefix(line, "Max core file size") && f[4] != "1" {
						t.Errorf("the program changed its limit: %s", strings.TrimSpace(line))
					}
				}
			}
		})
		wantReport(t, report, all("control", "ok"))
		if looked != 1 {
			t.Errorf("control: looked at %d programs", looked)
		}
	})
}

// TestSharedInodes records what a root of host files cannot hide: the inodes are
// the host's, so an advisory lock on one is seen there, and so is use of one from
// here. SECURITY.md says so; what must hold is that neither outlives the box.
func TestSharedInodes(t *testing.T) {
	library, interpreter := shared(t)
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		free := harness.Job{Code: "import fcntl\nfcntl.flock(open('" + library + "'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"}
		if s.OnHost(free).Status != 0 {
			t.Fatal("control: somebody else holds the lock")
		}
		live := s.Start(job("host.py", "lock", library))
		live.Await("}\n")
		t.Logf("recorded: the box holds a lock on %s of the host: %v", library, s.OnHost(free).Status != 0)
		live.Signal(syscall.SIGTERM)
		live.Wait()
		if s.OnHost(free).Status != 0 {
			t.Errorf("the lock on %s outlives the box", library)
		}
		_, report := held(t, s, job("host.py", "spy", interpreter), func() {})
		t.Logf("recorded: watching %s from the box: %v", interpreter, report["watch"])
	})
}

// TestFacts: what tells this machine from another.
func TestFacts(t *testing.T) {
	secret := map[string]string{}
	for _, path := range []string{"/proc/sys/kernel/random/boot_id", "/proc/cmdline", "/proc/partitions", "/proc/bus/pci/devices", "/proc/diskstats", "/proc/interrupts", "/proc/locks"} {
		data, err := os.ReadFile(path)
		if err == nil && len(bytes.TrimSpace(data)) > 0 {
			secret[path] = string(data)
		}
	}
	if len(secret) < 3 {
		t.Fatalf("control: the host itself shows %d of them", len(secret))
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		_, report := held(t, s, job("host.py", "facts"), func() {})
		var shown []string
		for path := range secret {
			if strings.TrimSpace(report[path]) != "" {
				shown = append(shown, path)
			}
		}
		slices.Sort(shown)
		if len(shown) != 0 {
			t.Errorf("the box shows the host's %s", strings.Join(shown, ", "))
		}
	})
}

// TestOwnLine: nsbox's summary begins a line of its own, whatever was printed
// before it: else a program can finish nsbox's sentence.
func TestOwnLine(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		run := s.Run(harness.Job{Code: "import os\nos.write(2, b'it is not true that ')\n"}).WantOK()
		if !bytes.Contains(run.Stderr, []byte("it is not true that ")) || !bytes.Contains(run.Stderr, []byte("nsbox: workload ")) {
			t.Fatalf("control: %q", run.Stderr)
		}
		if bytes.Contains(run.Stderr, []byte("it is not true that nsbox: ")) {
			t.Errorf("the program and nsbox share a line: %q", run.Stderr)
		}
	})
}
