package export

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// racer swaps the name in a sealed directory. It works by the launcher's
// descriptor of that directory, which only root can use for writing: the mode is
// 0555 and the owner is no user of the host. Even root can add an entry only
// under an id that the box maps: the file system belongs to its user namespace.
type racer struct {
	t      *testing.T
	pid    int // the launcher
	dir    int // the sealed directory
	target string
	swaps  int
}

// reach finds the sealed directory among the launcher's descriptors.
func reach(t *testing.T, pid int, target string) *racer {
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
		return &racer{t, pid, fd, target, 0}
	}
	t.Fatal("the launcher holds no descriptor of the sealed directory")
	return nil
}

// become gives this goroutine's thread the directory owner's ids for files and
// leaves it root's capabilities. The thread ends with the goroutine.
func (r *racer) become() error {
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

// swap puts a link to the target in the file's place, or the same file back.
func (r *racer) swap() bool {
	var err error
	if r.swaps%2 == 0 {
		if err = unix.Renameat(r.dir, "summary.csv", r.dir, ".kept"); err == nil {
			err = unix.Symlinkat(r.target, r.dir, "summary.csv")
		}
	} else {
		err = unix.Renameat(r.dir, ".kept", r.dir, "summary.csv")
	}
	if err != nil {
		r.t.Errorf("swap %d: %v", r.swaps, err)
		return false
	}
	r.swaps++
	return true
}

// exporter returns the exporter's process once it has been exec'd, or 0.
func (r *racer) exporter() int {
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

// stops lets the exporter run in slices and swaps between them. It returns the
// number of swaps that happened while the exporter existed.
func (r *racer) stops(ended <-chan struct{}) int {
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
	begun, slice := r.swaps, 50*time.Microsecond
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) && r.swaps-begun < 200; {
		if unix.PidfdSendSignal(handle, unix.SIGSTOP, nil, 0) != nil {
			break
		}
		for range 11 { // an odd number, so that it sees both states in turn; it runs for some eight slices
			if !r.swap() {
				break
			}
		}
		if unix.PidfdSendSignal(handle, unix.SIGCONT, nil, 0) != nil {
			break
		}
		time.Sleep(slice)
	}
	n := r.swaps - begun
	unix.PidfdSendSignal(handle, unix.SIGCONT, nil, 0)
	return n
}

// TestS11 races the exporter: whatever is swapped, what is delivered is the
// original file's bytes, or nothing.
func TestS11(t *testing.T) {
	if os.Geteuid() != 0 {
		sealedAgainstCaller(t, harness.NewSite(t, harness.Callers(t)[0]))
		return
	}
	content := []byte(strings.Repeat("Abilene,2000-01,72,5380000,71400,701,6.3\n", 19000))
	code := "put('summary.csv', 'Abilene,2000-01,72,5380000,71400,701,6.3\\n' * 19000)\nprint('ready', flush=True)\nimport time; time.sleep(0.4)\n"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		try(t, s, code, harness.Job{}).wantDelivered(content, 19000)

		verdicts := map[string]int{}
		race := func(t *testing.T, act func(r *racer, ended <-chan struct{})) {
			t.Helper()
			deliver := s.Folder()
			live := s.Start(harness.Job{Code: prelude + code, Deliver: deliver})
			live.Await("ready\n")
			r := reach(t, live.Cmd.Process.Pid, target)
			ended, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				if err := r.become(); err != nil {
					t.Error(err)
					return
				}
				act(r, ended)
			}()
			run := live.Wait()
			close(ended)
			<-done
			tr := &trial{t, s, run, deliver}
			switch a := run.Result.Artifact; a.Outcome {
			case launcher.ArtifactAccepted:
				tr.wantDelivered(content, 19000)
			case launcher.ArtifactRejected:
				tr.run.Want(launcher.Exited, launcher.ExitUndelivered)
				tr.wantNothing()
			default:
				t.Errorf("artifact %+v, reason %+v", a, run.Result.Reason)
			}
			verdicts[run.Result.Artifact.Outcome]++
			if places := run.Holding(canary, deliver); places != nil {
				t.Errorf("the canary stands in %q", places)
			}
		}

		t.Run("while it looks", func(t *testing.T) {
			most := 0
			for round := 0; round < 25 && (most < 50 || round < 3); round++ {
				race(t, func(r *racer, ended <-chan struct{}) { most = max(most, r.stops(ended)) })
			}
			t.Logf("up to %d swaps while the exporter existed; verdicts %v", most, verdicts)
			if most < 50 {
				t.Errorf("%d swaps while the exporter existed, want 50", most)
			}
			if verdicts[launcher.ArtifactRejected] == 0 {
				t.Error("no race was noticed")
			}
		})
		t.Run("all the time", func(t *testing.T) {
			total := 0
			for round := 0; round < 6; round++ {
				race(t, func(r *racer, ended <-chan struct{}) {
					for {
						select {
						case <-ended:
							total += r.swaps
							return
						case <-time.After(time.Duration(5+15*round) * time.Millisecond):
							if !r.swap() {
								return
							}
						}
					}
				})
			}
			t.Logf("%d swaps in 6 runs; verdicts %v", total, verdicts)
			if total < 50 {
				t.Errorf("%d swaps, want 50", total)
			}
		})
		t.Run("sealed", func(t *testing.T) { sealedAgainstCaller(t, s) })
	})
}

// sealedAgainstCaller shows why the racer has to be root: the caller itself
// cannot change the sealed directory, not even by the launcher's descriptor.
func sealedAgainstCaller(t *testing.T, s *harness.Site) {
	t.Helper()
	if s.Caller.UID == 0 {
		return // root is the racer
	}
	deliver := s.Folder()
	live := s.Start(harness.Job{Code: prelude + good + "print('ready', flush=True)\nimport time; time.sleep(1)\n", Deliver: deliver})
	live.Await("ready\n")
	shell := fmt.Sprintf("for d in /proc/%d/fd/*; do [ -e $d/summary.csv ] || continue; echo found; touch $d/new && echo written; rm -f $d/summary.csv && echo removed; done", live.Cmd.Process.Pid)
	cmd := exec.Command("/bin/sh", "-c", shell)
	if s.Caller.UID != os.Geteuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.Caller.UID), Gid: uint32(s.Caller.GID)}}
	}
	out, _ := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("written")) || bytes.Contains(out, []byte("removed")) {
		t.Errorf("the caller changed the directory: %s", out)
	}
	t.Logf("as the caller: %s", out)
	tr := &trial{t, s, live.Wait(), deliver}
	tr.wantDelivered([]byte("a,b\n1,2\n"), 2)
}
