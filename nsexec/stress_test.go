package nsexec

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var longRun = flag.Bool("long", false, "leave out every step of a series, and stress for ten minutes")

func long() bool { return *longRun }

// stressTime is how long all rounds of the stress test take together:
// NSBOX_STRESS=SECONDS, ten minutes with -long, else a little.
func stressTime(t *testing.T) time.Duration {
	if v := os.Getenv("NSBOX_STRESS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n <= 0 {
			t.Fatalf("NSBOX_STRESS=%q is not a number of seconds", v)
		}
		return time.Duration(n) * time.Second
	}
	if long() {
		return 10 * time.Minute
	}
	if testing.Short() {
		return 6 * time.Second
	}
	return 24 * time.Second
}

// leastBoxes is what each round makes even on a machine that has other work.
const leastBoxes = 12

// The clone runs beside a Go runtime that does everything it may: collects
// garbage, moves stacks, preempts by signal, forks and does I/O. Nothing of that
// may be felt in a box, and no box in the runtime.
func TestStress(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	procs := []int{1, 2, 4}
	each := stressTime(t) / time.Duration(len(procs)*3)
	var total, killed int
	for _, n := range procs {
		for _, mode := range []string{"fork", "shared", "both"} {
			t.Run(fmt.Sprintf("%s/procs=%d", mode, n), func(t *testing.T) {
				runtime.GOMAXPROCS(n)
				r := newRound(t, mode)
				r.run(each)
				total, killed = total+int(r.boxes.Load()), killed+int(r.killed.Load())
			})
		}
	}
	t.Logf("%d boxes, %d of them killed at a random moment", total, killed)
}

type round struct {
	t             *testing.T
	mode          string
	boxes, killed atomic.Int64
}

func newRound(t *testing.T, mode string) *round { return &round{t: t, mode: mode} }

func (r *round) run(d time.Duration) {
	t := r.t
	files := filesFor(t, workloadSpec())
	dir := t.TempDir()
	before := openFDs(t)
	stop := make(chan struct{})
	var noise, boxes sync.WaitGroup
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	noise.Go(func() { allocate(stop) })
	noise.Go(func() { signalStorm(stop) })
	noise.Go(func() { fileIO(t, stop, dir+"/file") })
	noise.Go(func() { runPrograms(t, stop) })
	end := time.Now().Add(d)
	for worker := range 3 {
		boxes.Go(func() {
			for n := worker; (time.Now().Before(end) || r.boxes.Load() < leastBoxes) && !t.Failed(); n++ {
				spec := testSpec("/usr/bin/true")
				spec.SharedVM = r.mode == "shared" || r.mode == "both" && n%2 == 0
				if n%4 == 3 {
					r.killOne(spec, files)
				} else {
					r.one(spec, files)
				}
			}
		})
	}
	boxes.Wait()
	close(stop)
	noise.Wait()
	nothingLeft(t, before, "after the round")
	if dumpable(t) != 1 {
		t.Error("the launcher is no longer dumpable")
	}
	healthy(t)
	t.Logf("%d boxes, %d killed", r.boxes.Load(), r.killed.Load())
}

// one is a box that must run to its end.
func (r *round) one(spec *Spec, files Files) {
	box, err := Spawn(spec, files, nil)
	if err != nil {
		r.t.Errorf("box %d: %v", r.boxes.Load(), err)
		return
	}
	defer box.closeStreams()
	if err := box.Release(); err != nil {
		r.t.Errorf("box %d: %v", r.boxes.Load(), err)
		box.Abort()
		return
	}
	if e := <-box.Done(); !e.Reported || e.Status != 0 {
		r.t.Errorf("box %d: %+v", r.boxes.Load(), e)
	}
	r.boxes.Add(1)
}

// killOne ends a box that would run on, at a random moment of its life, and then
// looks for survivors by their pids.
func (r *round) killOne(spec *Spec, files Files) {
	spec.Command.Path = "/usr/bin/sleep"
	spec.Command.Argv = []string{"sleep", "1000"}
	stop := make(chan struct{})
	late := rand.IntN(2) == 0
	timer := time.AfterFunc(time.Duration(rand.IntN(15000))*time.Microsecond, func() { close(stop) })
	defer timer.Stop()
	r.boxes.Add(1)
	r.killed.Add(1)
	box, err := Spawn(spec, files, stop)
	if err != nil {
		if err != ErrGone {
			r.t.Errorf("stopped during set-up: %v", err)
		}
		return
	}
	defer box.closeStreams()
	if !late {
		box.Abort()
	} else if err := box.Release(); err != nil {
		// The stop came between: there is nobody to release.
		box.Abort()
	} else {
		time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond)
		box.Kill()
		if e := <-box.Done(); e.Reported {
			r.t.Errorf("a killed box reports %+v", e)
		}
	}
	if err := box.Kill(); err != nil {
		r.t.Errorf("killing a dead box: %v", err)
	}
	// pid 1 is reaped by us, so the kernel has ended all others before.
	for _, pid := range []int{box.InitPID, box.ChildPID} {
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil && string(comm) == "sleep\n" {
			r.t.Errorf("pid %d survives", pid)
		}
	}
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// allocate makes garbage and deep stacks, so that the collector runs all the
// time and stacks are grown, moved and shrunk.
func allocate(stop <-chan struct{}) {
	var deep func(n int) int
	deep = func(n int) int {
		var pad [256]byte
		pad[n%256] = byte(n)
		if n == 0 {
			return int(pad[0])
		}
		return deep(n-1) + int(pad[n%256])
	}
	for !stopped(stop) {
		keep := make([][]byte, 0, 64)
		for range 64 {
			keep = append(keep, make([]byte, rand.IntN(16<<10)))
		}
		done := make(chan int)
		go func() { done <- deep(200) }()
		<-done
		runtime.KeepAlive(keep)
		time.Sleep(200 * time.Microsecond)
	}
}

// signalStorm sends every thread the runtime's own preemption signal.
func signalStorm(stop <-chan struct{}) {
	pid := os.Getpid()
	for !stopped(stop) {
		entries, _ := os.ReadDir("/proc/self/task")
		for _, e := range entries {
			if tid, err := strconv.Atoi(e.Name()); err == nil {
				unix.Tgkill(pid, tid, unix.SIGURG)
			}
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func fileIO(t *testing.T, stop <-chan struct{}, path string) {
	want := make([]byte, 4096)
	for i := range want {
		want[i] = byte(i)
	}
	for !stopped(stop) {
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Error(err)
			return
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != string(want) {
			t.Errorf("a file of ours came back changed: %v", err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func runPrograms(t *testing.T, stop <-chan struct{}) {
	for !stopped(stop) {
		if err := exec.Command("true").Run(); err != nil {
			t.Errorf("a program of ours beside the boxes: %v", err)
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// healthy sees that the runtime still schedules, collects and counts.
func healthy(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		var g sync.WaitGroup
		for range 64 {
			g.Go(func() { runtime.Gosched() })
		}
		g.Wait()
		runtime.GC()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the Go runtime no longer gets 64 goroutines and a collection done")
	}
}
