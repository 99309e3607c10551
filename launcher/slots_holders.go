package launcher

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
)

// hostIDs are ids as this process's user namespace numbers them.
type hostIDs struct{ uids, gids map[int64]bool }

func idSet(s probe.Slot) hostIDs {
	h := hostIDs{map[int64]bool{}, map[int64]bool{}}
	for _, id := range []probe.HostID{s.Root, s.Workload, s.ExportRoot, s.Exporter} {
		h.uids[id.UID], h.gids[id.GID] = true, true
	}
	return h
}

// errBlind means that processes may be there which this process cannot see.
var errBlind = errors.New("/proc does not show every process (hidepid, or a pid namespace of its own)")

// holders lists the processes that live in a user namespace which maps one of the
// ids alone, as only a box of nsbox's does: other rootless tools of the account
// draw from the same range, but map the whole of it. A process of the caller in a
// namespace without a map counts too, if it is older than since, in ticks of the
// boot clock: it may be a set-up that has not got its ids yet, and that one is pid
// 1 of whatever it forks. One that ends meanwhile is none; one that cannot be read
// is an error. Two looks must agree on "none", since a child may get a number that
// the first look had passed already.
func holders(ids hostIDs, since int64) ([]int, error) {
	for range 2 {
		found, err := holdersOnce(ids, since)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

func holdersOnce(ids hostIDs, since int64) ([]int, error) {
	if _, err := os.ReadFile("/proc/1/status"); err != nil {
		return nil, errBlind
	}
	names, err := readNames("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		has, err := holds("/proc/"+name, ids, since)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if has {
			found = append(found, pid)
		}
	}
	return found, nil
}

func holds(dir string, ids hostIDs, since int64) (bool, error) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return false, err
	}
	p := parseOwner(status)
	if p.gone() {
		return false, nil
	}
	mine := slices.Contains(p.uids, int64(os.Getuid()))
	for i := range p.uids {
		mine = mine || ids.uids[p.uids[i]] || i < len(p.gids) && ids.gids[p.gids[i]]
	}
	if !mine {
		return false, nil
	}
	m, err := os.ReadFile(dir + "/uid_map")
	if err != nil {
		return false, err
	}
	if len(bytes.TrimSpace(m)) > 0 {
		return mapsOne(m, ids.uids), nil
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false, err
	}
	return startTick(stat) <= since, nil
}

// bootTicks is now on the clock of start times.
func bootTicks() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return math.MaxInt64 // everything is older
	}
	return ts.Nano() / (1e9 / clockTick)
}

// startTick is the 22nd field of /proc/PID/stat, or 0. The second may hold spaces.
func startTick(stat []byte) int64 {
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), ") ")
	if f := strings.Fields(rest); len(f) > 19 {
		n, _ := strconv.ParseInt(f[19], 10, 64)
		return n
	}
	return 0
}

// mapsOne tells a namespace of the slot.
func mapsOne(uidMap []byte, uids map[int64]bool) bool {
	for l := range strings.Lines(strings.TrimSpace(string(uidMap)) + "\n") {
		f := numbers(strings.Fields(l))
		if len(f) == 3 && f[2] == 1 && uids[f[1]] {
			return true
		}
	}
	return false
}

// owner is the part of /proc/PID/status that says who a process is.
type owner struct {
	state      byte
	threads    int
	uids, gids []int64 // real, effective, saved, file system
}

func parseOwner(status []byte) owner {
	var o owner
	for line := range bytes.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		f := strings.Fields(value)
		switch {
		case key == "State" && len(f) > 0:
			o.state = f[0][0]
		case key == "Threads" && len(f) > 0:
			o.threads, _ = strconv.Atoi(f[0])
		case key == "Uid":
			o.uids = numbers(f)
		case key == "Gid":
			o.gids = numbers(f)
		}
	}
	return o
}

// gone: a zombie runs nothing and holds no mount; one whose other threads live
// is only a dead leader.
func (o owner) gone() bool { return (o.state == 'Z' || o.state == 'X') && o.threads <= 1 }

func numbers(fields []string) []int64 {
	var n []int64
	for _, f := range fields {
		if v, err := strconv.ParseInt(f, 10, 64); err == nil {
			n = append(n, v)
		}
	}
	return n
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
