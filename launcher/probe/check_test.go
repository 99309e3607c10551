package probe

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/reason"
)

// whole checks that a refusal answers what, why and next.
func whole(t *testing.T, name string, e *reason.Error) {
	t.Helper()
	if e.What == "" || e.Why == "" || e.Next == "" || strings.Contains(e.What+e.Why+e.Next, "\n") {
		t.Errorf("%s: incomplete refusal %#v", name, e)
	}
}

func TestCheck(t *testing.T) {
	num := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name string
		edit func(h *Host)
		want string // ids, joined
	}{
		{"in order", func(h *Host) {}, ""},
		{"kernel 5.13", func(h *Host) { h.Kernel = "5.13.19" }, "kernel_too_old"},
		{"kernel 5.14", func(h *Host) { h.Kernel = "5.14.0" }, ""},
		{"kernel 4.19", func(h *Host) { h.Kernel = "4.19.0" }, "kernel_too_old"},
		{"boot unknown", func(h *Host) { h.BootID = "" }, "host_facts_unreadable"},
		{"sysctl unreadable", func(h *Host) { h.UnprivilegedUsernsClone = num(-1) }, "userns_unknown"},
		{"apparmor unreadable", func(h *Host) { h.AppArmorRestrictUserns = num(-1) }, "userns_apparmor"},
		{"kernel unknown", func(h *Host) { h.Kernel = "" }, "kernel_too_old"},
		{"userns off", func(h *Host) { h.MaxUserNS = 0 }, "userns_disabled"},
		{"userns unknown", func(h *Host) { h.MaxUserNS = -1 }, "userns_unknown"},
		{"sysctl off", func(h *Host) { h.UnprivilegedUsernsClone = num(0) }, "userns_sysctl"},
		{"sysctl on", func(h *Host) { h.UnprivilegedUsernsClone = num(1) }, ""},
		{"sysctl off, root", func(h *Host) { h.UnprivilegedUsernsClone = num(0); h.CapEff = 1 << capSysAdmin }, ""},
		{"apparmor", func(h *Host) { h.AppArmorRestrictUserns = num(1); h.AppArmorLabel = "unconfined" }, "userns_apparmor"},
		{"apparmor, label unknown", func(h *Host) { h.AppArmorRestrictUserns = num(1) }, "userns_apparmor"},
		{"apparmor, profile", func(h *Host) { h.AppArmorRestrictUserns = num(1); h.AppArmorLabel = "nsbox (unconfined)" }, ""},
		{"apparmor, off", func(h *Host) { h.AppArmorRestrictUserns = num(0); h.AppArmorLabel = "unconfined" }, ""},
		{"proc masked", func(h *Host) { h.ProcMasked = []string{"/proc/kcore"} }, "proc_masked"},
		{"exe private", func(h *Host) { h.SelfExe.WorldReadable = No }, "launcher_exe_unreadable"},
		{"exe unknown", func(h *Host) { h.SelfExe.WorldReadable = Unknown }, "launcher_exe_unreadable"},
		{"dynamic", func(h *Host) { h.SelfExe.Static = No }, "launcher_not_static"},
		{"static unknown", func(h *Host) { h.SelfExe.Static = Unknown }, "launcher_not_static"},
		{"several, in order", func(h *Host) { h.MaxUserNS, h.Kernel = 0, "3.10" }, "kernel_too_old userns_disabled"},
	} {
		h := plainHost()
		c.edit(h)
		var ids []string
		for _, e := range Check(h) {
			whole(t, c.name, e)
			ids = append(ids, string(e.ID))
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	// A Host that nobody filled in must not look like a good one.
	if got := Check(&Host{}); len(got) < 4 {
		t.Errorf("the zero Host meets only %d refusals", len(got))
	}
}

func TestRefusals(t *testing.T) {
	h := plainHost()
	h.CgroupV2 = CgroupV2{Mount: "/c", Dir: "/c/a", Controllers: []string{"pids"}, V1Controllers: []string{"memory"}}
	with := func(a Answer, errno string, seccomp int) *Host {
		x := plainHost()
		x.Landlock, x.LandlockErrno, x.SeccompMode = a, errno, seccomp
		return x
	}
	for _, c := range []struct {
		name string
		got  *reason.Error
		want reason.ID
		part string
	}{
		{"landlock", with(Yes, "", 0).LandlockRefusal(), "", ""},
		{"landlock not built", with(No, "ENOSYS", 0).LandlockRefusal(), reason.LandlockNotBuilt, "ENOSYS"},
		{"landlock not built or filtered", with(No, "ENOSYS", 2).LandlockRefusal(), reason.LandlockNotBuilt, "seccomp filter"},
		{"landlock disabled", with(No, "EOPNOTSUPP", 0).LandlockRefusal(), reason.LandlockDisabled, ""},
		{"landlock blocked", with(Unknown, "EPERM", 0).LandlockRefusal(), reason.LandlockBlocked, ""},
		{"landlock odd", with(Unknown, "EIO", 0).LandlockRefusal(), reason.LandlockUnknown, "EIO"},
		{"landlock unknown", with(Unknown, "", 0).LandlockRefusal(), reason.LandlockUnknown, ""},
		{"nofile at the limit", h.RlimitRefusal("nofile", 1024), "", ""},
		{"nofile above", h.RlimitRefusal("nofile", 1025), reason.RlimitTooLow, "1025"},
		{"nofile without limit", h.RlimitRefusal("nofile", Unlimited), reason.RlimitTooLow, "no limit"},
		{"cpu", h.RlimitRefusal("cpu", 1<<40), "", ""},
		{"cpu without limit", h.RlimitRefusal("cpu", Unlimited), "", ""},
		{"unknown limit", h.RlimitRefusal("stack", 1), reason.RlimitTooLow, "not known"},
		{"pids", h.ControllerRefusal("pids"), "", ""},
		{"memory on v1", h.ControllerRefusal("memory"), reason.ControllersBoundToV1, ""},
		{"cpu nowhere", h.ControllerRefusal("cpu"), reason.ControllerMissing, "pids"},
		{"no v2 at all", plainHost().ControllerRefusal("cpu"), reason.NoV2Cgroup, ""},
	} {
		if c.got == nil {
			if c.want != "" {
				t.Errorf("%s: allowed, want %s", c.name, c.want)
			}
			continue
		}
		whole(t, c.name, c.got)
		if c.got.ID != c.want || !strings.Contains(c.got.Error(), c.part) {
			t.Errorf("%s: %v (%s), want %s with %q", c.name, c.got, c.got.ID, c.want, c.part)
		}
	}
}

// Every Kind that package cgroupv2 declares has exactly one line in the table.
func TestCgroupReasonKnowsEveryKind(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../cgroupv2/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || fmt.Sprint(v.Type) != "Kind" {
			return true
		}
		seen++
		text, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
		kind := cgroupv2.Kind(text)
		lines := 0
		for _, r := range cgroupReasons {
			if r.kind == kind {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("kind %s has %d lines in the table", kind, lines)
		}
		in := &cgroupv2.Error{Kind: kind, Path: "/c/x", Op: "mkdir", Err: unix.EIO}
		got := CgroupReason(fmt.Errorf("outer: %w", in))
		whole(t, text, got)
		if got.What != "/c/x" || !errors.Is(got, unix.EIO) || (got.ID == reason.CgroupFailed) != (kind == cgroupv2.Failed) {
			t.Errorf("kind %s gives %#v", kind, got)
		}
		return true
	})
	if seen != len(cgroupReasons) || seen == 0 {
		t.Errorf("%d kinds declared, %d lines in the table", seen, len(cgroupReasons))
	}
	if CgroupReason(nil) != nil {
		t.Error("nil became a refusal")
	}
	for _, err := range []error{unix.EIO, &cgroupv2.Error{Kind: "new"}} {
		if got := CgroupReason(err); got == nil || got.ID != reason.CgroupFailed {
			t.Errorf("%v: %v", err, got)
		}
	}
}
