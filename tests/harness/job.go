package harness

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"nsbox/launcher/policy"
)

// defaultWithin bounds a run whose Job names no bound. It is far above any
// run's time: what it catches is a hang.
const defaultWithin = 40 * time.Second

// Job is one command line of `nsbox exec`. The zero value of each field asks for
// nothing.
type Job struct {
	Script string   // a Python file of the repository, staged and run
	Code   string   // or its text
	Argv   []string // or the program and its arguments
	Args   []string // arguments of Script or Code

	Policy    []Change // of the preset; none: the preset itself
	PolicyArg string   // instead of Policy
	In        []string // --in values
	Flags     []string // further flags of exec
	Deliver   string
	Bare      bool // name no degraded dimension

	Stdin io.Reader  // of nsbox; nil: /dev/null
	Env   []string   // added to a minimal environment
	Files []*os.File // inherited by nsbox from descriptor 3 on
	Shell string     // sh text that ends in exec "$@"
	Dir   string     // working directory; empty: the site's
	Meter bool       // count the cpu time of everything that runs; see Run.CPU

	Within time.Duration // a run that takes longer is killed and fails the test
}

// Live is a run that was started.
type Live struct {
	Cmd *exec.Cmd // Cmd.Process is nsbox itself, also below Job.Shell

	site     *Site
	job      Job
	started  time.Time
	result   string
	out, err *buffer
	meter    string // cgroup directory, or empty
	cancel   context.CancelFunc
	over     context.Context
}

// Run starts a job and waits for its end.
func (s *Site) Run(j Job) *Run {
	s.t.Helper()
	return s.Start(j).Wait()
}

// Start starts a job. Wait must follow.
func (s *Site) Start(j Job) *Live {
	s.t.Helper()
	s.runs++
	result := filepath.Join(s.Dir, fmt.Sprintf("result-%d.json", s.runs))
	l := s.command(j, s.arguments(j, result))
	l.result = result
	return l.start(s.t)
}

// Raw runs nsbox with exactly these arguments.
func (s *Site) Raw(args ...string) *Run {
	s.t.Helper()
	return s.StartRaw(args...).Wait()
}

// StartRaw starts nsbox with exactly these arguments. Wait must follow.
func (s *Site) StartRaw(args ...string) *Live {
	s.t.Helper()
	return s.command(Job{Within: 3 * defaultWithin}, args).start(s.t) // unpacking a whole distribution takes its time
}

// OnHost runs the job's script with the same interpreter, caller, descriptors
// and environment but without nsbox: the positive control of what a box hides.
func (s *Site) OnHost(j Job) *Run {
	s.t.Helper()
	argv := j.Argv
	if argv == nil {
		argv = append([]string{"/usr/bin/python3", s.script(j)}, j.Args...)
	}
	l := s.command(j, nil)
	l.Cmd.Args = append(append([]string{}, l.Cmd.Args[:len(l.Cmd.Args)-1]...), argv...)
	if j.Shell == "" {
		l.Cmd.Path = argv[0]
	}
	return l.start(s.t).Wait()
}

func (s *Site) arguments(j Job, result string) []string {
	s.t.Helper()
	args := []string{"exec", "--state-dir", s.State, "--result", result}
	switch {
	case j.PolicyArg != "":
		args = append(args, "--policy", j.PolicyArg)
	case len(j.Policy) > 0 || Slow() > 1:
		args = append(args, "--policy", s.Policy(j.Policy...))
	default:
		args = append(args, "--policy", preset)
	}
	if !j.Bare {
		args = append(args, "--allow-degraded", strings.Join(degradable(), ","))
	}
	if j.Deliver != "" {
		args = append(args, "--deliver", j.Deliver)
	}
	for _, in := range j.In {
		args = append(args, "--in", in)
	}
	args = append(args, j.Flags...)
	argv := j.Argv
	if argv == nil {
		name := s.scriptName()
		args = append(args, "--in", s.script(j)+":"+name)
		// What scripts import stands beside them.
		if prelude := filepath.Join(filepath.Dir(j.Script), "attempt.py"); j.Script != "" {
			args = append(args, "--in", s.Copy(prelude))
		}
		argv = append([]string{"python3", "/in/" + name}, j.Args...)
	}
	return append(append(args, "--"), argv...)
}

func (s *Site) script(j Job) string {
	s.t.Helper()
	if j.Script != "" {
		s.Copy(filepath.Join(filepath.Dir(j.Script), "attempt.py"))
		return s.Copy(j.Script)
	}
	s.free++
	return s.File("code-"+strconv.Itoa(s.free)+".py", j.Code)
}

// degradable are the dimensions a test names. Landlock and identity are not
// among them: a box without those is not the one to be tested. In a guest the
// kernel holds every limit, so no other dimension may be weaker than asked.
func degradable() []string {
	if os.Getenv(tierVariable) != "" {
		return []string{policy.DimOutStorage}
	}
	return []string{policy.DimMemory, policy.DimCPURate, policy.DimCPUTotal, policy.DimLauncherIdentity, policy.DimOutStorage}
}

func (s *Site) command(j Job, args []string) *Live {
	s.t.Helper()
	within := j.Within
	if within == 0 {
		within = defaultWithin
	}
	within *= time.Duration(Slow())
	ctx, cancel := context.WithTimeout(context.Background(), within)
	argv := append([]string{Binary(s.t)}, args...)
	if j.Shell != "" {
		argv = append([]string{"/bin/sh", "-c", j.Shell, "sh"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// A stuck descendant that holds a stream must not hold the test.
	cmd.WaitDelay = 5 * time.Second
	cmd.Dir, cmd.Stdin, cmd.ExtraFiles = s.Dir, j.Stdin, j.Files
	if j.Dir != "" {
		cmd.Dir = j.Dir
	}
	cmd.Env = append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + s.Dir}, j.Env...)
	l := &Live{Cmd: cmd, site: s, job: j, cancel: cancel, over: ctx, out: &buffer{}, err: &buffer{}}
	cmd.Stdout, cmd.Stderr = l.out, l.err
	s.Caller.Become(cmd)
	return l
}

func (l *Live) start(t T) *Live {
	t.Helper()
	if l.job.Meter {
		l.startMeter(t)
	}
	l.started = time.Now()
	if err := l.Cmd.Start(); err != nil {
		l.cancel()
		t.Fatal(err)
	}
	// A test that fails before Wait must not leave a box behind: this kills nsbox.
	t.Cleanup(l.cancel)
	return l
}

// Await waits until the program's standard output holds text.
func (l *Live) Await(text string) {
	l.site.t.Helper()
	for !bytes.Contains(l.out.copy(), []byte(text)) {
		select {
		case <-l.over.Done():
			l.Wait()
			l.site.t.Fatalf("%q was not printed; standard error:\n%s", text, l.err.copy())
		case <-time.After(2 * time.Millisecond):
		}
		if l.err.holds("(reason ") {
			l.Wait()
			l.site.t.Fatalf("nsbox failed instead of printing %q:\n%s", text, l.err.copy())
		}
	}
}

// Signal sends a signal to nsbox.
func (l *Live) Signal(sig syscall.Signal) {
	l.site.t.Helper()
	if err := l.Cmd.Process.Signal(sig); err != nil {
		l.site.t.Fatal(err)
	}
}

// Wait waits for nsbox's end and decodes its result. A run that passed its
// bound fails the test.
func (l *Live) Wait() *Run {
	l.site.t.Helper()
	defer l.cancel()
	err := l.Cmd.Wait()
	r := &Run{Took: time.Since(l.started), Stdout: l.out.copy(), Stderr: l.err.copy(), ResultFile: l.result, t: l.site.t, site: l.site}
	if l.over.Err() != nil {
		l.site.t.Errorf("nsbox took longer than %s and was killed; standard error:\n%s", r.Took.Round(time.Millisecond), r.Stderr)
	} else if _, exited := err.(*exec.ExitError); err != nil && !exited {
		l.site.t.Errorf("nsbox: %v", err)
	}
	r.status(l.Cmd.ProcessState)
	r.CPU = l.metered()
	r.decode()
	return r
}
