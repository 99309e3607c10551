package launcher

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"nsbox/launcher/attest"
	"nsbox/nsexec"
)

// inspect reads what the kernel shows about a waiting box and compares it with
// its Spec. It runs between "ready" and "go": an error, or a row that is a
// mismatch, means that the workload never starts.
func inspect(b *nsexec.Box, s *nsexec.Spec) ([]attest.Row, error) {
	in := &inspection{box: b, spec: s}
	child, err := readStatus(b.ChildPID)
	if err != nil {
		return nil, err
	}
	init, err := readStatus(b.InitPID)
	if err != nil {
		return nil, err
	}
	in.process(child)
	in.init(init)
	in.childReport()
	for _, step := range []func() error{in.limits, in.mounts, in.maps, in.network, in.namespaces} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	in.filters()
	return in.rows, nil
}

type inspection struct {
	box  *nsexec.Box
	spec *nsexec.Spec
	rows []attest.Row
}

func (in *inspection) row(name, want, got, where string, g attest.Grade) {
	in.rows = append(in.rows, attest.Compare(name, want, got, where, g))
}

// readStatus returns the fields of /proc/PID/status, proc_pid_status(5).
func readStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for line := range bytes.Lines(data) {
		if k, v, ok := strings.Cut(string(line), ":"); ok {
			m[k] = strings.Join(strings.Fields(v), " ")
		}
	}
	return m, nil
}

const noCaps = "0000000000000000"

func (in *inspection) process(st map[string]string) {
	const where = "/proc/PID/status of the workload"
	kr := attest.KernelRead
	in.row("workload-uid", four(hostID(in.spec.Identity.UIDs, in.spec.UID)), st["Uid"], where, kr)
	in.row("workload-gid", four(hostID(in.spec.Identity.GIDs, in.spec.GID)), st["Gid"], where, kr)
	in.row("supplementary-groups", "", st["Groups"], where, kr)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		in.row("capabilities-"+set, noCaps, st[set], where, kr)
	}
	in.row("no-new-privs", "1", st["NoNewPrivs"], where, kr)
	in.row("seccomp-mode", "2", st["Seccomp"], where, kr)
	in.row("seccomp-filters", strconv.Itoa(ownFilters()+1), st["Seccomp_filters"], where, kr)
	in.row("signals-blocked", noCaps, st["SigBlk"], where, kr)
	in.row("signals-ignored", noCaps, st["SigIgn"], where, kr)
	in.row("signals-caught", noCaps, st["SigCgt"], where, kr)
	in.row("umask", fmt.Sprintf("%04o", in.spec.Umask), st["Umask"], where, kr)
	in.row("pid-inside", "2", lastField(st["NSpid"]), where, kr)
	in.row("session-inside", "2", lastField(st["NSsid"]), where, kr)
	in.row("parent-is-init", strconv.Itoa(in.box.InitPID), st["PPid"], where, kr)
	in.row("threads", "1", st["Threads"], where, kr)
	if in.spec.Affinity >= 0 {
		in.row("cpu-affinity", strconv.Itoa(in.spec.Affinity), st["Cpus_allowed_list"], where, kr)
	}
}

func (in *inspection) init(st map[string]string) {
	const where = "/proc/PID/status of init"
	kr := attest.KernelRead
	in.row("init-uid", four(hostID(in.spec.Identity.UIDs, 0)), st["Uid"], where, kr)
	in.row("init-gid", four(hostID(in.spec.Identity.GIDs, 0)), st["Gid"], where, kr)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		in.row("init-capabilities-"+set, noCaps, st[set], where, kr)
	}
	in.row("init-no-new-privs", "1", st["NoNewPrivs"], where, kr)
	in.row("init-seccomp-mode", "2", st["Seccomp"], where, kr)
	in.row("init-pid-inside", "1", lastField(st["NSpid"]), where, kr)
	in.row("init-own-view", "[0 0 0 0 0]", fmt.Sprint(in.box.Init.Caps), "init's own capget", attest.ChildRead)
	in.row("init-environment", "2", strconv.Itoa(in.box.Init.Environment), "init's own environment", attest.ChildRead)
}

// childReport compares the raw answers that the confined child shipped.
func (in *inspection) childReport() {
	const where = "the waiting child's own system calls"
	r := in.box.Report
	cr := attest.ChildRead
	u, g := uint32(in.spec.UID), uint32(in.spec.GID)
	in.row("uids-inside", fmt.Sprint([3]uint32{u, u, u}), fmt.Sprint(r.UIDs), where, cr)
	in.row("gids-inside", fmt.Sprint([3]uint32{g, g, g}), fmt.Sprint(r.GIDs), where, cr)
	in.row("groups-inside", "0", strconv.Itoa(r.Groups), where, cr)
	in.row("capabilities-inside", "[0 0 0]", fmt.Sprint(r.Caps), where, cr)
	in.row("session", "2", strconv.Itoa(r.Session), where, cr)
	in.row("working-directory", in.spec.Command.Dir, r.Dir, where, cr)
	if r.Descriptors != nil {
		// Besides the three streams: the go socket, nsbox's image and the listing
		// itself, all shown to be close-on-exec.
		var rest []int
		for _, fd := range r.Descriptors {
			if fd < nsexec.PrivateDescriptors {
				rest = append(rest, fd)
			}
		}
		in.row("descriptors", "[0 1 2]", fmt.Sprint(withoutListing(rest)), where+" (/proc/self/fd)", cr)
	}
	if in.spec.LandlockABI > 0 {
		in.rows = append(in.rows, attest.Row{Restriction: "landlock", Requested: fmt.Sprintf("ABI %d, %d rules", in.spec.LandlockABI, len(nsexec.Grants(in.spec.Root))),
			Shown: "a write that modes and mounts allow was refused, its control was not", Where: "steps control-landlock and probe-landlock", Grade: attest.Probed, Status: attest.Enforced})
	}
	in.rows = append(in.rows,
		attest.Row{Restriction: "nested-user-namespaces", Requested: "0", Shown: "unshare of a user namespace failed with ENOSPC before the filter", Where: "step probe-nested-userns", Grade: attest.Probed, Status: attest.Enforced},
		attest.Row{Restriction: "seccomp-effect", Requested: "EPERM", Shown: "unshare(0) failed with EPERM", Where: "step probe-seccomp", Grade: attest.Probed, Status: attest.Enforced})
}

// withoutListing drops the descriptor that the listing itself used: the lowest
// free number, so 3.
func withoutListing(fds []int) []int {
	if len(fds) > 0 && fds[len(fds)-1] == 3 {
		return fds[:len(fds)-1]
	}
	return fds
}

// limits compares /proc/PID/limits, whose units are those of setrlimit(2).
func (in *inspection) limits() error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", in.box.ChildPID))
	if err != nil {
		return err
	}
	shown := parseLimits(data)
	for _, l := range in.spec.Rlimits {
		in.row("rlimit-"+l.Name, fmt.Sprintf("%d %d", l.Soft, l.Hard), shown[l.Name], "/proc/PID/limits of the workload", attest.KernelRead)
	}
	return nil
}

// parseLimits returns "soft hard" by nsbox's own names.
func parseLimits(data []byte) map[string]string {
	out := map[string]string{}
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
	case "Max msgqueue size":
		return "msgqueue"
	case "Max nice priority":
		return "nice"
	case "Max realtime priority":
		return "rtprio"
	}
	return ""
}

// mounts compares the box's mount table with the list that made it: nothing
// missing, nothing more, each with the flags it must have.
func (in *inspection) mounts() error {
	where := "/proc/PID/mountinfo of the workload"
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", in.box.ChildPID))
	if err != nil {
		return err
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(bufio.NewReader(f), nil)
	if err != nil {
		return err
	}
	shown := map[string]*mountinfo.Info{}
	for _, m := range infos {
		if shown[m.Mountpoint] != nil {
			in.row("mount "+m.Mountpoint, "once", "twice", where, attest.KernelRead)
		}
		shown[m.Mountpoint] = m
	}
	want := wantedMounts(in.spec)
	names := make([]string, 0, len(want))
	for p := range want {
		names = append(names, p)
	}
	sort.Strings(names)
	for _, p := range names {
		w, m := want[p], shown[p]
		if m == nil {
			if !w.optional {
				in.row("mount "+p, w.String(), "absent", where, attest.KernelRead)
			}
			continue
		}
		in.row("mount "+p, w.String(), w.shownBy(m), where, attest.KernelRead)
	}
	for p, m := range shown {
		if _, ok := want[p]; ok {
			continue
		}
		if w, ok := coveringBind(in.spec, want, p); ok {
			in.row("mount "+p, w.String(), w.shownBy(m), where, attest.KernelRead)
			continue
		}
		in.row("mount "+p, "absent", m.FSType+" "+m.Options, where, attest.KernelRead)
	}
	return nil
}

// coveringBind finds the recursive bind that brought a submount of its source along.
func coveringBind(s *nsexec.Spec, want map[string]wantedMount, p string) (wantedMount, bool) {
	for up := path.Dir(p); up != "/"; up = path.Dir(up) {
		for _, n := range s.Root {
			if n.Path == up && n.Kind == nsexec.BindDir {
				return want[up], true
			}
		}
	}
	return wantedMount{}, false
}

// wantedMount is what the kernel must show of one mount.
type wantedMount struct {
	flags    []string // of the mount itself
	super    []string // of the file system
	fstype   string   // empty: whatever the source is on
	optional bool
}

func (w wantedMount) String() string {
	s := strings.Join(w.flags, ",")
	if w.fstype != "" {
		s = w.fstype + " " + s
	}
	if len(w.super) > 0 {
		s += " " + strings.Join(w.super, ",")
	}
	return s + " private"
}

// shownBy renders what m shows of what w asks, so that equal means held.
func (w wantedMount) shownBy(m *mountinfo.Info) string {
	have := map[string]bool{}
	for _, o := range strings.Split(m.Options, ",") {
		have[o] = true
	}
	super := map[string]bool{}
	for _, o := range strings.Split(m.VFSOptions, ",") {
		super[o] = true
	}
	got := wantedMount{}
	for _, f := range w.flags {
		if have[f] {
			got.flags = append(got.flags, f)
		}
	}
	for _, f := range w.super {
		if super[f] {
			got.super = append(got.super, f)
		}
	}
	if w.fstype != "" {
		got.fstype = m.FSType
	}
	s := got.String()
	if m.Optional != "" {
		s = strings.TrimSuffix(s, "private") + m.Optional
	}
	return s
}

func wantedMounts(s *nsexec.Spec) map[string]wantedMount {
	out := map[string]wantedMount{"/": {fstype: "tmpfs", flags: []string{"ro", "nosuid", "nodev"}}}
	hasProc := ""
	for _, n := range s.Root {
		switch n.Kind {
		case nsexec.BindDir, nsexec.BindFile:
			w := wantedMount{flags: []string{"ro", "nosuid", "nodev"}}
			if n.NoExec {
				w.flags = append(w.flags, "noexec")
			}
			out[n.Path] = w
		case nsexec.Device:
			out[n.Path] = wantedMount{flags: []string{"ro", "nosuid", "noexec"}}
		case nsexec.Proc:
			hasProc = n.Path
			out[n.Path] = wantedMount{fstype: "proc", flags: []string{"ro", "nosuid", "nodev", "noexec"}, super: []string{"hidepid=invisible"}}
		case nsexec.Tmpfs:
			out[n.Path] = wantedMount{fstype: "tmpfs", flags: []string{"rw", "nosuid", "nodev", "noexec"},
				super: []string{"size=" + kib(n.Bytes), "nr_inodes=" + strconv.FormatInt(n.Inodes, 10)}}
		}
	}
	if hasProc != "" {
		for _, m := range s.MaskProc {
			out[hasProc+"/"+m] = wantedMount{flags: []string{"ro", "nosuid", "noexec"}, optional: true}
		}
	}
	return out
}

// kib is how tmpfs prints a size: whole pages, in KiB.
func kib(bytes int64) string {
	page := int64(os.Getpagesize())
	return strconv.FormatInt((bytes+page-1)/page*page/1024, 10) + "k"
}

func (in *inspection) maps() error {
	for _, m := range []struct {
		file string
		want []nsexec.MapEntry
	}{{"uid_map", in.spec.Identity.UIDs}, {"gid_map", in.spec.Identity.GIDs}} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", in.box.ChildPID, m.file))
		if err != nil {
			return err
		}
		var want []string
		for _, e := range m.want {
			want = append(want, fmt.Sprintf("%d %d %d", e.Inside, e.Host, e.Count))
		}
		var got []string
		for line := range strings.Lines(string(data)) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		sort.Strings(want)
		sort.Strings(got)
		in.row(m.file, strings.Join(want, ", "), strings.Join(got, ", "), "/proc/PID/"+m.file, attest.KernelRead)
	}
	return nil
}

func (in *inspection) network() error {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", in.box.ChildPID))
	if err != nil {
		return err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	in.row("network-interfaces", "lo", strings.Join(names, " "), "/proc/PID/net/dev of the workload (lo is down)", attest.KernelRead)
	return nil
}

// namespaces compares inode numbers with the launcher's own. Init's are read:
// the child, not having exec'd, does not show its own; PPid and NSpid bind it to init.
func (in *inspection) namespaces() error {
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		own, err := os.Readlink("/proc/self/ns/" + ns)
		if err != nil {
			return err
		}
		box, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", in.box.InitPID, ns))
		if err != nil {
			return err
		}
		r := attest.Row{Restriction: "namespace-" + ns, Requested: "another than " + own, Shown: box, Where: "/proc/PID/ns of init", Grade: attest.KernelRead, Status: attest.Enforced}
		if own == box {
			r.Status = attest.Mismatch
		}
		in.rows = append(in.rows, r)
	}
	return nil
}

func (in *inspection) filters() {
	in.rows = append(in.rows, attest.Row{Restriction: "seccomp-program", Requested: in.spec.Filter.Digest(), Shown: fmt.Sprintf("%d instructions handed to seccomp(2), accepted", in.spec.Filter.Len()),
		Where: "step seccomp; the kernel has no read-back for its content", Grade: attest.ChildRead, Status: attest.Enforced})
}

// ownFilters is how many seccomp filters this process inherited; children keep them.
func ownFilters() int {
	st, err := readStatus(os.Getpid())
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(st["Seccomp_filters"])
	return n
}

func hostID(m []nsexec.MapEntry, inside int) int {
	for _, e := range m {
		if inside >= e.Inside && inside < e.Inside+e.Count {
			return e.Host + inside - e.Inside
		}
	}
	return -1
}

func four(id int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(id)+" ", 4)) }

func lastField(s string) string {
	f := strings.Fields(s)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}
