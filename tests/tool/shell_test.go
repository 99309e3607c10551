package tool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nsbox/tests/harness"
)

// screen is a terminal with a shell of its own, held by tmux: the operator's.
type screen struct {
	t      *testing.T
	socket string
	marks  int
}

// within bounds every wait for the screen; only a hang comes near it.
const within = 90 * time.Second

func newScreen(t *testing.T, s *harness.Site) *screen {
	t.Helper()
	sc := &screen{t: t, socket: filepath.Join(s.Dir, "tmux")}
	sc.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env PS1='host> ' ENV= sh")
	t.Cleanup(func() { exec.Command("tmux", "-S", sc.socket, "kill-server").Run() })
	sc.await("host> ")
	return sc
}

func (sc *screen) tmux(args ...string) string {
	sc.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", sc.socket}, args...)...).CombinedOutput()
	if err != nil {
		sc.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// keys sends keys by tmux's names.
func (sc *screen) keys(keys ...string) {
	sc.t.Helper()
	sc.tmux(append([]string{"send-keys"}, keys...)...)
}

func (sc *screen) text() string { return sc.tmux("capture-pane", "-p", "-J", "-S", "-") }

// await waits until the screen holds text.
func (sc *screen) await(text string) string {
	sc.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		got := sc.text()
		if strings.Contains(got, text) {
			return got
		}
		if time.Now().After(end) {
			sc.t.Fatalf("%q never appears on the screen:\n%s", text, got)
		}
	}
}

// ask types a command and returns what it prints. The marks are put together by
// the shell, so that the typed line does not hold them.
func (sc *screen) ask(command string) string {
	sc.t.Helper()
	sc.marks++
	begin, end := fmt.Sprintf("begin%d:", sc.marks), fmt.Sprintf(":end%d", sc.marks)
	sc.keys("-l", fmt.Sprintf(`r=$?; printf 'begin%%d:' %d; %s; printf ':end%%d\n' %d`, sc.marks, command, sc.marks))
	sc.keys("Enter")
	_, rest, _ := strings.Cut(sc.await(end), begin)
	got, _, _ := strings.Cut(rest, end)
	return strings.TrimSpace(got)
}

// shell opens the box and returns when its shell answers.
func (sc *screen) shell(s *harness.Site) {
	sc.t.Helper()
	sc.keys("-l", harness.Binary(sc.t)+" shell --state-dir "+s.State+" --result "+s.Dir+"/shell.json -- bash --norc")
	sc.keys("Enter")
	sc.await("bash-")
}

func shellSite(t *testing.T) *harness.Site {
	// The terminal belongs to whoever runs the tests, so nsbox does too.
	return harness.NewSite(t, harness.Callers(t)[0])
}

// The shell's session: its own terminal, the window's size, job control, a
// full-screen program, and the operator's terminal as it was afterwards.
func TestShell(t *testing.T) {
	s := shellSite(t)
	sc := newScreen(t, s)
	before := sc.ask("stty -g")
	outer := sc.ask("tty")
	sc.shell(s)
	if got := sc.ask("stty size; tty; id -u"); strings.Join(strings.Fields(got), " ") != "30 100 /dev/pts/0 10001" {
		t.Errorf("inside: %q (outside it is %s)", got, outer)
	}
	sc.tmux("resize-window", "-x", "90", "-y", "25")
	sc.ask("until [ \"$(stty size)\" = '25 90' ]; do sleep 0.1; done")

	// Ctrl-C ends the foreground job, not its shell.
	me := sc.ask("echo $$")
	sc.keys("-l", "echo go''ing; sleep 1000")
	sc.keys("Enter")
	sc.await("going")
	sc.keys("C-c")
	if got := sc.ask("echo $r"); got != "130" {
		t.Errorf("after Ctrl-C: %q", got)
	}
	if got := sc.ask("echo $$"); got != me {
		t.Errorf("another shell after Ctrl-C: %q, was %q", got, me)
	}
	// Ctrl-Z stops it, fg takes it on.
	sc.keys("-l", "echo sl''eeps; sleep 1017")
	sc.keys("Enter")
	sc.await("sleeps")
	sc.keys("C-z")
	sc.await("Stopped")
	if got := sc.ask("jobs"); !strings.Contains(got, "Stopped") {
		t.Errorf("jobs: %q", got)
	}
	sc.keys("fg", "Enter")
	goesOn(t, "sleep\x001017\x00") // the shell gives the terminal away before it continues a job
	sc.keys("C-c")
	if got := sc.ask("jobs"); got != "" {
		t.Errorf("jobs after fg and Ctrl-C: %q", got)
	}
	// A full-screen program, and the file it wrote.
	sc.keys("-l", "vi f.txt; echo vi''over")
	sc.keys("Enter")
	sc.await("[New")
	sc.keys("-l", "itext from vi")
	sc.keys("Escape")
	sc.keys("-l", ":wq")
	sc.keys("Enter")
	sc.await("viover") // what is typed before is vi's
	if got := sc.ask("cat f.txt"); got != "text from vi" {
		t.Errorf("vi wrote %q", got)
	}
	// Nobody types into the operator's terminal.
	if got := sc.ask(`/usr/bin/python3 -c 'import fcntl, termios
try: fcntl.ioctl(0, termios.TIOCSTI, b"x"); print("typed")
except OSError as e: print(e.errno)'`); got != "1" {
		t.Errorf("TIOCSTI: %q", got)
	}
	sc.keys("exit 7", "Enter")
	sc.await("exit status 7")
	if got := sc.ask("echo $r; stty -g"); strings.Join(strings.Fields(got), " ") != "7 "+before {
		t.Errorf("afterwards: %q, before %q", got, before)
	}
}

// After kill -9 of nsbox, and after a signal, the terminal is as before and the
// box is gone.
func TestTerminalAfterKill(t *testing.T) {
	for _, how := range []string{"KILL", "TERM", "QUIT", "SEGV"} {
		t.Run(how, func(t *testing.T) {
			s := shellSite(t)
			sc := newScreen(t, s)
			before := sc.ask("stty -g")
			sc.shell(s)
			pane := strings.TrimSpace(sc.tmux("display-message", "-p", "#{pane_pid}"))
			if out, err := exec.Command("sh", "-c", "kill -"+how+" $(cat /proc/"+pane+"/task/"+pane+"/children)").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for end := time.Now().Add(within); ; time.Sleep(100 * time.Millisecond) {
				tty := strings.TrimSpace(sc.tmux("display-message", "-p", "#{pane_tty}"))
				out, err := exec.Command("stty", "-g", "-F", tty).Output()
				if err == nil && strings.TrimSpace(string(out)) == before {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the terminal stays at %s, was %s", out, before)
				}
			}
			if got := sc.ask("echo back"); got != "back" {
				t.Errorf("the operator's shell says %q", got)
			}
		})
	}
}

// Without terminals -t is refused before anything is made.
func TestNoTerminal(t *testing.T) {
	s := shellSite(t)
	j := everyday("true")
	j.Flags = []string{"-t"}
	run := s.Run(j)
	if run.Status != 125 || !strings.Contains(string(run.Stderr), "terminal_refused") {
		t.Errorf("status %d, %.600s", run.Status, run.Stderr)
	}
}

// goesOn waits until the process of a command line is not stopped any more.
func goesOn(t *testing.T, line string) {
	t.Helper()
	for range 600 {
		paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range paths {
			if data, _ := os.ReadFile(path); string(data) != line {
				continue
			}
			stat, _ := os.ReadFile(filepath.Dir(path) + "/stat")
			if _, after, ok := strings.Cut(string(stat), ") "); ok && after[0] != 'T' {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%q is stopped still", line)
}
