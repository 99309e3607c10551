package launcher

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

func someIdentity(slots int64) probe.Identity {
	r := probe.Range{Start: 4100000000, Count: 4 * slots}
	return probe.Identity{Kind: probe.Subordinate, UID: r, GID: r, Source: "a test"}
}

func TestSlotsAreExclusive(t *testing.T) {
	s, err := slotsIn(t.TempDir()+"/h", thisBoot)
	if err != nil {
		t.Fatal(err)
	}
	id := someIdentity(2)
	a, err := s.take(id, "A")
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.take(id, "B")
	if err != nil || a.n == b.n {
		t.Fatalf("%v: slots %d and %d", err, a.n, b.n)
	}
	if _, err := s.take(id, "C"); reason.Of(err) == nil || reason.Of(err).ID != reason.IdentitySlotsExhausted {
		t.Errorf("a third of two: %v", err)
	}
	a.release(true)
	if c, err := s.take(id, "C"); err != nil || c.n != a.n {
		t.Errorf("after a release: %+v, %v", c, err)
	}
}

// TestOverlappingSlotsShareALock: the account's ranges are changed while a box runs.
func TestOverlappingSlotsShareALock(t *testing.T) {
	s, err := slotsIn(t.TempDir()+"/h", thisBoot)
	if err != nil {
		t.Fatal(err)
	}
	was := someIdentity(1)
	running, err := s.take(was, "A")
	if err != nil {
		t.Fatal(err)
	}
	for name, shift := range map[string]struct{ uid, gid int64 }{"both ranges": {3, -3}, "the groups alone": {0, 1}, "the users alone": {-3, 1 << 20}, "the groups alone, by little": {1 << 20, 3}} {
		now := someIdentity(3)
		now.UID.Start += shift.uid
		now.GID.Start += shift.gid
		b, err := s.take(now, "B")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ids, _ := now.Map(b.n)
		for _, start := range []struct{ a, b int64 }{{was.UID.Start, ids.Root.UID}, {was.GID.Start, ids.Root.GID}} {
			if start.a < start.b+probe.IDsPerSlot && start.b < start.a+probe.IDsPerSlot {
				t.Errorf("%s: slot %d has ids from %d, and a running attempt those from %d", name, b.n, start.b, start.a)
			}
		}
		b.release(true)
	}
	running.release(true)
	if again, err := s.take(was, "C"); err != nil || again.n != 0 {
		t.Errorf("control, after its end: %+v, %v", again, err)
	}
}

// TestDirtySlotIsGivenOutOnlyWhenEmpty puts a process under the ids, in a user
// namespace that maps them one by one, and one in a namespace that maps a range.
func TestDirtySlotIsGivenOutOnlyWhenEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can map ids that are not its own without a helper")
	}
	s, err := slotsIn(t.TempDir()+"/h", thisBoot)
	if err != nil {
		t.Fatal(err)
	}
	id := someIdentity(2)
	start := func(size int) *exec.Cmd {
		cmd := exec.Command("/bin/sleep", "100")
		m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(id.UID.Start), Size: size}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: m, GidMappings: m, Credential: &syscall.Credential{NoSetGroups: true}}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	dirty := func() *slot {
		sl, err := s.take(id, "DEAD")
		if err != nil {
			t.Fatal(err)
		}
		sl.release(false)
		return sl
	}
	stop := func(c *exec.Cmd) { c.Process.Kill(); c.Wait() }

	if sl := dirty(); sl.n != 0 {
		t.Fatal("the first slot is not the first")
	}
	other := start(100) // as another rootless tool would
	// Some unrelated process of root's may be between its namespace and its map.
	var sl *slot
	for range 20 {
		if sl, err = s.take(id, "NEXT"); err != nil || sl.n == 0 {
			break
		}
		sl.release(true)
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil || sl.n != 0 {
		t.Errorf("another tool's process: slot %+v, %v", sl, err)
	}
	sl.release(false)
	stop(other)

	box := start(1)
	defer stop(box)
	sl, err = s.take(id, "AFTER")
	if err != nil || sl.n != 1 {
		t.Errorf("a process of the box is left: slot %+v, %v", sl, err)
	}
	sl.release(true)
	ids, _ := id.Map(0)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.vacant(ctx, ids, fileID{}, "NEXT"); err == nil {
		t.Error("vacant with a process in it")
	}
	stop(box)
	if err := s.vacant(context.Background(), ids, fileID{}, "NEXT"); err != nil {
		t.Errorf("vacant after its end: %v", err)
	}
	if sl, err = s.take(id, "AFTER"); err != nil || sl.n != 0 { // given back by vacant, so not looked at again
		t.Errorf("after its end: slot %+v, %v", sl, err)
	}
}

// TestSlotPlaceIsNotSquatted is B142: nothing that others may write to is used.
func TestSlotPlaceIsNotSquatted(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(home+"/slots", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home+"/slots", 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := slotsIn(home, thisBoot); reason.Of(err) == nil || reason.Of(err).ID != reason.SlotPlace {
		t.Errorf("a place open to others: %v", err)
	}
	if err := os.Chmod(home+"/slots", 0o700); err != nil {
		t.Fatal(err)
	}
	s, err := slotsIn(home, thisBoot)
	if err != nil {
		t.Fatalf("the control: %v", err)
	}
	ids, _ := someIdentity(1).Map(0)
	if err := os.Symlink(filepath.Join(home, "target"), s.path(ids)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.take(someIdentity(1), "A"); reason.Of(err) == nil || reason.Of(err).ID != reason.SlotPlace || !missing(home+"/target") {
		t.Errorf("a link in place of the lock: %v", err)
	}
}

func TestSlotHomeDoesNotAskTheEnvironment(t *testing.T) {
	was, err := slotHome(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	if now, err := slotHome(os.Getuid()); err != nil || now != was || !filepath.IsAbs(now) || strings.HasPrefix(now, "/tmp") {
		t.Errorf("%q, then %q, %v", was, now, err)
	}
}

func TestPlaces(t *testing.T) {
	s := newState(t)
	ctx := context.Background()
	a, err := s.enter(ctx, "A", 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.enter(ctx, "B", 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.enter(ctx, "C", 2, 0)
	if e := reason.Of(err); e == nil || e.ID != reason.Busy || !strings.Contains(e.What, "A") || !strings.Contains(e.What, "B") {
		t.Errorf("a third of two: %v", err)
	}
	const line = 60 * time.Millisecond
	began := time.Now()
	if _, err := s.enter(ctx, "C", 2, line); reason.Of(err) == nil || reason.Of(err).ID != reason.Busy || time.Since(began) < line {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	time.AfterFunc(line, b.release)
	c, err := s.enter(ctx, "C", 2, time.Minute)
	if err != nil {
		t.Fatalf("waiting: %v", err)
	}
	c.release()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	d, _ := s.enter(ctx, "D", 2, 0)
	defer d.release()
	if _, err := s.enter(cancelled, "E", 2, time.Minute); reason.Of(err) == nil {
		t.Errorf("a cancelled wait: %v", err)
	}
	a.release()
}

func TestZombiesAndMaps(t *testing.T) {
	status := func(state, threads string) []byte {
		return []byte("Name:\tx\nState:\t" + state + " (x)\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nThreads:\t" + threads + "\n")
	}
	for want, cases := range map[bool][][2]string{true: {{"Z", "1"}, {"X", "0"}}, false: {{"Z", "2"}, {"R", "1"}, {"S", "3"}}} {
		for _, c := range cases {
			if o := parseOwner(status(c[0], c[1])); o.gone() != want || len(o.uids) != 4 || o.gids[3] != 8 {
				t.Errorf("state %s with %s threads: %+v", c[0], c[1], o)
			}
		}
	}
	uids := map[int64]bool{100: true}
	for m, want := range map[string]bool{
		"": false, "0 100 1\n": true, "0 99 1\n 10001 100 1\n": true,
		"0 0 4294967295\n": false, "0 1000 1\n1 100 65536\n": false, "0 101 1\n": false,
	} {
		if mapsOne([]byte(m), uids) != want {
			t.Errorf("map %q: %v", m, !want)
		}
	}
}

// TestUnmappedSetUpCounts: a process of ours in a namespace without a map is no
// stranger, unless it began after the look did.
func TestUnmappedSetUpCounts(t *testing.T) {
	early := bootTicks() - 1
	time.Sleep(2 * time.Second / clockTick)
	cmd := exec.Command("/bin/sleep", "100")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	time.Sleep(2 * time.Second / clockTick)
	dir := "/proc/" + strconv.Itoa(cmd.Process.Pid)
	ids := idSet(*unusedIDs())
	status, _ := os.ReadFile(dir + "/status")
	if os.Geteuid() == 0 && !slices.Contains(parseOwner(status).uids, 0) {
		t.Fatalf("seen from here it is %s", status)
	}
	var sleep unix.Stat_t
	must(t, unix.Stat("/bin/sleep", &sleep))
	for exe, want := range map[fileID]bool{{}: true, {Dev: sleep.Dev, Ino: sleep.Ino}: true, ownProgram(): false, {Dev: 1, Ino: 1}: false} {
		who := ids
		who.exe = exe
		// A plain user may not see what a process of another namespace executes.
		if _, err := os.Stat(dir + "/exe"); err != nil && exe != (fileID{}) {
			want = true
		}
		if got, err := holds(dir, who, bootTicks()); err != nil || got != want {
			t.Errorf("a launcher of %v: %v, %v", exe, got, err)
		}
	}
	for since, want := range map[int64]bool{bootTicks(): true, early: false} {
		if got, err := holds(dir, ids, since); err != nil || got != want {
			t.Errorf("since %d: %v, %v", since, got, err)
		}
	}
	if n := startTick([]byte("1 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20")); n != 4711 {
		t.Errorf("start tick %d", n)
	}
}

// TestWhatIsDyingIsWaitedFor: a process that was killed already is waited for
// past the end of the context, one that lives is not, and neither for ever.
func TestWhatIsDyingIsWaitedFor(t *testing.T) {
	over, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	<-over.Done()
	cancelled, stop := context.WithCancel(context.Background())
	stop()
	dying, alive := holder{7, "x", true}, holder{8, "py\x1bthon", false}
	for name, c := range map[string]struct {
		ctx   context.Context
		grace time.Duration
		left  []holder
		looks int // before nobody is found
		why   string
	}{
		"nobody":                 {over, time.Minute, nil, 0, ""},
		"dying, then gone":       {over, time.Minute, []holder{dying}, 3, ""},
		"dying for ever":         {over, 10 * time.Millisecond, []holder{dying}, 1 << 20, "process 7"},
		"alive":                  {over, time.Minute, []holder{dying, alive}, 1 << 20, `process 8 ("py\x1bthon")`},
		"alive, gone in time":    {context.Background(), 0, []holder{alive}, 3, ""},
		"dying, but nobody asks": {cancelled, time.Minute, []holder{dying}, 1 << 20, "process 7"},
	} {
		looks := 0
		err := awaitGone(c.ctx, c.grace, func() ([]holder, error) {
			if looks++; looks > c.looks {
				return nil, nil
			}
			return c.left, nil
		})
		if (err == nil) != (c.why == "") || err != nil && !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v after %d looks", name, err, looks)
		}
	}
	const status = "Name:\tx\nState:\tS (x)\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nThreads:\t1\nSigPnd:\t%s\nShdPnd:\t%s\n"
	for _, c := range []struct {
		thread, shared string
		want           bool
	}{{"0000000000000000", "0000000000000000", false}, {"0000000000000100", "0000000000000000", true}, {"0000000000000000", "0000000000004100", true}, {"0000000000000080", "0000000000000200", false}} {
		if o := parseOwner(fmt.Appendf(nil, status, c.thread, c.shared)); o.killed != c.want {
			t.Errorf("pending %s and %s: %+v", c.thread, c.shared, o)
		}
	}
	stat := func(flags string) []byte { return []byte("1 (a) b) S 1 2 3 4 5 " + flags + " 7 8 9") }
	if exiting(stat("4194560")) || !exiting(stat("4194572")) {
		t.Error("PF_EXITING is not told from the flags")
	}
	if h := holderAt(os.Getpid()); h.dying || h.name == "" {
		t.Errorf("the test itself: %+v", h)
	}
	if h := holderAt(1 << 23); !h.dying {
		t.Errorf("nobody: %+v", h)
	}
}

// TestALookIsNoProof: a start that looks whether a dirty slot is empty holds its
// lock for that long. Who asks for a proof meanwhile must not take it for an owner.
func TestALookIsNoProof(t *testing.T) {
	s, err := slotsIn(t.TempDir()+"/h", thisBoot)
	must(t, err)
	ids, err := someIdentity(1).Map(0)
	must(t, err)
	look, err := os.OpenFile(s.path(ids), os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer look.Close()
	text := func(line string) { must(t, (&slot{file: look}).write(line)) }
	if locked, err := tryLock(look); !locked || err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		return s.vacant(ctx, ids, fileID{}, "DEAD")
	}
	for line, proven := range map[string]bool{"DEAD " + thisBoot + "\n": false, "words that nobody wrote": false, "OTHER " + thisBoot + "\n": true, "": true} {
		text(line)
		if err := ask(); (err == nil) != proven {
			t.Errorf("locked, and the file says %q: %v", line, err)
		}
	}
	text("DEAD " + thisBoot + "\n")
	time.AfterFunc(30*time.Millisecond, func() { look.Close() })
	if err := s.vacant(context.Background(), ids, fileID{}, "DEAD"); err != nil {
		t.Errorf("after the look: %v", err)
	}
}
