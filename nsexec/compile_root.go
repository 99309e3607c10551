package nsexec

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// rootOptions bound the tmpfs that holds the root's directories and generated
// files. It is read-only before the workload starts; the bound is for us.
const rootOptions = "mode=0755,size=4m,nr_inodes=8192"

// maskDirOptions make a tmpfs in which nothing can be, not even by its owner.
const maskDirOptions = "size=4k,nr_inodes=2,mode=0555"

// root builds the tree on a tmpfs of its own. Paths are relative to it: until
// the pivot an absolute path would be the host's.
func (c *compiler) root() {
	c.need(c.add("root-tmpfs", "the tree is built where nothing of the host can be changed", unix.SYS_MOUNT, str("tmpfs"), str(c.spec.StagingPoint), str("tmpfs"), imm(unix.MS_NOSUID|unix.MS_NODEV), str(rootOptions)), unix.CAP_SYS_ADMIN)
	c.add("enter-root-tmpfs", "all that follows is relative to the new root", unix.SYS_CHDIR, str(c.spec.StagingPoint))
	for i, n := range c.spec.Root {
		c.node(i, n)
	}
	for _, n := range c.spec.Root {
		if n.Kind == Tmpfs && len(c.partners(n.Path)) > 0 {
			c.share(n)
		}
	}
	if c.hasProc() {
		for i, m := range c.spec.MaskProc {
			rel := "proc/" + m
			c.need(c.add("mask:"+m, "it tells about the host or the operator, or reaches the kernel's keys", unix.SYS_MOVE_MOUNT, load(c.masks[i]), str(""), neg(atFDCWD), str(rel), imm(unix.MOVE_MOUNT_F_EMPTY_PATH)).tolerate(unix.ENOENT), unix.CAP_SYS_ADMIN)
		}
	}
	if c.hasProc() {
		for _, m := range c.spec.MaskDirs {
			c.need(c.add("mask-dir:"+m, "it describes the host's devices and file systems", unix.SYS_MOUNT, str("tmpfs"), str("proc/"+m), str("tmpfs"), imm(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), str(maskDirOptions)).tolerate(unix.ENOENT), unix.CAP_SYS_ADMIN)
		}
	}
	attr := make([]byte, 32)
	binary.NativeEndian.PutUint64(attr, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
	c.need(c.add("root-read-only", "after the last mount point is made, nothing is written here any more", unix.SYS_MOUNT_SETATTR, neg(atFDCWD), str("."), imm(0), bytesArg(attr), imm(32)), unix.CAP_SYS_ADMIN)
}

func (c *compiler) node(i int, n Node) {
	if n.Path == "/" {
		return // stands for the root tmpfs itself: only its Landlock access counts
	}
	rel := strings.TrimPrefix(n.Path, "/")
	switch n.Kind {
	case Dir:
		c.mkdir(n.Path, rel, n.Mode)
	case File:
		fd := c.word("file " + n.Path)
		mode := n.Mode
		if mode == 0 {
			mode = 0o444
		}
		c.add("create:"+n.Path, "generated, so that nothing of the host's is shown", unix.SYS_OPENAT, neg(atFDCWD), str(rel), imm(unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW), imm(uintptr(mode))).into(fd)
		if len(n.Data) > 0 {
			c.add("fill:"+n.Path, "a short write would leave half a file", unix.SYS_WRITE, load(fd), bytesArg(n.Data), imm(uintptr(len(n.Data)))).exactly(int64(len(n.Data)))
		}
		c.add("close:"+n.Path, "an open writer would keep the root from becoming read-only", unix.SYS_CLOSE, load(fd))
	case Symlink:
		c.add("link:"+n.Path, "the program's own paths must resolve as on the host", unix.SYS_SYMLINKAT, str(n.Source), neg(atFDCWD), str(rel))
	case BindDir, Storage:
		c.mkdir(n.Path, rel, 0o755)
		if c.spec.standsOver(n) {
			// The directory is there: what is bound above shows it.
			c.prog.Steps[len(c.prog.Steps)-1].fails(unix.EEXIST)
		}
		c.attach(i, n.Path, rel)
	case BindFile, Device:
		c.add("target:"+n.Path, "a file is mounted on a file", unix.SYS_MKNODAT, neg(atFDCWD), str(rel), imm(unix.S_IFREG|0o444), imm(0))
		c.attach(i, n.Path, rel)
	case Tmpfs:
		c.mkdir(n.Path, rel, 0o755)
		if len(c.partners(n.Path)) == 0 {
			c.mountTmpfs(n, rel)
		}
	case Part:
		c.mkdir(n.Path, rel, 0o755)
	case Devpts:
		c.mkdir(n.Path, rel, 0o755)
		c.need(c.add("devpts:"+n.Path, "terminals of the box's own, none of the host's", unix.SYS_MOUNT, str("devpts"), str(rel), str("devpts"), imm(unix.MS_NOSUID|unix.MS_NOEXEC), str(devptsOptions)), unix.CAP_SYS_ADMIN)
	case Proc:
		c.mkdir(n.Path, rel, 0o555)
		// Mounted while the old /proc is still there: afterwards the kernel refuses (EPERM).
		c.need(c.add("proc:"+n.Path, "a fresh proc of the box's own pid namespace, other users' processes out of sight", unix.SYS_MOUNT, str("proc"), str(rel), str("proc"), imm(unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), str("hidepid=invisible")), unix.CAP_SYS_ADMIN)
	}
}

func (c *compiler) mountTmpfs(n Node, rel string) {
	opts := fmt.Sprintf("size=%d,nr_inodes=%d,mode=%04o,uid=%d,gid=%d", n.Bytes, n.Inodes, n.Mode, c.owner(n.UID), c.owner(n.GID))
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
	if !n.Exec {
		flags |= unix.MS_NOEXEC
	}
	c.need(c.add("tmpfs:"+n.Path, "bounded in bytes and inodes, or it would be half of the machine's memory", unix.SYS_MOUNT, str("tmpfs"), str(rel), str("tmpfs"), imm(flags), str(opts)), unix.CAP_SYS_ADMIN)
}

// standsOver reports whether n lies below a directory that is bound whole.
func (s *Spec) standsOver(n Node) bool {
	for _, up := range s.Root {
		if up.Kind == BindDir && strings.HasPrefix(n.Path, up.Path+"/") {
			return true
		}
	}
	return false
}

func (c *compiler) mkdir(at, rel string, mode uint32) {
	if mode == 0 {
		mode = 0o755
	}
	c.add("mkdir:"+at, "mount points are made while the root is writable", unix.SYS_MKDIRAT, neg(atFDCWD), str(rel), imm(uintptr(mode)))
}

func (c *compiler) attach(i int, at, rel string) {
	c.need(c.add("attach:"+at, "the pinned source appears in the box", unix.SYS_MOVE_MOUNT, load(c.trees[i]), str(""), neg(atFDCWD), str(rel), imm(unix.MOVE_MOUNT_F_EMPTY_PATH)), unix.CAP_SYS_ADMIN)
}

// enter makes the tree the root and lets go of the host's. The working directory
// is the new root already, since enter-root-tmpfs.
func (c *compiler) enter() {
	c.waitForInner()
	c.need(c.add("pivot-root", "chroot can be left again, a pivoted root cannot", unix.SYS_PIVOT_ROOT, str("."), str(".")), unix.CAP_SYS_ADMIN)
	c.need(c.add("detach-old-root", "the host's tree stays mounted below until it is let go", unix.SYS_UMOUNT2, str("."), imm(unix.MNT_DETACH)), unix.CAP_SYS_ADMIN)
	c.add("tree-ready", "the child, whose root the pivot has moved too, may go on", unix.SYS_WRITE, load(c.relayWrite), str("T"), imm(1)).exactly(1)
}
