package probe

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/reason"
)

// The next step is made of what was found: a person can paste it.
func TestCgroupHints(t *testing.T) {
	const user = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope"
	for _, c := range []struct {
		name       string
		in         cgroupv2.Error
		id         reason.ID
		what, next string
		not        string
	}{
		{"a shell is in the way", cgroupv2.Error{Kind: cgroupv2.InternalProcesses, Path: "/c/d", PIDs: []int{12, 345}}, reason.CgroupInternalProcesses,
			"/c/d", "mkdir -p /c/d/shell && for p in 12 345; do echo $p > /c/d/shell/cgroup.procs; done", ""},
		{"somebody outside of the pid namespace", cgroupv2.Error{Kind: cgroupv2.InternalProcesses, Path: "/c/d", PIDs: []int{0, 345}}, reason.CgroupInternalProcesses,
			"/c/d", "systemd-run", "echo"},
		{"nobody known", cgroupv2.Error{Kind: cgroupv2.InternalProcesses, Path: "/c/d"}, reason.CgroupInternalProcesses, "/c/d", "systemd-run", "echo"},
		{"cpu not delegated to users", cgroupv2.Error{Kind: cgroupv2.ControllerMissing, Path: user, Controller: "cpu"}, reason.ControllerMissing,
			"cgroup controller cpu", "user@.service", ""},
		{"cpu not handed down elsewhere", cgroupv2.Error{Kind: cgroupv2.ControllerMissing, Path: "/c/d", Controller: "cpu"}, reason.ControllerMissing,
			"cgroup controller cpu", "cgroup.subtree_control", "user@"},
		{"on version 1", cgroupv2.Error{Kind: cgroupv2.ControllerOnV1, Path: "/proc/self/cgroup", Controller: "memory"}, reason.ControllersBoundToV1,
			"cgroup controller memory", "systemd.unified_cgroup_hierarchy=1", ""},
		{"no manager", cgroupv2.Error{Kind: cgroupv2.NoManager, Path: "systemd"}, reason.NoSystemdManager, "systemd", "enable-linger", ""},
	} {
		c.in.Err = unix.EIO
		got := CgroupReason(&c.in)
		whole(t, c.name, got)
		if got.ID != c.id || got.What != c.what || !strings.Contains(got.Next, c.next) || c.not != "" && strings.Contains(got.Next, c.not) {
			t.Errorf("%s: %s, what %q, next %q", c.name, got.ID, got.What, got.Next)
		}
	}
}

// What the error carries reaches the text.
func TestCgroupErrorNamesWantedAndShown(t *testing.T) {
	got := CgroupReason(&cgroupv2.Error{Kind: cgroupv2.LimitNotApplied, Op: "read back", Path: "/c/work/memory.max", Wanted: "64", Shown: "max"})
	for _, part := range []string{"/c/work/memory.max", `wanted "64"`, `shown "max"`} {
		if !strings.Contains(got.Error(), part) {
			t.Errorf("%q is missing in %q", part, got)
		}
	}
}
