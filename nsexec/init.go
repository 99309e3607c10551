package nsexec

import (
	"encoding/binary"
	"os"
	"os/signal"
	"strconv"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/caps"
)

// StageInit is argv[0] of pid 1 after its exec.
const StageInit = "nsbox-init"

// Messages of the control socket. Each starts with its tag; sixteen bytes are
// always a failure of the set-up program.
const (
	msgStreams   = 'S' // set-up -> launcher: outer stream ends, held directory
	msgListeners = 'L' // set-up -> launcher: listening sockets in the order of Spec.Listen
	msgUp        = 'U' // init -> launcher: upWords 8-byte words, InitReport
	msgExit      = 'X' // init -> launcher: wait status, cpu time of all reaped children in microseconds, max RSS in KiB
)

// RunInit is pid 1 of the box: it reaps, reports how the workload ended, and
// exits, which ends every other process of the pid namespace. It holds no
// capability, nothing of the launcher's memory and one descriptor. A missing
// control socket means that a person typed the stage's name: exit 125.
func RunInit() int {
	if os.Getpid() != 1 {
		os.Stderr.WriteString("nsbox: nsbox-init is a stage of nsbox exec, not a command\n")
		return 125
	}
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGPIPE, unix.SIGUSR1, unix.SIGUSR2)
	sets, err := caps.Self()
	if err != nil {
		return 125
	}
	up := []byte{msgUp}
	for _, v := range initWords(sets) {
		up = binary.NativeEndian.AppendUint64(up, v)
	}
	if _, err := unix.Write(fdControl, up); err != nil {
		return 125
	}
	go func() {
		// The launcher never sends: the only thing to read is its end.
		var b [1]byte
		for {
			n, err := unix.Read(fdControl, b[:])
			if err == unix.EINTR {
				continue
			}
			if n <= 0 {
				os.Exit(125)
			}
		}
	}()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 125
		case pid == 2 && (ws.Exited() || ws.Signaled()):
			reportExit(ws)
			return 0
		}
	}
}

// upWords is how many words init reports.
const upWords = 13

// initWords asks the kernel what this process is; what it does not answer is
// all ones, which nobody wants.
func initWords(sets caps.Sets) []uint64 {
	const none = ^uint64(0)
	words := []uint64{sets.Effective, sets.Permitted, sets.Inheritable, sets.Bounding, sets.Ambient, uint64(len(os.Environ()))}
	signal := none
	if len(os.Args) == 2 && len(os.Args[1]) == 1 {
		signal = uint64(os.Args[1][0])
	}
	core := unix.Rlimit{Cur: none, Max: none}
	unix.Getrlimit(unix.RLIMIT_CORE, &core)
	words = append(words, signal, core.Cur, core.Max)
	for fd := range 3 {
		var st unix.Stat_t
		rdev := none
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			rdev = st.Rdev
		}
		words = append(words, rdev)
	}
	var polled [64]unix.PollFd
	for fd := range polled {
		polled[fd].Fd = int32(fd)
	}
	open := none
	if _, err := unix.Poll(polled[:], 0); err == nil {
		open = 0
		for fd, p := range polled {
			if p.Revents&unix.POLLNVAL == 0 && !runtimeOwn(fd) {
				open |= 1 << fd
			}
		}
	}
	return append(words, open)
}

// runtimeOwn reports whether fd is the Go runtime's poller, which it makes when a
// package reads a file at its start.
func runtimeOwn(fd int) bool {
	var name [32]byte
	n, err := unix.Readlink("/proc/self/fd/"+strconv.Itoa(fd), name[:])
	text := string(name[:max(n, 0)])
	return err == nil && (text == "anon_inode:[eventpoll]" || text == "anon_inode:[eventfd]")
}

func reportExit(ws unix.WaitStatus) {
	var ru unix.Rusage
	unix.Getrusage(unix.RUSAGE_CHILDREN, &ru)
	m := make([]byte, 1+24)
	m[0] = msgExit
	cpu := ru.Utime.Nano()/1000 + ru.Stime.Nano()/1000
	binary.NativeEndian.PutUint64(m[1:], uint64(ws))
	binary.NativeEndian.PutUint64(m[9:], uint64(cpu))
	binary.NativeEndian.PutUint64(m[17:], uint64(ru.Maxrss))
	unix.Write(fdControl, m)
}
