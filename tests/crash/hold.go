package crash

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The means to make a part of an attempt take longer than it may, from outside.

// holding stops the launcher's thread for a while at the first point that fits,
// and only there; the other threads go on.
func holding(fits func(p point) bool, pause time.Duration) (decide func(n int, p point) verdict, held *bool) {
	held = new(bool)
	return func(_ int, p point) verdict {
		if !*held && fits(p) {
			*held = true
			time.Sleep(pause)
		}
		return verdict{}
	}, held
}

// ending fits a call whose path ends in text.
func ending(name, text string) func(point) bool {
	return func(p point) bool { return p.name == name && strings.HasSuffix(p.path, text) }
}

// freezing stops, for good, the nth box that the launcher makes, as soon as the
// launcher does anything after having made it.
func freezing(launcher *exec.Cmd, nth int) (decide func(n int, p point) verdict, frozen *[]int) {
	made := 0
	frozen = new([]int)
	return func(_ int, p point) verdict {
		if made == nth && len(*frozen) == 0 {
			for _, child := range children(launcher.Process.Pid) {
				if unix.Kill(child, unix.SIGSTOP) == nil {
					*frozen = append(*frozen, child)
				}
			}
		}
		if p.name == "clone3" {
			made++
		}
		return verdict{}
	}, frozen
}

// children are the processes that any thread of pid has made and not yet reaped.
func children(pid int) []int {
	var found []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for _, f := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(f); err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}

// immortal keeps a process from ending: killed, it stops on the way out until
// release is called. Only the tracer of a process can do that.
func immortal(pid int) (release func(), err error) {
	ready, let, gone := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		runtime.LockOSThread() // never unlocked: with the thread its tracees go free
		const traceExit = unix.PTRACE_O_TRACEEXIT
		_, _, e := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, traceExit, 0, 0)
		if e != 0 {
			ready <- e
			return
		}
		ready <- nil
		for {
			var ws unix.WaitStatus
			got, err := unix.Wait4(pid, &ws, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
			switch {
			case err != nil && err != unix.EINTR:
				return
			case got == pid && ws.StopSignal() == unix.SIGTRAP && ws.TrapCause() == unix.PTRACE_EVENT_EXIT:
				<-let
				_ = unix.PtraceCont(pid, 0)
				return
			case got == pid && ws.Stopped():
				sig := int(ws.StopSignal())
				if ws.StopSignal() == unix.SIGTRAP {
					sig = 0
				}
				_ = unix.PtraceCont(pid, sig)
			case got == pid:
				return
			}
			select {
			case <-let:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	if err := <-ready; err != nil {
		return nil, err
	}
	return func() { close(let); <-gone }, nil
}
