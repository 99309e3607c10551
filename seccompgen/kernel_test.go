package seccompgen

import (
	"bytes"
	"context"
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
	"unsafe"

	"golang.org/x/sys/unix"

	"nsbox/seccompgen/filter"
)

const python = "/usr/bin/python3"

// loaderName as argv[0] makes the test binary install the program it finds in the
// file argv[1] ("-": none) and exec the rest.
const loaderName = "seccompgen-test-loader"

func TestMain(m *testing.M) {
	if os.Args[0] == loaderName {
		fmt.Fprintln(os.Stderr, "loader:", installAndExec(os.Args[1], os.Args[2:]))
		os.Exit(99)
	}
	os.Exit(m.Run())
}

func installAndExec(path string, argv []string) error {
	if path == "-" {
		return unix.Exec(argv[0], argv, os.Environ())
	}
	prog, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	// A filter belongs to a thread; exec keeps this one.
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog) / 8), Filter: (*unix.SockFilter)(unsafe.Pointer(&prog[0]))}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return unix.Exec(argv[0], argv, os.Environ())
}

// under returns the command argv, run under prog; nil runs it without a filter.
func under(t *testing.T, prog filter.Program, argv ...string) *exec.Cmd {
	t.Helper()
	path := "-"
	if prog != nil {
		path = filepath.Join(t.TempDir(), "program.bpf")
		must(t, os.WriteFile(path, prog, 0o600))
	}
	self, err := os.Executable()
	must(t, err)
	// A filter that answers wrongly can make a program wait for ever.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{loaderName, path}, argv...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE=1", "LANG=C.UTF-8"}
	cmd.WaitDelay = time.Second
	return cmd
}

func TestKernelOrdinaryProgramsWork(t *testing.T) {
	for name, prog := range map[string]filter.Program{"control without a filter": nil, "workload": mustCompile(t, Workload(Options{}))} {
		out, err := under(t, prog, python, "testdata/works.py").CombinedOutput()
		if err != nil || bytes.Count(out, []byte("ok ")) < 23 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// TestKernelRefusals compares what the kernel answers with and without the filter.
// The control shows that the refusal is the filter's own: without it no call gives
// the same answer, except where the caller lacks the privilege the call wants.
func TestKernelRefusals(t *testing.T) {
	answers := func(prog filter.Program) map[string]string {
		out, err := under(t, prog, python, "testdata/refused.py").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		m := map[string]string{}
		for line := range strings.Lines(string(out)) {
			name, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
			m[name] = answer
		}
		return m
	}
	got, control := answers(mustCompile(t, Workload(Options{}))), answers(nil)
	missing := map[string]bool{"clone3": true, "io_uring_setup": true, "io_setup": true, "number_9999": true}
	killed, fault := "signal "+strconv.Itoa(int(syscall.SIGSYS)), "signal "+strconv.Itoa(int(syscall.SIGSEGV))
	if len(got) < 49 || len(control) != len(got) {
		t.Errorf("%d answers, control %d", len(got), len(control))
	}
	for name, answer := range got {
		want := strconv.Itoa(int(syscall.EPERM))
		switch {
		case missing[name]:
			want = strconv.Itoa(int(syscall.ENOSYS))
		case name == "int80" && control[name] == fault:
			// This kernel's gate for the 32-bit entry is shut to programs, so nobody
			// gets as far as a filter; TestForeignCallsKill holds the filter's answer.
			t.Logf("int80 ends in a fault without the filter as well: the kernel has no such entry")
			if answer != fault {
				t.Errorf("int80: answer %s, want %s", answer, fault)
			}
			continue
		case name == "int80" || name == "x32":
			want = killed
		case name == "control_native":
			want = "0"
		}
		if answer != want {
			t.Errorf("%s: answer %s, want %s (without the filter: %s)", name, answer, want, control[name])
		}
		same := name == "control_native" || name == "number_9999"
		if os.Geteuid() == 0 && !same && control[name] == want {
			t.Errorf("%s: the control gives %s too, so this shows nothing", name, want)
		}
	}
}

func TestKernelStagesRun(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "stage")
	build := exec.Command("go", "build", "-tags", "netgo,osusergo", "-ldflags", `-linkmode external -extldflags "-static"`,
		"-o", bin, "./testdata/stage")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tc := range []struct {
		kind, other Profile
		procs       string
	}{
		{Init(), Exporter(), "1"}, {Init(), Exporter(), "4"},
		{Exporter(), Init(), "1"}, {Exporter(), Init(), "4"},
	} {
		t.Run(tc.kind.Name+" GOMAXPROCS="+tc.procs, func(t *testing.T) {
			for range 5 {
				if out, err := runStage(t, bin, tc.kind.Name, tc.procs, mustCompile(t, tc.kind)); err != nil || out != "done\n" {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			// Control: under the other stage's filter something must be missing.
			if out, err := runStage(t, bin, tc.kind.Name, tc.procs, mustCompile(t, tc.other)); err == nil {
				t.Errorf("control: ran under the filter of %s: %s", tc.other.Name, out)
			}
		})
	}
}

func runStage(t *testing.T, bin, kind, procs string, prog filter.Program) (string, error) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "summary.csv"), []byte("a,b\n"), 0o600))
	folder, err := os.Open(dir)
	must(t, err)
	defer folder.Close()
	staging, err := os.Create(filepath.Join(t.TempDir(), "staging"))
	must(t, err)
	defer staging.Close()
	_, err = ours.Write([]byte("hello"))
	must(t, err)
	cmd := under(t, prog, bin, kind)
	cmd.Env = append(cmd.Env, "GOMAXPROCS="+procs)
	cmd.ExtraFiles = []*os.File{theirs, folder, staging}
	out, err := cmd.CombinedOutput()
	return string(out), err
}
