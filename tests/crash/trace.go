package crash

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// point is a system call of the launcher with an effect that outlives it.
type point struct {
	name string
	path string // of the descriptor or the name concerned
}

func (p point) String() string { return p.name + " " + p.path }

// journal: the call appends to a journal or flushes it.
func (p point) journal() bool {
	return strings.HasSuffix(p.path, "/journal") && (p.name == "write" || p.name == "fdatasync" || p.name == "fallocate")
}

// verdict is what happens to a call before the kernel sees it.
type verdict struct {
	kill bool
	fail unix.Errno // instead of the call; 0: let it be
}

// argument kinds of the calls that count.
const (
	byFD = iota
	byName
	onlyCreating
	onlyForking
)

var effects = []struct {
	nr   uint64
	name string
	arg  int
}{
	{unix.SYS_WRITE, "write", byFD}, {unix.SYS_PWRITE64, "pwrite", byFD}, {unix.SYS_FSYNC, "fsync", byFD},
	{unix.SYS_FDATASYNC, "fdatasync", byFD}, {unix.SYS_FTRUNCATE, "ftruncate", byFD}, {unix.SYS_FALLOCATE, "fallocate", byFD},
	{unix.SYS_FCHMOD, "fchmod", byFD}, {unix.SYS_SENDMSG, "sendmsg", byFD}, {unix.SYS_COPY_FILE_RANGE, "copy_file_range", byFD},
	{unix.SYS_MKDIRAT, "mkdirat", byName}, {unix.SYS_UNLINKAT, "unlinkat", byName}, {unix.SYS_FCHMODAT, "fchmodat", byName},
	{unix.SYS_RENAMEAT, "renameat", byName}, {unix.SYS_RENAMEAT2, "renameat2", byName}, {unix.SYS_LINKAT, "linkat", byName},
	{unix.SYS_OPENAT, "openat", onlyCreating}, {unix.SYS_CLONE, "clone", onlyForking}, {unix.SYS_CLONE3, "clone3", onlyForking},
	{unix.SYS_PIDFD_SEND_SIGNAL, "pidfd_send_signal", byFD}, {unix.SYS_FSTATFS, "fstatfs", byFD}, // changes nothing, but decides
}

// traced is how a run under the tracer ended.
type traced struct {
	points []point
	status syscall.WaitStatus
}

// trace runs cmd and asks decide at each point, counted from 0. Forked processes
// are not followed. It must not run beside another trace of the same thread.
func trace(cmd *exec.Cmd, decide func(n int, p point) verdict) (t traced, err error) {
	runtime.LockOSThread() // a tracee obeys the thread that attached it
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return t, err
	}
	pid := cmd.Process.Pid
	var ws unix.WaitStatus
	if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
		return t, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return t, err
	}
	inside := map[int]*unix.Errno{} // threads between entry and exit, with the error to show
	seen := map[int]bool{pid: true}
	if err := unix.PtraceSyscall(pid, 0); err != nil {
		return t, err
	}
	for {
		tid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return t, fmt.Errorf("wait: %w", err)
		}
		if ws.Exited() || ws.Signaled() {
			if tid == pid {
				t.status = syscall.WaitStatus(ws)
				return t, nil
			}
			continue
		}
		signal := 0
		switch stop := ws.StopSignal(); {
		case stop == unix.SIGTRAP|0x80:
			if shown, ok := inside[tid]; ok {
				delete(inside, tid)
				showError(tid, shown)
				break
			}
			shown := new(unix.Errno)
			inside[tid] = shown
			if p, ok := pointAt(pid, tid); ok {
				v := decide(len(t.points), p)
				t.points = append(t.points, p)
				if v.kill {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
				if *shown = v.fail; v.fail != 0 {
					skipCall(tid)
				}
			}
		case stop == unix.SIGTRAP:
		case stop == unix.SIGSTOP && !seen[tid]:
		default:
			signal = int(stop)
		}
		seen[tid] = true
		_ = unix.PtraceSyscall(tid, signal) // fails for a thread that was killed
	}
}

func skipCall(tid int) {
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) == nil {
		r.Orig_rax = ^uint64(0)
		_ = unix.PtraceSetRegs(tid, &r)
	}
}

func showError(tid int, shown *unix.Errno) {
	if *shown == 0 {
		return
	}
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) == nil {
		r.Rax = -uint64(*shown)
		_ = unix.PtraceSetRegs(tid, &r)
	}
}

// pointAt reads the call a thread is entering.
func pointAt(pid, tid int) (point, bool) {
	var r unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &r) != nil {
		return point{}, false
	}
	for _, e := range effects {
		if e.nr != r.Orig_rax {
			continue
		}
		p := point{name: e.name}
		switch e.arg {
		case byFD:
			p.path = fdPath(pid, int(int32(r.Rdi)))
			// Streams, wake-ups of the runtime: nothing that lasts.
			if !strings.HasPrefix(p.path, "/") && e.nr != unix.SYS_SENDMSG && e.nr != unix.SYS_PIDFD_SEND_SIGNAL {
				return p, false
			}
			return p, !strings.HasPrefix(p.path, "/dev/") && !strings.HasPrefix(p.path, "/proc/self")
		case byName:
			p.path = text(tid, r.Rsi)
		case onlyCreating:
			p.path = text(tid, r.Rsi)
			return p, r.Rdx&unix.O_CREAT != 0
		case onlyForking:
			flags := r.Rdi
			if e.nr == unix.SYS_CLONE3 {
				flags = word(tid, r.Rdi)
			}
			return p, flags&unix.CLONE_THREAD == 0
		}
		return p, true
	}
	return point{}, false
}

func fdPath(pid, fd int) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	return path
}

// text reads a path from the tracee's memory.
func text(tid int, addr uint64) string {
	b := make([]byte, 512)
	n, _ := unix.PtracePeekData(tid, uintptr(addr), b)
	s, _, _ := strings.Cut(string(b[:n]), "\x00")
	return s
}

func word(tid int, addr uint64) uint64 {
	b := make([]byte, 8)
	if _, err := unix.PtracePeekData(tid, uintptr(addr), b); err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
