package launcher

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/nsexec"
)

// ending is the first terminal event and what was measured around it.
type ending struct {
	outcome  string
	exitCode *int
	signal   *int
	detail   string
	cancel   syscall.Signal
	stopBy   time.Time // end of the stop budget; zero unless nsbox ended the program
	wall     time.Duration
	cpuUsec  int64
	maxRSS   int64
	cpuOver  int64 // microseconds past the budget when the tree was dead
	wallOver time.Duration
	execErr  *nsexec.StepError
	setupErr *nsexec.StepError
	cgroup   *CgroupUse
	memory   memoryEnd
}

// monitor watches a released box until its first terminal event, ends the box
// and waits for its end. Causes come from its own acts and the kernel's
// counters, never from an exit code.
type monitor struct {
	box interface {
		Done() <-chan nsexec.Exit
		Kill() error
	}
	child       int // the workload's process
	plan        *Plan
	group       jobGroup // nil: sampled
	sampler     sampler
	output      <-chan string // a stream passed its cap
	drained     func() string // reads both streams to their end; the name of one that passed its cap
	deadline    time.Time     // what must follow the run still fits into the attempt
	cpus        int           // how many the workload can burn at once
	handlesXCPU bool
	watchMem    bool                 // memory is degraded: the sampled sum is compared
	decide      func(outcome string) // makes the terminal event durable, before the kill
}

// jobGroup is what the monitor asks of a job cgroup.
type jobGroup interface {
	CPUUsage() (int64, error)
	Stats() (cgroupv2.Stats, error)
	Kill() error
}

const (
	minPoll = time.Millisecond
	maxPoll = 250 * time.Millisecond
	// samplePoll paces the walk through /proc, which costs more than one pread.
	samplePoll = 20 * time.Millisecond
)

// run blocks until the box is gone or stopBudget has passed since the kill.
func (m *monitor) run(ctx context.Context, released time.Time, stopBudget time.Duration) (ending, bool) {
	e := ending{}
	l := m.plan.Limits
	wall := time.NewTimer(time.Until(released.Add(l.Wall)))
	defer wall.Stop()
	attempt := time.NewTimer(time.Until(m.deadline))
	defer attempt.Stop()
	poll := time.NewTimer(minPoll)
	defer poll.Stop()
	var exit nsexec.Exit
	gone := false
wait:
	for {
		select {
		case exit = <-m.box.Done():
			gone = true
			break wait
		case <-wall.C:
			// Ready together with the end, the end came first: a program that was
			// done in time is never told as stopped.
			select {
			case exit = <-m.box.Done():
				gone = true
			default:
				e.outcome = TimeoutWall
			}
			break wait
		case <-attempt.C:
			// Ready together with the end, the end came first: a program that was
			// done in time is never told as stopped.
			select {
			case exit = <-m.box.Done():
				gone = true
			default:
				e.outcome = TimeoutAttempt
			}
			break wait
		case name := <-m.output:
			e.outcome = LimitExceededOutput
			e.detail = fmt.Sprintf("%s passed its cap", name)
			break wait
		case <-ctx.Done():
			e.outcome = Cancelled
			var cause CancelCause
			if errors.As(context.Cause(ctx), &cause) {
				e.cancel = cause.Signal
			}
			e.detail = context.Cause(ctx).Error()
			break wait
		case <-poll.C:
			used, rss := m.usage()
			e.maxRSS = max(e.maxRSS, rss)
			if m.watchMem && rss > l.Memory.Bytes {
				e.outcome = LimitExceededMemory
				e.detail = fmt.Sprintf("sampled sum of resident memory %d bytes", rss)
				break wait
			}
			m.watchXCPU(time.Duration(used) * time.Microsecond)
			left := l.CPU.Total - time.Duration(used)*time.Microsecond
			if left <= 0 {
				e.outcome = LimitExceededCPU
				break wait
			}
			poll.Reset(m.nextPoll(left))
		}
	}
	noticed := time.Now()
	if !gone {
		e.stopBy = noticed.Add(stopBudget)
		// The kill first: making the event durable takes the disk's time, and until
		// then nobody else can decide.
		m.kill()
		m.decide(e.outcome)
		select {
		case exit = <-m.box.Done():
			gone = true
		case <-time.After(time.Until(e.stopBy)):
		}
	}
	end := time.Now()
	e.wall = end.Sub(released)
	e.measure(m, exit, gone)
	if gone && e.outcome == "" {
		e.fromExit(exit, l.CPU.PerProcess, m.handlesXCPU)
		e.fromMemory(l.Memory.Bytes)
		if name := m.drained(); name != "" && e.outcome == Exited {
			// Output past the cap is never a success, however the race between the
			// reader and the exit came out.
			e.outcome, e.exitCode = LimitExceededOutput, nil
			e.detail = name + " passed its cap; the program had already ended"
		}
		m.decide(e.outcome)
	}
	switch e.outcome {
	case TimeoutWall:
		e.wallOver = e.wall - l.Wall
		e.detail = fmt.Sprintf("stopped %s after the limit", e.wallOver.Round(100*time.Microsecond))
	case LimitExceededCPU:
		if over := e.cpuUsec - l.CPU.Total.Microseconds(); over > 0 {
			e.cpuOver = over
			e.detail = fmt.Sprintf("%.1f ms past the budget of %s when the tree was gone", float64(over)/1000, l.CPU.Total)
		}
	case Cancelled, LimitExceededOutput, TimeoutAttempt:
		e.wallOver = end.Sub(noticed)
	}
	return e, gone
}

// nextPoll never sleeps past the earliest instant the budget could be spent.
func (m *monitor) nextPoll(left time.Duration) time.Duration {
	d := min(max(left/time.Duration(m.cpus), minPoll), maxPoll)
	if m.group == nil {
		d = max(d, samplePoll)
	}
	if m.watchMem {
		d = min(d, samplePoll)
	}
	return d
}

func (m *monitor) usage() (cpuUsec, rss int64) {
	if m.group == nil {
		return m.sampler.sample()
	}
	return usage(m.group, &m.sampler, m.watchMem)
}

// usage takes the cpu time from a cgroup's counter, and samples where memory is
// to be watched too, or where the counter cannot be read: that must not look like
// a program that uses nothing, whose budget would never end.
func usage(counter interface{ CPUUsage() (int64, error) }, s *sampler, watchMem bool) (cpuUsec, rss int64) {
	counted, err := counter.CPUUsage()
	if err != nil || watchMem {
		cpuUsec, rss = s.sample()
	}
	if err == nil {
		cpuUsec = counted
	}
	return cpuUsec, rss
}

// watchXCPU notes whether the main process ignores or catches SIGXCPU once it
// may have come near its own limit: only then does a SIGKILL belong to that limit.
func (m *monitor) watchXCPU(used time.Duration) {
	if m.handlesXCPU || used < m.plan.Limits.CPU.PerProcess*3/4 {
		return
	}
	st, err := readStatus(m.child)
	if err != nil {
		return
	}
	for _, set := range []string{st["SigIgn"], st["SigCgt"]} {
		if bits, err := strconv.ParseUint(set, 16, 64); err == nil && bits&(1<<(unix.SIGXCPU-1)) != 0 {
			m.handlesXCPU = true
		}
	}
}

func (m *monitor) kill() {
	if m.group != nil {
		m.group.Kill()
	}
	m.box.Kill()
}

// measure takes the final figures; the cgroup outlives its processes.
func (e *ending) measure(m *monitor, exit nsexec.Exit, gone bool) {
	e.execErr, e.setupErr = exit.ExecErr, exit.SetupErr
	e.cpuUsec = exit.CPUUsec
	e.maxRSS = max(e.maxRSS, exit.MaxRSS)
	if m.group != nil {
		if n, err := m.group.CPUUsage(); err == nil {
			e.cpuUsec = n
		}
	} else {
		var own int64
		for _, t := range m.sampler.seen {
			own += t
		}
		e.cpuUsec = max(e.cpuUsec, own*(1e6/clockTick))
	}
	if m.group != nil && gone {
		e.cgroup, e.memory = groupUse(m.group)
		if m.watchMem && e.memory == memoryUntold {
			e.memory = memoryFine // the cgroup limits no memory
		}
	}
}

// fromMemory gives the kernel's count the last word, however the main process
// ended: it may have left with 0 in the moment before the killer, which takes
// the whole group, came for a child of it.
func (e *ending) fromMemory(limit int64) {
	switch e.memory {
	case memoryOwn:
		e.outcome, e.exitCode = LimitExceededMemory, nil
		e.detail = fmt.Sprintf("memory.events of the job cgroup counts %d kills at its limit of %d bytes", e.cgroup.OOMKills, limit)
	case memoryUntold:
		if e.outcome == ExecFailed || e.outcome == SetupFailure {
			return // it never ran
		}
		// Not even a good end is known to be the program's own.
		e.outcome, e.exitCode, e.signal = Unknown, nil, nil
		e.detail = "the job cgroup's figures cannot be read, so nobody knows whether the kernel's memory killer took part"
	case memoryHost:
		e.outcome, e.exitCode = KilledExternally, nil
		e.detail = "the kernel's memory killer took part of the job although its own limit was not met: the host is short of memory"
	}
}

// fromExit names an end that nsbox did not cause.
func (e *ending) fromExit(exit nsexec.Exit, perProcess time.Duration, handlesXCPU bool) {
	switch {
	case exit.ExecErr != nil:
		e.outcome = ExecFailed
	case exit.SetupErr != nil:
		e.outcome = SetupFailure
	case !exit.Reported:
		e.outcome = KilledExternally
		n := int(unix.SIGKILL)
		e.signal = &n
		e.detail = fmt.Sprintf("init ended without a report (wait status %#x), and not by nsbox", uint32(exit.InitState))
	case exit.Status.Exited():
		e.outcome = Exited
		code := exit.Status.ExitStatus()
		e.exitCode = &code
	case exit.Status.Signaled():
		n := int(exit.Status.Signal())
		e.signal, e.outcome = &n, Signaled
		// The kernel sends SIGXCPU at the soft limit and SIGKILL one second later. It
		// counts whole ticks, which run ahead of the precise time by a fifth under
		// contention, so the time that was really used may be below the limit.
		used := time.Duration(exit.CPUUsec) * time.Microsecond
		switch {
		case exit.Status.Signal() == unix.SIGXCPU && used >= perProcess*3/4:
			e.outcome, e.detail = LimitExceededCPU, "RLIMIT_CPU of one process"
		case exit.Status.Signal() == unix.SIGKILL && handlesXCPU && used >= (perProcess+time.Second)*3/4:
			e.outcome, e.detail = LimitExceededCPU, "RLIMIT_CPU of one process, which did not end at SIGXCPU"
		case exit.Status.Signal() == unix.SIGKILL:
			e.outcome, e.detail = KilledExternally, "signal 9 that nsbox did not send: from inside the box, the host, or the kernel's memory killer"
		}
	default:
		e.outcome = Unknown
	}
}
