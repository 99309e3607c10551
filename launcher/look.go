package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

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

	files  map[int]nsexec.FileID // by the program's number: the launcher's side of what it was handed
	held   string                // what Spec.Hold gave the launcher
	sealed string                // mode of the descriptor that Spec.Listable names
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
	errs = append(errs, v.lookAtFiles(b, s))
	return v, errors.Join(errs...)
}

// lookAtFiles asks about the launcher's own descriptors only.
func (v *seen) lookAtFiles(b *nsexec.Box, s *nsexec.Spec) error {
	v.files = map[int]nsexec.FileID{0: {Type: unix.S_IFCHR, Rdev: unix.Mkdev(1, 3)}} // /dev/null
	for n, f := range []*os.File{b.Stdin, b.Stdout, b.Stderr} {
		if f == nil {
			continue
		}
		info, err := f.Stat()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		v.files[n] = nsexec.FileID{Dev: st.Dev, Ino: st.Ino, Rdev: st.Rdev, Type: st.Mode & unix.S_IFMT}
	}
	if b.Terminal != nil {
		master, err := terminalOf(b.Terminal)
		if err != nil {
			return err
		}
		v.files[0], v.files[1], v.files[2] = master, master, master
	}
	for _, p := range b.Pass {
		var st unix.Stat_t
		if err := unix.Fstat(p.From, &st); err != nil {
			return err
		}
		v.files[p.To] = nsexec.FileID{Dev: st.Dev, Ino: st.Ino, Rdev: st.Rdev, Type: st.Mode & unix.S_IFMT}
		if p.To == s.Listable {
			v.sealed = fmt.Sprintf("%04o", st.Mode&0o7777)
		}
	}
	if s.Hold == "" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(b.Held, &st); err != nil {
		return err
	}
	if v.held = "no directory"; st.Mode&unix.S_IFMT == unix.S_IFDIR {
		v.held = fmt.Sprintf("directory of %d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	}
	return nil
}

// terminalMajor is the device number's first half of every pseudo-terminal.
const terminalMajor = 136

// terminalOf is the terminal whose master the launcher holds: its number, within
// the file system that both are of. Its inode has a number that only a path shows.
func terminalOf(master *os.File) (nsexec.FileID, error) {
	raw, err := master.SyscallConn()
	if err != nil {
		return nsexec.FileID{}, err
	}
	var st unix.Stat_t
	var n int
	var statErr, numberErr error
	err = raw.Control(func(fd uintptr) {
		statErr = unix.Fstat(int(fd), &st)
		n, numberErr = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	})
	return nsexec.FileID{Dev: st.Dev, Rdev: unix.Mkdev(terminalMajor, uint32(n)), Type: unix.S_IFCHR}, errors.Join(err, statErr, numberErr)
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
