package harness_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// TestExample is the shape of every test that uses the harness: an attempt
// inside with its positive control, and a look at the target outside.
func TestExample(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", "before")
		before := harness.Fingerprint(t, target)
		run := s.Run(harness.Job{Code: "open('/scratch/control', 'w').write('x')\n" +
			"try: open('" + target + "', 'w')\nexcept OSError as e: print(e.strerror)\n"}).WantOK()
		if got := string(run.Stdout); got != "No such file or directory\n" {
			t.Errorf("printed %q", got)
		}
		if harness.Fingerprint(t, target) != before {
			t.Error("the target was written")
		}
		s.WantNoTrace(t)
	})
}

// TestLooksCanFail holds the harness's own eyes against things that are there.
func TestLooksCanFail(t *testing.T) {
	for _, c := range harness.Callers(t) {
		t.Run(c.Name, func(t *testing.T) {
			s := harness.NewSite(t, c)
			live := s.Start(harness.Job{Code: "print('ready', flush=True)\nimport time; time.sleep(5)\n"})
			live.Await("ready\n")
			kinds := map[string]int{}
			for _, p := range s.Processes() {
				for _, kind := range []string{"nsbox exec", "nsbox-init", "python3 /in"} {
					if strings.HasPrefix(p.Command, kind) || kind == "nsbox exec" && strings.Contains(p.Command, "/nsbox exec ") {
						kinds[kind]++
					}
				}
			}
			want := []string{"nsbox exec", "python3 /in"}
			if os.Geteuid() == 0 {
				want = append(want, "nsbox-init")
			}
			for _, kind := range want {
				if kinds[kind] != 1 {
					t.Errorf("%d processes like %q are seen of a running box: %v", kinds[kind], kind, s.Processes())
				}
			}
			if harness.PeakMemory(live.Cmd.Process.Pid) == 0 {
				t.Error("no peak memory of a running launcher")
			}
			live.Signal(15)
			run := live.Wait().Want(launcher.Cancelled, 143)
			if run.Holding("ready") == nil {
				t.Error("what was printed is not found")
			}

			path := s.File("x", "one")
			first := harness.Fingerprint(t, path)
			time.Sleep(time.Millisecond)
			s.File("x", "two")
			if harness.Fingerprint(t, path) == first || harness.Fingerprint(t, path+".none") == harness.Fingerprint(t, path) {
				t.Error("a fingerprint does not tell files apart")
			}
		})
	}
}

// TestMissingBinary wants the one line that helps.
func TestMissingBinary(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestExample$")
	cmd.Env = append(os.Environ(), "NSBOX_BIN="+filepath.Join(t.TempDir(), "nsbox"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run make build first") {
		t.Errorf("%v: %s", err, out)
	}
}
