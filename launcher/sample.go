package launcher

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// sampler adds up cpu time and memory of a box's processes from /proc where no
// cgroup does it. It sees what lives when it looks: a lower bound, which is why
// the dimensions that rest on it are degraded ones.
type sampler struct {
	init int
	// seen is the own cpu time, in clock ticks, of each process that lives, and
	// under departed that of all that have ended. A job may start any number of
	// processes; what is kept of them must not grow with it.
	seen map[procKey]int64
	most int64 // the largest sum so far, clock ticks: init's own account ends with init
}

// procKey names a process. The zero value, which no process has, is departed.
type procKey struct {
	pid   int
	start int64 // pids are reused, start times with them are not
}

// maxVisits bounds one walk: a chain of processes that fork and exit faster than
// they are read must not keep the monitor from its other limits. About 0.1 s.
const maxVisits = 4096

// clockTick is USER_HZ, the unit of /proc/PID/stat on every architecture Go runs on.
const clockTick = 100

// sample returns the tree's cpu time so far in microseconds and the sum of
// resident memory in bytes, shared pages counted in each process.
func (s *sampler) sample() (cpuUsec, rss int64) {
	if s.seen == nil {
		s.seen = map[procKey]int64{}
	}
	todo, reaped := []int{s.init}, int64(0)
	alive := map[procKey]bool{{}: true}
	meet := func(pid int, p procStat) {
		key := procKey{pid, p.start}
		if !alive[key] {
			alive[key] = true
			s.seen[key] = p.own
			rss += p.rss
		}
	}
	for visited := 0; len(todo) > 0 && visited < maxVisits; visited++ {
		pid := todo[0]
		todo = todo[1:]
		p, ok := readStat(pid)
		if !ok {
			continue
		}
		if pid == s.init {
			reaped = p.children
		} else {
			meet(pid, p)
		}
		todo = append(todo, childrenOf(pid, p.threads)...)
	}
	for key, own := range s.seen {
		if alive[key] {
			continue
		}
		// The kernel's list of children may miss one while another ends.
		if p, ok := readStat(key.pid); ok && p.start == key.start {
			meet(key.pid, p)
			continue
		}
		delete(s.seen, key)
		s.seen[procKey{}] += own
	}
	var own int64
	for _, t := range s.seen {
		own += t
	}
	// What init reaped includes processes that were never seen alive; those seen
	// include ones that nobody reaped. The larger is the better bound.
	s.most = max(s.most, own, reaped)
	return s.most * (1e6 / clockTick), rss
}

type procStat struct{ own, children, threads, start, rss int64 }

// readStat reads /proc/PID/stat, proc_pid_stat(5): fields 14 to 17 are times, 20
// is the number of threads, 22 the start, 24 the resident pages. The name may hold anything, so fields
// are counted from the last closing parenthesis.
func readStat(pid int) (procStat, bool) {
	data, err := readProc(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, false
	}
	return parseStat(data)
}

func parseStat(data []byte) (procStat, bool) {
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return procStat{}, false
	}
	f := strings.Fields(string(data[i+1:]))
	if len(f) < 22 {
		return procStat{}, false
	}
	whole := true
	n := func(field int) int64 {
		v, err := strconv.ParseInt(f[field-3], 10, 64)
		whole = whole && err == nil && v >= 0
		return v
	}
	p := procStat{own: n(14) + n(15), children: n(16) + n(17), threads: n(20), start: n(22), rss: n(24) * int64(os.Getpagesize())}
	return p, whole
}

// childrenOf lists the children of every thread of pid.
func childrenOf(pid int, threads int64) (out []int) {
	names := []string{strconv.Itoa(pid)}
	if threads > 1 {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return nil
		}
		names = names[:0]
		for _, t := range tasks {
			names = append(names, t.Name())
		}
	}
	for _, tid := range names {
		data, err := readProc(fmt.Sprintf("/proc/%d/task/%s/children", pid, tid))
		if err != nil {
			continue
		}
		for _, word := range strings.Fields(string(data)) {
			if n, err := strconv.Atoi(word); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// readProc is os.ReadFile with half of its system calls: a job of hundreds of
// processes that sleep must not keep the launcher busy.
func readProc(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 512)
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := unix.Read(fd, data[len(data):cap(data)])
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return data, err
		}
		data = data[:len(data)+n]
	}
}
