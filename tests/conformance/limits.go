package conformance

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

const mib = 1 << 20

func limitFixtures() []Fixture {
	return []Fixture{
		{ID: "S6a", Title: "cpu budget of one process", Profile: "TP-CPU", Run: s6a,
			Attempt: "one busy loop of at most 100,000,000 rounds under a budget of 2 CPU-s",
			Shows:   "the monitor ends the tree near 2 CPU-s; the overshoot is measured", Cannot: "the budget of a host whose counter is sampled, where cpu_total is degraded"},
		{ID: "S6b", Title: "memory of the job", Profile: "TP-MEM", Run: s6b,
			Attempt: "allocate and touch 16 times 8 MiB under 64 MiB without swap",
			Shows:   "the kernel's counter for the job cgroup ends it below 128 MiB", Cannot: "anything where no memory controller is delegated: BLOCKED"},
		{ID: "S6c", Title: "tasks of the job", Profile: "TP-PID", Run: s6c,
			Attempt: "16 children that sleep 2 s under a limit of 8 tasks",
			Shows:   "forks fail beyond the limit, and succeed under a wider one", Cannot: "limits of other users: the count is of this box"},
		{ID: "S6d", Title: "open descriptors", Profile: "TP-FD", Quick: true, Run: s6d,
			Attempt: "open one file 128 times without closing it", Shows: "EMFILE at 64 descriptors", Cannot: "system-wide file limits"},
		{ID: "S6e", Title: "captured output", Profile: "TP-LOG", Quick: true, Run: s6e,
			Attempt: "64 writes of 4 KiB to standard output under a cap of 65,536 bytes",
			Shows:   "exactly the cap is captured and the run ends as LIMIT_EXCEEDED_OUTPUT", Cannot: "what a reader does with the captured bytes"},
		{ID: "S6f", Title: "scratch space", Profile: "TP-SCR", Run: s6f,
			Attempt: "8 files of 16 MiB, then 512 empty files, in 64 MiB and 256 inodes",
			Shows:   "ENOSPC near both caps, from the file system itself", Cannot: "I/O throttling, which the specification leaves BLOCKED"},
	}
}

func waitFixtures() []Fixture {
	return []Fixture{
		{ID: "S13a", Title: "wall time of a tree that waits", Profile: "TP-WALL", Quick: true, Run: s13a,
			Attempt: "a parent and 2 children that wait 4 s under a wall limit of 1 s",
			Shows:   "the whole tree is gone by the wall limit, not by cpu or tasks", Cannot: "the launcher's punctuality on a stopped machine"},
		{ID: "S13b", Title: "cpu budget of a tree", Profile: "TP-AGG", Run: s13b,
			Attempt: "3 processes of at most 50,000,000 rounds each under 3 CPU-s together and 10 s each",
			Shows:   "the budget of the tree ends it though no process meets its own limit", Cannot: "the budget where cpu_total is degraded"},
		{ID: "A3a", Title: "the monitor's overshoot", Profile: "TP-AGG", Run: s13b,
			Attempt: "as S13b", Shows: "as S13b, with the overshoot beyond the budget recorded", Cannot: "as S13b"},
	}
}

func (c *Case) number(report map[string]string, name string) int {
	n, err := strconv.Atoi(report[name])
	if err != nil {
		c.Errorf("%s is %q in %v", name, report[name], report)
	}
	return n
}

// spin burns cpu by a bounded count of rounds, in as many processes as asked.
const spin = "import os, sys\nfor _ in range(int(sys.argv[1]) - 1):\n if os.fork() == 0: break\nn = 0\nwhile n < int(sys.argv[2]): n += 1\nprint('finished', flush=True)\nwhile True:\n try: os.wait()\n except ChildProcessError: break\n"

// budget is S6a, S13b and A3a: a bounded loop against a cpu budget.
func (c *Case) budget(cpu int64, processes, rounds string) {
	c.Control("a short computation completes", func() {
		c.Do(harness.Job{Code: spin, Args: []string{processes, "1000"}}).WantOK()
	})
	run := c.Do(harness.Job{Code: spin, Args: []string{processes, rounds}, Meter: true})
	r := run.Result.Resources
	c.Note("cpu used", fmt.Sprintf("%.3f s of %.0f s by %s", float64(r.CPUUsec)/1e6, float64(cpu)/1e6, r.CPUSource))
	c.Note("overshoot", fmt.Sprintf("%.1f ms of cpu time", float64(r.CPUOvershoot)/1000))
	if run.CPU != 0 {
		c.Note("counted from outside", run.CPU)
	}
	c.Degraded(run, policy.DimCPUTotal, "the tree's cpu time can only be sampled for this caller")
	if run.Result.Workload.Outcome == launcher.Exited && r.CPUUsec > cpu+cpu/4 {
		c.Fatalf("the tree used %d µs of %d and ended by itself", r.CPUUsec, cpu)
	}
	if bytes.Contains(run.Stdout, []byte("finished")) && run.Result.Workload.Outcome == launcher.Exited {
		c.Stop(Inconclusive, "the loop ended before the budget was spent")
	}
	if run.Result.Workload.Outcome == launcher.TimeoutWall {
		c.Stop(Inconclusive, "the wall limit came first: the machine is too busy to spend the budget in time")
	}
	run.Want(launcher.LimitExceededCPU, launcher.ExitLimit)
	if r.CPUUsec < cpu || r.CPUUsec > cpu+cpu/4 {
		c.Errorf("%d µs used of %d", r.CPUUsec, cpu)
	}
	c.WantGone(c, 0)
}

func s6a(c *Case)  { c.budget(2_000_000, "1", "100000000") }
func s13b(c *Case) { c.budget(3_000_000, "3", "50000000") }

func s6b(c *Case) {
	const eat = "import sys\nheld = []\nfor _ in range(int(sys.argv[1])):\n b = bytearray(8 << 20)\n for at in range(0, len(b), 4096): b[at] = 1\n held.append(b)\n print(len(held) * 8, flush=True)\n"
	c.Control("8 MiB can be held", func() { c.Do(harness.Job{Code: eat, Args: []string{"1"}}).WantOK() })
	run := c.Do(harness.Job{Code: eat, Args: []string{"16"}})
	lines := strings.Fields(string(run.Stdout))
	c.Note("MiB held when it ended", lines)
	c.Degraded(run, policy.DimMemory, "no memory controller is delegated to this caller")
	run.Want(launcher.LimitExceededMemory, 137)
	if len(lines) >= 16 {
		c.Error("all 128 MiB were held")
	}
	if g := run.Result.Resources.Cgroup; g == nil || g.OOMKills < 1 {
		c.Errorf("memory.events counts no kill: %+v", g)
	} else {
		c.Note("memory.events", fmt.Sprintf("oom_kill %d, peak %d bytes", g.OOMKills, g.MemoryPeak))
	}
}

func s6c(c *Case) {
	c.Control("16 children run under a limit of 32", func() {
		job := c.Program("limits.py", "children", "16")
		job.Policy = append(job.Policy, harness.Set("tasks_job", 32))
		c.Want(c.Do(job).WantOK().Report(), map[string][]string{"forked": {"16"}, "ended": {"none"}})
	})
	run := c.Do(c.Program("limits.py", "children", "16")).WantOK()
	c.Want(run.Report(), map[string][]string{"forked": {"7"}, "ended": {"EAGAIN"}})
	if g := run.Result.Resources.Cgroup; g != nil && g.TasksDenied >= 0 {
		c.Note("pids.events", fmt.Sprintf("max %d, peak %d", g.TasksDenied, g.TasksPeak))
		if g.TasksDenied < 1 {
			c.Error("pids.events counts no denial")
		}
	} else {
		c.Note("pids.events", "no pids controller is delegated: the limit is RLIMIT_NPROC of the box's user namespace")
	}
}

func s6d(c *Case) {
	report := c.Do(c.Program("limits.py", "descriptors")).WantOK().Report()
	c.Control("dozens of files can be open", func() {
		if n := c.number(report, "opened"); n < 50 {
			c.Errorf("only %d files could be opened", n)
		}
	})
	c.Want(report, map[string][]string{"ended": {"EMFILE"}, "highest": {"63"}, "limit": {"(64, 64)"}})
}

func s6e(c *Case) {
	c.Control("exactly the cap is captured whole", func() {
		got := c.Do(c.Program("limits.py", "print", "16", "4096")).WantOK().Result.Untrusted.Stdout
		if got.BytesTotal != 65536 || got.BytesKept != 65536 || got.Truncated {
			c.Errorf("%+v", got)
		}
	})
	run := c.Do(c.Program("limits.py", "print", "64", "4096")).Want(launcher.LimitExceededOutput, launcher.ExitLimit)
	got := run.Result.Untrusted.Stdout
	c.Note("collector", fmt.Sprintf("%d bytes kept of %d read", got.BytesKept, got.BytesTotal))
	if got.BytesKept != 65536 || !got.Truncated || len(run.Stdout) != 65536 {
		c.Errorf("%d kept, truncated %v, %d came out", got.BytesKept, got.Truncated, len(run.Stdout))
	}
}

func s6f(c *Case) {
	c.Control("32 MiB fit", func() {
		c.Want(c.Do(c.Program("limits.py", "fill", "/scratch", "2", strconv.Itoa(16*mib))).WantOK().Report(), map[string][]string{"ended": {"none"}})
	})
	report := c.Do(c.Program("limits.py", "fill", "/scratch", "8", strconv.Itoa(16*mib))).WantOK().Report()
	c.Want(report, map[string][]string{"ended": {"ENOSPC"}})
	if n := c.number(report, "bytes"); n > 64*mib || n < 58*mib {
		c.Errorf("%d bytes fit, want about %d", n, 64*mib)
	}
	report = c.Do(c.Program("limits.py", "create", "/scratch", "512")).WantOK().Report()
	c.Want(report, map[string][]string{"ended": {"ENOSPC"}})
	if n := c.number(report, "files"); n > 256 || n < 250 {
		c.Errorf("%d files fit, want about 256", n)
	}
}

func s13a(c *Case) {
	c.Control("a tree that waits 0.3 s ends by itself", func() {
		job := c.Program("limits.py", "wait together", "0.3")
		job.Policy = []harness.Change{harness.Set("cpu_total", 5)} // a busy machine may need the whole second for the start
		c.Do(job).WantOK()
	})
	run := c.Do(c.Program("limits.py", "wait together", "4")).Want(launcher.TimeoutWall, launcher.ExitLimit)
	r := run.Result.Resources
	c.Note("wall", fmt.Sprintf("%.1f ms, %.1f ms past the limit, cpu %d µs", r.WallMS, r.WallOvershoot, r.CPUUsec))
	if r.WallMS < 1000 || r.WallOvershoot > 2500 || r.CPUUsec > 1_000_000 {
		c.Errorf("wall %.1f ms, overshoot %.1f ms, cpu %d µs", r.WallMS, r.WallOvershoot, r.CPUUsec)
	}
	c.WantGone(c, 0)
}
