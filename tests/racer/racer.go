// Package racer plays a seal that failed: it swaps the artifact and a link while
// the exporter looks at it. It stands outside nsbox and needs root.
package racer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/tests/harness"
)

// Racer swaps the name in a sealed directory. It works by the launcher's
// descriptor of that directory, which only root can use for writing: the mode is
// 0555 and the owner is no user of the host. Even root can add an entry only
// under an id that the box maps: the file system belongs to its user namespace.
type Racer struct {
	t      harness.T
	pid    int // the launcher
	dir    int // the sealed directory
	target string
	Swaps  int // done so far
}

// Reach finds the sealed directory among the launcher's descriptors.
func Reach(t harness.T, pid int, target string) *Racer {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())
		var st unix.Statfs_t
		if unix.Statfs(path, &st) != nil || st.Type != unix.TMPFS_MAGIC {
			continue
		}
		if _, err := os.Lstat(path + "/summary.csv"); err != nil {
			continue
		}
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return &Racer{t: t, pid: pid, dir: fd, target: target}
	}
	t.Fatal("the launcher holds no descriptor of the sealed directory")
	return nil
}

// Become gives this goroutine's thread the directory owner's ids for files and
// leaves it root's capabilities. The thread ends with the goroutine.
func (r *Racer) Become() error {
	runtime.LockOSThread()
	var st unix.Stat_t
	if err := unix.Fstat(r.dir, &st); err != nil {
		return err
	}
	unix.RawSyscall(unix.SYS_SETFSGID, uintptr(st.Gid), 0, 0)
	unix.RawSyscall(unix.SYS_SETFSUID, uintptr(st.Uid), 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		return err
	}
	for i := range caps {
		caps[i].Effective = caps[i].Permitted
	}
	return unix.Capset(&header, &caps[0])
}

// Swap puts a link to the target in the file's place, or the same file back.
func (r *Racer) Swap() bool {
	var err error
	if r.Swaps%2 == 0 {
		if err = unix.Renameat(r.dir, "summary.csv", r.dir, ".kept"); err == nil {
			err = unix.Symlinkat(r.target, r.dir, "summary.csv")
		}
	} else {
		err = unix.Renameat(r.dir, ".kept", r.dir, "summary.csv")
	}
	if err != nil {
		r.t.Errorf("swap %d: %v", r.Swaps, err)
		return false
	}
	r.Swaps++
	return true
}

// exporter returns the exporter's process once it has been exec'd, or 0.
func (r *Racer) exporter() int {
	for _, init := range children(r.pid) {
		for _, pid := range children(init) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if bytes.HasPrefix(line, []byte("nsbox-export\x00")) {
				return pid
			}
		}
	}
	return 0
}

func children(pid int) (found []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range lists {
		data, _ := os.ReadFile(path)
		for _, word := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(word); err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}

// Stops lets the exporter run in slices and swaps between them. It returns the
// number of swaps that happened while the exporter existed.
func (r *Racer) Stops(ended <-chan struct{}) int {
	var pid int
	for pid == 0 {
		select {
		case <-ended:
			return 0
		default:
			pid = r.exporter()
		}
	}
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0 // already gone
	}
	defer unix.Close(handle)
	begun, slice := r.Swaps, 50*time.Microsecond
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && r.Swaps-begun < 200; {
		if unix.PidfdSendSignal(handle, unix.SIGSTOP, nil, 0) != nil {
			break
		}
		for range 11 { // an odd number, so that it sees both states in turn; it runs for some eight slices
			if !r.Swap() {
				break
			}
		}
		if unix.PidfdSendSignal(handle, unix.SIGCONT, nil, 0) != nil {
			break
		}
		time.Sleep(slice)
	}
	n := r.Swaps - begun
	unix.PidfdSendSignal(handle, unix.SIGCONT, nil, 0)
	return n
}
