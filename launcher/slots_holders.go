package launcher

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
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

// holders lists the processes that have one of the ids, or that live in a user
// namespace which maps one, or that are in a namespace of the caller without a
// map: a set-up that has not got its ids yet. A process that ends meanwhile is
// none; one that cannot be read is an error. Two looks must agree on "none",
// since a child may get a number that the first look had passed already.
func holders(ids hostIDs) ([]int, error) {
	for range 2 {
		found, err := holdersOnce(ids)
		if err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, nil
}

func holdersOnce(ids hostIDs) ([]int, error) {
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
		has, err := holds("/proc/"+name, ids)
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

func holds(dir string, ids hostIDs) (bool, error) {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return false, err
	}
	p := parseOwner(status)
	if p.gone() {
		return false, nil
	}
	for _, uid := range p.uids {
		if ids.uids[uid] {
			return true, nil
		}
	}
	for _, gid := range p.gids {
		if ids.gids[gid] {
			return true, nil
		}
	}
	if len(p.uids) == 0 || p.uids[0] != int64(os.Getuid()) {
		return false, nil
	}
	m, err := os.ReadFile(dir + "/uid_map")
	if err != nil {
		return false, err
	}
	return mapsOne(m, ids.uids), nil
}

// mapsOne tells a namespace of the slot, or one that has no map yet.
func mapsOne(uidMap []byte, uids map[int64]bool) bool {
	lines := strings.Split(strings.TrimSpace(string(uidMap)), "\n")
	for _, l := range lines {
		f := strings.Fields(l)
		if len(f) != 3 {
			return true
		}
		start, err1 := strconv.ParseInt(f[1], 10, 64)
		count, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			return true
		}
		if count > 1<<16 {
			continue // the host's own namespace, or a container's: never nsbox's
		}
		for uid := range uids {
			if uid >= start && uid < start+count {
				return true
			}
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
