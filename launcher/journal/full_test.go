package journal

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// inChild runs the named test again in a process of its own, as root of a mount
// namespace of its own, and reports whether this is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	const mark = "NSBOX_JOURNAL_TEST_CHILD"
	if os.Getenv(mark) == t.Name() {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in the child: %v\n%s", err, out)
	}
	return false
}

func limitFileSize(t *testing.T, bytes uint64) {
	t.Helper()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
	lim.Cur = min(bytes, lim.Max)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
}

// A file-size limit makes the kernel write exactly up to a byte and no further,
// so every possible short append happens once.
func TestShortAppendAtEveryByte(t *testing.T) {
	if !inChild(t) {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	dir := t.TempDir()
	data, ends := sample(t, Attempt, BoxIntent, CgroupIntent)
	short := 0
	for at := headerBytes; at <= len(data)+8; at++ {
		path := filepath.Join(dir, itoa(at))
		j, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		limitFileSize(t, uint64(at))
		written := 0
		for _, e := range []Event{Attempt, BoxIntent, CgroupIntent} {
			err = j.Append(Record{Event: e, Data: map[string]string{"k": string(e)}})
			if err != nil {
				break
			}
			written++
		}
		limitFileSize(t, math.MaxUint64)
		if err != nil {
			short++
			if !errors.Is(err, ErrWrite) || !errors.Is(err, unix.EFBIG) {
				t.Fatalf("limit %d: %v", at, err)
			}
		}
		if recs := mustRead(t, path); len(recs) != written {
			t.Fatalf("limit %d: %d records are whole, %d were written", at, len(recs), written)
		}
		next := []Event{Attempt, BoxIntent, CgroupIntent, StagingIntent}[written]
		if err := j.Append(Record{Event: next}); err != nil {
			t.Fatalf("limit %d: append once there is room: %v", at, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if recs := mustRead(t, path); len(recs) != written+1 || recs[written].Event != next {
			t.Fatalf("limit %d: %d records at the end, want %d", at, len(recs), written+1)
		}
	}
	if short < int(ends[2])-headerBytes-20 {
		t.Fatalf("only %d appends were short: the test shows nothing", short)
	}
}

// On a file system that fills up, what was reserved can still be written, what
// was not fails whole.
func TestFullFileSystem(t *testing.T) {
	if !inChild(t) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for grain := range 8 {
		dir := t.TempDir()
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
			t.Fatal(err)
		}
		fullOnce(t, dir, grain)
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func fullOnce(t *testing.T, dir string, grain int) {
	path := filepath.Join(dir, "journal")
	j, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	fill(t, filepath.Join(dir, "filler"))
	if _, err := Create(filepath.Join(dir, "second")); !errors.Is(err, ErrWrite) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("create without room: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "second")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a journal that was refused stays: %v", err)
	}
	appendAll(t, j, upTo(Terminal)...)
	if err := j.Sync(); err != nil {
		t.Fatalf("the reserved room was not there: %v", err)
	}
	// StopIntent may repeat: odd sizes, so that the end falls at another place of a
	// record each time.
	n := len(mustRead(t, path))
	for i := 0; ; i++ {
		err = j.Append(Record{Event: StopIntent, Data: map[string]string{"k": strings.Repeat("x", 301+grain*97)}})
		if err != nil {
			break
		}
		if n++; i > 1000 {
			t.Fatal("the file system does not fill up")
		}
	}
	if !errors.Is(err, ErrWrite) || !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("append without room: %v", err)
	}
	if j.size+600+int64(grain)*97 < reserveBytes {
		t.Fatalf("no room behind %d bytes, though %d were reserved", j.size, reserveBytes)
	}
	if recs := mustRead(t, path); len(recs) != n {
		t.Fatalf("%d records are whole, %d were written", len(recs), n)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	appendAll(t, j, StopIntent, StopProved)
	if recs := mustRead(t, path); len(recs) != n+2 {
		t.Fatalf("%d records at the end, want %d", len(recs), n+2)
	}
}

func fill(t *testing.T, path string) {
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for {
		if _, err := fmt.Fprint(file, strings.Repeat("f", 512)); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
			return
		}
	}
}
