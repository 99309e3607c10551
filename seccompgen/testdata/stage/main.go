// Command stage is a stand-in for nsbox's own stages: it links what they link and
// does what they do, so that a call their filter forgets shows up as a failure.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"github.com/syndtr/gocapability/capability"
	"golang.org/x/sys/unix"

	"nsbox/seccompgen"
)

// Descriptors as the test hands them: 3 a socket, 4 a folder, 5 a file to write.
func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Println("BAD", err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run(kind string) error {
	if p := seccompgen.Init(); len(p.Rules) == 0 || capability.CAP_LAST_CAP == 0 {
		return fmt.Errorf("packages not linked")
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	signal.Ignore(unix.SIGINT, unix.SIGTERM)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	if err := unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1); err != nil {
		return fmt.Errorf("tgkill: %w", err)
	}
	<-signals
	if err := threadsAndHeap(); err != nil {
		return err
	}
	if _, err := os.ReadFile("/proc/self/status"); err != nil {
		return err
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &usage); err != nil {
		return fmt.Errorf("getrusage: %w", err)
	}
	if err := talk(); err != nil {
		return err
	}
	if fd, err := unix.Open("/tmp/nsbox-stage-must-not-exist", unix.O_CREAT|unix.O_WRONLY, 0o600); err != unix.EPERM {
		unix.Close(fd)
		return fmt.Errorf("creating a file: %v, want EPERM", err)
	}
	if _, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != unix.EPERM {
		return fmt.Errorf("making a socket: %v, want EPERM", err)
	}
	if _, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{}); err == nil {
		return fmt.Errorf("a process was started")
	}
	if kind == "init" {
		return reap()
	}
	return copyOne()
}

func threadsAndHeap() error {
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			runtime.LockOSThread() // forces threads
			time.Sleep(time.Millisecond)
			_ = make([]byte, 8<<20)
		})
	}
	wg.Wait()
	runtime.GC()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	go func() { time.Sleep(time.Millisecond); w.Write([]byte("x")) }()
	_, err = r.Read(make([]byte, 1)) // through the poller
	return err
}

func talk() error {
	buf, oob := make([]byte, 64), make([]byte, 256)
	if _, err := unix.Poll([]unix.PollFd{{Fd: 3, Events: unix.POLLIN}}, 5000); err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	n, _, _, _, err := unix.Recvmsg(3, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return fmt.Errorf("recvmsg: %w", err)
	}
	if err := unix.Sendmsg(3, buf[:n], unix.UnixRights(5), nil, 0); err != nil {
		return fmt.Errorf("sendmsg: %w", err)
	}
	return nil
}

func reap() error {
	if _, err := unix.Wait4(-1, nil, 0, nil); err != unix.ECHILD {
		return fmt.Errorf("wait4: %v, want ECHILD", err)
	}
	if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED, nil); err != unix.ECHILD {
		return fmt.Errorf("waitid: %v, want ECHILD", err)
	}
	return unix.Kill(os.Getpid(), 0)
}

func copyOne() error {
	names, err := os.NewFile(4, "folder").Readdirnames(-1)
	if err != nil || len(names) != 1 {
		return fmt.Errorf("list: %v %v", names, err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(4, names[0], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("fstatat: %w", err)
	}
	var stx unix.Statx_t
	if err := unix.Statx(4, names[0], unix.AT_SYMLINK_NOFOLLOW, unix.STATX_ALL, &stx); err != nil {
		return fmt.Errorf("statx: %w", err)
	}
	fd, err := unix.Openat2(4, names[0], &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return fmt.Errorf("openat2: %w", err)
	}
	in, out := os.NewFile(uintptr(fd), "in"), os.NewFile(5, "out")
	if _, err := in.Seek(0, 0); err != nil {
		return err
	}
	if _, err := out.ReadFrom(in); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	for name, f := range map[string]func() error{
		"pread":     func() error { _, err := in.ReadAt(make([]byte, 2), 1); return err },
		"pwrite":    func() error { _, err := out.WriteAt([]byte("X"), 0); return err },
		"fsync":     func() error { return unix.Fsync(5) },
		"fdatasync": func() error { return unix.Fdatasync(5) },
		"ftruncate": func() error { return out.Truncate(3) },
		"fchmod":    func() error { return out.Chmod(0o600) },
	} {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
