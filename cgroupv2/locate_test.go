package cgroupv2

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// kindIs is the Kind of err, or "" for nil.
func kindIs(t *testing.T, err error) Kind {
	t.Helper()
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is a %T, want *Error", err, err)
	}
	return e.Kind
}

func TestLocate(t *testing.T) {
	const hybrid = `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	const unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	for _, c := range []struct {
		name, mounts, self string
		dir, mount         string
		kind               Kind
	}{
		{"hybrid", hybrid, "8:pids:/x\n0::/a/b\n", "/sys/fs/cgroup/unified/a/b", "/sys/fs/cgroup/unified", ""},
		{"top", unified, "0::/\n", "/sys/fs/cgroup", "/sys/fs/cgroup", ""},
		{"no newline", unified, "0::/a", "/sys/fs/cgroup/a", "/sys/fs/cgroup", ""},
		{"colons and blanks in the name", unified, "0::/a b:c\n", "/sys/fs/cgroup/a b:c", "/sys/fs/cgroup", ""},
		{"escaped mount point", `30 23 0:26 / /my\040cg rw - cgroup2 cgroup2 rw` + "\n", "0::/a\n", "/my cg/a", "/my cg", ""},
		{"bind of a subtree", "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/x/y\n", "/sys/fs/cgroup/y", "/sys/fs/cgroup", ""},
		{"same prefix, other group", "30 23 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/xy\n", "", "/sys/fs/cgroup", Escapes},
		{"outside of the namespace", unified, "0::/../other\n", "", "/sys/fs/cgroup", Escapes},
		{"mount from outside", "30 23 0:26 /.. /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/\n", "", "/sys/fs/cgroup", Escapes},
		{"second mount shows it", "30 23 0:26 /q /a rw - cgroup2 c rw\n31 23 0:26 / /b rw - cgroup2 c rw\n", "0::/p\n", "/b/p", "/b", ""},
		{"first mount shows it", "31 23 0:26 / /b rw - cgroup2 c rw\n30 23 0:26 /q /a rw - cgroup2 c rw\n", "0::/p\n", "/b/p", "/b", ""},
		{"mounted over", "31 23 0:26 / /b rw - cgroup2 c rw\n32 31 0:26 /q /b rw - cgroup2 c rw\n", "0::/q/p\n", "/b/p", "/b", ""},
		{"only v1", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "0::/\n", "", "", NoV2Mount},
		{"removed under us", unified, "0::/a (deleted)\n", "", "/sys/fs/cgroup", Gone},
		{"no v2 line", unified, "8:pids:/\n", "", "/sys/fs/cgroup", Gone},
		{"relative path", unified, "0::a\n", "", "/sys/fs/cgroup", Gone},
		{"empty", "", "", "", "", NoV2Mount},
	} {
		t.Run(c.name, func(t *testing.T) {
			mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(c.mounts), nil)
			if err != nil {
				t.Fatal(err)
			}
			loc, err := Locate(mounts, c.self)
			if got := kindIs(t, err); got != c.kind {
				t.Fatalf("kind %q, want %q (%v)", got, c.kind, err)
			}
			if loc.Dir != c.dir || loc.Mount != c.mount {
				t.Errorf("dir %q mount %q, want %q %q", loc.Dir, loc.Mount, c.dir, c.mount)
			}
		})
	}
}

func TestCommonAncestor(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"/c/u/a", "/c/u/a", "/c/u/a"},
		{"/c/u/a", "/c/u/a/b", "/c/u/a"},
		{"/c/u/a/b", "/c/u/a", "/c/u/a"},
		{"/c/u/a", "/c/u/ab", "/c/u"},
		{"/c/u/a/x", "/c/v", "/c"},
		{"/c", "/d", "/"},
		{"/", "/d", "/"},
	} {
		if got := commonAncestor(c.a, c.b); got != c.want {
			t.Errorf("commonAncestor(%q, %q) = %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

func TestFlatKeyed(t *testing.T) {
	const stat = "usage_usec 123\nuser_usec 100\nnice_usec 0\n"
	for _, c := range []struct {
		text, key string
		want      int64
		ok        bool
	}{
		{stat, "usage_usec", 123, true},
		{stat, "user_usec", 100, true},
		{stat, "usage", 0, false},
		{stat, "system_usec", 0, false},
		{"populated 0\nfrozen 0\n", "populated", 0, true},
		{"populated 1", "populated", 1, true},
		{"populated\n", "populated", 0, false},
		{"populated 1\r\n", "populated", 0, false},
		{"usage_usec -1\n", "usage_usec", 0, false},
		{"usage_usec 9223372036854775807\n", "usage_usec", 1<<63 - 1, true},
		{"usage_usec 9223372036854775808\n", "usage_usec", 0, false},
		{"", "usage_usec", 0, false},
	} {
		got, err := flatKeyed(c.text, c.key)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("flatKeyed(%q, %q) = %d, %v", c.text, c.key, got, err)
		}
	}
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"01JABCDEF": true, "a-b_c": true, "probe": true, strings.Repeat("x", maxName): true,
		"": false, ".": false, "..": false, "a/b": false, "a.b": false, "a\nb": false, "ä": false,
		"probe-1": false, strings.Repeat("x", maxName+1): false,
	} {
		if got := kindIs(t, checkName(name)); (got == "") != ok || !ok && got != Escapes {
			t.Errorf("checkName(%q): %q, want ok=%v", name, got, ok)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add("0::/a\n", "populated 1\n", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw\n")
	f.Add("0::/../x (deleted)", "usage_usec 99999999999999999999\n", "30 23 0:26 /.. /c rw - cgroup2 c rw\n")
	f.Add("0::/000", "0", "  : /.  00 - cgroup2  ") // once gave a directory without a mount
	f.Fuzz(func(t *testing.T, self, stat, mounts string) {
		if n, err := flatKeyed(stat, "populated"); err == nil && n < 0 {
			t.Fatalf("negative value %d from %q", n, stat)
		}
		infos, err := mountinfo.GetMountsFromReader(strings.NewReader(mounts), nil)
		if err != nil {
			return
		}
		loc, err := Locate(infos, self)
		if (err == nil) != (loc.Dir != "") {
			t.Fatalf("dir %q with error %v", loc.Dir, err)
		}
		if _, inside := cutTree(loc.Dir, path.Clean(loc.Mount)); err == nil && strings.HasPrefix(loc.Mount, "/") && !strings.Contains(self, "..") && !inside {
			t.Fatalf("dir %q is not below mount %q", loc.Dir, loc.Mount)
		}
	})
}
