package rootfs

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// Bind shows a directory or file of the host in the box, read-only and live:
// what changes on the host changes in the box.
type Bind struct {
	Source string `json:"source"` // host path without links
	Target string `json:"target"` // path in the box
	Root   bool   `json:"root"`   // part of the root (--rootfs-add): its bin directory is searched for programs
}

// besideUsr is what a system keeps outside of /usr and its programs need to
// start. None of it holds a secret by convention; what a host has not is left out.
func besideUsr() []string {
	return strings.Fields(`/etc/alternatives /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/ssl/certs /etc/ssl/openssl.cnf
		/etc/ca-certificates /etc/ca-certificates.conf /etc/java-11-openjdk /etc/java-17-openjdk /etc/java-21-openjdk /etc/java-25-openjdk
		/etc/python3 /etc/python3.9 /etc/python3.10 /etc/python3.11 /etc/python3.12 /etc/python3.13 /etc/perl /etc/fonts /etc/matplotlibrc
		/etc/mime.types /etc/magic /etc/magic.mime /etc/inputrc /etc/terminfo /etc/bash.bashrc /etc/vim /etc/nanorc /etc/services /etc/protocols
		/etc/gitattributes /etc/papersize /etc/ImageMagick-6 /etc/R /etc/texmf /etc/pki/tls/certs /etc/pki/ca-trust /etc/crypto-policies`)
}

// hostRoot collects the nodes of a root made of the host's directories.
type hostRoot struct {
	tree  *tree
	binds []Bind
	notes []string
}

// Host returns the root that shows the host's directories dirs, each at its own
// place, and binds beside them, with command resolved in it. A bare command is
// looked for in the bin directories of added roots, then in searchPath (nil: the
// default). With /usr come the links of a merged /usr and what programs need
// beside it. Errors are *reason.Error.
func Host(dirs []string, binds []Bind, command string, searchPath []string) (*Closure, error) {
	if searchPath == nil {
		searchPath = DefaultSearchPath()
	}
	h := &hostRoot{tree: newTree(place{}), binds: binds}
	for _, dir := range dirs {
		if err := h.directory(dir); err != nil {
			return nil, explain(dir, err)
		}
		if dir == "/usr" {
			if err := h.beside(); err != nil {
				return nil, explain(dir, err)
			}
		}
	}
	for _, b := range binds {
		if err := h.bind(b); err != nil {
			return nil, err
		}
	}
	c := &Closure{Command: command, Whole: true, Binds: binds}
	var err error
	c.Path = addedPath(binds)
	if c.Program, c.Real, err = h.find(command, append(c.Path[:len(c.Path):len(c.Path)], searchPath...)); err != nil {
		return nil, err
	}
	c.Nodes, c.Files, c.Notes = h.tree.sortedNodes(), h.tree.sortedIDs(), h.notes
	c.Digest = digestOf(encodeClosure(c))
	return c, nil
}

// addedPath is where the programs of added roots are, as seen in the box.
func addedPath(binds []Bind) []string {
	var dirs []string
	for _, b := range binds {
		if fi, err := os.Stat(b.Source + "/bin"); b.Root && err == nil && fi.IsDir() {
			dirs = append(dirs, b.Target+"/bin")
		}
	}
	return dirs
}

const visible = nsexec.Read | nsexec.List | nsexec.Execute

func (h *hostRoot) directory(dir string) error {
	at, err := h.tree.walk(dir, true)
	if err != nil {
		return err
	}
	if err := readableInside(at, nsexec.Read); err != nil {
		return err
	}
	if err := h.tree.note(at); err != nil {
		return err
	}
	return h.tree.add(nsexec.Node{Path: at, Kind: nsexec.BindDir, Source: at, Access: visible})
}

// beside adds the top-level links into /usr, or the directories where /usr is
// not merged, and besideUsr.
func (h *hostRoot) beside() error {
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if _, err := os.Lstat(name); err != nil {
			continue
		}
		if target, err := os.Readlink(name); err == nil {
			if err := h.tree.add(nsexec.Node{Path: name, Kind: nsexec.Symlink, Source: target}); err != nil {
				return err
			}
			continue
		}
		if err := h.directory(name); err != nil {
			return err
		}
	}
	for _, p := range besideUsr() {
		fi, err := os.Stat(p)
		if err != nil {
			continue
		}
		if fi.IsDir() {
			err = h.directory(p)
		} else {
			_, err = h.tree.addFile(p, nsexec.Read)
		}
		if err != nil {
			h.notes = append(h.notes, p+" is left out: "+err.Error())
		}
	}
	return nil
}

func (h *hostRoot) bind(b Bind) error {
	fi, err := os.Stat(b.Source)
	if err != nil {
		return reason.Wrap(reason.RootfsSourceUnreadable, b.Source, "cannot be looked at", "name a directory or a file that is there", err)
	}
	for dir := path.Dir(b.Target); dir != "/"; dir = path.Dir(dir) {
		if n, ok := h.tree.nodes[dir]; ok && n.Kind != nsexec.Dir {
			return reason.New(reason.RootfsBadParent, b.Target, "would lie below "+dir+", which the box shows as it is on the host", "name another place: "+b.Source+":/TARGET")
		}
		h.tree.nodes[dir] = nsexec.Node{Path: dir, Kind: nsexec.Dir, Mode: 0o755}
	}
	if old, ok := h.tree.nodes[b.Target]; ok && old.Kind != nsexec.Dir {
		return duplicate(old, nsexec.Node{Path: b.Target, Kind: nsexec.BindDir, Source: b.Source})
	}
	kind := nsexec.BindFile
	switch {
	case fi.IsDir():
		kind = nsexec.BindDir
	case !fi.Mode().IsRegular():
		return reason.New(reason.RootfsSourceUnreadable, b.Source, "is neither a directory nor a regular file", "name a directory or a file")
	}
	if err := readableInside(b.Source, nsexec.Read); err != nil {
		return err
	}
	if err := h.tree.note(b.Source); err != nil {
		return explain(b.Source, err)
	}
	h.tree.nodes[b.Target] = nsexec.Node{Path: b.Target, Kind: kind, Source: b.Source, Access: visible}
	return nil
}

// onHost is where a path of the box lies on the host.
func (h *hostRoot) onHost(p string) string {
	for _, b := range h.binds {
		if rest, ok := strings.CutPrefix(p, b.Target); ok && (rest == "" || rest[0] == '/') {
			return b.Source + rest
		}
	}
	return p
}

// shown reports whether a host path without links is in the box.
func (h *hostRoot) shown(real string) bool {
	for _, n := range h.tree.nodes {
		if n.Kind != nsexec.BindDir && n.Kind != nsexec.BindFile {
			continue
		}
		if rest, ok := strings.CutPrefix(real, n.Source); ok && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// find looks a command up as a shell in the box would, and what its first line
// names; what is not in the root is named, so that it can be added.
func (h *hostRoot) find(command string, searchPath []string) (program, real string, err error) {
	if path.IsAbs(command) || strings.Contains(command, "/") || command == "" {
		program = command
		if _, err := (place{}).lookup(h.onHost(command), nil); err != nil {
			return "", "", err
		}
	} else {
		for _, dir := range searchPath {
			if _, err := (place{}).lookup(h.onHost(path.Join(dir, command)), nil); err == nil {
				program = path.Join(dir, command)
				break
			}
		}
		if program == "" {
			_, err := (place{}).lookup(command, searchPath)
			if err == nil {
				err = reason.New(reason.ProgramNotFound, command, "is in none of "+strings.Join(searchPath, ", "), "give its absolute path")
			}
			return "", "", err
		}
	}
	if real, err = filepath.EvalSymlinks(h.onHost(program)); err != nil {
		return "", "", explain(program, err)
	}
	if !h.shown(real) {
		return "", "", notShown(program, real)
	}
	if err := readableInside(real, nsexec.Execute); err != nil {
		return "", "", err
	}
	bang, err := (place{}).readShebang(real)
	if err != nil || bang == nil {
		return program, real, err
	}
	at, err := filepath.EvalSymlinks(h.onHost(bang.interpreter))
	if err != nil {
		return "", "", reason.Wrap(reason.InterpreterMissing, program, "its interpreter "+quote(bang.interpreter)+" is not there", "install the interpreter, or correct the script's first line", err)
	}
	if !h.shown(at) {
		return "", "", notShown(bang.interpreter, at)
	}
	return program, real, nil
}

func notShown(name, real string) error {
	what := "is not in the box's root"
	if name != real {
		what = fmt.Sprintf("leads to %s, which is not in the box's root", real)
	}
	return reason.New(reason.ProgramNotFound, name, what, "show its directory too: --rootfs-add "+path.Dir(path.Dir(real)))
}
