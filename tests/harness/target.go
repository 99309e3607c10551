package harness

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// goneWithin is how long a box may outlive its launcher.
const goneWithin = 2 * time.Second

// Fingerprint is the digest of files and trees: names, kinds, modes, owners,
// sizes, modification times and contents. A path that does not exist counts as that.
func Fingerprint(t T, paths ...string) string {
	t.Helper()
	h := sha256.New()
	for _, path := range paths {
		err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				fmt.Fprintf(h, "%q: missing\n", p)
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			st := info.Sys().(*syscall.Stat_t)
			fmt.Fprintf(h, "%q %v %d:%d %d %d\n", p, info.Mode(), st.Uid, st.Gid, info.Size(), info.ModTime().UnixNano())
			if !info.Mode().IsRegular() {
				return nil
			}
			data, err := os.ReadFile(p)
			h.Write(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Holding lists the places where text stands among a run's streams, its result
// and everything below the site's state directory and the given folders.
func (r *Run) Holding(text string, folders ...string) []string {
	r.t.Helper()
	var places []string
	for name, data := range map[string][]byte{"standard output": r.Stdout, "standard error": r.Stderr} {
		if bytes.Contains(data, []byte(text)) {
			places = append(places, name)
		}
	}
	looked := 0
	for _, root := range append([]string{r.site.State, r.ResultFile}, folders...) {
		filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			data, err := os.ReadFile(p)
			if err != nil {
				r.t.Fatal(err)
			}
			looked++
			if bytes.Contains(data, []byte(text)) {
				places = append(places, p)
			}
			return nil
		})
	}
	if looked < 3 {
		r.t.Errorf("looked at %d files only", looked)
	}
	sort.Strings(places)
	return places
}

// Process is one process of the host.
type Process struct {
	PID     int
	State   string // letter of proc_pid_stat(5)
	Command string
}

func (p Process) String() string { return fmt.Sprintf("%d %s %s", p.PID, p.State, p.Command) }

// Processes lists the living processes of a site: those with its marker in the
// command line (nsbox, its forks before an exec, the workload) and those that
// execute the stage image of its state directory (init and exporter, whose
// command lines say nothing). For the latter the test has to run as root.
func (s *Site) Processes() []Process {
	s.t.Helper()
	images := map[fileID]bool{}
	stages, _ := filepath.Glob(filepath.Join(s.State, "cache", "stage-*"))
	for _, path := range stages {
		if info, err := os.Stat(path); err == nil {
			images[idOf(info)] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		s.t.Fatal(err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := "/proc/" + e.Name()
		line, _ := os.ReadFile(dir + "/cmdline")
		ours := bytes.Contains(line, []byte(s.Marker))
		if info, err := os.Stat(dir + "/exe"); err == nil && images[idOf(info)] {
			ours = true
		}
		if !ours {
			continue
		}
		stat, err := os.ReadFile(dir + "/stat")
		_, after, ok := strings.Cut(string(stat), ") ")
		if err != nil || !ok || after[0] == 'Z' || after[0] == 'X' {
			continue // gone between two looks, or dead and waiting to be reaped
		}
		found = append(found, Process{pid, after[:1], strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))})
	}
	return found
}

type fileID struct{ dev, ino uint64 }

func idOf(info os.FileInfo) fileID {
	st := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(st.Dev), st.Ino}
}

// WantGone fails if a process of the site lives longer than within, and returns
// how long that took.
func (s *Site) WantGone(t T, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		left := s.Processes()
		took := time.Since(began)
		if len(left) == 0 {
			return took
		}
		if took > within {
			t.Errorf("%d processes are left after %s: %v", len(left), within, left)
			return took
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// WantNoTrace wants nothing of the attempts left on the host but their own
// directories: no mount below the site, no job cgroup, no staged input.
func (s *Site) WantNoTrace(t T) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mounts, []byte(s.Dir)) {
		t.Errorf("a mount of %s is left:\n%s", s.Dir, mounts)
	}
	for _, attempt := range s.Attempts() {
		if _, err := os.Lstat(filepath.Join(attempt, "in")); err == nil {
			t.Errorf("staged inputs are left in %s", attempt)
		}
	}
	for _, group := range s.Cgroups() {
		t.Errorf("cgroup %s is left", group)
	}
}

// Cgroups lists the job cgroups of the site's attempts on every version 2
// hierarchy, leaves first.
func (s *Site) Cgroups() []string {
	s.t.Helper()
	ours := map[string]bool{}
	for _, attempt := range s.Attempts() {
		ours["nsbox-"+filepath.Base(attempt)] = true
	}
	var found []string
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
			continue
		}
		filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			// Groups come and go during the walk.
			if err == nil && d.IsDir() && (ours[d.Name()] || ours[filepath.Base(filepath.Dir(p))]) {
				found = append(found, p)
			}
			return nil
		})
	}
	slices.Reverse(found)
	return found
}

// PeakMemory is the largest resident size a process had so far, in bytes; 0 if
// it is gone.
func PeakMemory(pid int) int64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}
