package nsexec

import (
	"encoding/binary"
	"os"
	"os/signal"

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
	msgUp        = 'U' // init -> launcher: 8-byte words: effective|permitted|inheritable|bounding|ambient, environment count
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
	up := make([]byte, 1+8*6)
	up[0] = msgUp
	for i, v := range []uint64{sets.Effective, sets.Permitted, sets.Inheritable, sets.Bounding, sets.Ambient, uint64(len(os.Environ()))} {
		binary.NativeEndian.PutUint64(up[1+8*i:], v)
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
