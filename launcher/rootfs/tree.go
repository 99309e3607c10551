package rootfs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// maxLinks is the kernel's own bound on links in one path walk.
const maxLinks = 40

// FileID is the identity of what a host path leads to. Equal identities are
// taken for equal contents.
type FileID struct {
	Path    string
	Link    bool // the link at Path itself, not what it leads to
	Dev     uint64
	Ino     uint64
	Size    int64 // bytes
	MTimeNS int64 // since the epoch
	CTimeNS int64 // since the epoch; unlike mtime, nobody can set it back
}

func identify(p string, link bool) (FileID, error) {
	var st unix.Stat_t
	flags := 0
	if link {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	if err := unix.Fstatat(unix.AT_FDCWD, p, &st, flags); err != nil {
		return FileID{}, &fs.PathError{Op: "stat", Path: p, Err: err}
	}
	return FileID{Path: p, Link: link, Dev: st.Dev, Ino: st.Ino, Size: st.Size,
		MTimeNS: st.Mtim.Nano(), CTimeNS: st.Ctim.Nano()}, nil
}

// tree collects the nodes of a closure and the identities they rest on.
type tree struct {
	in    place // changed only before what stands over it is looked at
	nodes map[string]nsexec.Node
	ids   map[string]FileID
}

func newTree(in place) *tree {
	return &tree{in: in, nodes: map[string]nsexec.Node{}, ids: map[string]FileID{}}
}

// note records the identity of what p leads to.
func (t *tree) note(p string) error { return t.record(p, false) }

func (t *tree) record(p string, link bool) error {
	if _, ok := t.ids[p]; ok {
		return nil
	}
	at, err := t.in.host(p), error(nil)
	if !link {
		at, err = t.in.follow(p)
	}
	if err != nil {
		return err
	}
	id, err := identify(at, link)
	if err != nil {
		return err
	}
	t.ids[p] = id
	return nil
}

// walk resolves p in the root and keeps each directory and link on the way as a
// node. The last component becomes no node and is followed only if follow is
// set. It returns the path without links.
func (t *tree) walk(p string, follow bool) (string, error) {
	return t.in.walk(p, follow, func(at, link string) error {
		if link == "" {
			return t.add(nsexec.Node{Path: at, Kind: nsexec.Dir, Mode: 0o755})
		}
		if err := t.add(nsexec.Node{Path: at, Kind: nsexec.Symlink, Source: link}); err != nil {
			return err
		}
		return t.record(at, true)
	})
}

// add keeps n unless a bound directory already shows it. The same entry twice
// unites its access; a different one under the same path is an error.
func (t *tree) add(n nsexec.Node) error {
	for dir := path.Dir(n.Path); dir != "/"; dir = path.Dir(dir) {
		if t.nodes[dir].Kind == nsexec.BindDir {
			return nil
		}
	}
	old, ok := t.nodes[n.Path]
	if !ok {
		t.nodes[n.Path] = n
		return nil
	}
	if old.Kind == nsexec.BindDir && n.Kind == nsexec.Dir {
		return nil
	}
	if old.Kind != n.Kind || old.Source != n.Source {
		return duplicate(old, n)
	}
	old.Access |= n.Access
	t.nodes[n.Path] = old
	return nil
}

func duplicate(a, b nsexec.Node) error {
	return reason.New(reason.RootfsDuplicateTarget, a.Path,
		fmt.Sprintf("is claimed twice in the box's root: as %s and as %s", claim(a), claim(b)),
		"choose a program whose files do not lie at a path that nsbox uses itself")
}

func claim(n nsexec.Node) string {
	if n.Source == "" {
		return string(n.Kind)
	}
	return string(n.Kind) + " of " + n.Source
}

// addFile binds the regular file that p leads to at p's own place: directories
// and links on the way are kept, the last link is replaced by what it points to.
func (t *tree) addFile(p string, access nsexec.Access) (string, error) {
	at, err := t.walk(p, false)
	if err != nil {
		return "", err
	}
	if t.nodes[at].Kind == nsexec.Symlink {
		if at, err = t.walk(at, true); err != nil {
			return "", err
		}
	}
	source, err := t.in.real(at)
	if err != nil {
		return "", err
	}
	source = t.in.host(source)
	if err := readableInside(source, access); err != nil {
		return "", err
	}
	if err := t.note(at); err != nil { // follows a link: one identity for both
		return "", err
	}
	return at, t.add(nsexec.Node{Path: at, Kind: nsexec.BindFile, Source: source, Access: access})
}

// readableInside refuses what the workload could not use: its ids own nothing on
// the host, so only the permission bits for others count.
func readableInside(source string, access nsexec.Access) error {
	fi, err := os.Stat(source)
	if err != nil {
		return err
	}
	need := fs.FileMode(0)
	if access&nsexec.Read != 0 {
		need |= 0o4
	}
	if access&nsexec.Execute != 0 || fi.IsDir() {
		need |= 0o1
	}
	if fi.Mode()&need == need {
		return nil
	}
	id, bits := reason.RootfsSourceUnreadable, "o+r"
	if need&0o1 != 0 {
		bits = "o+rx"
		if !fi.IsDir() {
			id = reason.ProgramNotExecutable
		}
	}
	return reason.New(id, source, fmt.Sprintf("its mode is %04o; the box's user is neither its owner nor in its group", fi.Mode().Perm()),
		"chmod "+bits+" "+source+", or use another program")
}

func (t *tree) sortedNodes() []nsexec.Node {
	out := make([]nsexec.Node, 0, len(t.nodes))
	for _, n := range t.nodes {
		out = append(out, n)
	}
	// A path sorts before everything below it, so parents come first.
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}

func (t *tree) sortedIDs() []FileID {
	out := make([]FileID, 0, len(t.ids))
	for _, id := range t.ids {
		out = append(out, id)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Path < out[j].Path })
	return out
}
