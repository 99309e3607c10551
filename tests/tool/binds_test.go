package tool

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// A tree shown live is read as it is and cannot be changed, and a socket in it
// that anybody may use is out of reach, while sockets made inside work.
func TestLiveBind(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		file := s.File("tree/hello", "from the host")
		tree := filepath.Dir(file)
		path := filepath.Join(tree, "socket")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
		if c, err := net.Dial("unix", path); err != nil { // the control
			t.Fatal(err)
		} else {
			c.Close()
		}
		before := harness.Fingerprint(t, file)
		code := `
import os, socket, sys
t = sys.argv[1]
print(open(t + "/hello").read())
def tries(name, f):
    try: f(); print(name, "done")
    except OSError as e: print(name, e.strerror)
tries("write", lambda: open(t + "/hello", "w"))
tries("create", lambda: open(t + "/new", "w"))
tries("remove", lambda: os.remove(t + "/hello"))
tries("connect", lambda: socket.socket(socket.AF_UNIX).connect(t + "/socket"))
tries("datagram", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
a, b = socket.socketpair()
a.send(b"x"); print("pair", b.recv(1))`
		j := everyday("/usr/bin/python3", "-c", code, "/live/tree")
		j.Flags = []string{"--ro", tree + ":/live/tree"}
		run := s.Run(j).WantOK()
		want := "from the host\nwrite Read-only file system\ncreate Read-only file system\nremove Read-only file system\nconnect Operation not permitted\ndatagram Operation not permitted\npair b'x'\n"
		// Landlock may be asked before the mount is.
		if got := strings.ReplaceAll(string(run.Stdout), "Permission denied", "Read-only file system"); got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
		if harness.Fingerprint(t, file) != before {
			t.Error("the file was changed")
		}
		if _, err := os.Stat(filepath.Join(tree, "new")); err == nil {
			t.Error("a file was made")
		}
		found := false
		for _, row := range run.Result.Attestation {
			found = found || row.Restriction == "mount /live/tree" && strings.Contains(row.Shown, "ro,nosuid,nodev")
		}
		if !found {
			t.Error("the attestation has no row for the bind")
		}
		// Elsewhere, by the operator's word.
		j = everyday("cat", "/project/hello")
		j.Flags = []string{"--ro", tree + ":/project"}
		if run := s.Run(j).WantOK(); string(run.Stdout) != "from the host" {
			t.Errorf("printed %q", run.Stdout)
		}
	})
}

// Nothing that holds the operator's keys is shown, nor what lies above it.
func TestSecretsAreNotShown(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		home := s.File("home/.ssh/id", "key")
		home = filepath.Dir(filepath.Dir(home))
		link := filepath.Join(s.Dir, "link")
		if err := os.Symlink(home, link); err != nil {
			t.Fatal(err)
		}
		harmless := filepath.Dir(s.File("home/project/x", "shown"))
		for _, path := range []string{"/", "/etc", "/etc/ssh", "/home", "/root", "/run", "/proc", "/sys", "/dev", home, home + "/.ssh", link, s.Dir, s.State} {
			if _, err := os.Stat(path); err != nil {
				continue // not on this host, or not to be seen by this caller
			}
			for _, flag := range []string{"--ro", "--rootfs-add"} {
				j := everyday("true")
				j.Env, j.Flags = []string{"HOME=" + home}, []string{flag, path + ":/shown"}
				run := s.Run(j)
				if run.Status != 125 || run.Result.Reason == nil || run.Result.Reason.ID != reason.BindRefused {
					t.Errorf("%s %s: status %d, %+v", flag, path, run.Status, run.Result.Reason)
				}
			}
		}
		j := everyday("cat", "/shown/x")
		j.Env, j.Flags = []string{"HOME=" + home}, []string{"--ro", harmless + ":/shown"}
		if run := s.Run(j).WantOK(); string(run.Stdout) != "shown" {
			t.Errorf("control: printed %q", run.Stdout)
		}
		// A strict policy's root is not the operator's to add to.
		j = harness.Job{Argv: []string{"python3", "-c", "pass"}, Flags: []string{"--ro", harmless}}
		if run := s.Run(j); run.Status != 125 || run.Result.Reason == nil || run.Result.Reason.ID != reason.BindRefused {
			t.Errorf("sales-summary with --ro: status %d, %+v", run.Status, run.Result.Reason)
		}
		// And none of those places is in the root by itself.
		j = script(`for p in /etc/shadow /etc/ssh /root /home /run /var /sys; do [ ! -e $p ] || echo $p; done; [ -e /etc/ssl/certs ] && echo certificates`)
		if run := s.Run(j).WantOK(); string(run.Stdout) != "certificates\n" {
			t.Errorf("in the root: %q", run.Stdout)
		}
	})
}

// An added root brings its programs, found first, and what leads out of the root
// is named.
func TestAddedRoot(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		tool := s.File("env/bin/mytool", "#!/bin/sh\necho added $PATH\n")
		if err := os.Chmod(tool, 0o755); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Dir(filepath.Dir(tool))
		j := everyday("mytool")
		if run := s.Run(j); run.Status == 0 {
			t.Error("found without being added")
		}
		j.Flags = []string{"--rootfs-add", dir + ":/opt/env"}
		if run := s.Run(j).WantOK(); !strings.HasPrefix(string(run.Stdout), "added /opt/env/bin:") {
			t.Errorf("printed %q", run.Stdout)
		}
		if err := os.Symlink(s.File("elsewhere/python", "x"), filepath.Join(dir, "bin", "python")); err != nil {
			t.Fatal(err)
		}
		os.Chmod(filepath.Join(s.Dir, "elsewhere/python"), 0o755)
		j = everyday("python")
		j.Flags = []string{"--rootfs-add", dir + ":/opt/env"}
		if run := s.Run(j); run.Status == 0 || !strings.Contains(string(run.Stderr), s.Dir+"/elsewhere/python, which is not in the box's root") {
			t.Errorf("status %d, %.600s", run.Status, run.Stderr)
		}
	})
}
