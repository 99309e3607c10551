package cgroupv2

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const maxName = 120 // cgroup directory names are limited to 255 bytes

// Group is one attempt's job cgroup with its leaves box and work.
type Group struct {
	root *Root
	name string
	id   uint64
	top  *os.File // the group's directory
	box  *os.File // O_PATH
	work *os.File
	cpu  *os.File // work/cpu.stat, read again and again by the monitor
	ev   *os.File // cgroup.events of the group
}

// Create makes the group nsbox-<name> with both leaves, and hands the root's
// Controllers down to them; it never adopts one that is there. name is made of letters, digits, '-' and '_' and ought to be
// the attempt's id. What was made is taken back if a later step fails.
func (r *Root) Create(name string) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	dir := r.path + "/" + groupPrefix + name
	if err := unix.Mkdirat(r.fd(), groupPrefix+name, 0o755); err != nil {
		return nil, ownership("mkdir", dir, err)
	}
	g := &Group{root: r, name: name}
	err := g.openTop()
	if err == nil && len(r.enabled) > 0 {
		err = g.handDown(r.enabled)
	}
	for _, leaf := range []string{"box", "work"} {
		if err != nil {
			break
		}
		if mkErr := unix.Mkdirat(int(g.top.Fd()), leaf, 0o755); mkErr != nil {
			err = ownership("mkdir", dir+"/"+leaf, mkErr)
		}
	}
	if err == nil {
		err = g.openLeaves()
	}
	if err != nil {
		for _, sub := range []string{"/box", "/work", ""} {
			_ = unix.Unlinkat(r.fd(), groupPrefix+name+sub, unix.AT_REMOVEDIR)
		}
		g.Close()
		return nil, err
	}
	return g, nil
}

// handDown gives the leaves their controllers. The group itself holds no
// process, so there is nothing to wait for.
func (g *Group) handDown(list []string) error {
	if err := writeSmall(g.top, "cgroup.subtree_control", "+"+strings.Join(list, " +")); err != nil {
		return ownership("write cgroup.subtree_control of", g.Path(), err)
	}
	if !handsDown(g.top, list) {
		shown, _ := readSmall(g.top, "cgroup.subtree_control")
		return &Error{Kind: LimitNotApplied, Path: g.Path() + "/cgroup.subtree_control", Op: "read back", Wanted: strings.Join(list, " "), Shown: strings.TrimSpace(shown)}
	}
	return nil
}

// Open reaches a group that an earlier launcher made, by name and by the id
// that was recorded then. Kind Gone means that this very group no longer
// exists, even if another one has its name. A leaf that is missing is no error:
// the launcher may have died between two steps.
func (r *Root) Open(name string, id uint64) (*Group, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	g := &Group{root: r, name: name}
	if err := g.openTop(); err != nil {
		return nil, err
	}
	if g.id != id {
		g.Close()
		return nil, &Error{Kind: Gone, Path: g.Path(), Op: "find group " + strconv.FormatUint(id, 10) + " as",
			Err: errors.New("the directory there is another group, " + strconv.FormatUint(g.id, 10))}
	}
	var e *Error
	if err := g.openLeaves(); err != nil && !(errors.As(err, &e) && e.Kind == Gone) {
		g.Close()
		return nil, err
	}
	return g, nil
}

func checkName(name string) error {
	ok := name != "" && len(name) <= maxName && !strings.HasPrefix(groupPrefix+name, probePrefix) && groupPrefix+name != launcherLeaf
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return &Error{Kind: Escapes, Path: strconv.Quote(name), Op: "name a group", Err: errors.New("want letters, digits, - and _, neither launcher nor starting with probe-")}
	}
	return nil
}

func (g *Group) openTop() error {
	top, err := openFile(g.root.dir, groupPrefix+g.name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return failure("open", g.Path(), err)
	}
	g.top = top
	if g.id, err = cgroupID(top); err != nil {
		return failure("stat", g.Path(), err)
	}
	if g.ev, err = openFile(top, "cgroup.events", unix.O_RDONLY); err != nil {
		return failure("open cgroup.events of", g.Path(), err)
	}
	return nil
}

func (g *Group) openLeaves() error {
	var err error
	if g.box, err = openFile(g.top, "box", unix.O_PATH|unix.O_DIRECTORY); err != nil {
		return failure("open", g.Path()+"/box", err)
	}
	if g.work, err = openFile(g.top, "work", unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return failure("open", g.Path()+"/work", err)
	}
	if g.cpu, err = openFile(g.work, "cpu.stat", unix.O_RDONLY); err != nil {
		return failure("open cpu.stat of", g.Path()+"/work", err)
	}
	return nil
}

// cgroupID returns the kernel's 64-bit id of the group: on 64-bit kernels the
// inode number of its directory, which name_to_handle_at also gives.
func cgroupID(dir *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &st); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// Path returns the group's directory, for the journal and for messages.
func (g *Group) Path() string { return g.root.path + "/" + groupPrefix + g.name }

// ID returns the 64-bit cgroup id, unique until the next boot.
func (g *Group) ID() uint64 { return g.id }

// Controllers returns the controllers in force in the work leaf.
func (g *Group) Controllers() []string {
	if g.work == nil {
		return nil
	}
	return controllers(g.work)
}

// BoxFD returns an O_PATH descriptor of the box leaf for CLONE_INTO_CGROUP. It
// belongs to the Group.
func (g *Group) BoxFD() int { return int(g.box.Fd()) }

// WorkFD returns a descriptor of the work leaf for CLONE_INTO_CGROUP. A process
// born there costs nothing; moving one in costs an RCU grace period, 10 to 20 ms.
func (g *Group) WorkFD() int { return int(g.work.Fd()) }

// Members returns the processes of a leaf, box or work, as this process numbers
// them: proof that somebody was born where it should be.
func (g *Group) Members(leaf string) ([]int, error) {
	dir := map[string]*os.File{"box": g.box, "work": g.work}[leaf]
	if dir == nil {
		return nil, &Error{Kind: Gone, Path: g.Path() + "/" + leaf, Op: "read cgroup.procs of"}
	}
	pids, err := processes(dir)
	if err != nil {
		return nil, failure("read cgroup.procs of", g.Path()+"/"+leaf, err)
	}
	return pids, nil
}

// CPUUsage returns the CPU time in microseconds, user and system, of every
// process that is or was in the work leaf, for the time it spent there. One
// pread on a kept descriptor.
func (g *Group) CPUUsage() (usec int64, err error) {
	text, err := reread(g.cpu)
	if err != nil {
		return 0, failure("read cpu.stat of", g.Path()+"/work", err)
	}
	usec, err = flatKeyed(text, "usage_usec")
	if err != nil {
		return 0, failure("parse cpu.stat of", g.Path()+"/work", err)
	}
	return usec, nil
}

// Kill sends SIGKILL to every process of the group and its leaves. A fork that
// races with it is caught by the kernel. It returns before they are gone; see
// WaitEmpty. cgroup.kill came with Linux 5.14.
func (g *Group) Kill() error {
	if err := writeSmall(g.top, "cgroup.kill", "1"); err != nil {
		return failure("write cgroup.kill of", g.Path(), err)
	}
	return nil
}

// Close releases the descriptors and leaves the group as it is.
func (g *Group) Close() error {
	var errs []error
	for _, f := range []*os.File{g.cpu, g.ev, g.work, g.box, g.top} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
