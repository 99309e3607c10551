package escape

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// hostile is a program of testdata/corpus.
type hostile struct {
	family, name, attempts string
	holds                  []string // how it may end
	piece                  string   // machine code of a program in C
}

// corpus reads what each program says of itself, and compiles those in C to bare
// machine code.
func corpus(t *testing.T) (all []hostile) {
	t.Helper()
	told := regexp.MustCompile(`(?m)^def (\w+)\(\):\n    """attempts: (.*)\n    holds: (.*)"""`)
	words := regexp.MustCompile(`[A-Za-z0-9]+`)
	modules, _ := filepath.Glob("testdata/corpus/*.py")
	for _, m := range modules {
		data, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		found := told.FindAllStringSubmatch(string(data), -1)
		text := "\n" + string(data)
		if n := strings.Count(text, "\ndef ") - strings.Count(text, "\ndef control") - strings.Count(text, "\ndef want("); n != len(found) {
			t.Fatalf("%s has %d programs, and %d say what they attempt and what must hold", m, n, len(found))
		}
		for _, f := range found {
			all = append(all, hostile{family: strings.TrimSuffix(filepath.Base(m), ".py"), name: f[1], attempts: f[2], holds: words.FindAllString(f[3], -1)})
		}
	}
	header := regexp.MustCompile(`^/\* family: (\w+)\n   attempts: (.*)\n   holds: (.*) \*/`)
	pieces, _ := filepath.Glob("testdata/corpus/*.c")
	for _, p := range pieces {
		data, err := os.ReadFile(p)
		f := header.FindStringSubmatch(string(data))
		if err != nil || f == nil {
			t.Fatalf("%s does not say what it attempts: %v", p, err)
		}
		h := hostile{family: f[1], name: strings.TrimSuffix(filepath.Base(p), ".c"), attempts: f[2], holds: words.FindAllString(f[3], -1)}
		h.piece = filepath.Join(t.TempDir(), h.name+".bin")
		object := h.piece + ".o"
		for _, cmd := range [][]string{{"gcc", "-Os", "-fPIC", "-ffreestanding", "-fno-stack-protector", "-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-c", "-o", object, p},
			{"objcopy", "-O", "binary", "-j", ".text", object, h.piece}} {
			if out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v: %s", cmd, err, out)
			}
		}
		all = append(all, h)
	}
	return all
}

// TestHostileCorpus runs each family in a box of its own. A program that is not
// refused as it says, or changes a target, fails; the family's control shows that
// a success would be told as one.
func TestHostileCorpus(t *testing.T) {
	all := corpus(t)
	families := map[string][]hostile{}
	for _, h := range all {
		families[h.family] = append(families[h.family], h)
	}
	if len(all) < 60 || len(families) < 13 {
		t.Fatalf("%d programs in %d families", len(all), len(families))
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		name := "nsbox-corpus-" + s.Marker
		_, abstractHits := listen(t, "unix", "@"+name)
		tcp, portHits := listen(t, "tcp", "127.0.0.1:0")
		_, port, _ := net.SplitHostPort(tcp.Addr().String())
		stage := func(path, as string) string {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("/TARGET", target, "nsbox-corpus-NAME", name, `"PORT"`, `"`+port+`"`).Replace(string(data))
			return s.File("corpus/"+as, text)
		}
		jobOf := func(family string, list []hostile) harness.Job {
			module := stage("testdata/corpus/"+family+".py", family+"_family.py")
			j := harness.Job{Script: "testdata/corpus.py", Args: []string{"/in/" + filepath.Base(module)}, In: []string{module}}
			for _, h := range list {
				if h.piece != "" {
					j.In = append(j.In, stage(h.piece, filepath.Base(h.piece)))
					j.Args = append(j.Args, "/in/"+filepath.Base(h.piece))
				}
			}
			return j
		}
		watch := []string{target, "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/self/mountinfo", "/proc/swaps"}
		before := harness.Fingerprint(t, watch...)
		for family, list := range families {
			t.Run(family, func(t *testing.T) {
				j := jobOf(family, list)
				if family == "forks" { // fewer, so that no sampled sum of their memory comes first
					j.Policy = []harness.Change{harness.Set("tasks_job", 12)}
				}
				run := s.Run(j).WantOK()
				report := reportOf(t, run)
				if got := report["control"]; !strings.HasPrefix(got, "did ") {
					t.Errorf("control: %q", got)
				}
				for _, h := range list {
					got := report[h.name]
					if !slices.Contains(h.holds, strings.TrimPrefix(got, "signal ")) {
						t.Errorf("%s (%s): %q, must be one of %q", h.name, h.attempts, got, h.holds)
					}
				}
				if places := run.Holding(strings.TrimSpace(canary)); places != nil {
					t.Errorf("the host's file is in %q", places)
				}
			})
		}
		s.WantGone(t, 0)
		if harness.Fingerprint(t, watch...) != before {
			t.Error("a target on the host changed")
		}
		if len(abstractHits)+len(portHits) != 0 {
			t.Errorf("%d and %d connections reached the host", len(abstractHits), len(portHits))
		}
		// What harms nobody is done on the host by the same programs: there it is seen.
		for family, names := range map[string]string{"filesystem": "reads_by_dots reads_by_its_own_root", "ipc": "connects_to_an_abstract_name", "sockets": "dials_the_host asks_the_kernel_by_netlink"} {
			module := s.File("host/"+family+"_family.py", strings.ReplaceAll(readAll(t, filepath.Join(s.Dir, "corpus", family+"_family.py")), "/scratch/", s.Dir+"/"))
			report := reportOf(t, s.OnHost(harness.Job{Script: "testdata/corpus.py", Args: append([]string{module}, strings.Fields(names)...)}))
			for _, n := range strings.Fields(names) {
				if !strings.HasPrefix(report[n], "did ") {
					t.Errorf("control on the host: %s: %q", n, report[n])
				}
			}
		}
	})
	t.Logf("%d programs in %d families, beside those that end a run of their own", len(all), len(families))
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestHostileRuns are the programs of the families output, time, export and log
// injection: each ends a run of its own, and its result is what must hold.
func TestHostileRuns(t *testing.T) {
	const leave = "import os\np = '/out/summary.csv'\n"
	for _, c := range []struct {
		family, name, code string
		outcome            string
		status             int
		artifact           string
	}{
		{"output", "floods standard output", "import os\nwhile True: os.write(1, b'x' * 65536)\n", launcher.LimitExceededOutput, launcher.ExitLimit, ""},
		{"output", "floods standard error from a child", "import os\nif os.fork() == 0:\n while True: os.write(2, b'x' * 65536)\nos.wait()\n", launcher.LimitExceededOutput, launcher.ExitLimit, ""},
		{"output", "floods by the name of its stream", "import os\nfd = os.open('/proc/self/fd/1', os.O_WRONLY)\nwhile True: os.write(fd, b'x' * 65536)\n", launcher.LimitExceededOutput, launcher.ExitLimit, ""},
		{"time", "ignores every signal and waits", "import signal, time\nfor n in range(1, 65):\n try: signal.signal(n, signal.SIG_IGN)\n except (OSError, ValueError): pass\ntime.sleep(60)\n", launcher.TimeoutWall, launcher.ExitLimit, ""},
		{"time", "leaves a stopped child", "import os, signal\nif os.fork() == 0: os.kill(os.getpid(), signal.SIGSTOP)\nos.wait()\n", launcher.TimeoutWall, launcher.ExitLimit, ""},
		{"export", "a name with a line of its own", leave + "open('/out/a\\nnsbox: artifact ACCEPTED', 'w').write('x')\n", launcher.Exited, launcher.ExitUndelivered, launcher.ArtifactRejected},
		{"export", "a file of holes beyond every cap", leave + "with open(p, 'w') as f: f.truncate(1 << 40) if False else f.truncate(60 << 20)\n", launcher.Exited, launcher.ExitUndelivered, launcher.ArtifactRejected},
		{"export", "a link to itself", leave + "os.symlink(p, p)\n", launcher.Exited, launcher.ExitUndelivered, launcher.ArtifactRejected},
		{"export", "a hundred entries", leave + "n = 0\ntry:\n while True:\n  open(f'/out/{n}', 'w').close(); n += 1\nexcept OSError: pass\n", launcher.Exited, launcher.ExitUndelivered, launcher.ArtifactRejected},
		{"log injection", "control bytes and a forged verdict", "import sys\nsys.stderr.write('\\x1b]0;t\\x07\\r\\nnsbox: workload EXITED 0, artifact ACCEPTED\\n')\nsys.exit(9)\n", launcher.Exited, 9, ""},
		{"log injection", "a forged document", "import sys\nprint('{\"schema\": \"nsbox.result/1\", \"workload\": {\"outcome\": \"EXITED\", \"exit_code\": 0}}')\nsys.exit(9)\n", launcher.Exited, 9, ""},
		{"log injection", "an argument with a line of its own", "import os, sys\nos.execv('/usr/bin/python3', ['python3\\nattempt 01FORGED closed', '-c', 'import sys; sys.exit(9)'])\n", launcher.Exited, 9, ""},
	} {
		t.Run(c.family+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			s := harness.NewSite(t, harness.Callers(t)[0])
			target := s.File("target", canary)
			before := harness.Fingerprint(t, target)
			j := harness.Job{Code: c.code, Deliver: s.Folder()}
			if c.family == "time" {
				j.Policy = []harness.Change{harness.Set("wall_workload", 2)}
			}
			run := s.Run(j).Want(c.outcome, c.status)
			if c.artifact != "" && run.Result.Artifact.Outcome != c.artifact {
				t.Errorf("artifact %+v", run.Result.Artifact)
			}
			entries, err := os.ReadDir(j.Deliver)
			if err != nil || len(entries) != 0 || run.Result.Delivery.Outcome == launcher.Delivered || harness.Fingerprint(t, target) != before {
				t.Errorf("delivered %v (%v), or the target changed", entries, err)
			}
			s.WantGone(t, 0)
			s.WantNoTrace(t)
			// One attempt is one line of the log, after that of its policy, whatever was printed, named or left.
			log, err := os.ReadFile(filepath.Join(s.State, "audit.log"))
			if lines := bytes.Count(log, []byte(`"event":"attempt"`)); err != nil || lines != 1 || bytes.Count(log, []byte("\n")) != 2 || bytes.Contains(log, []byte("01FORGED")) || bytes.Contains(log, []byte("\x1b")) {
				t.Errorf("the log tells %d times of the attempt (%v): %s", lines, err, log)
			}
			if c.family == "log injection" && run.Result.Workload.Outcome != launcher.Exited {
				t.Error(fmt.Sprint("the outcome followed the words: ", run.Result.Workload))
			}
		})
	}
}
