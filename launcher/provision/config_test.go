package provision

import (
	"strings"
	"testing"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

func goodConfig() Config {
	return Config{User: DefaultUser, Dir: DefaultDir, Slots: 2, Bytes: 8 << 20, Inodes: 64, Binary: "/usr/local/bin/nsbox"}
}

// TestConfig: every text becomes a word of a command that root runs.
func TestConfig(t *testing.T) {
	if err := goodConfig().validate(); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(c *Config){
		"no user":               func(c *Config) { c.User = "" },
		"an option for user":    func(c *Config) { c.User = "-r" },
		"two words":             func(c *Config) { c.User = "a b" },
		"a command":             func(c *Config) { c.User = "a;id" },
		"a new line":            func(c *Config) { c.User = "a\n" },
		"a long name":           func(c *Config) { c.User = strings.Repeat("a", 32) },
		"root":                  func(c *Config) { c.User = "root" },
		"no directory":          func(c *Config) { c.Dir = "" },
		"the root":              func(c *Config) { c.Dir = "/" },
		"a relative one":        func(c *Config) { c.Dir = "var" },
		"upwards":               func(c *Config) { c.Dir = "/var/../etc" },
		"a blank in it":         func(c *Config) { c.Dir = "/var/a b" },
		"a quote in it":         func(c *Config) { c.Dir = "/var/'" },
		"a variable in it":      func(c *Config) { c.Dir = "/var/$HOME" },
		"no slot":               func(c *Config) { c.Slots = 0 },
		"too many slots":        func(c *Config) { c.Slots = maxSlots + 1 },
		"no size, so no bound":  func(c *Config) { c.Bytes = 0 },
		"no inode bound":        func(c *Config) { c.Inodes = 0 },
		"a binary with a blank": func(c *Config) { c.Binary = "/opt/a b/nsbox" },
	} {
		c := goodConfig()
		change(&c)
		if e := reason.Of(c.validate()); e == nil || e.ID != reason.ProvisionInvalid || e.Next == "" {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// TestTable: every step says why, how and how back, and the commands do what the
// configuration says and nothing twice.
func TestTable(t *testing.T) {
	c := goodConfig()
	for _, h := range []host{{}, {apparmor: true}, {apparmor: true, abi4: "x", systemd: true}} {
		h.ids = probe.Range{Start: 165536, Count: idCount}
		seen := map[string]bool{}
		needed := 0
		for _, s := range table(c, h) {
			if seen[s.name] || len(strings.Fields(s.why)) < 4 || len(s.do) == 0 || len(s.undo) == 0 || s.check == nil {
				t.Errorf("step %q stands twice or lacks something", s.name)
			}
			seen[s.name] = true
			if s.unneeded == "" {
				needed++
			}
		}
		want := 5
		if h.systemd {
			want = 8
		}
		if needed != want {
			t.Errorf("%+v: %d steps are needed, want %d", h, needed, want)
		}
	}
	steps := table(c, host{ids: probe.Range{Start: 165536, Count: idCount}})
	mount := strings.Join(steps[4].do, "\n")
	for _, want := range []string{"size=8388608", "nr_inodes=64", "mode=0700", "uid=165541,gid=165541", "nosuid,nodev,noexec nsbox-out /var/lib/nsbox-out/1"} {
		if !strings.Contains(mount, want) {
			t.Errorf("slot 1 has no %s:\n%s", want, mount)
		}
	}
	for _, s := range []string{launcherProfile(c.Binary), workloadProfile, BootUnit(c)} {
		if strings.Contains(s, "nsbox-end") || !strings.HasSuffix(s, "\n") {
			t.Errorf("cannot stand in a script: %s", s)
		}
	}
}

// TestBinaryFault: what root runs at boot must be root's alone.
func TestBinaryFault(t *testing.T) {
	if why := binaryFault("/usr/bin/env"); why != "" {
		t.Errorf("control: %s", why)
	}
	if binaryFault(t.TempDir()+"/nsbox") == "" || binaryFault("/no/such/file") == "" {
		t.Error("a missing binary is taken")
	}
}
