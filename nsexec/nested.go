package nsexec

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A caller to whom no range is assigned may map one id: its own. Its box has two
// user namespaces. The outer one owns everything that the set-up makes, and its 0
// stands for the caller; the inner one is the program's, in which the policy's ids
// stand for that 0, so that no process of the outer one can be traced or
// inspected from the inner. To the kernel all of them are the caller.
//
//   - The inner namespace is made by the fork, which therefore waits for the maps
//     (a namespace whose maker has no id in its parent is EPERM).
//   - Mapping the parent's 0 takes CAP_SETFCAP of its maker, user_namespaces(7).
//   - setgroups is denied for good before the group map is written, so that the
//     caller's supplementary groups stay; the launcher decides whether they may.
//   - A new namespace begins with a full bounding set and without limits. Both, and
//     its maps, are set through the host's /proc, so the pivot waits for them.

// WorkloadMaps are the id maps of the user namespace in which the program runs.
func (s *Spec) WorkloadMaps() (uids, gids []MapEntry) {
	if !s.Identity.Nested || len(s.Identity.UIDs) != 1 || len(s.Identity.GIDs) != 1 {
		return s.Identity.UIDs, s.Identity.GIDs
	}
	u, g := s.Identity.UIDs[0], s.Identity.GIDs[0]
	return []MapEntry{{s.UID, u.Host, 1}}, []MapEntry{{s.GID, g.Host, 1}}
}

// owner is an id of the program as the set-up has to name it.
func (c *compiler) owner(id int) int {
	if c.spec.Identity.Nested {
		return 0
	}
	return id
}

// innerNamespace makes the namespace that the fork has put the child into usable,
// with the same limits as the outer one, which count as well.
func (c *compiler) innerNamespace() {
	if !c.spec.Identity.Nested {
		return
	}
	for _, m := range []struct {
		file string
		id   int
	}{{"uid_map", c.spec.UID}, {"gid_map", c.spec.GID}} {
		text := fmt.Sprintf("%d 0 1\n", m.id)
		fd := c.word("own " + m.file)
		c.add("open-own-"+m.file, "the set-up's 0 is the one id that there is to map", unix.SYS_OPENAT, neg(atFDCWD), str("/proc/self/"+m.file), imm(unix.O_WRONLY|unix.O_CLOEXEC), imm(0)).into(fd)
		s := c.add("write-own-"+m.file, "the program's id, as the policy numbers it", unix.SYS_WRITE, load(fd), str(text), imm(uintptr(len(text)))).exactly(int64(len(text)))
		if m.file == "uid_map" {
			c.need(s, unix.CAP_SETFCAP) // of the namespace's maker, when it made it
		}
	}
	for n := 0; n <= c.spec.CapLast; n++ {
		c.add(fmt.Sprintf("own-bound-%d", n), "a new user namespace begins with a full bounding set", unix.SYS_PRCTL, imm(unix.PR_CAPBSET_DROP), imm(uintptr(n)))
	}
	c.namespaceLimits("own-")
	c.add("inner-ready", "the host's /proc may go: the box's own is read-only", unix.SYS_WRITE, load(c.innerWrite), str("I"), imm(1)).exactly(1)
}

func (c *compiler) innerPipe() {
	if c.spec.Identity.Nested {
		inner := c.prog.slot("inner", 16)
		c.innerRead, c.innerWrite = inner.at(0), inner.at(4)
		c.add("inner", "the child tells pid 1 when its namespace is ready", unix.SYS_PIPE2, addr(c.innerRead), imm(unix.O_CLOEXEC))
	}
}

func (c *compiler) waitForInner() {
	if c.spec.Identity.Nested {
		c.add("close-inner", "or the child's end would not be seen as EOF", unix.SYS_CLOSE, load(c.innerWrite))
		c.add("wait-for-inner", "the child still needs the host's /proc; if it fails, the launcher ends the box", unix.SYS_READ, load(c.innerRead), addr(c.buf.at(24)), imm(1)).exactly(1)
	}
}

// denySetgroups is the condition under which the kernel lets a process without
// capabilities map its own group, user_namespaces(7).
func denySetgroups(pid int) error {
	path := fmt.Sprintf("/proc/%d/setgroups", pid)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte("deny"))
		unix.Close(fd)
	}
	if err != nil {
		return &MapError{Path: path, Err: err}
	}
	return nil
}
