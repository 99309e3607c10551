package crash

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/launcher/journal"
	"nsbox/tests/harness"
)

var (
	long = flag.Bool("long", false, "every cell of the matrix")
	part = flag.String("part", "0/1", "with -long: part K of N of it, so that a long series need not run in one piece")
	only = flag.Int("only", -1, "kill at this point only")
)

// parts is what -part says.
func parts() (k, n int) {
	if c, err := fmt.Sscanf(*part, "%d/%d", &k, &n); c != 2 || n < 1 || k < 0 || k >= n {
		panic(fmt.Sprintf("-part %q: K/N is wanted (%v)", *part, err))
	}
	return k, n
}

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	job       = `open("/out/summary.csv","w").write("city,months\nx,1\n")`
	artifact  = "city,months\nx,1\n"
	degrade   = "memory,cpu_rate,cpu_total,launcher_identity,out_storage"
	endWithin = 5 * time.Second
)

// bench is one state directory of a caller over which the cells of a matrix run
// in turn.
type bench struct {
	t        *testing.T
	caller   harness.Caller
	site     *harness.Site
	bin, dir string
	state    string
	policy   string
	every    int                // the default run takes one point of so many
	always   func(p point) bool // points that the default run takes too
	killed   func()             // looks, once nothing lives any more
	clean    func(fail failer)  // what else is to be clean after a reconcile
	launcher *exec.Cmd          // of the run that is traced
	cells    int
	tally    map[string]int
}

// asEach runs a test as every caller, each with a bench of its own.
func asEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	for _, c := range harness.Callers(t) {
		t.Run(c.Name, func(t *testing.T) { test(t, benchOf(t, c)) })
	}
}

// newBench is one of whoever runs the tests.
func newBench(t *testing.T) *bench {
	t.Helper()
	return benchOf(t, harness.Callers(t)[0])
}

func benchOf(t *testing.T, c harness.Caller) *bench {
	t.Helper()
	s := harness.NewSite(t, c)
	b := &bench{t: t, caller: c, site: s, bin: harness.Binary(t), dir: s.Dir, state: s.State, policy: "sales-summary", every: 8, tally: map[string]int{}}
	b.warm()
	return b
}

// warm makes the first run, which fills the caches; they are not what is tested.
func (b *bench) warm() {
	b.t.Helper()
	if out, status := b.nsbox(b.exec("", "pass")...); status != 0 {
		b.t.Fatalf("a plain run ends with %d:\n%s", status, out)
	}
}

func (b *bench) exec(deliver, code string) []string {
	script := filepath.Join(b.dir, "job.py")
	if err := os.WriteFile(script, []byte(code), 0o644); err != nil {
		b.t.Fatal(err)
	}
	args := []string{"exec", "--quiet", "--state-dir", b.state, "--policy", b.policy, "--allow-degraded", degrade, "--in", script}
	if deliver != "" {
		args = append(args, "--deliver", deliver)
	}
	return append(args, "--", "python3", "/in/job.py", b.site.Marker) // which tells its processes
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(b.bin, args...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + b.dir}
	cmd.Dir = b.dir
	b.caller.Become(cmd)
	return cmd
}

func (b *bench) nsbox(args ...string) (output string, status int) {
	cmd := b.command(args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		b.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// attempts is what `nsbox attempts` says, oldest first.
func (b *bench) attempts() []launcher.AttemptInfo {
	b.t.Helper()
	cmd := b.command("attempts", "--json", "--state-dir", b.state)
	out, err := cmd.Output()
	if err != nil {
		b.t.Fatalf("attempts: %v", err)
	}
	var doc struct {
		Attempts []launcher.AttemptInfo `json:"attempts"`
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		b.t.Fatal(err)
	}
	return doc.Attempts
}

// record counts the points of an undisturbed run.
func (b *bench) record() []point {
	b.t.Helper()
	out := filepath.Join(b.dir, "recorded")
	b.mkdir(out)
	tr, err := trace(b.command(b.exec(out, job)...), func(int, point) verdict { return verdict{} })
	if err != nil || tr.status.ExitStatus() != 0 {
		b.t.Fatalf("the recorded run: %v, status %#x", err, tr.status)
	}
	if data, err := os.ReadFile(out + "/summary.csv"); err != nil || string(data) != artifact {
		b.t.Fatalf("the recorded run delivered %q, %v", data, err)
	}
	return tr.points
}

// mkdir makes a directory of the caller's, which only it may write to.
func (b *bench) mkdir(dir string) {
	b.t.Helper()
	mkdir(b.t, dir)
	if err := os.Lchown(dir, b.caller.UID, b.caller.GID); err != nil {
		b.t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// cell makes one disturbed run and judges what follows. what names the cell.
func (b *bench) cell(what string, decide func(n int, p point) verdict) {
	b.t.Helper()
	b.cells++
	before := b.attempts()
	out := filepath.Join(b.dir, fmt.Sprintf("out-%d", b.cells))
	b.mkdir(out)
	var said bytes.Buffer
	cmd := b.command(b.exec(out, job)...)
	cmd.Stderr = &said
	tr, err := trace(cmd, decide)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	fail := func(format string, args ...any) {
		b.t.Helper()
		b.t.Errorf("%s: %s\nits standard error: %s", what, fmt.Sprintf(format, args...), said.String())
	}
	b.noSurvivor(fail)
	if b.killed != nil {
		b.killed()
	}
	b.nextRuns(fail)
	after := b.attempts()
	mine := after[len(before) : len(after)-1] // the last is the next run's
	if len(mine) > 1 {
		fail("one run made %d attempts", len(mine))
	}
	for _, a := range mine {
		b.tally[a.State+" "+a.Workload+" "+a.Cleanup+" "+a.Delivery]++
		if a.State != launcher.AttemptClosed && a.State != launcher.AttemptQuarantined {
			fail("after the next run the attempt is %s", a.State)
		}
		b.judgeDelivery(fail, a, out)
	}
	if len(mine) == 0 {
		b.tally["no attempt"]++
		if entries, _ := os.ReadDir(out); len(entries) > 0 {
			fail("something was delivered without an attempt")
		}
	}
	if tr.status.Exited() && tr.status.ExitStatus() == 0 {
		if _, err := os.Stat(out + "/summary.csv"); err != nil {
			fail("exit status 0 and nothing delivered")
		}
	}
	b.reconciles(fail, mine, out)
}

type failer func(format string, args ...any)

// judgeDelivery: what is published is whole and came after the proofs.
func (b *bench) judgeDelivery(fail failer, a launcher.AttemptInfo, out string) {
	b.t.Helper()
	data, err := os.ReadFile(out + "/summary.csv")
	switch there := err == nil; {
	case there != (a.Delivery == launcher.Delivered):
		fail("delivery is %q and the file is there: %v", a.Delivery, there)
	case there && string(data) != artifact:
		fail("delivered %q", data)
	case there && a.Artifact != launcher.ArtifactAccepted:
		fail("delivered though the artifact is %s", a.Artifact)
	}
	recs, _, err := journal.Read(a.Dir + "/journal")
	if errors.Is(err, fs.ErrNotExist) && a.State == launcher.AttemptClosed && a.Workload == launcher.Unknown {
		return // died before the journal was made, and before anything else was
	}
	if err != nil {
		fail("journal: %v", err)
	}
	st, err := journal.Replay(recs)
	if err != nil {
		fail("journal: %v", err)
	}
	if err == nil && len(recs) > 0 && a.Delivery == launcher.Delivered && !(st.Has(journal.StopProved) && st.Has(journal.CleanupVerified)) {
		fail("delivered without proof")
	}
}

// nextRuns: the next exec works. A box that is just going down may hold it up.
func (b *bench) nextRuns(fail failer) {
	b.t.Helper()
	if said, status := b.nsbox(b.exec("", "pass")...); status != 0 {
		fail("the next run ends with %d: %s", status, said)
	}
}

// reconciles: afterwards everything is closed and only records are left.
func (b *bench) reconciles(fail failer, mine []launcher.AttemptInfo, out string) {
	b.t.Helper()
	if said, status := b.nsbox("reconcile", "--all", "--state-dir", b.state); status != 0 {
		fail("reconcile ends with %d: %s", status, said)
	}
	for _, a := range b.attempts() {
		if a.State != launcher.AttemptClosed {
			fail("after reconcile attempt %s is %s", a.ID, a.State)
		}
	}
	for _, a := range mine {
		for _, name := range []string{"in", markerFile, "QUARANTINE"} {
			if name == markerFile && a.Note != "" && a.State == launcher.AttemptClosed {
				continue // died before it was moved to open/: nothing had begun
			}
			if _, err := os.Lstat(a.Dir + "/" + name); err == nil {
				fail("after reconcile %s/%s is there", a.Dir, name)
			}
		}
		if groups, _ := filepath.Glob("/sys/fs/cgroup/nsbox-" + a.ID); len(groups) > 0 {
			fail("after reconcile %s is there", groups)
		}
		if groups, _ := filepath.Glob("/sys/fs/cgroup/unified/nsbox-" + a.ID); len(groups) > 0 {
			fail("after reconcile %s is there", groups)
		}
	}
	if left, _ := os.ReadDir(b.state + "/open"); len(left) > 0 {
		fail("after reconcile %d attempts are open", len(left))
	}
	if b.clean != nil {
		b.clean(fail)
	}
	entries, _ := os.ReadDir(out)
	for _, e := range entries {
		if e.Name() != "summary.csv" {
			fail("after reconcile %s is in the delivery directory", e.Name())
		}
	}
}

const markerFile = "marker"

// noSurvivor: nothing of the site lives on: no nsbox, no set-up, no init, no
// exporter, no program.
func (b *bench) noSurvivor(fail failer) {
	b.t.Helper()
	var found []harness.Process
	for deadline := time.Now().Add(endWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if found = b.site.Processes(); len(found) == 0 {
			return
		}
	}
	fail("after %s there live %v", endWithin, found)
}

func (b *bench) print(name string, points int) {
	b.t.Logf("%s: %d points, %d cells", name, points, b.cells)
	for k, n := range b.tally {
		b.t.Logf("  %4d  %s", n, k)
	}
}

// sampled says whether the default run takes point n of a matrix: one in eight
// for each caller, and another one.
func (b *bench) sampled(n int) bool {
	if b.caller.UID != 0 {
		n += b.every / 2
	}
	if *long {
		k, of := parts()
		return n%of == k
	}
	return n%b.every == 0
}

// TestKillMatrix kills the launcher at its points.
func TestKillMatrix(t *testing.T) { asEach(t, func(_ *testing.T, b *bench) { b.killMatrix() }) }

func (b *bench) killMatrix() {
	b.t.Helper()
	points := b.record()
	journals := 0
	for n, p := range points {
		if p.journal() {
			journals++
		}
		if *only >= 0 && n != *only || *only < 0 && !b.sampled(n) && (*long || b.always == nil || !b.always(p)) {
			continue
		}
		b.cell(fmt.Sprintf("killed at %d of %d, before %s", n, len(points), p), func(k int, _ point) verdict { return verdict{kill: k == n} })
	}
	if journals < 20 {
		b.t.Errorf("only %d points concern the journal: the tracer looks at the wrong thing", journals)
	}
	b.print("kill", len(points))
}

// TestJournalFails lets the journal fail: once, and from a write on.
func TestJournalFails(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		total := 0
		for _, p := range b.record() {
			if p.journal() {
				total++
			}
		}
		for _, errno := range []unix.Errno{unix.ENOSPC, unix.EIO} {
			for _, forGood := range []bool{false, true} {
				for n := range total {
					if !b.sampled(n + int(errno)) {
						continue
					}
					seen := -1
					b.cell(fmt.Sprintf("%v at journal call %d of %d, for good: %v", errno, n, total, forGood), func(_ int, p point) verdict {
						if !p.journal() {
							return verdict{}
						}
						seen++
						if seen == n || forGood && seen > n {
							return verdict{fail: errno}
						}
						return verdict{}
					})
				}
			}
		}
		b.print("journal failures", total)
	})
}

// TestTracerKills is the positive control: a run that is not killed delivers and
// one that is killed at its first point leaves nothing, ended by the signal.
func TestTracerKills(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		tr, err := trace(b.command(b.exec("", "pass")...), func(n int, _ point) verdict { return verdict{kill: n == 3} })
		if err != nil || !tr.status.Signaled() || tr.status.Signal() != syscall.SIGKILL {
			t.Errorf("ended with %#x, %v", tr.status, err)
		}
		if len(b.record()) < 60 {
			t.Error("a run has too few points: the tracer looks at the wrong thing")
		}
	})
}
