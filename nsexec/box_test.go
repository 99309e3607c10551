package nsexec

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/wire"
)

func TestMain(m *testing.M) {
	if os.Args[0] == StageInit {
		os.Exit(RunInit())
	}
	if os.Args[0] == userStage {
		becomeUser()
	}
	if os.Args[0] == testStage {
		os.Exit(runTestStage())
	}
	os.Exit(m.Run())
}

// testFilter allows everything but unshare: enough for the probe.
func testFilter() []byte {
	return assemble([]unix.SockFilter{{Code: 0x20}, {Code: 0x15, Jf: 1, K: unix.SYS_UNSHARE}, {Code: 6, K: 0x50001}, {Code: 6, K: 0x7fff0000}})
}

func assemble(program []unix.SockFilter) []byte {
	var b []byte
	for _, f := range program {
		b = binary.NativeEndian.AppendUint16(b, f.Code)
		b = append(b, f.Jt, f.Jf)
		b = binary.NativeEndian.AppendUint32(b, f.K)
	}
	return b
}

func selfFD(t testing.TB) int {
	fd, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// testSpec is a small box over the host's /usr.
func testSpec(argv ...string) *Spec {
	return &Spec{
		Hostname: "nsbox", StagingPoint: "/dev",
		Root: []Node{
			{Path: "/", Kind: Dir, Access: List},
			{Path: "/usr", Kind: BindDir, Source: "/usr", Access: Read | List | Execute},
			{Path: "/bin", Kind: Symlink, Source: "usr/bin"}, {Path: "/lib", Kind: Symlink, Source: "usr/lib"}, {Path: "/lib64", Kind: Symlink, Source: "usr/lib64"},
			{Path: "/etc", Kind: Dir}, {Path: "/etc/passwd", Kind: File, Data: []byte("sandbox:x:10001:10001::/scratch:\n"), Access: Read},
			{Path: "/dev", Kind: Dir}, {Path: "/dev/null", Kind: Device, Source: "/dev/null", Access: Read | Write}, {Path: "/dev/zero", Kind: Device, Source: "/dev/zero", Access: Read},
			{Path: "/proc", Kind: Proc, Access: Read | List},
			{Path: "/scratch", Kind: Tmpfs, Bytes: 1 << 20, Inodes: 64, Mode: 0o700, UID: 10001, GID: 10001, Access: Read | List | Write},
			{Path: "/out", Kind: Tmpfs, Bytes: 1 << 20, Inodes: 64, Mode: 0o700, UID: 10001, GID: 10001, Access: Read | List | Write},
		},
		MaskProc: []string{"keys", "key-users", "kallsyms", "kcore", "timer_list", "sysrq-trigger"}, MaskDirs: []string{"bus", "fs", "no-such-directory"},
		UID: 10001, GID: 10001, Umask: 0o22, Affinity: -1, LandlockABI: landlockHere(),
		Rlimits: []Rlimit{{"nofile", unix.RLIMIT_NOFILE, 64, 64}, {"nproc", unix.RLIMIT_NPROC, 32, 32}},
		Command: Command{Path: argv[0], Argv: argv, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/scratch"},
		Hold:    "/out", Listable: -1, CapLast: 40,
		Identity:   testIdentity(10001),
		InitFilter: testFilter(), Filter: testFilter(),
	}
}

func run(t testing.TB, s *Spec) (Exit, string, string) {
	t.Helper()
	b, err := Spawn(s, Files{Self: selfFD(t), Cgroup: -1, Work: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.closeStreams()
	if err := b.Release(); err != nil {
		t.Fatal(err)
	}
	var out, errb strings.Builder
	e := <-b.Done()
	io.Copy(&out, b.Stdout)
	io.Copy(&errb, b.Stderr)
	return e, out.String(), errb.String()
}

func TestBoxRuns(t *testing.T) {
	for _, vm := range []bool{false, true} {
		s := testSpec("/usr/bin/python3", "-c", "import os;print(os.getpid(),os.getuid(),os.getgroups(),os.getcwd(),sorted(os.listdir('/proc/self/fd')),os.environ);print(open('/proc/self/status').read())")
		s.SharedVM = vm
		e, out, errs := run(t, s)
		t.Logf("vm=%v\n%s%s%+v", vm, out, errs, e)
		if !e.Reported || !e.Status.Exited() || e.Status.ExitStatus() != 0 || !strings.HasPrefix(out, "2 10001 [] /scratch") {
			t.Errorf("vm=%v: unexpected end", vm)
		}
	}
}

func TestExecFailureNamesTheStep(t *testing.T) {
	e, _, _ := run(t, testSpec("/usr/bin/no-such-program"))
	if e.ExecErr == nil || !errors.Is(e.ExecErr, unix.ENOENT) {
		t.Fatalf("got %+v, want ENOENT of exec-workload", e)
	}
}

// A kill that does not end the box is told after a while, never waited for.
func TestAbortHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		gone     bool
		patience time.Duration
		want     error
	}{{false, time.Millisecond, ErrStays}, {true, time.Hour, nil}} {
		b := &Box{spec: &Spec{}, Held: -1, pidfd: -1, reaped: make(chan unix.WaitStatus, 1), patience: c.patience}
		for _, conn := range []**wire.Conn{&b.control, &b.golink} {
			own, peer, err := wire.Pair(highFD)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(peer)
			*conn = own
		}
		if c.gone {
			b.reaped <- 0
		}
		if err := b.Abort(); err != c.want {
			t.Errorf("gone %v: got %v", c.gone, err)
		}
	}
}
