package nsexec

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hostBase is the first host id of the boxes in these tests: high enough to be
// nobody's on a usual host.
const hostBase = 1879048192

// newestABI is the newest Landlock ABI whose rights nsexec has names for; it is
// what the generated documents show.
const newestABI = 6

// landlockHere is what a box on this kernel gets: asking for more is an error.
func landlockHere() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return min(int(abi), newestABI)
}

func testIdentity(inside int) Identity {
	maps := []MapEntry{{0, hostBase, 1}, {inside, hostBase + 1, 1}}
	id := Identity{Kind: "privileged", UIDs: maps, GIDs: maps}
	if os.Geteuid() != 0 {
		id.Kind, id.UIDHelper, id.GIDHelper = "subordinate", "/usr/bin/newuidmap", "/usr/bin/newgidmap"
	}
	return id
}

// workloadSpec is a box with every kind of node and every option of a workload.
func workloadSpec() *Spec {
	s := testSpec("/usr/bin/true")
	s.Identity = testIdentity(10001)
	s.Root = append(s.Root, Node{Path: "/in", Kind: BindDir, Source: "/usr/share", NoExec: true, Access: Read | List},
		Node{Path: "/etc/hostname", Kind: BindFile, Source: "/etc/hostname", Access: Read})
	s.Affinity = 0
	s.Stdin = true
	return s
}

// terminalSpec is the everyday box's kind: a terminal made inside, and /tmp and
// /dev/shm that share the budget of /scratch, from which programs may be run.
func terminalSpec() *Spec {
	s := testSpec("/usr/bin/true")
	s.Identity = testIdentity(10001)
	s.Hold = ""
	for i, n := range s.Root {
		if n.Path == "/scratch" {
			s.Root[i].Exec = true
			s.Root[i].Access |= Execute
		}
	}
	const rlw = Read | List | Write
	s.Root = append(s.Root, Node{Path: "/dev/pts", Kind: Devpts, Access: rlw | Control},
		Node{Path: "/dev/tty", Kind: Device, Source: "/dev/tty", Access: Read | Write | Control},
		Node{Path: "/dev/ptmx", Kind: Symlink, Source: "pts/ptmx"},
		Node{Path: "/dev/shm", Kind: Part, Source: "/scratch", Mode: 0o700, Access: rlw},
		Node{Path: "/tmp", Kind: Part, Source: "/scratch", Mode: 0o700, Access: rlw})
	s.Terminal = &Terminal{Rows: 24, Cols: 80}
	return s
}

// exporterSpec is the exporter's kind of box: an empty root, nsbox's own image
// as its program, a sealed directory and one name in it.
func exporterSpec() *Spec {
	return &Spec{
		Hostname: "nsbox", StagingPoint: "/dev", Root: []Node{{Path: "/", Kind: Dir, Mode: 0o755}},
		UID: 20002, GID: 20002, Umask: 0o77, Affinity: -1, LandlockABI: landlockHere(),
		Rlimits: []Rlimit{{"nofile", unix.RLIMIT_NOFILE, 64, 64}},
		Command: Command{Self: true, Argv: []string{testStage}, Env: StageEnv(), Dir: "/"},
		Open:    []OpenBelow{{Dir: 3, Name: "summary.csv", To: 5}}, Listable: 3, CapLast: 40,
		Identity: testIdentity(20002), InitFilter: testFilter(), Filter: testFilter(),
	}
}

// nested makes s a box of a caller who has no id but its own.
func nested(s *Spec) *Spec {
	u, g := os.Getuid(), os.Getgid()
	if u == 0 { // as root it can be compiled, and not started
		u, g = hostBase, hostBase
	}
	s.Identity = Identity{Kind: "single", Nested: true, UIDs: []MapEntry{{0, u, 1}}, GIDs: []MapEntry{{0, g, 1}}}
	return s
}

// endpointSpec is a workload's box with endpoints of every kind of address.
func endpointSpec() *Spec {
	s := workloadSpec()
	for _, at := range []string{"127.64.0.1:443", "192.0.2.10:8443", "192.0.2.10:443", "[2001:db8::5]:443"} {
		s.Listen = append(s.Listen, listenAt(at))
	}
	s.Filter = streamFilter()
	return s
}

func listenAt(text string) Listen {
	at := netip.MustParseAddrPort(text)
	return Listen{Name: text, IP: at.Addr().AsSlice(), Port: at.Port()}
}

// liveSpec is a workload's box with what may hold socket files in sight.
func liveSpec() *Spec {
	s := workloadSpec()
	s.NoUnixPaths, s.Filter = true, socketFilter(unix.SYS_CONNECT, noSuch)
	return s
}

// liveEndpointSpec has endpoints besides, so connect must work.
func liveEndpointSpec() *Spec {
	s := endpointSpec()
	s.NoUnixPaths, s.Filter = true, socketFilter(noSuch, unix.AF_UNIX)
	return s
}

// noSuch is neither a system call nor a family.
const noSuch = 0xffff

// streamFilter is testFilter that lets no datagram socket be made either.
func streamFilter() []byte { return socketFilter(noSuch, noSuch) }

// socketFilter is streamFilter that refuses one more system call and one family.
func socketFilter(call, family uint32) []byte {
	const dgram = 2
	return assemble([]unix.SockFilter{{Code: 0x20}, {Code: 0x15, Jt: 7, K: unix.SYS_UNSHARE}, {Code: 0x15, Jt: 6, K: call}, {Code: 0x15, Jf: 6, K: unix.SYS_SOCKET},
		{Code: 0x20, K: 24}, {Code: 0x54, K: 0xf}, {Code: 0x15, Jt: 2, K: dgram}, {Code: 0x20, K: 16}, {Code: 0x15, Jf: 1, K: family},
		{Code: 6, K: 0x50001}, {Code: 6, K: 0x7fff0000}})
}

// testStage is argv[0] under which this test binary plays the exporter: it
// reports which descriptors it was given.
const testStage = "nsbox-test-stage"

func runTestStage() int {
	for fd := 0; fd < 128; fd++ {
		if fl, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && fl&unix.FD_CLOEXEC == 0 {
			fmt.Print(fd, " ")
		}
	}
	return 0
}

// fixedFDs are descriptor numbers as Spawn would find them, for compiling only.
func fixedFDs(s *Spec) fds {
	f := fds{control: 64, golink: 65, self: 66, work: 67}
	if s.Listable >= 0 {
		f.work, f.pass = -1, []Pass{{67, 3}, {68, 4}}
	}
	return f
}

func mustCompile(t testing.TB, s *Spec) *Program {
	t.Helper()
	p, _, err := compile(s, fixedFDs(s))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// filesFor opens what the box needs; for the exporter's a directory that the
// box's init owns, with the one file in it.
func filesFor(t testing.TB, s *Spec) Files {
	t.Helper()
	f := Files{Self: selfFD(t), Cgroup: -1, Work: -1}
	if s.Listable < 0 {
		return f
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/summary.csv", []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{dir, dir + "/summary.csv"} {
		if err := os.Chown(p, hostBase, hostBase); err != nil {
			t.Fatal(err)
		}
	}
	for i, to := range []int{3, 4} {
		fd, err := unix.Open([]string{dir, "/dev/null"}[i], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		f.Pass = append(f.Pass, Pass{fd, to})
	}
	return f
}

// openFDs lists this process's descriptors with what they refer to.
func openFDs(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		// The listing's own descriptor is gone again by now.
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			out = append(out, e.Name()+" "+to)
		}
	}
	slices.Sort(out)
	return out
}

// nothingLeft fails unless this process has no child, dead or alive, and the
// descriptors it had before.
func nothingLeft(t testing.TB, before []string, what string) {
	t.Helper()
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG|unix.WALL, nil); err != unix.ECHILD {
		t.Errorf("%s: a child is left: wait4 says %d, %v", what, pid, err)
	}
	after := openFDs(t)
	for deadline := time.Now().Add(2 * time.Second); !slices.Equal(before, after) && time.Now().Before(deadline); after = openFDs(t) {
		time.Sleep(time.Millisecond) // os.File closes on another goroutine's last use
	}
	if !slices.Equal(before, after) {
		t.Errorf("%s: descriptors before %q, after %q", what, before, after)
	}
}

// series splits "bound-12" into "bound-" and 12; other names are their own series.
func series(name string) (string, int) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	if n, err := strconv.Atoi(name[i:]); err == nil && i > 0 && name[i-1] == '-' {
		return name[:i], n
	}
	return name, -1
}
