package probe

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func TestSurvey(t *testing.T) {
	h, err := Survey()
	if err != nil {
		t.Fatal(err)
	}
	if h.UID != os.Geteuid() || h.RealUID != os.Getuid() || h.GID != os.Getegid() || h.Arch != runtime.GOARCH || h.CPUs < 1 {
		t.Errorf("ids or machine: %+v", h)
	}
	if len(h.BootID) != 36 || h.Kernel == "" || len(h.RLimits) != len(limits) || len(h.SelfUIDMap) == 0 || len(h.Groups) == 0 {
		t.Errorf("missing facts: %+v", h)
	}
	if exe, _ := os.Executable(); h.SelfExe.Path != exe || h.SelfExe.WorldReadable == Unknown || h.SelfExe.Static == Unknown {
		t.Errorf("own binary: %+v, want %s", h.SelfExe, exe)
	}
	if (h.Landlock == Yes) != (h.LandlockABI > 0) || (h.LandlockABI > 0) != (h.LandlockErrno == "") {
		t.Errorf("landlock: %v %d %q", h.Landlock, h.LandlockABI, h.LandlockErrno)
	}
	if h.CgroupV2.Dir != "" {
		if _, err := os.Stat(h.CgroupV2.Dir + "/cgroup.procs"); err != nil {
			t.Errorf("own group: %v", err)
		}
	}
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(text, &back); err != nil || back["self_exe"].(map[string]any)["static"] != h.SelfExe.Static.String() {
		t.Errorf("%v\n%s", err, text)
	}
	t.Logf("%s", text)
}

func TestSurveySeesNoNewPrivsAndLimits(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &old); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// A limit and no_new_privs cannot be taken back, so a child carries them.
	out, err := exec.Command("setpriv", "--no-new-privs", "sh", "-c", `ulimit -Hc 1; exec "$0" -test.run='^TestSurvey$' -test.v`, exe).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	unit := "512" // of sh's ulimit -c
	if !strings.Contains(string(out), `"no_new_privs":true`) || !strings.Contains(string(out), `"core":`+unit) {
		t.Errorf("not seen:\n%s", out)
	}
	h, err := Survey()
	if err != nil || h.NoNewPrivs || h.RLimits["core"] == 512 {
		t.Errorf("control: %v, %v, %v", err, h.NoNewPrivs, h.RLimits)
	}
}

// procMasks repeats a rule of the kernel, so the kernel is asked: under various
// mounts over /proc, can a new user namespace mount a fresh proc or not?
func TestProcMasksAgreesWithTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount over /proc")
	}
	dir := t.TempDir()
	for i, c := range []struct {
		name, masks string
		fresh       bool
	}{
		{"nothing over it", "true", true},
		{"file masked", "mount --bind /dev/null /proc/uptime", false},
		{"directory masked", "mount -t tmpfs none /proc/fs", false},
		{"part made read-only", "mount --bind /proc/sys /proc/sys", false},
		{"mounted on a directory made for it", "mount -t tmpfs none /proc/sys/fs/binfmt_misc || mount -t tmpfs none /proc/fs/nfsd || echo none-such", true},
		{"whole one elsewhere", "mount --bind /dev/null /proc/uptime && mkdir " + dir + "/second && mount -t proc proc " + dir + "/second", true},
	} {
		info, mnt := filepath.Join(dir, fmt.Sprint("info", i)), filepath.Join(dir, fmt.Sprint("mnt", i))
		if err := os.Mkdir(mnt, 0o755); err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(`%s || exit 9; cat /proc/self/mountinfo >%s; unshare -Umpf -r sh -c 'mount -t proc proc %s'`, c.masks, info, mnt)
		out, err := exec.Command("unshare", "-m", "sh", "-c", script).CombinedOutput()
		if ee, ok := err.(*exec.ExitError); err != nil && (!ok || ee.ExitCode() == 9) {
			t.Fatalf("%s: %v %s", c.name, err, out)
		}
		f, ferr := os.Open(info)
		if ferr != nil {
			t.Fatal(ferr)
		}
		mounts, perr := mountinfo.GetMountsFromReader(f, nil)
		f.Close()
		if perr != nil {
			t.Fatal(perr)
		}
		masks := procMasks(mounts)
		if kernel, ours := err == nil, len(masks) == 0; kernel != ours || kernel != c.fresh {
			t.Errorf("%s: kernel mounts %v, procMasks says %q, want %v\n%s", c.name, kernel, masks, c.fresh, out)
		}
	}
}

// The ids that are chosen for root can be written as the maps of a namespace.
func TestKernelTakesTheChosenIDs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to write id maps without a helper")
	}
	h, err := Survey()
	if err != nil {
		t.Fatal(err)
	}
	id, err := ChooseIdentity(h)
	if err != nil {
		t.Fatal(err)
	}
	slot, err := id.Map(id.Slots() - 1)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/cat", "/proc/self/uid_map")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{
			{ContainerID: 0, HostID: int(slot.Root.UID), Size: 1}, {ContainerID: 10001, HostID: int(slot.Workload.UID), Size: 1},
		},
		GidMappings: []syscall.SysProcIDMap{
			{ContainerID: 0, HostID: int(slot.Root.GID), Size: 1}, {ContainerID: 10001, HostID: int(slot.Workload.GID), Size: 1},
		},
	}
	out, err := cmd.CombinedOutput()
	m, perr := parseIDMap(string(out))
	want := []Extent{{0, slot.Root.UID, 1}, {10001, slot.Workload.UID, 1}}
	if err != nil || perr != nil || !slices.Equal(m, want) {
		t.Errorf("%v, %v, %q, want %v", err, perr, out, want)
	}
}

func BenchmarkSurvey(b *testing.B) {
	for b.Loop() {
		if _, err := Survey(); err != nil {
			b.Fatal(err)
		}
	}
}
