package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

const listIn = `
import os
for folder, folders, names in sorted(os.walk('/in')):
    for name in sorted(names):
        path = os.path.join(folder, name)
        if name != 'list.py':
            print(path, oct(os.stat(path).st_mode & 0o7777), open(path).read().strip())
    for name in folders:
        print(os.path.join(folder, name) + '/', oct(os.stat(os.path.join(folder, name)).st_mode & 0o7777))
`

// TestInputs: names below /in, whatever the files are called and allowed outside.
func TestInputs(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		list := s.File("list.py", listIn)
		secretMode := s.File("private.csv", "private")
		if err := os.Chmod(secretMode, 0o600); err != nil {
			t.Fatal(err)
		}
		s.File("tree/a.csv", "a")
		s.File("tree/sub/b.csv", "b")
		colon := s.File("odd:name.csv", "colon")
		cafe := s.File("caf\u00e9 \u2603.csv", "snow")
		for _, c := range []struct {
			name string
			in   []string
			want []string
		}{
			{"basename", []string{s.File("plain.csv", "plain")}, []string{"/in/plain.csv 0o644 plain"}},
			{"renamed", []string{s.File("plain.csv", "plain") + ":other.csv"}, []string{"/in/other.csv 0o644 plain"}},
			{"private outside", []string{secretMode}, []string{"/in/private.csv 0o644 private"}},
			{"contents of a directory", []string{filepath.Join(s.Dir, "tree")}, []string{"/in/sub/ 0o755", "/in/a.csv 0o644 a", "/in/sub/b.csv 0o644 b"}},
			{"directory renamed", []string{filepath.Join(s.Dir, "tree") + ":data"}, []string{"/in/data/ 0o755", "/in/data/sub/ 0o755", "/in/data/a.csv 0o644 a", "/in/data/sub/b.csv 0o644 b"}},
			{"colon in the name", []string{colon}, []string{"/in/odd:name.csv 0o644 colon"}},
			{"other letters", []string{cafe}, []string{"/in/caf\u00e9 \u2603.csv 0o644 snow"}},
		} {
			run := s.Run(harness.Job{Argv: []string{"python3", "/in/list.py"}, In: append(c.in, list)}).WantOK()
			got := strings.Split(strings.TrimSpace(string(run.Stdout)), "\n")
			if len(got) != len(c.want) {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
				continue
			}
			for _, line := range c.want {
				if !strings.Contains(string(run.Stdout), line+"\n") {
					t.Errorf("%s: no %q in %q", c.name, line, got)
				}
			}
		}
	})
}

// TestInputRefusals: each refusal leaves no staged file and starts no program.
func TestInputRefusals(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		plain := s.File("plain.csv", "plain")
		s.File("tree/plain.csv", "other")
		link, fifo := filepath.Join(s.Dir, "link.csv"), filepath.Join(s.Dir, "fifo.csv")
		if err := os.Symlink("/etc/passwd", filepath.Join(s.Dir, "tree", "inner-link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("plain.csv", link); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(fifo, 0o666); err != nil {
			t.Fatal(err)
		}
		s.File("second/plain.csv", "second")
		big := s.File("big", "")
		if err := os.Truncate(big, 65<<20); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name string
			in   []string
			id   reason.ID
		}{
			{"the same name twice", []string{plain, filepath.Join(s.Dir, "second", "plain.csv")}, reason.InputCollision},
			{"file and directory", []string{plain, filepath.Join(s.Dir, "second")}, reason.InputCollision},
			{"renamed onto another", []string{plain, s.File("b.csv", "b") + ":plain.csv"}, reason.InputCollision},
			{"missing", []string{filepath.Join(s.Dir, "none")}, reason.InputMissing},
			{"a FIFO", []string{fifo}, reason.InputSpecial},
			{"a device", []string{"/dev/zero"}, reason.InputSpecial},
			{"a link below a directory", []string{filepath.Join(s.Dir, "tree")}, reason.InputSymlink},
			{"too large", []string{big}, reason.InputTooLarge},
			{"dots", []string{plain + ":.."}, reason.InputBadName},
		} {
			run := s.Run(harness.Job{Argv: []string{"python3", "-c", "print('started')"}, In: c.in})
			if run.Status != launcher.ExitRefused || len(run.Stdout) != 0 {
				t.Errorf("%s: status %d, printed %q", c.name, run.Status, run.Stdout)
			}
			run.WantReason(c.id)
		}
		s.WantNoTrace(t)
		// What a link on the command line means is the operator's own choice.
		run := s.Run(harness.Job{Argv: []string{"python3", "-c", "print(open('/in/link.csv').read())"}, In: []string{link}})
		t.Logf("a link as argument: status %d, %q, reason %+v", run.Status, run.Stdout, run.Result.Reason)
		if run.Status == 0 && string(run.Stdout) != "plain\n" {
			t.Errorf("a link as argument gives %q", run.Stdout)
		}
	})
}

// TestArguments arrive as they are.
func TestArguments(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		args := []string{"", " ", "two\nlines", "caf\u00e9 \u2603 \U0001F600", "\xff\xfe", "--json", "--", "$HOME", "`id`", "'\"\\", strings.Repeat("x", 100000), "\x1b[31m"}
		run := s.Run(harness.Job{Argv: append([]string{"python3", "-c", "import os, sys; [os.write(1, os.fsencode(a)[:50] + b'\\0') for a in sys.argv[1:]]"}, args...)}).WantOK()
		got := strings.Split(strings.TrimSuffix(string(run.Stdout), "\x00"), "\x00")
		if len(got) != len(args) {
			t.Fatalf("%d arguments arrived of %d: %q", len(got), len(args), got)
		}
		for i, a := range args {
			if got[i] != a[:min(len(a), 50)] {
				t.Errorf("argument %d is %q, want %q", i, got[i], a)
			}
		}
	})
}
