package launcher

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/nsexec"
)

// ending is the first terminal event and what was measured around it.
type ending struct {
	outcome   string
	exitCode  *int
	signal    *int
	detail    string
	cancel    syscall.Signal
	wall      time.Duration
	cpuUsec   int64
	maxRSS    int64
	cpuOver   int64 // microseconds past the budget when the tree was dead
	wallOver  time.Duration
	execErr   *nsexec.StepError
	setupErr  *nsexec.StepError
	exitKnown bool
}

// monitor watches a released box until its first terminal event, ends the box
// and waits for its end. Causes come from its own acts and the kernel's
// counters, never from an exit code.
type monitor struct {
	box      *nsexec.Box
	plan     *Plan
	group    *cgroupv2.Group // nil: sampled
	sampler  sampler
	output   <-chan string        // a stream passed its cap
	drained  func() string        // reads both streams to their end; the name of one that passed its cap
	deadline time.Time            // of the whole attempt
	cpus     int                  // how many the workload can burn at once
	watchMem bool                 // memory is degraded: the sampled sum is compared
	decide   func(outcome string) // makes the terminal event durable, before the kill
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
			e.outcome = TimeoutWall
			break wait
		case <-attempt.C:
			e.outcome = TimeoutAttempt
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
		// The kill first: making the event durable takes the disk's time, and until
		// then nobody else can decide.
		m.kill()
		m.decide(e.outcome)
		select {
		case exit = <-m.box.Done():
			gone = true
		case <-time.After(stopBudget):
		}
	}
	end := time.Now()
	e.wall = end.Sub(released)
	e.measure(m, exit, gone)
	if gone && e.outcome == "" {
		e.fromExit(exit, l.CPU.PerProcess)
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
	if m.group == nil || m.watchMem {
		cpuUsec, rss = m.sampler.sample()
	}
	if m.group != nil {
		if n, err := m.group.CPUUsage(); err == nil {
			cpuUsec = n
		}
	}
	return cpuUsec, rss
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
	e.exitKnown = gone && exit.Reported
}

// fromExit names an end that nsbox did not cause.
func (e *ending) fromExit(exit nsexec.Exit, perProcess time.Duration) {
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
		// The kernel sends SIGXCPU at the soft limit and SIGKILL one second later;
		// the time that was really used tells them from the same signals sent by hand.
		used := time.Duration(exit.CPUUsec) * time.Microsecond
		atLimit := used >= perProcess-50*time.Millisecond
		switch {
		case exit.Status.Signal() == unix.SIGXCPU && atLimit:
			e.outcome, e.detail = LimitExceededCPU, "RLIMIT_CPU of one process"
		case exit.Status.Signal() == unix.SIGKILL && used >= perProcess+950*time.Millisecond:
			e.outcome, e.detail = LimitExceededCPU, "RLIMIT_CPU of one process, which ignored SIGXCPU"
		case exit.Status.Signal() == unix.SIGKILL:
			e.outcome, e.detail = KilledExternally, "signal 9 that nsbox did not send: from inside the box, the host, or the kernel's memory killer"
		}
	default:
		e.outcome = Unknown
	}
}
