package rootfs

import (
	"fmt"
	"math"
	"path"
	"slices"
	"sort"
	"strings"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// nobody is the id that stands for every unmapped one.
const nobody = 65534

// Options are what the plan decides about the box's root.
type Options struct {
	StagedIn      string // host directory bound at /in; empty: /in is an empty directory
	ScratchBytes  int64  // all four above 0: the kernel takes 0 for "no limit"
	ScratchInodes int64
	OutBytes      int64
	OutInodes     int64
	OutSource     string // host directory that is /out, a file system of its own; empty: a tmpfs is made
	NoOut         bool   // nothing may leave, so there is no /out; the two above are not looked at
	ScratchExec   bool   // what is written to /scratch may be executed
	Tmp, Shm      bool   // /tmp and /dev/shm, as directories of the tmpfs at /scratch
	Everyday      bool   // the devices that interactive programs expect, and a devpts for terminals
	WorkloadUID   int    // inside; distinct from ExporterUID, 0 and 65534
	WorkloadGID   int
	ExporterUID   int
	Names         []HostName // what /etc/hosts knows besides localhost
	Certificates  string     // host file with the CA certificates; empty: the box has none
}

// Layout returns the whole root in the order of creation. The first node is "/"
// itself, which exists already and only carries its mode and its access. Two
// nodes on one path are an error, and so is a node below anything but a Dir.
// Layout touches nothing on the host.
func Layout(c *Closure, o Options) ([]nsexec.Node, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	byPath := map[string]nsexec.Node{}
	lists := [][]nsexec.Node{c.Nodes, o.ownNodes(), generatedFiles(c, o)}
	lists = append(lists, certificateNodes(o.Certificates, slices.Concat(lists...)))
	for _, list := range lists {
		for _, n := range list {
			old, ok := byPath[n.Path]
			if !ok {
				byPath[n.Path] = n
				continue
			}
			if n.Path == "/etc/ld.so.cache" && old.Kind == nsexec.BindFile {
				continue // a whole root brings its own
			}
			if old.Kind != nsexec.Dir || n.Kind != nsexec.Dir {
				return nil, duplicate(old, n)
			}
			old.Access |= n.Access
			byPath[n.Path] = old
		}
	}
	nodes := make([]nsexec.Node, 0, len(byPath))
	for _, n := range byPath {
		nodes = append(nodes, n)
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Path < nodes[j].Path })
	for _, n := range nodes {
		if !path.IsAbs(n.Path) || path.Clean(n.Path) != n.Path {
			return nil, reason.New(reason.RootfsBadParent, quote(n.Path), "is not an absolute clean path", "report this as a fault of nsbox")
		}
		if n.Path == "/" {
			continue
		}
		if n.Kind == nsexec.BindDir && boundAbove(byPath, n.Path) {
			continue // the directory it stands over is there
		}
		if up, ok := byPath[path.Dir(n.Path)]; !ok || up.Kind != nsexec.Dir {
			return nil, reason.New(reason.RootfsBadParent, n.Path, "would lie below "+path.Dir(n.Path)+", which is not a plain directory of the box's root",
				"choose a program whose files do not lie at a path that nsbox uses itself")
		}
	}
	return nodes, nil
}

// boundAbove reports whether p lies below a directory that is bound whole.
func boundAbove(nodes map[string]nsexec.Node, p string) bool {
	for dir := path.Dir(p); dir != "/"; dir = path.Dir(dir) {
		if nodes[dir].Kind == nsexec.BindDir {
			return true
		}
	}
	return false
}

func (o Options) validate() error {
	bad := func(what string, got int64) error {
		return reason.New(reason.RootfsBadOptions, what, fmt.Sprintf("is %d, which is out of range for the box's root", got), "correct the policy")
	}
	for _, s := range []struct {
		what string
		v    int64
	}{{"scratch bytes", o.ScratchBytes}, {"scratch inodes", o.ScratchInodes}, {"out bytes", o.OutBytes}, {"out inodes", o.OutInodes}} {
		if s.v <= 0 && !(o.NoOut && strings.HasPrefix(s.what, "out ")) {
			return bad(s.what, s.v)
		}
	}
	for _, s := range []struct {
		what string
		v    int
	}{{"workload uid", o.WorkloadUID}, {"workload gid", o.WorkloadGID}, {"exporter uid", o.ExporterUID}} {
		if s.v <= 0 || s.v == nobody || s.v >= math.MaxUint32 {
			return bad(s.what, int64(s.v))
		}
	}
	if o.WorkloadUID == o.ExporterUID {
		return bad("exporter uid equal to workload uid", int64(o.ExporterUID))
	}
	for _, dir := range []string{o.StagedIn, o.OutSource} {
		if dir != "" && !path.IsAbs(dir) {
			return reason.New(reason.RootfsBadOptions, quote(dir), "is not an absolute path", "report this as a fault of nsbox")
		}
	}
	return nil
}

// ownNodes is all that is not generated from text. Landlock rules reach down:
// List on "/" lets the workload list any directory of the box and read nothing.
func (o Options) ownNodes() []nsexec.Node {
	const rl, rlw = nsexec.Read | nsexec.List, nsexec.Read | nsexec.List | nsexec.Write
	in := nsexec.Node{Path: "/in", Kind: nsexec.BindDir, Source: o.StagedIn, Access: rl}
	if o.StagedIn == "" {
		in = nsexec.Node{Path: "/in", Kind: nsexec.Dir, Mode: 0o755, Access: rl}
	}
	tmpfs := func(p string, bytes, inodes int64) nsexec.Node {
		return nsexec.Node{Path: p, Kind: nsexec.Tmpfs, Mode: 0o700, Bytes: bytes, Inodes: inodes,
			UID: o.WorkloadUID, GID: o.WorkloadGID, Access: rlw}
	}
	out := tmpfs("/out", o.OutBytes, o.OutInodes)
	if o.OutSource != "" {
		out.Kind, out.Source, out.Mode = nsexec.Storage, o.OutSource, 0
	}
	device := func(p string, a nsexec.Access) nsexec.Node {
		return nsexec.Node{Path: p, Kind: nsexec.Device, Source: p, Access: a}
	}
	link := func(p, target string) nsexec.Node {
		return nsexec.Node{Path: p, Kind: nsexec.Symlink, Source: target}
	}
	nodes := []nsexec.Node{
		{Path: "/", Kind: nsexec.Dir, Mode: 0o755, Access: nsexec.List},
		in,
		tmpfs("/scratch", o.ScratchBytes, o.ScratchInodes),
		{Path: "/proc", Kind: nsexec.Proc, Access: rl},
		{Path: "/dev", Kind: nsexec.Dir, Mode: 0o755},
		device("/dev/null", nsexec.Read|nsexec.Write),
		device("/dev/zero", nsexec.Read),
		device("/dev/urandom", nsexec.Read),
		link("/dev/fd", "/proc/self/fd"),
		link("/dev/stdin", "/proc/self/fd/0"),
		link("/dev/stdout", "/proc/self/fd/1"),
		link("/dev/stderr", "/proc/self/fd/2"),
	}
	if !o.NoOut {
		nodes = append(nodes, out)
	}
	scratch := &nodes[2]
	if o.ScratchExec {
		scratch.Exec, scratch.Access = true, scratch.Access|nsexec.Execute
	}
	access := scratch.Access
	for _, p := range []struct {
		wanted bool
		path   string
	}{{o.Tmp, "/tmp"}, {o.Shm, "/dev/shm"}} {
		if p.wanted {
			nodes = append(nodes, nsexec.Node{Path: p.path, Kind: nsexec.Part, Source: "/scratch", Mode: 0o700, Access: access})
		}
	}
	if o.Everyday {
		const rw = nsexec.Read | nsexec.Write
		nodes = append(nodes, device("/dev/full", rw), device("/dev/random", nsexec.Read), device("/dev/tty", rw|nsexec.Control),
			nsexec.Node{Path: "/dev/pts", Kind: nsexec.Devpts, Access: rlw | nsexec.Control}, link("/dev/ptmx", "pts/ptmx"))
	}
	return nodes
}
