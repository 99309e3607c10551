package cgroupv2

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// launcherLeaf is where the launcher itself goes, and never leaves: moving
	// back up would be refused once the parent hands controllers down.
	launcherLeaf = groupPrefix + "launcher"

	// The kernel counts a process that has just left for some milliseconds.
	busyTries = 20
	busyPause = 5 * time.Millisecond

	// Processes that are on their way out of the directory get longer, since on a
	// loaded machine they have to be scheduled first.
	leaveTries = 400
)

// wanted lists the controllers that limits are made of. memory comes first on
// purpose: it is the one that cannot be shared with processes of the directory
// itself. With cpu or pids alone the kernel would accept such processes and turn
// the whole subtree threaded.
func wanted() []string { return []string{"memory", "pids", "cpu"} }

// Controllers returns those of memory, pids and cpu that were shown to work
// below this root: enabled, written and read back in a probe leaf. Groups made by
// Create have exactly these.
func (r *Root) Controllers() []string { return slices.Clone(r.enabled) }

// Lack says why one of memory, pids and cpu cannot be had below this root, or
// returns nil if it can. The error is an *Error.
func (r *Root) Lack(controller string) error {
	if err := r.lacks[controller]; err != nil {
		return err
	}
	if slices.Contains(r.enabled, controller) {
		return nil
	}
	return &Error{Kind: ControllerMissing, Controller: controller, Path: r.path, Op: "find it in cgroup.controllers of"}
}

// offered lists the wanted controllers that the directory could hand down, and
// notes the reasons for the others. Nothing of the host is changed.
func (r *Root) offered(v1 []string) []string {
	have := controllers(r.dir)
	var can []string
	r.lacks = map[string]error{}
	for _, c := range wanted() {
		switch {
		case slices.Contains(have, c):
			can = append(can, c)
		case slices.Contains(v1, c):
			r.lacks[c] = &Error{Kind: ControllerOnV1, Controller: c, Path: "/proc/self/cgroup", Op: "look for it in"}
		default:
			r.lacks[c] = &Error{Kind: ControllerMissing, Controller: c, Path: r.path, Op: "find it in cgroup.controllers of"}
		}
	}
	return can
}

// enable hands the controllers down to the children of r and proves it in a
// probe leaf. If the caller itself lives in r it moves to a leaf first. What
// cannot be had goes to r.lacks with its reason.
func (r *Root) enable(can []string, own string) {
	if len(can) == 0 {
		return
	}
	bad := map[string]error{}
	if err := r.enableAll(can, own); err != nil {
		for _, c := range can {
			bad[c] = err
		}
	} else {
		bad = r.probeControllers(can)
	}
	for _, c := range can {
		if r.lacks[c] = bad[c]; bad[c] == nil {
			r.enabled = append(r.enabled, c)
		}
	}
}

func (r *Root) enableAll(can []string, own string) error {
	if handsDown(r.dir, can) {
		return nil
	}
	busy := func(pids []int) error {
		return &Error{Kind: InternalProcesses, Path: r.path, Op: "enable " + strings.Join(can, ", ") + " below", PIDs: pids, Err: unix.EBUSY}
	}
	made, moved := false, false
	undo := func() {
		if moved && writeSmall(r.dir, "cgroup.procs", "0") == nil && made {
			_ = unix.Unlinkat(r.fd(), launcherLeaf, unix.AT_REMOVEDIR)
		}
	}
	if !r.isTop() {
		others, inside, err := r.members()
		switch {
		case err != nil:
			return failure("read cgroup.procs of", r.path, err)
		case slices.ContainsFunc(others, stays):
			return busy(others)
		case inside && own != r.path:
			return busy([]int{os.Getpid()}) // two mounts of one hierarchy; the own group is known by another name
		case inside:
			// Before the others are waited for: one of them may be a launcher that
			// waits for this one.
			if made, err = r.moveSelf(); err != nil {
				return err
			}
			moved = true
		}
		err = retryBusy(leaveTries, func() error {
			if others, _, err = r.members(); err == nil && len(others) > 0 {
				return unix.EBUSY
			}
			return err
		})
		if err != nil {
			undo()
			if err == unix.EBUSY {
				return busy(others)
			}
			return failure("read cgroup.procs of", r.path, err)
		}
	}
	err := retryBusy(busyTries, func() error {
		return writeSmall(r.dir, "cgroup.subtree_control", "+"+strings.Join(can, " +"))
	})
	if err == nil && handsDown(r.dir, can) {
		return nil
	}
	others, _, _ := r.members()
	undo()
	switch {
	case err == nil:
		shown, _ := readSmall(r.dir, "cgroup.subtree_control")
		return &Error{Kind: LimitNotApplied, Path: r.path + "/cgroup.subtree_control", Op: "read back", Wanted: strings.Join(can, " "), Shown: strings.TrimSpace(shown)}
	case err == unix.EBUSY:
		return busy(others)
	}
	return ownership("write cgroup.subtree_control of", r.path, err)
}

// retryBusy repeats f every 5 ms while it gives EBUSY, at most tries times.
func retryBusy(tries int, f func() error) error {
	for try := 0; ; try++ {
		err := f()
		if err != unix.EBUSY || try == tries {
			return err
		}
		time.Sleep(busyPause)
	}
}

// members returns the processes that live in r itself, and whether the caller is
// one of them.
func (r *Root) members() (others []int, inside bool, err error) {
	pids, err := processes(r.dir)
	if err != nil {
		return nil, false, err
	}
	inside = slices.Contains(pids, os.Getpid())
	return slices.DeleteFunc(pids, func(n int) bool { return n == os.Getpid() }), inside, nil
}

// stays reports whether a process is likely to stay in the directory. Helpers of
// the caller end soon, and another launcher moves away; a shell does neither,
// and is not waited for.
func stays(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	text, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return pid == 0 || !errors.Is(err, os.ErrNotExist)
	}
	// The name may hold blanks and parentheses; state and parent follow its last one.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
		return false
	}
	its, err := os.Stat(proc + "/exe")
	if err != nil {
		return true
	}
	mine, err := os.Stat("/proc/self/exe")
	return err != nil || !os.SameFile(its, mine)
}

// handsDown reports whether the children of dir have all the controllers.
func handsDown(dir *os.File, can []string) bool {
	text, err := readSmall(dir, "cgroup.subtree_control")
	if err != nil {
		return false
	}
	have := strings.Fields(text)
	return !slices.ContainsFunc(can, func(c string) bool { return !slices.Contains(have, c) })
}

// isTop reports whether r is the top of the whole hierarchy, the only place
// where processes and controllers may be side by side.
func (r *Root) isTop() bool {
	_, err := readSmall(r.dir, "cgroup.type")
	return err == unix.ENOENT
}

// moveSelf moves the calling process, and nobody else, to the launcher's leaf.
// The leaf may be there already, from a launcher before or beside this one:
// it is shared, and nobody removes it while it is in use.
func (r *Root) moveSelf() (made bool, err error) {
	dir := r.path + "/" + launcherLeaf
	err = unix.Mkdirat(r.fd(), launcherLeaf, 0o755)
	if err != nil && err != unix.EEXIST {
		return false, ownership("mkdir", dir, err)
	}
	made = err == nil
	if made {
		// Without the mark a Find from inside of the leaf would go one deeper.
		_ = unix.Setxattr(dir, launcherMark, []byte("1"), 0)
	}
	if err := writeSmall(r.dir, launcherLeaf+"/cgroup.procs", "0"); err != nil { // 0 is the writer
		if made {
			_ = unix.Unlinkat(r.fd(), launcherLeaf, unix.AT_REMOVEDIR)
		}
		return false, ownership("move the launcher to", dir, err)
	}
	return made, nil
}

// processes returns the processes that live in the directory itself.
func processes(dir *os.File) ([]int, error) {
	text, err := readAll(dir, "cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range strings.Fields(text) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		pids = append(pids, n)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// probeControllers writes one limit of each controller to a probe leaf and reads
// it back. It returns what did not work.
func (r *Root) probeControllers(can []string) map[string]error {
	bad := map[string]error{}
	name := probePrefix + nonce()
	dir := r.path + "/" + name
	if err := unix.Mkdirat(r.fd(), name, 0o755); err != nil {
		for _, c := range can {
			bad[c] = ownership("mkdir", dir, err)
		}
		return bad
	}
	defer unix.Unlinkat(r.fd(), name, unix.AT_REMOVEDIR)
	if typ, err := readSmall(r.dir, name+"/cgroup.type"); err != nil || strings.TrimSpace(typ) != "domain" {
		for _, c := range can {
			bad[c] = &Error{Kind: Threaded, Path: dir, Op: "use", Err: errors.New("cgroup.type is " + strings.TrimSpace(typ))}
		}
		return bad
	}
	for _, c := range can {
		file, value := probeValue(c)
		path := dir + "/" + file
		if err := writeSmall(r.dir, name+"/"+file, value); err != nil {
			bad[c] = &Error{Kind: LimitNotApplied, Path: path, Op: "write", Wanted: value, Err: err}
			continue
		}
		shown, err := readSmall(r.dir, name+"/"+file)
		if shown = strings.TrimSpace(shown); err != nil || shown != value {
			bad[c] = &Error{Kind: LimitNotApplied, Path: path, Op: "read back", Wanted: value, Shown: shown, Err: err}
		}
	}
	return bad
}

// probeValue is a value that no kernel has as default.
func probeValue(controller string) (file, value string) {
	switch controller {
	case "memory":
		return "memory.max", strconv.Itoa(8192 * pageSize)
	case "pids":
		return "pids.max", "17"
	}
	return "cpu.max", strconv.Itoa(cpuPeriod/2) + " " + strconv.Itoa(cpuPeriod)
}
