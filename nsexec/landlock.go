package nsexec

import (
	"encoding/binary"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Landlock rights, landlock(7). A right the kernel's ABI does not know is left out
// of the handled set; lintable by the plan, which names the ABI.
const (
	llExecute = 1 << iota
	llWriteFile
	llReadFile
	llReadDir
	llRemoveDir
	llRemoveFile
	llMakeChar
	llMakeDir
	llMakeReg
	llMakeSock
	llMakeFifo
	llMakeBlock
	llMakeSym
	llRefer
	llTruncate
	llIoctlDev

	llFile = llExecute | llWriteFile | llReadFile | llTruncate | llIoctlDev
)

// handledFS is every file-system right an ABI knows: 13 from the first on,
// refer since 2, truncate since 3, ioctl on devices since 5.
func handledFS(abi int) uint64 {
	h := uint64(1<<13 - 1)
	if abi >= 2 {
		h |= llRefer
	}
	if abi >= 3 {
		h |= llTruncate
	}
	if abi >= 5 {
		h |= llIoctlDev
	}
	return h
}

func rights(a Access) uint64 {
	var r uint64
	if a&Read != 0 {
		r |= llReadFile
	}
	if a&List != 0 {
		r |= llReadDir
	}
	if a&Execute != 0 {
		r |= llExecute
	}
	if a&Write != 0 {
		r |= llWriteFile | llTruncate | llRemoveDir | llRemoveFile | llMakeDir | llMakeReg | llMakeSock | llMakeFifo | llMakeSym | llRefer
	}
	if a&Control != 0 {
		r |= llIoctlDev
	}
	return r
}

// Grant is one Landlock rule: what is allowed at and below Path.
type Grant struct {
	Path   string
	Access Access
	IsFile bool
}

// Grants derives the rules from the list that made the mounts: each top-level
// directory gets what all its entries have in common, and an entry that needs
// more gets a rule of its own. Fewer rules, same rights.
func Grants(nodes []Node) []Grant {
	common := map[string]Access{}
	seen := map[string]bool{}
	for _, n := range nodes {
		if n.Kind == Symlink || n.Kind == Dir {
			continue
		}
		top := topOf(n.Path)
		if !seen[top] {
			seen[top], common[top] = true, n.Access
		}
		common[top] &= n.Access
	}
	isDirNode := map[string]bool{}
	for _, n := range nodes {
		isDirNode[n.Path] = n.Kind == Dir || n.Kind == BindDir || n.Kind == Tmpfs || n.Kind == Storage || n.Kind == Proc || n.Kind == Part || n.Kind == Devpts
	}
	var out []Grant
	at := map[string]int{} // two rules for one path would be two steps of one name
	grant := func(p string, a Access, isFile bool) {
		if i, ok := at[p]; ok {
			out[i].Access |= a
			return
		}
		at[p] = len(out)
		out = append(out, Grant{p, a, isFile})
	}
	for _, n := range nodes {
		if n.Path == "/" && n.Access != 0 {
			grant("/", n.Access, false)
		}
	}
	var tops []string
	for t := range common {
		tops = append(tops, t)
	}
	sort.Strings(tops)
	for _, t := range tops {
		if common[t] != 0 && isDirNode[t] {
			grant(t, common[t], false)
		}
	}
	for _, n := range nodes {
		if n.Kind == Symlink || n.Access == 0 || n.Path == "/" {
			continue
		}
		top := topOf(n.Path)
		if isDirNode[top] && n.Access&^common[top] == 0 {
			continue
		}
		grant(n.Path, n.Access, !isDirNode[n.Path])
	}
	return out
}

func topOf(p string) string {
	p = path.Clean(p)
	if i := strings.IndexByte(p[1:], '/'); i >= 0 {
		return p[:i+1]
	}
	return p
}

// landlock adds the steps that confine the child and returns a function that
// adds the probe; the kernel has no read-back for Landlock, so the probe is the proof.
func (c *compiler) landlock() (probe func()) {
	abi := c.spec.LandlockABI
	if abi <= 0 {
		return func() {}
	}
	attr := make([]byte, 24) // struct landlock_ruleset_attr: fs, net (ABI 4), scoped (ABI 6)
	size := uintptr(8)
	binary.NativeEndian.PutUint64(attr, handledFS(abi))
	if abi >= 4 {
		size = 16
		binary.NativeEndian.PutUint64(attr[8:], 3) // bind and connect TCP: only what landlockPorts grants
	}
	if abi >= 6 {
		size = 24
		binary.NativeEndian.PutUint64(attr[16:], 3) // abstract unix sockets and signals stay within
	}
	rs := c.word("ruleset")
	c.add("landlock-ruleset", "what is handled and not granted is denied", unix.SYS_LANDLOCK_CREATE_RULESET, bytesArg(attr), imm(size), imm(0)).into(rs)
	grants := Grants(c.spec.Root)
	for _, g := range grants {
		r := rights(g.Access) & handledFS(abi)
		if g.IsFile {
			r &= llFile
		}
		// struct landlock_path_beneath_attr is packed: rights, then a 32-bit descriptor.
		rule := c.prog.slot("rule "+g.Path, 16)
		binary.NativeEndian.PutUint64(rule.Init, r)
		c.add("landlock-open:"+g.Path, "the rule binds to the final mount, so it is opened after the pivot", unix.SYS_OPENAT, neg(atFDCWD), str(g.Path), imm(unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW)).into(rule.at(8))
		c.add("landlock-grant:"+g.Path, "from the same list that made the mounts", unix.SYS_LANDLOCK_ADD_RULE, load(rs), imm(unix.LANDLOCK_RULE_PATH_BENEATH), addr(rule.at(0)), imm(0))
	}
	if c.spec.Command.Self {
		rule := make([]byte, 12)
		binary.NativeEndian.PutUint64(rule, llExecute|llReadFile)
		binary.NativeEndian.PutUint32(rule[8:], fdChildSelf)
		c.add("landlock-grant-self", "the stage's own image lies outside the root", unix.SYS_LANDLOCK_ADD_RULE, load(rs), imm(unix.LANDLOCK_RULE_PATH_BENEATH), bytesArg(rule), imm(0))
	}
	if abi >= 4 {
		c.landlockPorts(rs)
	}
	c.add("landlock-restrict", "after no_new_privs, which an unprivileged caller needs first", unix.SYS_LANDLOCK_RESTRICT_SELF, load(rs), imm(0))
	return func() { c.landlockProbe(grants) }
}

// landlockProbe tries what file modes allow and only Landlock denies, next to
// a control of the same kind that must succeed.
func (c *compiler) landlockProbe(grants []Grant) {
	control, probe := c.placeTried("landlock", 1)
	have := map[string]Access{}
	for _, n := range c.spec.Root {
		have[n.Path] = n.Access
	}
	if _, ok := have["/dev/zero"]; ok && have["/dev/zero"]&Write == 0 && have["/dev/null"]&Write != 0 {
		c.add("control-landlock", "shows that a refusal below is not a general one", unix.SYS_OPENAT, neg(atFDCWD), str("/dev/null"), imm(unix.O_WRONLY|unix.O_CLOEXEC)).into(control).anyResult()
		c.add("probe-landlock", "mode and mount would allow this write; Landlock must not", unix.SYS_OPENAT, neg(atFDCWD), str("/dev/zero"), imm(unix.O_WRONLY|unix.O_CLOEXEC)).into(probe[0]).anyResult()
		return
	}
	c.add("control-landlock", "shows that a refusal below is not a general one", unix.SYS_OPENAT, neg(atFDCWD), str("/"), imm(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)).into(control).anyResult()
	if have["/"]&List == 0 {
		c.add("probe-landlock", "mode and mount would allow listing the root; Landlock must not", unix.SYS_OPENAT, neg(atFDCWD), str("/"), imm(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC)).into(probe[0]).anyResult()
	}
}
