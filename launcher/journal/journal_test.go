package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func create(t testing.TB) (*Journal, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, path
}

func appendAll(t testing.TB, j *Journal, events ...Event) {
	t.Helper()
	for _, e := range events {
		if e == Terminal {
			if won, err := j.Terminal("EXITED", nil); !won || err != nil {
				t.Fatalf("terminal: %v, %v", won, err)
			}
			continue
		}
		if err := j.Append(Record{Event: e, Data: map[string]string{"k": string(e)}}); err != nil {
			t.Fatalf("append %s: %v", e, err)
		}
	}
}

func mustRead(t testing.TB, path string) []Record {
	t.Helper()
	recs, torn, err := Read(path)
	if err != nil || torn != 0 {
		t.Fatalf("read: %d records, %d bytes torn, %v", len(recs), torn, err)
	}
	return recs
}

func TestRoundTrip(t *testing.T) {
	j, path := create(t)
	want := []Record{
		{Event: Attempt, Time: time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("x", 3600)), Data: map[string]string{"id": "01J", "path": "/a b/<&>\n\"é𝄞"}},
		{Event: BoxIntent},
	}
	for i := range want {
		if err := j.Append(want[i]); err != nil {
			t.Fatal(err)
		}
		want[i].Seq = uint64(i + 1)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got := mustRead(t, path)
	if len(got) != 2 || !got[0].Time.Equal(want[0].Time) || got[0].Time.Location() != time.UTC || time.Since(got[1].Time) > time.Minute {
		t.Fatalf("records or times are wrong: %v", got)
	}
	for i := range got {
		got[i].Time, want[i].Time = time.Time{}, time.Time{}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCreateIsExclusiveAndPrivate(t *testing.T) {
	old := unix.Umask(0)
	j, path := create(t)
	unix.Umask(old)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
	if flags, err := unix.FcntlInt(j.file.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags are %#x, %v", flags, err)
	}
	if _, err := Create(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second create: %v", err)
	}
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("target", dangling); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dangling); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create through a link: %v", err)
	}
}

func TestOtherFilesAreNotJournals(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	j, real := create(t)
	appendAll(t, j, Attempt)
	if err := j.Sync(); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(real, link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	newer := header()
	newer[8] = 2
	badSeq, err := frame(Record{Seq: 2, Event: Attempt})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path string
		want error
	}{
		"text":              {write("text", []byte("a journal? no")), ErrCorrupt},
		"zeros":             {write("zeros", make([]byte, 100)), ErrCorrupt},
		"another version":   {write("newer", newer), ErrCorrupt},
		"too long":          {write("long", append(header(), make([]byte, maxFileBytes)...)), ErrCorrupt},
		"wrong first seq":   {write("seq", append(header(), badSeq...)), ErrCorrupt},
		"pipe":              {fifo, ErrCorrupt},
		"link to a journal": {link, unix.ELOOP},
		"directory":         {dir, ErrCorrupt},
		"absent":            {filepath.Join(dir, "absent"), fs.ErrNotExist},
	} {
		before := regular(t, c.path)
		if _, _, err := Read(c.path); !errors.Is(err, c.want) {
			t.Errorf("%s: read: %v", name, err)
		}
		if _, err := Open(c.path); err == nil || name != "directory" && !errors.Is(err, c.want) {
			t.Errorf("%s: open: %v", name, err)
		}
		if regular(t, c.path) != before {
			t.Errorf("%s: was changed", name)
		}
	}
	mustRead(t, real)
}

// regular returns the content of a regular file or of what a link leads to, ""
// for anything else: reading a pipe would wait.
func regular(t *testing.T, path string) string {
	t.Helper()
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRefusedRecordsLeaveNoTrace(t *testing.T) {
	j, path := create(t)
	appendAll(t, j, Attempt)
	atCap := Record{Event: BoxIntent, Data: map[string]string{"k": strings.Repeat("x", maxData-len(`{"k":""}`))}}
	over := Record{Event: BoxIntent, Data: map[string]string{"k": atCap.Data["k"] + "x"}}
	for name, c := range map[string]struct {
		rec  Record
		want error
	}{
		"order":     {Record{Event: Delivered}, ErrOrder},
		"unknown":   {Record{Event: "made_up"}, ErrOrder},
		"terminal":  {Record{Event: Terminal}, ErrOrder},
		"too large": {over, ErrWrite},
		"not utf-8": {Record{Event: BoxIntent, Data: map[string]string{"k": "\xff"}}, ErrWrite},
	} {
		if err := j.Append(c.rec); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := j.Append(atCap); err != nil {
		t.Errorf("at the cap: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if recs := mustRead(t, path); len(recs) != 2 {
		t.Errorf("%d records, want 2", len(recs))
	}
}

func TestOneTerminalEventWins(t *testing.T) {
	j, path := create(t)
	appendAll(t, j, Attempt)
	var wins atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			word := fmt.Sprintf("OUTCOME_%d", i)
			won, err := j.Terminal(word, map[string]string{"detail": "d"})
			if err != nil {
				t.Error(err)
			}
			if won {
				wins.Add(1)
				winner.Store(word)
			}
			j.mu.Lock()
			if j.durable < j.size {
				t.Error("the decision was told before it was durable")
			}
			j.mu.Unlock()
		})
	}
	wg.Wait()
	if wins.Load() != 1 || j.State().Outcome() != winner.Load() {
		t.Errorf("%d winners, state says %s, winner %v", wins.Load(), j.State().Outcome(), winner.Load())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if won, err := again.Terminal("UNKNOWN", nil); won || err != nil || again.State().Outcome() != winner.Load() {
		t.Errorf("after a reopen: won %v, %v, outcome %s", won, err, again.State().Outcome())
	}
	if recs := mustRead(t, path); len(recs) != 2 || recs[1].Data["outcome"] != winner.Load() || recs[1].Data["detail"] != "d" {
		t.Errorf("records are %v", recs)
	}
}

func TestSyncFromManyGoroutines(t *testing.T) {
	j, path := create(t)
	var wg sync.WaitGroup
	for _, e := range goodAttempt {
		appendAll(t, j, e)
		want := j.size
		wg.Go(func() {
			if err := j.Sync(); err != nil {
				t.Error(err)
			}
			j.mu.Lock()
			defer j.mu.Unlock()
			if j.durable < want {
				t.Errorf("durable up to %d, want %d", j.durable, want)
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Replay(mustRead(t, path)); err != nil {
		t.Error(err)
	}
}

func TestAFailedFlushIsFinal(t *testing.T) {
	j, path := create(t)
	appendAll(t, j, Attempt)
	good := j.file
	closed, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	j.file = closed
	if err := j.Sync(); !errors.Is(err, ErrWrite) {
		t.Errorf("flush of a closed file: %v", err)
	}
	j.file = good
	for name, err := range map[string]error{"sync": j.Sync(), "append": j.Append(Record{Event: BoxIntent})} {
		if !errors.Is(err, ErrWrite) {
			t.Errorf("%s after a failed flush: %v", name, err)
		}
	}
	if won, err := j.Terminal("EXITED", nil); won || !errors.Is(err, ErrWrite) {
		t.Errorf("terminal after a failed flush: %v, %v", won, err)
	}
}

func TestClosed(t *testing.T) {
	j, _ := create(t)
	appendAll(t, j, Attempt)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"close": j.Close(), "sync": j.Sync(), "append": j.Append(Record{Event: BoxIntent})} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after close: %v", name, err)
		}
	}
}

func BenchmarkAppendSync(b *testing.B) {
	for name, n := range map[string]int{"one": 1, "ten joined": 10} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				j, _ := create(b)
				b.StartTimer()
				appendAll(b, j, goodAttempt[:min(n, 8)]...)
				if err := j.Sync(); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				j.Close()
				b.StartTimer()
			}
		})
	}
}
