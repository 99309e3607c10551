package launcher

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/attest"
	"nsbox/nsexec"
	"nsbox/nsexec/caps/names"
)

// inspect reads what the kernel shows about a waiting box and compares it with
// its Spec. It runs between "ready" and "go": an error, or a row that is a
// mismatch, means that the workload never starts.
func inspect(b *nsexec.Box, s *nsexec.Spec, g *cgroupv2.Group) ([]attest.Row, error) {
	seen, err := look(b, s)
	if err != nil {
		return nil, err
	}
	members, err := memberRows(g, b)
	return append(compare(b, s, seen), members...), err
}

// compare is pure: it holds what was seen of a box, and what the box said of
// itself, against its Spec.
func compare(b *nsexec.Box, s *nsexec.Spec, seen *seen) []attest.Row {
	in := &inspection{box: b, spec: s, seen: seen}
	in.process()
	in.init()
	in.childReport()
	in.handed()
	in.tried()
	in.limits()
	in.mounts()
	in.maps()
	in.network()
	in.namespaces()
	return in.rows
}

type inspection struct {
	box  *nsexec.Box
	spec *nsexec.Spec
	seen *seen
	rows []attest.Row
}

func (in *inspection) row(name, want, got, where string, g attest.Grade) {
	in.rows = append(in.rows, attest.Compare(name, want, got, where, g))
}

// other adds a row for a value that must be another than the launcher's own.
func (in *inspection) other(name, own, got, where string, g attest.Grade) {
	r := attest.Row{Restriction: name, Requested: "another than " + own, Shown: got, Where: where, Grade: g, Status: attest.Enforced}
	if own == got || own == "" || got == "" {
		r.Status = attest.Mismatch
	}
	in.rows = append(in.rows, r)
}

const noCaps = "0000000000000000"

func (in *inspection) process() {
	const where = "/proc/PID/status of the workload"
	kr, st := attest.KernelRead, in.seen.child
	uids, gids := in.spec.WorkloadMaps()
	in.row("workload-uid", four(hostID(uids, in.spec.UID)), st.field("Uid"), where, kr)
	in.row("workload-gid", four(hostID(gids, in.spec.GID)), st.field("Gid"), where, kr)
	in.groups("supplementary-groups", st.field("Groups"), where, kr)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		in.row("capabilities-"+set, noCaps, st.field(set), where, kr)
	}
	in.row("no-new-privs", "1", st.field("NoNewPrivs"), where, kr)
	in.row("seccomp-mode", "2", st.field("Seccomp"), where, kr)
	in.row("seccomp-filters", in.oneFilterMore(), st.field("Seccomp_filters"), where, kr)
	in.row("signals-blocked", noCaps, st.field("SigBlk"), where, kr)
	in.row("signals-ignored", noCaps, st.field("SigIgn"), where, kr)
	in.row("signals-caught", noCaps, st.field("SigCgt"), where, kr)
	in.row("umask", fmt.Sprintf("%04o", in.spec.Umask), st.field("Umask"), where, kr)
	in.row("pid-inside", "2", lastField(st.field("NSpid")), where, kr)
	in.row("session-inside", "2", lastField(st.field("NSsid")), where, kr)
	in.row("parent-is-init", strconv.Itoa(in.box.InitPID), st.field("PPid"), where, kr)
	in.row("threads", "1", st.field("Threads"), where, kr)
	if in.spec.Affinity >= 0 {
		in.row("cpu-affinity", strconv.Itoa(in.spec.Affinity), st.field("Cpus_allowed_list"), where, kr)
	}
}

// groups adds a row for a process that must have no supplementary group, or, with
// the caller's own id alone, no other than the caller.
func (in *inspection) groups(name, got, where string, g attest.Grade) {
	if !in.spec.Identity.Nested {
		in.row(name, "", got, where, g)
		return
	}
	in.row(name, in.seen.self.field("Groups"), got, where, g)
	if r := &in.rows[len(in.rows)-1]; r.Status == attest.Enforced && got != "" {
		r.Requested, r.Status, r.Note = "", attest.Degraded, "identity: they are the caller's, which nobody but a capability over them can lay down"
	}
}

// cgroupView says what /proc/self/cgroup shows: outside of a cgroup namespace of
// its own a process sees paths of the host's tree.
func cgroupView(text string) string {
	if !strings.HasSuffix(text, "\n") {
		return "cut or empty: " + strconv.Quote(text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, ":/\n") {
			return strconv.Quote(line)
		}
	}
	return "every line ends in the root"
}

func (in *inspection) init() {
	const where = "/proc/PID/status of init"
	kr, st := attest.KernelRead, in.seen.init
	in.row("init-uid", four(hostID(in.spec.Identity.UIDs, 0)), st.field("Uid"), where, kr)
	in.row("init-gid", four(hostID(in.spec.Identity.GIDs, 0)), st.field("Gid"), where, kr)
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		in.row("init-capabilities-"+set, noCaps, st.field(set), where, kr)
	}
	in.groups("init-groups", st.field("Groups"), where, kr)
	in.row("init-signals-blocked", noCaps, st.field("SigBlk"), where, kr)
	in.row("init-no-new-privs", "1", st.field("NoNewPrivs"), where, kr)
	in.row("init-seccomp-mode", "2", st.field("Seccomp"), where, kr)
	// The mode alone would also be 2 where only a filter around the launcher is in force.
	in.row("init-seccomp-filters", in.oneFilterMore(), st.field("Seccomp_filters"), where, kr)
	in.row("init-pid-inside", "1", lastField(st.field("NSpid")), where, kr)
	in.row("init-parent", strconv.Itoa(in.seen.pid), st.field("PPid"), where, kr)
	in.row("init-own-view", "[0 0 0 0 0]", fmt.Sprint(in.box.Init.Caps), "init's own capget", attest.ChildRead)
	in.row("init-death-signal", signalNumber, strconv.FormatInt(in.box.Init.DeathSignal, 10), "prctl of pid 1 before its exec", attest.ChildRead)
	in.row("init-core-limit", "[0 0]", fmt.Sprint(in.box.Init.Core), "init's own getrlimit", attest.ChildRead)
	null := unix.Mkdev(1, 3)
	in.row("init-streams", fmt.Sprint([3]uint64{null, null, null}), fmt.Sprint(in.box.Init.Streams), "init's own fstat; the number of /dev/null", attest.ChildRead)
	in.row("init-descriptors", "1111", strconv.FormatUint(in.box.Init.Descriptors, 2), "init's own poll of 0 to 63, one digit each", attest.ChildRead)
	in.row("init-environment", "2", strconv.Itoa(in.box.Init.Environment), "init's own environment", attest.ChildRead)
}

// oneFilterMore is the number of filters of a process of the box: its own, and
// those the launcher itself is under, which children keep.
func (in *inspection) oneFilterMore() string {
	n, err := strconv.Atoi(in.seen.self.field("Seccomp_filters"))
	if err != nil {
		return "one more than the launcher, whose own number is not shown"
	}
	return strconv.Itoa(n + 1)
}

// childReport compares the raw answers that the confined child shipped.
func (in *inspection) childReport() {
	const where = "the waiting child's own system calls"
	r := in.box.Report
	cr := attest.ChildRead
	u, g := uint32(in.spec.UID), uint32(in.spec.GID)
	in.row("uids-inside", fmt.Sprint([3]uint32{u, u, u}), fmt.Sprint(r.UIDs), where, cr)
	in.row("gids-inside", fmt.Sprint([3]uint32{g, g, g}), fmt.Sprint(r.GIDs), where, cr)
	if !in.spec.Identity.Nested { // else the row above has them
		in.row("groups-inside", "0", strconv.Itoa(r.Groups), where, cr)
	}
	in.row("capabilities-inside", "[0 0 0]", fmt.Sprint(r.Caps), where, cr)
	in.row("session", "2", strconv.Itoa(r.Session), where, cr)
	in.row("personality", "0", strconv.FormatInt(r.Personality, 10), where, cr)
	how, ordinary := r.Ordinary()
	if ordinary {
		how = ordinaryScheduling
	}
	in.row("scheduling", ordinaryScheduling, how, where, cr)
	in.row("hostname", in.spec.Hostname, r.Hostname, where, cr)
	in.row("domainname", nsexec.NoDomain, r.Domainname, where, cr)
	if hasProc(in.spec) {
		in.row("inotify-instances", nsexec.InotifyInstances, r.Inotify[0], where+" (/proc/sys/user)", cr)
		in.row("inotify-watches", nsexec.InotifyWatches, r.Inotify[1], where+" (/proc/sys/user)", cr)
		in.row("cgroup-view", "every line ends in the root", cgroupView(r.Cgroup), where+" (/proc/self/cgroup)", cr)
	}
	in.row("working-directory", in.spec.Command.Dir, r.Dir, where, cr)
	if in.spec.Terminal != nil {
		in.row("terminal-session", "2", strconv.Itoa(r.Terminal), where+" (TIOCGSID; the terminal is of the box's own devpts)", cr)
	}
	in.keyring(where)
	in.row("set-up-capabilities", capNames(setUpCaps(in.spec)), capNames(r.SetUpCaps), "the set-up's own capget before its fork", cr)
	in.row("set-up-death-signal", signalNumber, strconv.FormatInt(r.DeathSignal, 10), "the set-up's own prctl before its fork", cr)
	in.row("set-up-descriptors", "EBADF", answer(r.OldNumber), "the set-up's own F_GETFD of a number that the launcher had open", cr)
}

const ordinaryScheduling = "not in real time, nice 0 or more"

// signalNumber is SIGKILL's, which nothing can ignore.
const signalNumber = "9"

// setUpCaps is what the privileged part of a box may hold in its own user namespace.
func setUpCaps(s *nsexec.Spec) [3]uint64 {
	set := uint64(1<<unix.CAP_SETPCAP | 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_RESOURCE)
	if s.Identity.Nested {
		set |= 1 << unix.CAP_SETFCAP // it maps its one id and takes no other
	} else {
		set |= 1<<unix.CAP_SETGID | 1<<unix.CAP_SETUID
	}
	if s.Listable >= 0 {
		set |= 1 << unix.CAP_FOWNER
	}
	if len(s.Open) > 0 {
		set |= 1 << unix.CAP_DAC_READ_SEARCH
	}
	if slices.ContainsFunc(s.Root, func(n nsexec.Node) bool { return n.Kind == nsexec.Part }) {
		set |= 1 << unix.CAP_CHOWN
	}
	if len(s.Listen) > 0 {
		set |= 1 << unix.CAP_NET_ADMIN
	}
	if slices.ContainsFunc(s.Listen, func(l nsexec.Listen) bool { return l.Port < 1024 }) {
		set |= 1 << unix.CAP_NET_BIND_SERVICE
	}
	return [3]uint64{set, set, 0}
}

func capNames(sets [3]uint64) string {
	var all []string
	for n := range 64 {
		if sets[0]&(1<<n) != 0 {
			all = append(all, names.Of(n))
		}
	}
	text := strings.Join(all, " ")
	if sets[1] != sets[0] || sets[2] != 0 {
		text += fmt.Sprintf("; permitted %#x, inheritable %#x", sets[1], sets[2])
	}
	return text
}

// tried compares what the kernel answered where the child did what it must not
// be able to do.
func (in *inspection) tried() {
	r := in.box.Report
	if in.spec.LandlockABI > 0 {
		in.triedBoth("landlock", fmt.Sprintf("ABI %d, %d rules: a permitted open succeeds, one that modes and mounts allow fails with EACCES", in.spec.LandlockABI, len(nsexec.Grants(in.spec.Root))),
			"steps control-landlock and probe-landlock", r.Landlock, succeeded, unix.EACCES)
	}
	in.row("nested-user-namespaces", "ENOSPC", answer(r.NestedUserNS), "step probe-nested-userns: unshare of a user namespace, before the filter", attest.Probed)
	program := attest.Row{Restriction: "seccomp-program", Requested: in.spec.Filter.Digest(), Shown: fmt.Sprintf("%d instructions, accepted by seccomp(2)", in.spec.Filter.Len()),
		Where: "step seccomp; the kernel has no read-back for its content", Grade: attest.ChildRead, Status: attest.Enforced}
	if r.Filter != 0 {
		program.Shown, program.Status = "seccomp(2) answered "+answer(r.Filter), attest.Mismatch
	}
	in.rows = append(in.rows, program)
	in.row("seccomp-effect", "EPERM", answer(r.Filtered), "step probe-seccomp: unshare of nothing", attest.Probed)
}

// triedBoth is a row for forbidden acts beside a permitted one of their kind, which
// shows that the refusal is the restriction's own.
func (in *inspection) triedBoth(name, want, where string, t *nsexec.Tried, permitted func(int64) bool, refusal unix.Errno) {
	r := attest.Row{Restriction: name, Requested: want, Shown: absent, Where: where, Grade: attest.Probed, Status: attest.Mismatch}
	if t != nil {
		r.Shown = "the permitted: " + outcome(t.Control) + "; the forbidden:"
		others := 0
		for _, f := range t.Forbidden {
			r.Shown += " " + outcome(f)
			if f != -int64(refusal) {
				others++
			}
		}
		if permitted(t.Control) && len(t.Forbidden) > 0 && others == 0 {
			r.Status = attest.Enforced
		}
	}
	in.rows = append(in.rows, r)
}

func succeeded(result int64) bool { return result >= 0 }

// outcome is answer for a call whose number on success says nothing.
func outcome(result int64) string {
	if succeeded(result) {
		return "succeeded"
	}
	return answer(result)
}

// keyring compares serials: keys of the caller's session would be readable inside.
func (in *inspection) keyring(where string) {
	own, got := in.seen.keyring, in.box.Report.Keyring
	switch {
	case own == got && got == -int64(unix.ENOSYS):
		in.row("session-keyring", "none", "none", where+"; this kernel has no keyrings", attest.ChildRead)
	case got <= 0:
		in.row("session-keyring", "an own one", fmt.Sprintf("error %d", -got), where, attest.ChildRead)
	default:
		in.other("session-keyring", strconv.FormatInt(own, 10), strconv.FormatInt(got, 10), where, attest.ChildRead)
	}
}

func (in *inspection) limits() {
	shown := parseLimits(in.seen.limits)
	for _, l := range in.spec.Rlimits {
		in.row("rlimit-"+l.Name, fmt.Sprintf("%d %d", l.Soft, l.Hard), shown.field(l.Name), "/proc/PID/limits of the workload", attest.KernelRead)
	}
}

func (in *inspection) maps() {
	uids, gids := in.spec.WorkloadMaps()
	for _, m := range []struct {
		file  string
		want  []nsexec.MapEntry
		shown []byte
	}{{"uid_map", uids, in.seen.uidMap}, {"gid_map", gids, in.seen.gidMap}} {
		var want []string
		for _, e := range m.want {
			want = append(want, fmt.Sprintf("%d %d %d", e.Inside, e.Host, e.Count))
		}
		got := parseMap(m.shown)
		sort.Strings(want)
		sort.Strings(got)
		in.row(m.file, strings.Join(want, ", "), strings.Join(got, ", "), "/proc/PID/"+m.file, attest.KernelRead)
	}
}

// namespaces compares inode numbers with the launcher's own. Init's are read:
// the child, not having exec'd, does not show its own; PPid and NSpid bind it to init.
func (in *inspection) namespaces() {
	for i, ns := range namespaceNames() {
		in.other("namespace-"+ns, in.seen.ownNS[i], in.seen.boxNS[i], "/proc/PID/ns of init", attest.KernelRead)
	}
}

// status is what the kernel shows by name. A name it does not show is absent, a
// word that no plan ever asks for: silence is never taken for agreement.
type status map[string]string

const absent = "not shown"

func (s status) field(name string) string {
	if v, ok := s[name]; ok {
		return v
	}
	return absent
}

func readStatus(pid int) (status, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return parseStatus(data), err
}

// settledStatus waits, for half a second at most, until not all signals are
// blocked: a Go runtime, as init is, blocks them for the instant in which it makes
// a thread, and one look in some thousand meets that instant. A mask that stays is
// reported as it is.
func settledStatus(pid int) (status, error) {
	st, err := readStatus(pid)
	for n := 0; n < 500 && err == nil && st["SigBlk"] == allBlocked; n++ {
		time.Sleep(time.Millisecond)
		st, err = readStatus(pid)
	}
	return st, err
}

// allBlocked is every signal but SIGKILL and SIGSTOP, as SigBlk shows it.
const allBlocked = "fffffffffffbfeff"

// parseStatus reads /proc/PID/status, proc_pid_status(5), with single blanks. A
// name that stands twice is kept as absent: one of the two would be believed.
func parseStatus(data []byte) status {
	s := status{}
	for line := range bytes.Lines(data) {
		if k, v, ok := strings.Cut(string(line), ":"); ok {
			if _, again := s[k]; again {
				s[k] = absent
				continue
			}
			s[k] = strings.Join(strings.Fields(v), " ")
		}
	}
	return s
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
	if len(f) == 0 || s == absent {
		return absent
	}
	return f[len(f)-1]
}
