package launcher

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// withoutRenameFlags runs do on a thread whose renameat2(2) fails, as that of a
// file system does which knows no flags (NFS and 9p say EINVAL). The thread keeps
// its filter and ends with do.
func withoutRenameFlags(t *testing.T, errno syscall.Errno, do func()) {
	t.Helper()
	load := func(k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: k}
	}
	filter := []unix.SockFilter{
		load(0), // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_RENAMEAT2},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	done := make(chan error)
	go func() {
		var err error
		defer func() { done <- err }() // also if do ends the goroutine
		runtime.LockOSThread()
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
				err = e
			}
		}
		if err == nil {
			if got := unix.Renameat2(unix.AT_FDCWD, "a", unix.AT_FDCWD, "b", 0); got != errno {
				t.Errorf("control: renameat2 says %v", got)
			}
			do()
		}
	}()
	must(t, <-done)
}

// TestDeliverWhereRenameKnowsNoFlags: whole or not at all, and never over
// something, there too. A directory may take the place of an empty one.
func TestDeliverWhereRenameKnowsNoFlags(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.ENOSYS} {
		withoutRenameFlags(t, errno, func() {
			copied, digest := accepted(t, "01ATTEMPT", "new")
			dir := t.TempDir()
			path, err := deliver(copied, dir, "summary.csv", digest)
			if got := listing(t, dir); err != nil || len(got) != 1 || got["summary.csv"] != "new" {
				t.Errorf("%s: %s, %v; the directory has %v", errno, path, err, got)
			}
			if st, err := os.Stat(path); err != nil || st.Sys().(*syscall.Stat_t).Nlink != 1 {
				t.Errorf("%s: %+v, %v", errno, st, err)
			}
			copies, files := acceptedSeveral(t)
			path, err = deliverSeveral(copies, files, dir)
			if got := listing(t, path); err != nil || len(got) != len(files) || got["b.csv"] != "text 0" {
				t.Errorf("%s: %v; published is %v", errno, err, got)
			}
			if got := listing(t, dir); len(got) != 2 {
				t.Errorf("%s: the directory has %v", errno, got)
			}

			for what, lay := range map[string]func(at string) error{
				"a file":                func(at string) error { return os.WriteFile(at, []byte("old"), 0o644) },
				"a directory with more": func(at string) error { return os.MkdirAll(at+"/old", 0o755) },
				"a dangling link":       func(at string) error { return os.Symlink("nothing", at) },
			} {
				dir := t.TempDir()
				one, many := filepath.Join(dir, "summary.csv"), filepath.Join(dir, severalAttempt)
				must(t, lay(one))
				must(t, lay(many))
				before := listing(t, dir)
				copied, digest := accepted(t, "01OTHER", "new")
				if _, err := deliver(copied, dir, "summary.csv", digest); idOf(err) != reason.DeliverExists {
					t.Errorf("%s, %s: %v", errno, what, err)
				}
				copies, files := acceptedSeveral(t)
				if _, err := deliverSeveral(copies, files, dir); idOf(err) != reason.DeliverExists {
					t.Errorf("%s, %s: several: %v", errno, what, err)
				}
				if after := listing(t, dir); len(after) != 2 || after["summary.csv"] != before["summary.csv"] || after[severalAttempt] != before[severalAttempt] {
					t.Errorf("%s, %s: before %v, after %v", errno, what, before, after)
				}
			}
		})
	}
}
