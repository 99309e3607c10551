package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"nsbox/nsexec"
)

// seen is what the kernel shows of one waiting box and of the launcher beside
// it, read once and not yet judged.
type seen struct {
	pid               int // the launcher's own
	self, child, init status
	keyring           int64 // serial of the launcher's session keyring, or -errno
	limits            []byte
	mounts            []*mountinfo.Info
	maskable          map[string]bool // which names of Spec.MaskProc this kernel has
	uidMap, gidMap    []byte
	netDev            []byte
	fibTrie, ifInet6  []byte
	route, route6     []byte // these and the next only of a box with endpoints
	tcp, tcp6         []byte
	ownNS, boxNS      []string // link texts in the order of namespaceNames
}

func namespaceNames() []string {
	return []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}
}

// look reads everything inspect needs. Any file that cannot be read is an error,
// but for those that a kernel without the protocol does not have.
func look(b *nsexec.Box, s *nsexec.Spec) (*seen, error) {
	v := &seen{pid: os.Getpid(), keyring: ownKeyring(), maskable: map[string]bool{}}
	var errs []error
	file := func(name string) []byte {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", b.ChildPID, name))
		errs = append(errs, err)
		return data
	}
	optional := func(name string) []byte {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", b.ChildPID, name))
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		return data
	}
	for _, p := range []struct {
		pid int
		to  *status
	}{{v.pid, &v.self}, {b.ChildPID, &v.child}, {b.InitPID, &v.init}} {
		st, err := settledStatus(p.pid)
		*p.to, errs = st, append(errs, err)
	}
	v.limits, v.uidMap, v.gidMap = file("limits"), file("uid_map"), file("gid_map")
	v.netDev, v.fibTrie, v.ifInet6 = file("net/dev"), optional("net/fib_trie"), optional("net/if_inet6")
	if len(s.Listen) > 0 {
		v.route, v.route6, v.tcp, v.tcp6 = file("net/route"), optional("net/ipv6_route"), file("net/tcp"), optional("net/tcp6")
	}
	var err error
	v.mounts, err = mountinfo.GetMountsFromReader(bytes.NewReader(file("mountinfo")), nil)
	errs = append(errs, err)
	for _, name := range slices.Concat(s.MaskProc, s.MaskDirs) {
		// The box's /proc is a fresh one of the same kernel: what is here is there.
		_, err := os.Lstat("/proc/" + name)
		v.maskable[name] = err == nil
	}
	for _, ns := range namespaceNames() {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		errs = append(errs, err)
		box, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", b.InitPID, ns))
		errs = append(errs, err)
		v.ownNS, v.boxNS = append(v.ownNS, own), append(v.boxNS, box)
	}
	return v, errors.Join(errs...)
}

func ownKeyring() int64 {
	serial, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	if no, ok := err.(unix.Errno); ok {
		return -int64(no)
	}
	return int64(serial)
}

// parseLimits returns "soft hard" of /proc/PID/limits by nsbox's own names, in
// the units of setrlimit(2).
func parseLimits(data []byte) status {
	out := status{}
	for line := range strings.Lines(string(data)) {
		// The kernel pads its words to 26 columns.
		if len(line) < 26 {
			continue
		}
		name, f := limitName(strings.TrimSpace(line[:26])), strings.Fields(line[26:])
		if name != "" && len(f) >= 2 {
			out[name] = f[0] + " " + f[1]
		}
	}
	return out
}

func limitName(words string) string {
	switch words {
	case "Max cpu time":
		return "cpu"
	case "Max file size":
		return "fsize"
	case "Max stack size":
		return "stack"
	case "Max core file size":
		return "core"
	case "Max processes":
		return "nproc"
	case "Max open files":
		return "nofile"
	case "Max locked memory":
		return "memlock"
	case "Max address space":
		return "as"
	case "Max pending signals":
		return "sigpending"
	case "Max msgqueue size":
		return "msgqueue"
	case "Max nice priority":
		return "nice"
	case "Max realtime priority":
		return "rtprio"
	}
	return ""
}

// parseMap returns the lines of uid_map or gid_map with single blanks.
func parseMap(data []byte) []string {
	var lines []string
	for line := range strings.Lines(string(data)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// parseInterfaces returns the names of /proc/PID/net/dev.
func parseInterfaces(data []byte) []string {
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// parseAddresses returns the local addresses, or "none": in fib_trie a leaf's address
// stands on the line before "host LOCAL", and if_inet6 begins each line with one.
// Both tables of fib_trie show the same addresses.
func parseAddresses(fibTrie, ifInet6 []byte) []string {
	var out []string
	listed := map[string]bool{}
	add := func(a string) {
		if !listed[a] {
			listed[a] = true
			out = append(out, a)
		}
	}
	leaf := "unnamed"
	for line := range strings.Lines(string(fibTrie)) {
		if _, a, ok := strings.Cut(line, "|-- "); ok {
			leaf = strings.TrimSpace(a)
		}
		if strings.Contains(line, " LOCAL") {
			add(leaf)
		}
	}
	for line := range strings.Lines(string(ifInet6)) {
		if f := strings.Fields(line); len(f) > 0 {
			add(f[0])
		}
	}
	if out == nil {
		return []string{"none"}
	}
	return out
}
