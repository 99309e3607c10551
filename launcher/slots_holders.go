package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
)

// hostIDs are ids as this process's user namespace numbers them, and the program
// of the launcher that had them, as far as it is known.
type hostIDs struct {
	uids, gids map[int64]bool
	exe        fileID
	alone      fileID // the caller's user namespace, if the ids are the caller's own
}

func idSet(s probe.Slot) hostIDs {
	h := hostIDs{uids: map[int64]bool{}, gids: map[int64]bool{}}
	for _, id := range []probe.HostID{s.Root, s.Workload, s.ExportRoot, s.Exporter} {
		h.uids[id.UID], h.gids[id.GID] = true, true
	}
	return h
}

// holder is a process that may be part of a box.
type holder struct {
	pid   int
	name  string // as the process chose it
	dying bool   // killed already; only the kernel's own work is left
}

func (h holder) String() string { return fmt.Sprintf("process %d (%.15q)", h.pid, h.name) }

// errBlind means that processes may be there which this process cannot see.
var errBlind = errors.New("/proc does not show every process (hidepid, or a pid namespace of its own)")

// holders lists the processes that live in a user namespace which maps one of the
// ids alone, as only a box of nsbox's does: other rootless tools of the account
// draw from the same range, but map the whole of it. A process of the caller in a
// namespace without a map counts too, if it is older than since, in ticks of the
// boot clock: it may be a set-up that has not got its ids yet, and that one is pid
// 1 of whatever it forks. Such a set-up still runs the launcher's own program, so
// one that is seen to run another is none of ours. One that ends meanwhile is none; one that cannot be read
// is an error. Two looks must agree on "none", since a child may get a number that
// the first look had passed already.
func holders(ids hostIDs, since int64) ([]holder, error) {
	for range 2 {
		found, err := holdersOnce(ids, since)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

func holdersOnce(ids hostIDs, since int64) ([]holder, error) {
	if _, err := os.ReadFile("/proc/1/status"); err != nil {
		return nil, errBlind
	}
	names, err := readNames("/proc")
	if err != nil {
		return nil, err
	}
	var found []holder
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
			found = append(found, holderAt(pid))
		}
	}
	return found, nil
}

// holderAt tells more of a process that was found; what ends meanwhile is dying.
func holderAt(pid int) holder {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	stat, err2 := os.ReadFile(dir + "/stat")
	p := parseOwner(status)
	return holder{pid, p.name, err != nil || err2 != nil || p.killed || exiting(stat)}
}

// awaitGone waits until look finds nobody. It waits until the end of ctx for what may
// be just ending, and then no longer than dying for what was killed already: on a
// busy machine the kernel takes its time to take a process apart.
func awaitGone(ctx context.Context, dying time.Duration, look func() ([]holder, error)) error {
	began := time.Now()
	for wait := firstLook; ; wait = min(2*wait, lastLook) {
		found, err := look()
		if err != nil || len(found) == 0 {
			return err
		}
		if ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			continue
		}
		alive := slices.IndexFunc(found, func(h holder) bool { return !h.dying })
		if alive >= 0 || errors.Is(ctx.Err(), context.Canceled) || time.Since(began) > dying {
			return fmt.Errorf("%s on this host has ids of the attempt", found[max(alive, 0)])
		}
		time.Sleep(wait)
	}
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
		if ids.alone != (fileID{}) {
			return ids.nestedHolder(dir, m), nil
		}
		return mapsOne(m, ids.uids), nil
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false, err
	}
	return startTick(stat) <= since && !ids.otherProgram(dir+"/exe"), nil
}

// otherProgram: the link shows another program than the launcher's. Where it
// cannot be read, or nothing is known of the launcher's, that is not shown.
func (h hostIDs) otherProgram(link string) bool {
	var st unix.Stat_t
	return h.exe != fileID{} && unix.Stat(link, &st) == nil && (st.Dev != h.exe.Dev || st.Ino != h.exe.Ino)
}

// bootTicks is now on the clock of start times.
func bootTicks() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return math.MaxInt64 // everything is older
	}
	return ts.Nano() / (1e9 / clockTick)
}

// startTick is when the process began, on the clock of bootTicks.
func startTick(stat []byte) int64 {
	return statField(stat, 22)
}

// exiting: the process is past the point at which it could still run its program
// (PF_EXITING in the 9th field).
func exiting(stat []byte) bool {
	const pfExiting = 0x4
	return statField(stat, 9)&pfExiting != 0
}

// statField is a field of /proc/PID/stat by its number in proc_pid_stat(5), from 3
// on, or 0. The second may hold spaces and brackets.
func statField(stat []byte, number int) int64 {
	_, rest, _ := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), ") ")
	if f := strings.Fields(rest); len(f) > number-3 {
		n, _ := strconv.ParseInt(f[number-3], 10, 64)
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
	name       string
	state      byte
	threads    int
	killed     bool    // a SIGKILL is pending
	uids, gids []int64 // real, effective, saved, file system
}

func parseOwner(status []byte) owner {
	var o owner
	for line := range bytes.Lines(status) {
		key, value, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), ":")
		f := strings.Fields(value)
		switch {
		case key == "Name":
			o.name = strings.TrimSpace(value)
		case (key == "SigPnd" || key == "ShdPnd") && len(f) > 0:
			bits, _ := strconv.ParseUint(f[0], 16, 64)
			o.killed = o.killed || bits&(1<<(unix.SIGKILL-1)) != 0
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
