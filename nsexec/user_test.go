package nsexec

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	userStage = "nsbox-test-as-user" // argv[0] of this binary on its way to being nobody special
	testUID   = 45678
	userFiles = "NSBOX_TEST_USER_FILES"
)

// TestAsUser runs the tests that make boxes once more without root: as a user
// with a subordinate range, through newuidmap and newgidmap. The user exists in a
// mount namespace of the test's own; nothing on the host is changed.
func TestAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skipf("uid %d is a user already: the other tests are this one", os.Geteuid())
	}
	if st, err := os.Stat("/usr/bin/newuidmap"); err != nil || st.Mode()&os.ModeSetuid == 0 {
		t.Skipf("no set-uid newuidmap on this host (package uidmap): %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"passwd": fmt.Sprintf("root:x:0:0::/:/bin/sh\nnsbox-test:x:%d:%d::/:/bin/sh\n", testUID, testUID),
		"subuid": fmt.Sprintf("nsbox-test:%d:65536\n", hostBase),
		"subgid": fmt.Sprintf("nsbox-test:%d:65536\n", hostBase),
	} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing there needs root, and each makes its boxes through the helpers.
	const tests = "^(TestBoxRuns|TestExecFailureNamesTheStep|TestEveryStepFailsOnce|TestEveryCapabilityIsNeeded|TestMapErrorIsTheCause|TestLauncherStaysDumpable|TestStopDuringSetup|TestStress|TestNestedBox)$"
	cmd := exec.Command("/proc/self/exe", "-test.run="+tests, "-test.v", "-test.short", "-test.count=1", "-test.timeout=5m")
	cmd.Args[0] = userStage
	cmd.Env = append(os.Environ(), userFiles+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: Test"); n < 7 || strings.Contains(string(out), "SKIP") {
		t.Errorf("only %d tests ran as a user, or one was skipped:\n%s", n, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "boxes") || strings.Contains(line, "steps made") {
			t.Log("as a user: " + strings.TrimSpace(line))
		}
	}
}

// becomeUser replaces this process by the same tests under another uid.
func becomeUser() {
	must := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
			os.Exit(1)
		}
	}
	must("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for _, name := range []string{"passwd", "subuid", "subgid"} {
		must(name, unix.Mount(os.Getenv(userFiles)+"/"+name, "/etc/"+name, "", unix.MS_BIND, ""))
	}
	must("tmp", unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=64m"))
	must("groups", syscall.Setgroups([]int{}))
	must("gid", syscall.Setresgid(testUID, testUID, testUID))
	must("uid", syscall.Setresuid(testUID, testUID, testUID))
	// The link leads to the open file, wherever it lies and whoever may walk there.
	must("exec", unix.Exec("/proc/self/exe", append([]string{"nsexec.test"}, os.Args[1:]...), os.Environ()))
}
