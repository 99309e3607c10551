package policy

import "testing"

func TestDenies(t *testing.T) {
	p := decodeManifest(t)
	for _, c := range []struct{ path, rule string }{
		{"/run/docker.sock", "container_runtime_sockets"},
		{"/var/run/docker.sock", "container_runtime_sockets"},
		{"/run/containerd/containerd.sock", "container_runtime_sockets"},
		{"/run/user/1000/podman/podman.sock", "container_runtime_sockets"},
		{"/run/crio/crio.sock", "container_runtime_sockets"},
		{"/var/lib/incus/unix.socket", "container_runtime_sockets"},
		{"/run/user/1000/bus", "/run"},
		{"/var/run/dbus", "/run"},
		{"/home", "/home"},
		{"/home/a/data", "/home"},
		{"/root/.ssh", "/root"},
		{"/etc", "host_etc"},
		{"/etc/shadow", "host_etc"},
		{"/dev", "host_dev_except_null_zero_urandom"},
		{"/dev/sda", "host_dev_except_null_zero_urandom"},
		{"/dev/null/x", "host_dev_except_null_zero_urandom"},
		{"/dev/random", "host_dev_except_null_zero_urandom"},
		{"/proc", "writable_proc"},
		{"/proc/sys/kernel", "writable_proc"},
		{"/sys/fs/cgroup", "writable_sys"},
		{"/opt/sbx-test/mock-secret/token.txt", "/opt/sbx-test/mock-secret"},
		{"/opt", "/opt/sbx-test/mock-secret"}, // would bring the secret along
		{"/var", "container_runtime_sockets"}, // as would /var with its sockets
		{"/", "container_runtime_sockets"},
		{"", "not_a_clean_absolute_path"},
		{"usr", "not_a_clean_absolute_path"},
		{"/usr/../etc", "not_a_clean_absolute_path"},
		{"/usr/", "not_a_clean_absolute_path"},
		{"/usr\x00", "not_a_clean_absolute_path"},
		// controls
		{"/usr/bin/python3", ""},
		{"/usr", ""},
		{"/lib64/ld-linux-x86-64.so.2", ""},
		{"/dev/null", ""}, {"/dev/zero", ""}, {"/dev/urandom", ""},
		{"/homes", ""}, {"/etcetera", ""}, {"/running", ""},
		{"/opt/other", ""},
	} {
		if rule, denied := p.Denies(c.path); rule != c.rule || denied != (c.rule != "") {
			t.Errorf("Denies(%q) = %q %v, want %q", c.path, rule, denied, c.rule)
		}
	}
}

func TestDeniesTarget(t *testing.T) {
	p := decodeManifest(t)
	for _, c := range []struct {
		path     string
		writable bool
		rule     string
	}{
		{"/proc", true, "writable_proc"}, {"/proc/sys", true, "writable_proc"}, {"/proc", false, ""},
		{"/sys", true, "writable_sys"}, {"/sys", false, ""},
		{"/home", false, "/home"}, {"/home/x", true, "/home"}, {"/root", false, "/root"},
		{"/run", false, "/run"}, {"/run/docker.sock", false, "container_runtime_sockets"}, {"/var/run", false, "/run"},
		{"/opt/sbx-test/mock-secret", false, "/opt/sbx-test/mock-secret"},
		{"in", false, "not_a_clean_absolute_path"},
		{"/in", false, ""}, {"/scratch", true, ""}, {"/out", true, ""}, {"/", false, ""}, {"/opt", false, ""},
		{"/etc/passwd", false, ""}, {"/dev/null", true, ""}, {"/usr/bin", false, ""}, {"/procs", true, ""},
	} {
		if rule, denied := p.DeniesTarget(c.path, c.writable); rule != c.rule || denied != (c.rule != "") {
			t.Errorf("DeniesTarget(%q, %v) = %q %v, want %q", c.path, c.writable, rule, denied, c.rule)
		}
	}
}

// Leaving an entry out opens what only that entry denied.
func TestDroppedEntryIsVisible(t *testing.T) {
	for _, c := range []struct {
		drop string
		path string
	}{{"filesystem.denied_mounts[5]", "/etc/ssl"}, {"filesystem.denied_mounts[6]", "/dev/kvm"}, {"filesystem.denied_mounts[1]", "/home/x"}, {"filesystem.denied_mounts[9]", "/opt/sbx-test/mock-secret"}} {
		p, err := Decode("dropped", edited(t, map[string]any{c.drop: remove{}}))
		if err != nil {
			t.Fatal(err)
		}
		if rule, denied := p.Denies(c.path); denied {
			t.Errorf("%s: %s is still denied by %s", c.drop, c.path, rule)
		}
		if _, denied := decodeManifest(t).Denies(c.path); !denied {
			t.Errorf("control: %s is not denied by the whole list", c.path)
		}
	}
}

// TestAskingBuildsNothing: a plan asks of every mount, some two hundred times.
func TestAskingBuildsNothing(t *testing.T) {
	d := decodeManifest(t).Denial()
	if n := testing.AllocsPerRun(100, func() {
		d.Denies("/usr/lib/x86_64-linux-gnu/libm.so.6")
		d.DeniesTarget("/usr/lib/x86_64-linux-gnu/libm.so.6", false)
	}); n > 8 {
		t.Errorf("two questions allocate %v times", n)
	}
}
