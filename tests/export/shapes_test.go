package export

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// shape is one way to fill /out. code prints "made" or the error of the attempt;
// TARGET stands for a file of the host that holds the canary.
type shape struct {
	name, code string
	codes      []string // none: nothing was made, so the artifact is EMPTY
	printed    []string // none: "made"
}

const good = "put('summary.csv', 'a,b\\n1,2\\n')\n"

func shapes() []shape {
	link := func(name, to string) shape {
		return shape{name, "os.symlink(" + to + ", p); print('made')", []string{"symlink"}, nil}
	}
	attempt := func(call string) string {
		return "try:\n " + call + "\n print('made')\nexcept OSError as e: print(errno.errorcode[e.errno])\n"
	}
	return []shape{
		// the four of S4
		link("symlink to the target", "'TARGET'"),
		{"hard link to an input", attempt("os.link('/in/canary', p)"), nil, []string{"EXDEV", "EPERM"}},
		{"fifo", "os.mkfifo(p); print('made')", []string{"fifo"}, nil},
		link("directory symlink", "'/'"),
		// and their relatives
		link("relative symlink", "'../in/canary'"),
		link("symlink upwards", "'../../../../../../../TARGET'"),
		link("dangling symlink", "'/nowhere'"),
		link("looping symlink", "'summary.csv'"),
		link("symlink to an input", "'/in/canary'"),
		link("symlink to a descriptor", "'/proc/self/fd/0'"),
		link("symlink to the staging descriptor", "'/proc/self/fd/4'"),
		link("symlink to the root of process 1", "'/proc/1/root'"),
		link("symlink to memory", "'/proc/self/mem'"),
		link("symlink to a device", "'/dev/zero'"),
		link("longest symlink", "'x' * 4095"),
		{"two links in a ring", "os.symlink('b', p); os.symlink('summary.csv', '/out/b'); print('made')", []string{"name_not_allowed", "symlink"}, nil},
		{"link to a good file beside", "put('real', C); os.symlink('real', p); print('made')", []string{"name_not_allowed", "symlink"}, nil},
		{"hard link inside", "put('summary.csv', C); os.link(p, '/out/b'); print('made')", []string{"hardlink", "name_not_allowed", "too_many_files"}, nil},
		{"socket", "s = socket.socket(socket.AF_UNIX); s.bind(p); print('made')", []string{"socket"}, nil},
		{"character device", attempt("os.mknod(p, stat.S_IFCHR | 0o666, os.makedev(1, 5))"), nil, []string{"EACCES", "EPERM"}}, // Landlock or the missing capability
		{"block device", attempt("os.mknod(p, stat.S_IFBLK | 0o666, os.makedev(7, 0))"), nil, []string{"EACCES", "EPERM"}},     // Landlock or the missing capability
		{"directory by the name", "os.mkdir(p); print('made')", []string{"directory"}, nil},
		{"directory with a file in it", "os.mkdir(p); put('summary.csv/x', C); print('made')", []string{"directory"}, nil},
		{"directory beside", good + "os.mkdir('/out/d'); print('made')", []string{"directory", "name_not_allowed"}, nil},
		{"newline in a name", "put('summary.csv\\n', C); print('made')", []string{"name_not_allowed"}, nil},
		{"escape in a name", "put('\\x1b[2J', C); print('made')", []string{"name_not_allowed"}, nil},
		{"name that is no utf-8", "put(os.fsdecode(b'summary\\xff\\xfe.csv'), C); print('made')", []string{"name_not_allowed"}, nil},
		{"name of 255 bytes", "put('n' * 255, C); print('made')", []string{"name_not_allowed"}, nil},
		{"name in capitals", "put('SUMMARY.CSV', C); print('made')", []string{"name_not_allowed"}, nil},
		{"name with a blank", "put('summary.csv ', C); print('made')", []string{"name_not_allowed"}, nil},
		{"hidden name", "put('.summary.csv', C); print('made')", []string{"name_not_allowed"}, nil},
		{"sparse file", "f = open(p, 'w'); f.truncate(2 << 20); print('made')", []string{"too_large"}, nil},
		{"mode 0 and set-id bits", "put('summary.csv', C + '\\x00'); os.chmod(p, 0o6000); print('made')", []string{"nul_byte"}, nil},
		{"all of out_inodes", "n = 0\ntry:\n while True: put('f%d' % n, C); n += 1\nexcept OSError as e: print(errno.errorcode[e.errno], n)\n",
			[]string{"name_not_allowed", "too_many_files"}, []string{"ENOSPC 63"}},
	}
}

// TestS4 holds every shape, as every caller.
func TestS4(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		before := harness.Fingerprint(t, target)
		t.Run("control", func(t *testing.T) {
			try(t, s, good, harness.Job{}).wantDelivered([]byte("a,b\n1,2\n"), 2)
			if seen := try(t, s, "print(open('/in/canary').read())", harness.Job{In: []string{target + ":canary"}}); seen.run.Holding(canary) == nil {
				t.Error("the canary is not found where it was printed")
			}
		})
		state := s.State
		s.State = filepath.Join(s.Dir, "state-shapes") // the control left the canary in its streams
		defer func() { s.State = state }()
		for _, sh := range shapes() {
			t.Run(sh.name, func(t *testing.T) {
				tr := try(t, s, strings.ReplaceAll(sh.code, "TARGET", target), harness.Job{In: []string{target + ":canary"}})
				printed, want := strings.TrimSpace(string(tr.run.Stdout)), sh.printed
				if want == nil {
					want = []string{"made"}
				}
				if !slices.Contains(want, printed) {
					t.Errorf("printed %q, want one of %q\n%s", printed, want, tr.run.Stderr)
				}
				if len(sh.codes) > 0 {
					tr.wantRejected(sh.codes...)
					return
				}
				tr.run.Want(launcher.Exited, launcher.ExitUndelivered)
				if a := tr.run.Result.Artifact; a.Outcome != launcher.ArtifactEmpty {
					t.Errorf("artifact %+v, want EMPTY", a)
				}
				tr.wantNothing()
			})
		}
		if harness.Fingerprint(t, target) != before {
			t.Error("the target was touched")
		}
		s.WantNoTrace(t)
	})
}

// TestManyEntries raises out_inodes: the exporter stops looking at its own bound.
func TestManyEntries(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		tr := try(t, s, good+"for n in range(10000): os.mknod('/out/%05d-' % n + C)\nprint(len(os.listdir('/out')))\n",
			harness.Job{Policy: []harness.Change{harness.Set("out_inodes", 10200)}})
		if got := strings.TrimSpace(string(tr.run.Stdout)); got != "10001" {
			t.Errorf("%s entries were made, want 10001\n%s", got, tr.run.Stderr)
		}
		tr.wantRejected("too_many_entries")
		if took := tr.run.Result.DurationsMS["export"]; took > 10000 {
			t.Errorf("the export took %.0f ms", took)
		}
	})
}

// TestNothingLeft: a program that leaves nothing is no rejection.
func TestNothingLeft(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for name, code := range map[string]string{"nothing": "pass\n", "made and removed": "put('x', C); os.remove('/out/x')\n"} {
			tr := try(t, s, code, harness.Job{})
			if a := tr.run.Result.Artifact; a.Outcome != launcher.ArtifactEmpty || tr.run.Status != launcher.ExitUndelivered {
				t.Errorf("%s: artifact %+v, status %d", name, a, tr.run.Status)
			}
			tr.wantNothing()
		}
		if _, err := os.Stat(s.State); err != nil {
			t.Error(err)
		}
	})
}
