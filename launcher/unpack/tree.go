package unpack

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/unpack/request"
)

const (
	maxPath   = 1024 // bytes of a name with its directories
	whiteout  = ".wh."
	opaque    = ".wh..wh..opq"
	inTree    = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	dirFlags  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	dirMode   = 0o755
	bufferLen = 256 << 10
)

// tree is a root in the making.
type tree struct {
	fd     int
	bounds request.Bounds
	rep    *request.Report
	buf    []byte
	left   int64
	count  int
	upper  map[string]bool // made by the layer that is being applied
}

func newTree(store string, b request.Bounds, rep *request.Report) (*tree, error) {
	at := path.Join(store, request.TreeName)
	if err := unix.Mkdir(at, dirMode); err != nil {
		return nil, &os.PathError{Op: "mkdir", Path: at, Err: err}
	}
	fd, err := unix.Open(at, dirFlags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: at, Err: err}
	}
	return &tree{fd: fd, bounds: b, rep: rep, buf: make([]byte, bufferLen), left: b.Bytes}, nil
}

func (t *tree) close() { unix.Close(t.fd) }

// finish makes the tree's content durable as far as the disk is asked to.
func (t *tree) finish() error {
	t.rep.Counts["entries"], t.rep.Bytes = t.count, t.bounds.Bytes-t.left
	return unix.Syncfs(t.fd)
}

// apply unpacks one layer's archive over what is there.
func (t *tree) apply(r io.Reader) error {
	t.upper = map[string]bool{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return archiveFault(err)
		}
		if t.count++; t.count > t.bounds.Entries {
			return refuse("too_many_entries", "the image")
		}
		name, err := t.name(h.Name)
		if err != nil {
			return err
		}
		if err := t.entry(name, h, tr); err != nil {
			return err
		}
	}
}

// name is the entry's path below the root, without a leading slash; "." is the
// root itself.
func (t *tree) name(given string) (string, error) {
	if len(given) > maxPath || strings.IndexByte(given, 0) >= 0 {
		return "", refuse("bad_name", given)
	}
	parts := strings.FieldsFunc(given, func(r rune) bool { return r == '/' })
	kept := parts[:0]
	for _, p := range parts {
		switch {
		case p == "..":
			return "", refuse("name_leads_up", given)
		case len(p) > 255:
			return "", refuse("bad_name", given)
		case p != ".":
			kept = append(kept, p)
		}
	}
	if len(kept) > t.bounds.Depth {
		return "", refuse("too_deep", given)
	}
	if strings.HasPrefix(given, "/") {
		t.rep.Counts["absolute_names"]++
	}
	if len(kept) == 0 {
		return ".", nil
	}
	return strings.Join(kept, "/"), nil
}

func (t *tree) entry(name string, h *tar.Header, content io.Reader) error {
	if name == "." {
		return nil // the root is there
	}
	dir, base := path.Split(name)
	dir = strings.TrimSuffix(dir, "/")
	parent, err := t.parent(dir)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	if h.Mode&0o7000 != 0 && h.Typeflag != tar.TypeDir {
		t.rep.Counts["set_id_bits"]++
	}
	for k := range h.PAXRecords {
		if strings.HasPrefix(k, "SCHILY.xattr.") || strings.HasPrefix(k, "LIBARCHIVE.xattr.") {
			t.rep.Counts["xattrs"]++
		}
	}
	switch {
	case base == opaque:
		return t.hide(parent, dir)
	case strings.HasPrefix(base, whiteout):
		hidden := strings.TrimPrefix(base, whiteout)
		if hidden == "" || hidden == "." || hidden == ".." {
			return refuse("bad_name", h.Name)
		}
		return t.removeLower(parent, path.Join(dir, hidden), hidden)
	}
	if t.upper[name] {
		t.rep.Counts["repeated_names"]++
	}
	t.upper[name] = true
	switch h.Typeflag {
	case tar.TypeDir:
		return t.directory(parent, base)
	case tar.TypeReg, tar.TypeGNUSparse:
		return t.file(parent, base, h, content)
	case tar.TypeSymlink:
		return t.symlink(parent, base, h)
	case tar.TypeLink:
		return t.link(parent, base, h)
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		t.rep.Counts["special_files"]++
		return nil
	case tar.TypeXGlobalHeader:
		return nil
	}
	return refuse("entry_type", h.Name)
}

// parent opens the directory of an entry, made if it is missing. Links on the
// way are followed within the tree; what they lead out to is inside again.
func (t *tree) parent(dir string) (int, error) {
	if dir == "" {
		return openIn(t.fd, ".")
	}
	if fd, err := openIn(t.fd, dir); err == nil {
		return fd, nil
	} else if err != unix.ENOENT && err != unix.ENOTDIR {
		return -1, refuse("bad_parent", dir+": "+err.Error())
	}
	upper, base := path.Split(dir)
	up, err := t.parent(strings.TrimSuffix(upper, "/"))
	if err != nil {
		return -1, err
	}
	defer unix.Close(up)
	if err := t.directory(up, base); err != nil {
		return -1, err
	}
	fd, err := openIn(t.fd, dir)
	if err != nil {
		return -1, refuse("bad_parent", dir+": "+err.Error())
	}
	return fd, nil
}

func openIn(fd int, name string) (int, error) {
	return unix.Openat2(fd, name, &unix.OpenHow{Flags: dirFlags, Resolve: inTree})
}

// directory keeps one that is there; anything else gives way, but for a link to
// a directory, which a later layer's entries are meant to pass through.
func (t *tree) directory(parent int, base string) error {
	err := unix.Mkdirat(parent, base, dirMode)
	if err != unix.EEXIST {
		return pathError("mkdirat", base, err)
	}
	var st unix.Stat_t
	if err := unix.Fstatat(parent, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return pathError("fstatat", base, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return nil
	}
	if err := unix.Unlinkat(parent, base, 0); err != nil {
		return pathError("unlinkat", base, err)
	}
	return pathError("mkdirat", base, unix.Mkdirat(parent, base, dirMode))
}

// clear removes what stands where an entry is to be made.
func (t *tree) clear(parent int, base string) error {
	err := unix.Unlinkat(parent, base, 0)
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM:
		return removeAll(parent, base)
	}
	return pathError("unlinkat", base, err)
}

func (t *tree) file(parent int, base string, h *tar.Header, content io.Reader) error {
	if h.Size < 0 || h.Size > t.left {
		return refuse("too_many_bytes", h.Name)
	}
	if err := t.clear(parent, base); err != nil {
		return err
	}
	fd, err := unix.Openat(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return pathError("openat", base, err)
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{f}, content, t.buf)
	if t.left -= n; err != nil {
		return archiveFault(err)
	}
	mode := uint32(0o444)
	if h.Mode&0o111 != 0 {
		mode = 0o555
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return pathError("fchmod", base, err)
	}
	at := []unix.Timeval{unix.NsecToTimeval(time.Now().UnixNano()), unix.NsecToTimeval(seconds(h.ModTime) * 1e9)}
	return pathError("futimes", base, unix.Futimesat(parent, base, at))
}

// seconds keeps a time within what file systems hold.
func seconds(t time.Time) int64 { return min(max(t.Unix(), 0), 1<<32-1) }

func (t *tree) symlink(parent int, base string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) >= 4096 || strings.IndexByte(h.Linkname, 0) >= 0 {
		return refuse("bad_link", h.Name)
	}
	if err := t.clear(parent, base); err != nil {
		return err
	}
	return pathError("symlinkat", base, unix.Symlinkat(h.Linkname, parent, base))
}

// link makes a hard link to a regular file of the tree, and to nothing else: a
// link to a link would be followed by some kernels and not by others.
func (t *tree) link(parent int, base string, h *tar.Header) error {
	target, err := t.name(h.Linkname)
	if err != nil {
		return err
	}
	dir, file := path.Split(target)
	if dir == "" {
		dir = "."
	}
	from, err := openIn(t.fd, dir)
	if err != nil {
		return refuse("bad_link", h.Name+": "+err.Error())
	}
	defer unix.Close(from)
	var st, own unix.Stat_t
	if err := unix.Fstatat(from, file, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return refuse("bad_link", h.Name+" to "+h.Linkname)
	}
	if unix.Fstatat(parent, base, &own, unix.AT_SYMLINK_NOFOLLOW) == nil && own.Ino == st.Ino && own.Dev == st.Dev {
		return nil
	}
	if err := t.clear(parent, base); err != nil {
		return err
	}
	return pathError("linkat", base, unix.Linkat(from, file, parent, base, 0))
}

// hide removes what lower layers left in the directory dir, open as fd.
func (t *tree) hide(fd int, dir string) error {
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.removeLower(fd, path.Join(dir, name), name); err != nil {
			return err
		}
	}
	return nil
}

// removeLower removes base, which is name in the tree, as far as it is not of
// the present layer: a layer's whiteouts do not hide its own entries.
func (t *tree) removeLower(parent int, name, base string) error {
	if !t.upper[name] {
		if !t.upperBelow(name) {
			return removeAll(parent, base)
		}
	}
	fd, err := unix.Openat(parent, base, dirFlags|unix.O_NOFOLLOW, 0)
	if err == unix.ENOTDIR || err == unix.ELOOP || err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return pathError("openat", base, err)
	}
	defer unix.Close(fd)
	return t.hide(fd, name)
}

func (t *tree) upperBelow(name string) bool {
	for k := range t.upper {
		if strings.HasPrefix(k, name+"/") {
			return true
		}
	}
	return false
}

func namesIn(fd int) ([]string, error) {
	again, err := unix.Openat(fd, ".", dirFlags, 0)
	if err != nil {
		return nil, pathError("openat", ".", err)
	}
	d := os.NewFile(uintptr(again), ".")
	defer d.Close()
	return d.Readdirnames(-1)
}

// removeAll removes base below parent without following anything.
func removeAll(parent int, base string) error {
	switch err := unix.Unlinkat(parent, base, 0); err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR, unix.EPERM:
	default:
		return pathError("unlinkat", base, err)
	}
	fd, err := unix.Openat(parent, base, dirFlags|unix.O_NOFOLLOW, 0)
	if err != nil {
		return pathError("openat", base, err)
	}
	names, err := namesIn(fd)
	for _, name := range names {
		if err == nil {
			err = removeAll(fd, name)
		}
	}
	unix.Close(fd)
	if err != nil {
		return err
	}
	return pathError("unlinkat", base, unix.Unlinkat(parent, base, unix.AT_REMOVEDIR))
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: op, Path: name, Err: err}
}
