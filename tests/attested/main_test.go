package attested

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nsbox/tests/harness"
)

// asCaller makes this test binary start the program in its arguments as a caller
// that has everything a box must not inherit.
const asCaller = "NSBOX_TEST_CALLER"

func TestMain(m *testing.M) {
	if os.Getenv(asCaller) != "" {
		if err := burdened(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "caller:", err)
		}
		os.Exit(99)
	}
	status := harness.Main(m)
	if altered.dir != "" {
		os.RemoveAll(altered.dir)
	}
	os.Exit(status)
}

// burdened ignores every signal, adds a group, raises limits, shares its mounts,
// switches address randomization off and leaves descriptors open, then execs. Where the caller has nothing to lose,
// leaving the step out that takes it away would change nothing.
func burdened(argv []string) error {
	runtime.LockOSThread()
	if err := unix.Setgroups([]int{0, 1234}); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return err
	}
	if err := unix.Setdomainname([]byte("callers.example")); err != nil {
		return err
	}
	if _, err := unix.KeyctlJoinSessionKeyring("nsbox-test-caller"); err != nil {
		return err
	}
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	const noRandomization = 0x0040000
	if _, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, noRandomization, 0, 0); errno != 0 {
		return errno
	}
	for resource, value := range map[int]uint64{unix.RLIMIT_CORE: 1 << 30, unix.RLIMIT_NICE: 7, unix.RLIMIT_RTPRIO: 7, unix.RLIMIT_MSGQUEUE: 819200,
		unix.RLIMIT_SIGPENDING: 4000, unix.RLIMIT_STACK: 1 << 26, unix.RLIMIT_MEMLOCK: 1 << 24} {
		// Without CAP_SYS_RESOURCE a limit stays at most what it is.
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil && err != unix.EPERM {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	for n := range 40 {
		// Not over what is open: one of them is the Go runtime's own.
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); n != 0 && err == nil {
			continue
		}
		if err := unix.Dup3(1, n, 0); err != nil {
			return err
		}
	}
	unix.Umask(0o077)
	os.Unsetenv(asCaller)
	path, env := argv[0], os.Environ()
	type sigaction struct{ handler, flags, restorer, mask uintptr }
	ignore := sigaction{handler: 1} // SIG_IGN
	for n := uintptr(1); n <= 64; n++ {
		// Refused for SIGKILL and SIGSTOP. SIGCHLD ignored would take nsbox its children's ends.
		if n != uintptr(unix.SIGCHLD) && n != uintptr(unix.SIGURG) {
			unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
		}
	}
	return syscall.Exec(path, argv, env)
}

// viewPolicy is the preset with less patience where a broken box waits for what
// never comes.
func viewPolicy(s *harness.Site) string {
	return s.Policy(harness.Set("budget_provision_boot", 5))
}

// allowed names what this machine may lack. The sum of the cpu time is not among
// it: a launcher that cannot reach its cgroup is to refuse.
const allowed = "memory,cpu_rate,launcher_identity,out_storage"

// within bounds one run. What it catches is a hang.
const within = 2 * time.Minute

// look runs view.py through a shell text and says whether the program began: by
// its output, or by what it delivers.
func look(t *testing.T, s *harness.Site, policy, shell string, env ...string) (*harness.Run, map[string]string, bool) {
	t.Helper()
	out := s.Folder()
	script, err := os.ReadFile("testdata/view.py")
	if err != nil {
		t.Fatal(err)
	}
	run := s.Run(harness.Job{Code: string(script), PolicyArg: policy, Deliver: out, Shell: shell, Env: env, Within: within,
		Bare: true, Flags: []string{"--allow-degraded", allowed}})
	_, err = os.Stat(filepath.Join(out, "summary.csv"))
	delivered := err == nil
	began, text, _ := strings.Cut(string(run.Stdout), "\n")
	view := map[string]string{}
	if err := json.Unmarshal([]byte(text), &view); err != nil {
		view["output"] = text + string(run.Stderr)
	}
	return run, view, delivered || began == "began"
}

// differ lists what two views disagree on. less allows that the second has
// fewer paths.
func differ(whole, other map[string]string, less bool) (out []string) {
	if _, failed := other["output"]; failed && less {
		return nil // it could not even look around
	}
	for k, v := range whole {
		if w, ok := other[k]; !ok && !(less && strings.HasPrefix(k, "path ")) {
			out = append(out, k+": gone")
		} else if ok && w != v {
			out = append(out, fmt.Sprintf("%s: %q, not %q", k, w, v))
		}
	}
	for k, v := range other {
		if _, ok := whole[k]; !ok {
			out = append(out, fmt.Sprintf("%s: %q is new", k, v))
		}
	}
	return out
}

func goBuild(t *testing.T, overlay, to string) {
	t.Helper()
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-tags", "netgo,osusergo", "-ldflags", `-linkmode external -extldflags "-static"`, "-o", to, "./cmd/nsbox")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
