// Command facts prints, as one JSON object, what a guest's kernel and session
// give to the user who runs it: by asking and by doing, not by version.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

type facts struct {
	Kernel         string `json:"kernel"`
	UID            int    `json:"uid"`
	LandlockABI    int    `json:"landlock_abi"`    // 0: not there
	Cgroup         string `json:"cgroup"`          // path in the unified hierarchy
	Controllers    string `json:"controllers"`     // what the own cgroup may hand down
	SubtreeControl string `json:"subtree_control"` // what the parent hands down
	OwnCgroupMkdir string `json:"own_mkdir"`       // "ok" or the error of making a group below the own one
	ParentMkdir    string `json:"parent_mkdir"`    // the same beside it
	CgroupMount    string `json:"cgroup_mount"`    // type and options
	UIDMap         string `json:"uid_map"`         // of a child mapped by newuidmap and newgidmap, or the error
	NoNewPrivs     string `json:"no_new_privs"`
}

func main() {
	// The child of mappedChild: it only has to exist until its standard input ends.
	if len(os.Args) == 2 && os.Args[1] == "wait" {
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(collect()); err != nil {
		fmt.Fprintln(os.Stderr, "facts:", err)
		os.Exit(1)
	}
}

func collect() facts {
	f := facts{UID: os.Getuid(), LandlockABI: landlockABI(), UIDMap: mappedChild(), CgroupMount: cgroupMount(), NoNewPrivs: statusLine("NoNewPrivs")}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	for line := range strings.Lines(read("/proc/self/cgroup")) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			f.Cgroup = path
		}
	}
	own := filepath.Join("/sys/fs/cgroup", f.Cgroup)
	f.Controllers = read(filepath.Join(own, "cgroup.controllers"))
	f.SubtreeControl = read(filepath.Join(filepath.Dir(own), "cgroup.subtree_control"))
	f.OwnCgroupMkdir = tryGroup(own)
	f.ParentMkdir = tryGroup(filepath.Dir(own))
	return f
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return reasonOf(err)
	}
	return strings.TrimSpace(string(data))
}

func reasonOf(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func tryGroup(parent string) string {
	dir := filepath.Join(parent, "facts-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return reasonOf(err)
	}
	if err := os.Remove(dir); err != nil {
		return "left behind: " + reasonOf(err)
	}
	return "ok"
}

func landlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

func statusLine(key string) string {
	for line := range strings.Lines(read("/proc/self/status")) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// cgroupMount is the mountinfo line of the unified hierarchy, from its type on.
func cgroupMount() string {
	for line := range strings.Lines(read("/proc/self/mountinfo")) {
		if _, after, ok := strings.Cut(line, " - cgroup2 "); ok {
			return "cgroup2 " + strings.TrimSpace(after)
		}
	}
	return "none"
}

// mappedChild makes a user namespace and has both id helpers map the range
// that the guest's u owns.
func mappedChild() string {
	child := exec.Command("/proc/self/exe", "wait")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	stdin, err := child.StdinPipe()
	if err != nil {
		return reasonOf(err)
	}
	if err := child.Start(); err != nil {
		return "clone: " + reasonOf(err)
	}
	defer func() { _ = stdin.Close(); _ = child.Wait() }()
	pid := strconv.Itoa(child.Process.Pid)
	for _, helper := range []string{"/usr/bin/newuidmap", "/usr/bin/newgidmap"} {
		out, err := exec.Command(helper, pid, "0", "100000", "65536").CombinedOutput()
		if errors.Is(err, fs.ErrNotExist) {
			return "no " + helper
		} else if err != nil {
			return strings.TrimSpace(string(out))
		}
	}
	return strings.Join(strings.Fields(read("/proc/"+pid+"/uid_map")), " ") + "/" + strings.Join(strings.Fields(read("/proc/"+pid+"/gid_map")), " ")
}
