package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestStdin: end of file at once, unless the caller says otherwise.
func TestStdin(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		read := []string{"python3", "-c", "import sys; print(repr(sys.stdin.read()))"}
		run := s.Run(harness.Job{Argv: read, Stdin: strings.NewReader("meant for the caller")}).WantOK()
		if string(run.Stdout) != "''\n" {
			t.Errorf("by default the program reads %q", run.Stdout)
		}
		// A stdin that never ends must not be waited for.
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		defer r.Close()
		run = s.Run(harness.Job{Argv: []string{"python3", "-c", "input()"}, Stdin: r}).Want(launcher.Exited, 1)
		if !strings.Contains(string(run.Stderr), "EOFError") || run.Took > 3*time.Second {
			t.Errorf("input() ended after %s with %.300s", run.Took, run.Stderr)
		}
		run = s.Run(harness.Job{Argv: read, Stdin: strings.NewReader("for the program"), Flags: []string{"--stdin"}}).WantOK()
		if string(run.Stdout) != "'for the program'\n" {
			t.Errorf("with --stdin the program reads %q", run.Stdout)
		}
		run = s.Run(harness.Job{Argv: []string{"python3", "-", "argument"}, Stdin: strings.NewReader("import sys; print('from stdin', sys.argv[1])"), Flags: []string{"--stdin"}}).WantOK()
		if string(run.Stdout) != "from stdin argument\n" {
			t.Errorf("python3 - printed %q", run.Stdout)
		}
		// The program may leave its input unread, however much there is.
		run = s.Run(harness.Job{Argv: []string{"python3", "-c", "pass"}, Stdin: strings.NewReader(strings.Repeat("x", 4*mib)), Flags: []string{"--stdin"}}).WantOK()
		if run.Took > 3*time.Second {
			t.Errorf("unread input held nsbox for %s", run.Took)
		}
		// An open pipe that stays silent does not hold it either.
		run = s.Run(harness.Job{Argv: []string{"python3", "-c", "pass"}, Stdin: r, Flags: []string{"--stdin"}}).WantOK()
		if run.Took > 3*time.Second {
			t.Errorf("silent input held nsbox for %s", run.Took)
		}
	})
}

// TestUmask: the caller's mask changes neither the box nor who may read the state.
func TestUmask(t *testing.T) {
	const code = `import os
old = os.umask(0)
open('/out/summary.csv', 'w').write('x\n')
print(f'{old:03o}', oct(os.stat('/in').st_mode & 0o7777), open('/in/data.csv').read())`
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for _, mask := range []string{"077", "000"} {
			fresh := harness.NewSite(t, s.Caller)
			folder := fresh.Folder()
			shell := "umask " + mask + `; exec "$@"`
			run := fresh.Run(harness.Job{Code: code, In: []string{fresh.File("data.csv", "data")}, Deliver: folder, Shell: shell})
			run.WantOK()
			if got := string(run.Stdout); got != "022 0o755 data\n" {
				t.Errorf("umask %s: printed %q", mask, got)
			}
			filepath.WalkDir(fresh.State, func(p string, d fs.DirEntry, err error) error {
				if err != nil {
					t.Error(err)
					return nil
				}
				info, err := d.Info()
				if err != nil {
					t.Error(err)
					return nil
				}
				if d.IsDir() && info.Mode().Perm()&0o077 != 0 || info.Mode().Perm()&0o022 != 0 {
					t.Errorf("umask %s: %s has mode %v", mask, p, info.Mode())
				}
				return nil
			})
			info, err := os.Stat(filepath.Join(folder, "summary.csv"))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("umask %s: the delivered file has mode %v", mask, info.Mode())
			if info.Mode().Perm()&0o022 != 0 {
				t.Errorf("umask %s: the delivered file has mode %v", mask, info.Mode())
			}
		}
	})
}

// TestStartingPoint: where and with which descriptors nsbox is started.
func TestStartingPoint(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for name, shell := range map[string]string{
			"deleted directory": `d=` + s.Dir + `/gone; mkdir $d; cd $d; rmdir $d; exec "$@"`,
			"no descriptors":    `exec "$@" <&- >&- 2>&-`,
			"no stdin":          `exec "$@" <&-`,
			"no stdout":         `exec "$@" >&-`,
			"stdout full":       `exec "$@" >/dev/full 2>/dev/full`,
			"stdout read-only":  `exec "$@" 1</dev/null 2</dev/null`,
		} {
			folder := s.Folder()
			run := s.Run(harness.Job{Code: "print('hello')\nopen('/out/summary.csv', 'w').write('x\\n')", Deliver: folder, Shell: shell})
			run.Want(launcher.Exited, 0)
			if got := run.Result.Untrusted.Stdout.Text; got != "hello\n" {
				t.Errorf("%s: kept %q", name, got)
			}
			if got, err := os.ReadFile(filepath.Join(folder, "summary.csv")); err != nil || string(got) != "x\n" {
				t.Errorf("%s: delivered %q, %v", name, got, err)
			}
			// A descriptor that took the place of a closed one would have got the streams.
			for _, file := range []string{filepath.Join(s.State, "lock"), run.ResultFile} {
				data, _ := os.ReadFile(file)
				if strings.Contains(string(data), "nsbox: workload") || strings.HasPrefix(string(data), "hello") {
					t.Errorf("%s: %s holds output: %.200q", name, file, data)
				}
			}
		}
		// A path that the caller gives from where it stands is told so that anybody finds it.
		folder := s.Folder()
		run := s.Run(harness.Job{Code: "open('/out/summary.csv', 'w').write('x\\n')", Deliver: filepath.Base(folder), Shell: "cd " + filepath.Dir(folder) + `; exec "$@"`})
		run.Want(launcher.Exited, 0)
		if got, want := run.Result.Delivery.Path, filepath.Join(folder, "summary.csv"); got != want {
			t.Errorf("--deliver with a relative path: delivered as %s, want %s", got, want)
		}
		s.WantNoTrace(t)
	})
}

// TestReaderGoesAway: a reader that closes its end neither kills nor blocks nsbox.
func TestReaderGoesAway(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		code := "import time\nfor n in range(3):\n    print('0123456789' * 1000, flush=True)\n    time.sleep(0.2)\n"
		run := s.Run(harness.Job{Code: code, Flags: []string{"--quiet"}, Shell: `{ "$@"; echo "status $?" >&2; } | head -c 10`})
		if string(run.Stderr) != "status 0\n" || string(run.Stdout) != "0123456789" {
			t.Errorf("standard output %q, standard error %.600s", run.Stdout, run.Stderr)
		}
		if got := run.Result; got.Workload.Outcome != launcher.Exited || got.Untrusted.Stdout.BytesTotal != 30003 || got.Untrusted.Stdout.BytesKept != 30003 {
			t.Errorf("%s, %d bytes kept of %d; 30003 were written", got.Workload.Outcome, got.Untrusted.Stdout.BytesKept, got.Untrusted.Stdout.BytesTotal)
		}
	})
}
