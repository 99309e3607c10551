package policy

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

func write(t *testing.T, data []byte, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(path, data, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadFile(t *testing.T) {
	for _, mode := range []os.FileMode{0o400, 0o600, 0o644, 0o444} {
		path := write(t, manifest(t), mode)
		p, src, err := Load(path)
		if err != nil {
			t.Fatalf("mode %o: %v", mode, err)
		}
		if src.Arg != path || src.Digest != "sha256:"+manifestDigest || !bytes.Equal(src.Raw, manifest(t)) || p.PolicyID != "SBX-POL-WS-EVAL-001" {
			t.Errorf("mode %o: source %q %q", mode, src.Arg, src.Digest)
		}
	}
}

func TestLoadKeepsSourceOfABadFile(t *testing.T) {
	path := write(t, []byte("{"), 0o600)
	_, src, err := Load(path)
	if f := faultsOf(t, err); f[0].ID != reason.PolicyInvalid || !strings.HasPrefix(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if src.Arg != path || !strings.HasPrefix(src.Digest, "sha256:") {
		t.Errorf("source is %+v", src)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		id    reason.ID
		next  string
		setup func(t *testing.T) string
	}{
		{"absent", reason.PolicyNotFound, "sales-summary", func(t *testing.T) string { return filepath.Join(t.TempDir(), "x.json") }},
		{"misspelt preset", reason.PolicyUnknownPreset, "did you mean sales-summary?", func(*testing.T) string { return "sales-sumary" }},
		{"named preset", reason.PolicyUnknownPreset, "known: sales-summary", func(*testing.T) string { return "preset:nothing" }},
		{"preset with a slash", reason.PolicyUnknownPreset, "known", func(*testing.T) string { return "preset:../presets/sales-summary" }},
		{"empty", reason.PolicyNotFound, "sales-summary", func(*testing.T) string { return "" }},
		{"NUL", reason.PolicyNotFound, "", func(*testing.T) string { return "/a\x00b" }},
		{"group writable", reason.PolicyWritable, "chmod go-w", func(t *testing.T) string { return write(t, manifest(t), 0o664) }},
		{"world writable", reason.PolicyWritable, "chmod go-w", func(t *testing.T) string { return write(t, manifest(t), 0o602) }},
		{"open directory", reason.PolicyWritable, "chmod o-w", func(t *testing.T) string {
			path := write(t, manifest(t), 0o600)
			chmod(t, filepath.Dir(path), 0o777)
			return path
		}},
		{"open directory behind a link", reason.PolicyWritable, "chmod o-w", func(t *testing.T) string {
			path := write(t, manifest(t), 0o600)
			chmod(t, filepath.Dir(path), 0o777)
			return link(t, path)
		}},
		{"somebody else's directory", reason.PolicyWritable, "of your own", func(t *testing.T) string {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			path := write(t, manifest(t), 0o600)
			if err := os.Chown(filepath.Dir(path), 12345, 12345); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"link to a writable file", reason.PolicyWritable, "chmod go-w", func(t *testing.T) string { return link(t, write(t, manifest(t), 0o666)) }},
		{"directory", reason.PolicyNotRegular, "", func(t *testing.T) string { return t.TempDir() }},
		{"device", reason.PolicyNotRegular, "", func(t *testing.T) string { return "/dev/null" }},
		{"pipe", reason.PolicyNotRegular, "", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "fifo")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"loop", reason.PolicyNotFound, "", func(t *testing.T) string {
			path := filepath.Join(t.TempDir(), "loop")
			if err := os.Symlink(path, path); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		{"2 MiB", reason.PolicyTooLarge, "", func(t *testing.T) string { return write(t, bytes.Repeat([]byte(" "), 2<<20), 0o600) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, err := Load(c.setup(t))
			e := reason.Of(err)
			if p != nil || e == nil || e.ID != c.id || !strings.Contains(e.Next, c.next) {
				t.Errorf("got %#v; want %s with the next step %q", e, c.id, c.next)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode uint32) {
	t.Helper()
	if err := unix.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "link.json")
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Controls of the refusals above.
func TestLoadAccepts(t *testing.T) {
	sticky := write(t, manifest(t), 0o600)
	chmod(t, filepath.Dir(sticky), 0o1777)
	for name, path := range map[string]string{"sticky directory": sticky, "link": link(t, write(t, manifest(t), 0o600))} {
		if _, src, err := Load(path); err != nil || src.Arg != path {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file named like a preset needs its path to be meant.
	t.Chdir(t.TempDir())
	if err := os.WriteFile("sales-summary", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, src, err := Load("sales-summary"); err != nil || src.Arg != "preset:sales-summary" {
		t.Errorf("the preset does not win: %v %q", err, src.Arg)
	}
	if _, src, err := Load("./sales-summary"); err == nil || !filepath.IsAbs(src.Arg) {
		t.Errorf("the file is not read: %v %q", err, src.Arg)
	}
}

// The owner rule as a function, so that it is shown without root too.
func TestOwnerRule(t *testing.T) {
	for _, c := range []struct {
		owner, caller uint32
		want          bool
	}{{1000, 1000, true}, {0, 1000, true}, {0, 0, true}, {1000, 0, false}, {1001, 1000, false}, {65534, 1000, false}} {
		if got := owned(&unix.Stat_t{Uid: c.owner}, c.caller); got != c.want {
			t.Errorf("owner %d, caller %d: %v", c.owner, c.caller, got)
		}
	}
}

func TestLoadForeignOwner(t *testing.T) {
	if os.Geteuid() == 0 {
		path := write(t, manifest(t), 0o644)
		if err := os.Chown(path, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(path)
		if e := reason.Of(err); e == nil || e.ID != reason.PolicyOwner || !strings.Contains(e.Why, "12345") {
			t.Errorf("got %v", err)
		}
		return
	}
	// Without root no file can be given away; one of root's has to be accepted
	// as far as ownership goes, and is refused for what it holds.
	_, _, err := Load("/etc/passwd")
	if e := reason.Of(err); e == nil || e.ID != reason.PolicyInvalid {
		t.Errorf("got %v", err)
	}
}
