package nsexec

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// partners are the Part nodes of the tmpfs at p, by index.
func (c *compiler) partners(p string) []int {
	var out []int
	for i, n := range c.spec.Root {
		if n.Kind == Part && n.Source == p {
			out = append(out, i)
		}
	}
	return out
}

// share makes one tmpfs for several places: each is a directory of it, so that
// they have one budget, and its root is seen nowhere. The mount points exist.
func (c *compiler) share(n Node) {
	rel := strings.TrimPrefix(n.Path, "/")
	whole := n
	whole.UID, whole.GID = 0, 0 // init makes the parts, and has no right to write elsewhere
	c.mountTmpfs(whole, rel)
	parts := append([]int{-1}, c.partners(n.Path)...)
	trees := make([]Ref, len(parts))
	for i, at := range parts {
		part := n
		if at >= 0 {
			part = c.spec.Root[at]
		}
		dir := rel + "/" + path.Base(part.Path)
		c.add("part:"+part.Path, "one directory of the tmpfs for each place", unix.SYS_MKDIRAT, neg(atFDCWD), str(dir), imm(uintptr(part.Mode)))
		c.need(c.add("own:"+part.Path, "made by init, and the workload's to use", unix.SYS_FCHOWNAT, neg(atFDCWD), str(dir), imm(uintptr(c.owner(n.UID))), imm(uintptr(c.owner(n.GID))), imm(unix.AT_SYMLINK_NOFOLLOW)), unix.CAP_CHOWN)
		trees[i] = c.word("tree " + part.Path)
		c.need(c.add("open:"+part.Path, "a bind of this directory alone", unix.SYS_OPEN_TREE, neg(atFDCWD), str(dir), imm(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)).into(trees[i]), unix.CAP_SYS_ADMIN)
	}
	c.need(c.add("hide:"+n.Path, "the tmpfs's own root would show all parts in one place", unix.SYS_UMOUNT2, str(rel), imm(unix.MNT_DETACH)), unix.CAP_SYS_ADMIN)
	for i, at := range parts {
		to := n.Path
		if at >= 0 {
			to = c.spec.Root[at].Path
		}
		c.need(c.add("attach:"+to, "the part appears in the box", unix.SYS_MOVE_MOUNT, load(trees[i]), str(""), neg(atFDCWD), str(strings.TrimPrefix(to, "/")), imm(unix.MOVE_MOUNT_F_EMPTY_PATH)), unix.CAP_SYS_ADMIN)
	}
}
