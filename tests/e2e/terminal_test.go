package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"nsbox/tests/harness"
)

// onTerminal runs nsbox with a terminal as all of its streams and returns what a
// person would be shown.
func onTerminal(t *testing.T, s *harness.Site, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(harness.Binary(t), args...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.Dir, "TERM=xterm", "NO_COLOR=1"}
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Dir, terminal, terminal, terminal
	s.Caller.Become(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	terminal.Close()
	var shown strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 4096); ; {
			n, err := master.Read(buf)
			shown.Write(buf[:n])
			if err != nil { // EIO once nobody has the terminal any more
				return
			}
		}
	})
	_ = cmd.Wait()
	reading.Wait()
	return shown.String()
}

// steers lists what of a text would reach a terminal's own interpretation.
func steers(text string) []string {
	var found []string
	for _, r := range strings.ToValidUTF8(text, "\u0080") {
		switch {
		case r == '\n', r == '\r', r == '\t': // the line discipline's own
		case r < 0x20, r >= 0x7f && r <= 0x9f, r == 0x2028, r == 0x2029, unicode.Is(unicode.Bidi_Control, r):
			found = append(found, fmt.Sprintf("%U", r))
		}
	}
	return found
}

// TestNothingSteersTheTerminal: whatever a program writes, and however it names
// its files and its own failures, no command shows a person a control character.
func TestNothingSteersTheTerminal(t *testing.T) {
	const hostile = "\x1b]0;owned\x07\x1b[2J\x9b31m\u009b31m\u202etxt.exe\u2066x\u2069\u200f\u061c\u2028\x08\x7f\x00"
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		if steers(hostile) == nil || steers("plain\r\n") != nil {
			t.Fatal("the look at the output tells nothing")
		}
		code := s.File("hostile.py", "import os, sys\n"+
			fmt.Sprintf("h = bytes.fromhex(%q)\n", fmt.Sprintf("%x", hostile))+
			"os.write(1, b'begin ' + h + b' end')\nos.write(2, b'begin ' + h + b' end')\n"+
			"if sys.argv[1] == 'names': open(b'/out/' + h[:-1].replace(b'/', b'_'), 'w').write('x')\n"+
			"else: open('/out/summary.csv', 'wb').write(b'cell\\n\"' + h.replace(b'\\0', b'').replace(b'\\x9b31m', b'', 1) + b'\"\\n')\n")
		args := func(how, folder string) []string {
			return []string{"exec", "--state-dir", s.State, "--policy", "sales-summary", "--allow-degraded", "memory,cpu_rate,cpu_total,launcher_identity,out_storage",
				"--deliver", folder, "--in", code, "--", "python3", "/in/hostile.py", how}
		}
		for _, how := range []string{"names", "cells"} {
			folder := s.Folder()
			shown := onTerminal(t, s, args(how, folder)...)
			if !strings.Contains(shown, `begin \x1b]0;owned`) || steers(shown) != nil {
				t.Errorf("%s: exec shows %v:\n%q", how, steers(shown), shown)
			}
			if delivered, _ := filepath.Glob(folder + "/*"); how == "names" && len(delivered) > 0 {
				t.Errorf("delivered %q", delivered)
			}
			attempt := filepath.Base(s.Attempts()[len(s.Attempts())-1])
			for _, look := range [][]string{{"attempts"}, {"attempts", "show", attempt}, {"attempts", "show", attempt, "--json"}, {"attempts", "show", attempt, "--attest"},
				{"attempts", "logs", attempt}, {"attempts", "logs", attempt, "--stderr"}, {"attempts", "show", hostile[:9]}, {"export", "check", folder, "--as", "x"}, {"exec", "--policy", hostile[:12], "--", "x"}} {
				command := append(append([]string{}, look...), "--state-dir", s.State)
				if look[0] == "export" {
					command = look
				}
				if shown := onTerminal(t, s, command...); shown == "" || steers(shown) != nil {
					t.Errorf("%s: %q shows %v:\n%q", how, look, steers(shown), shown)
				}
			}
			// The control: to a pipe the kept bytes are exact.
			if run := s.Raw("attempts", "logs", attempt, "--state-dir", s.State); string(run.Stdout) != "begin "+hostile+" end" {
				t.Errorf("%s: logs to a pipe are %q", how, run.Stdout)
			}
		}
		// Journal, result and audit log hold no such byte either.
		for _, path := range []string{"audit.log", "attempts/*/journal", "attempts/*/result.json"} {
			files, _ := filepath.Glob(filepath.Join(s.State, path))
			if len(files) == 0 {
				t.Errorf("there is no %s", path)
			}
			for _, f := range files {
				data, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				// A journal's frames are numbers, any byte may be among them.
				if strings.Contains(string(data), hostile[:9]) || path != "attempts/*/journal" && steers(string(data)) != nil {
					t.Errorf("%s holds the program's bytes as they are", f)
				}
			}
		}
	})
}
