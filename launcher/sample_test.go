package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stat is a line of /proc/PID/stat with the fields the sampler reads: 14 to 17
// are 11, 22, 33, 44, field 20 is 1, field 22 is 5555 and field 24 is 66.
func statLine(comm string) string {
	return "702 (" + comm + ") S 701 702 702 0 -1 4194560 100 0 0 0 11 22 33 44 20 0 1 0 5555 12345678 66 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n"
}

func TestParseStat(t *testing.T) {
	want := procStat{own: 33, children: 77, threads: 1, start: 5555, rss: 66 * int64(os.Getpagesize())}
	for _, comm := range []string{"python3", "", "a b", "(", ")", "a) S 1 1 1", ") R 0 0 0 0 0 0 0 0 0 0 999 999", "x\ny", "a)\n(b", "\xff\xfe", "((((((((((((((("} {
		if got, ok := parseStat([]byte(statLine(comm))); !ok || got != want {
			t.Errorf("%q: %+v, %v", comm, got, ok)
		}
	}
	good := statLine("x")
	for name, text := range map[string]string{
		"empty":            "",
		"no name":          "702 x S 701",
		"cut":              good[:strings.Index(good, "5555")],
		"not a number":     strings.Replace(good, " 11 ", " eleven ", 1),
		"negative":         strings.Replace(good, " 66 ", " -66 ", 1),
		"too large":        strings.Replace(good, " 22 ", " 99999999999999999999 ", 1),
		"nothing but name": "702 (x)",
	} {
		if got, ok := parseStat([]byte(text)); ok {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

// tree starts a shell whose pid stands for init; it ends with the test.
func tree(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", script)
	c.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	must(t, c.Start())
	t.Cleanup(func() {
		unix.Kill(-c.Process.Pid, unix.SIGKILL)
		c.Wait()
	})
	return c
}

// until samples until it is satisfied.
func until(t *testing.T, s *sampler, what string, ok func(cpu, rss int64) bool) (cpu, rss int64) {
	t.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if cpu, rss = s.sample(); ok(cpu, rss) {
			return cpu, rss
		}
	}
	t.Fatalf("%s: cpu %d µs, rss %d after %v", what, cpu, rss, soon)
	return 0, 0
}

// A grandchild burns; its parent is gone into the background of another.
func TestSampleSeesTheWholeTree(t *testing.T) {
	burn := "i=0; while :; do i=$((i+1)); done"
	c := tree(t, "(( ("+burn+") & wait ) & wait ) & wait")
	s := &sampler{init: c.Process.Pid}
	until(t, s, "a burning grandchild", func(cpu, rss int64) bool { return cpu >= 50000 && rss > 100000 })
	if n := len(s.seen); n < 2 || n > 8 {
		t.Errorf("%d processes in a tree of about four", n)
	}
	// What is measured is the tree's, not this process's.
	if cpu, rss := (&sampler{init: tree(t, "exec /bin/sleep 60").Process.Pid}).sample(); cpu > 20000 || rss != 0 {
		t.Errorf("an idle init: cpu %d, rss %d", cpu, rss)
	}
}

// A double fork reparents to whoever reaps for it; the sum does not fall when
// processes end, and what is kept of them does not grow.
func TestSampleKeepsWhatEnded(t *testing.T) {
	c := tree(t, "for n in 1 2 3 4 5 6; do sh -c 'i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done'; done; exec /bin/sleep 60")
	s := &sampler{init: c.Process.Pid}
	last, ended := int64(0), int64(0)
	for end := time.Now().Add(soon); time.Now().Before(end) && ended < 3; time.Sleep(3 * time.Millisecond) {
		cpu, _ := s.sample()
		if cpu < last {
			t.Fatalf("the sum falls from %d to %d", last, cpu)
		}
		last = cpu
		ended = s.seen[procKey{}]
	}
	if ended == 0 {
		t.Fatalf("nothing ended: %v", s.seen)
	}
	must(t, unix.Kill(-c.Process.Pid, unix.SIGKILL))
	c.Wait()
	if cpu, _ := until(t, s, "the end of all", func(_, rss int64) bool { return rss == 0 }); cpu < last {
		t.Errorf("after the end: cpu %d of %d", cpu, last)
	}
}

// Any number of processes may pass by: 300 here, seen one after another.
func TestSampleForgetsEndedProcesses(t *testing.T) {
	s := &sampler{init: 1 << 30} // no such process: only the clean-up is tried
	s.seen = map[procKey]int64{}
	want := int64(0)
	for i := range 300 {
		s.seen[procKey{1<<30 + 1 + i, int64(i)}] = int64(i)
		want += int64(i)
		if i%7 == 0 {
			s.sample()
		}
	}
	cpu, rss := s.sample()
	if cpu != want*(1e6/clockTick) || rss != 0 || len(s.seen) != 1 {
		t.Errorf("cpu %d, want %d; %d entries", cpu, want*(1e6/clockTick), len(s.seen))
	}
}

// A live process that one walk misses is counted once, not once more when it is met again.
func TestSampleCountsAMissedProcessOnce(t *testing.T) {
	p, ok := readStat(os.Getpid())
	if !ok {
		t.Fatal("own stat is unreadable")
	}
	s := &sampler{init: 1 << 30, seen: map[procKey]int64{{os.Getpid(), p.start}: p.own}}
	_, rss := s.sample()
	if len(s.seen) != 1 || s.seen[procKey{}] != 0 || rss == 0 {
		t.Errorf("seen %v, rss %d", s.seen, rss)
	}
	// A reused pid is another process.
	s.seen = map[procKey]int64{{os.Getpid(), p.start - 1}: 7}
	if s.sample(); s.seen[procKey{}] != 7 || len(s.seen) != 1 {
		t.Errorf("a reused pid: %v", s.seen)
	}
}

// The shell has one thread; asked for several, its directory of threads is read.
func TestChildrenOf(t *testing.T) {
	c := tree(t, "/bin/sleep 60 & /bin/sleep 60 & wait")
	for _, threads := range []int64{1, 2} {
		for end := time.Now().Add(soon); len(childrenOf(c.Process.Pid, threads)) != 2; {
			if time.Now().After(end) {
				t.Fatalf("children %v", childrenOf(c.Process.Pid, threads))
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, pid := range childrenOf(c.Process.Pid, threads) {
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
				t.Error(err)
			}
		}
		if got := childrenOf(1<<30, threads); got != nil {
			t.Errorf("children of nobody: %v", got)
		}
	}
}

// What is read of a file does not depend on how much a read returns.
func TestReadProc(t *testing.T) {
	for _, path := range []string{"/proc/self/limits", "/proc/filesystems", "/proc/self/cmdline"} {
		want, err := os.ReadFile(path)
		must(t, err)
		if got, err := readProc(path); err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes, want %d: %v", path, len(got), len(want), err)
		}
	}
	if _, err := readProc("/proc/self/none"); err == nil {
		t.Error("a file that is not there was read")
	}
}

type counter struct {
	usec int64
	err  error
}

func (c counter) CPUUsage() (int64, error) { return c.usec, c.err }

// A counter that cannot be read must not read as a program that uses nothing.
func TestUsageWithoutCounter(t *testing.T) {
	busy := tree(t, "(while :; do :; done) & wait")
	s := &sampler{init: busy.Process.Pid}
	until(t, s, "some cpu time", func(cpu, _ int64) bool { return cpu >= 50_000 })
	if cpu, _ := usage(counter{err: unix.ENODEV}, s, false); cpu < 50_000 {
		t.Errorf("without a counter %d us", cpu)
	}
	if cpu, rss := usage(counter{usec: 7}, s, false); cpu != 7 || rss != 0 {
		t.Errorf("the counter's figure is %d us, memory %d", cpu, rss)
	}
	if cpu, rss := usage(counter{usec: 7}, s, true); cpu != 7 || rss == 0 {
		t.Errorf("with memory watched: %d us, memory %d", cpu, rss)
	}
}
