package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

const (
	manifestHead = "nsbox-tree 1\n"
	maxDepth     = 128     // directories below one another; one descriptor is open for each
	maxEntries   = 1 << 20 // of one tree
)

// Tree is what a walk found.
type Tree struct {
	Manifest []byte
	Digest   string // "sha256:" and hex
	Entries  int
	Bytes    int64 // of file content
}

// Read walks the tree at dir and hashes every file. The error is a
// *reason.Error. Files are opened without following links, relative to their
// directory, and read once; a tree that changes meanwhile has no digest.
func Read(dir string) (*Tree, error) {
	w := &walker{dir: dir, buf: make([]byte, 256<<10)}
	w.text.WriteString(manifestHead)
	if err := w.walk(w.hashed); err != nil {
		return nil, err
	}
	t := &Tree{Manifest: w.text.Bytes(), Entries: w.entries, Bytes: w.bytes}
	t.Digest = DigestOf(t.Manifest)
	return t, nil
}

// DigestOf is "sha256:" and the hex digest of data.
func DigestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Fingerprint walks the tree at dir without reading a file and hashes the
// identity of each entry: device, inode, mode, size, times. While it is the same,
// so is the digest: nobody can set a ctime back.
func Fingerprint(dir string) (string, error) {
	w, sum := &walker{dir: dir}, sha256.New()
	err := w.walk(func(_ int, _, at string, st *unix.Stat_t) error {
		line := append([]byte(at), 0)
		for _, v := range []uint64{st.Dev, st.Ino, uint64(st.Mode), uint64(st.Size), uint64(st.Mtim.Nano()), uint64(st.Ctim.Nano())} {
			line = binary.LittleEndian.AppendUint64(line, v)
		}
		sum.Write(line)
		w.newest = max(w.newest, st.Ctim.Nano())
		return nil
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x %d", sum.Sum(nil), w.newest), nil
}

// Settled reports whether the newest change that a fingerprint saw lies long
// enough before begun for any later one to have another time.
func Settled(fingerprint string, begun time.Time) bool {
	_, newest, ok := strings.Cut(fingerprint, " ")
	ns, err := strconv.ParseInt(newest, 10, 64)
	return ok && err == nil && begun.Sub(time.Unix(0, ns)) > time.Second
}

type walker struct {
	dir     string
	text    bytes.Buffer
	buf     []byte
	entries int
	bytes   int64
	newest  int64
}

// visitor is shown an entry: name in the open directory parent, at below the root.
type visitor func(parent int, name, at string, st *unix.Stat_t) error

func (w *walker) walk(visit visitor) error {
	fd, err := unix.Open(w.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return w.unreadable(".", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return w.unreadable(".", err)
	}
	if err := visit(unix.AT_FDCWD, w.dir, ".", &st); err != nil {
		return err
	}
	return w.below(fd, "", 1, visit)
}

func (w *walker) below(fd int, dir string, depth int, visit visitor) error {
	again, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return w.unreadable(dir, err)
	}
	d := os.NewFile(uintptr(again), dir)
	names, err := d.Readdirnames(-1)
	d.Close()
	if err != nil {
		return w.unreadable(dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		at := path.Join(dir, name)
		if w.entries++; w.entries > maxEntries || depth > maxDepth {
			return reason.New(reason.StoreBadTree, w.dir, fmt.Sprintf("holds more than %d entries or %d levels", maxEntries, maxDepth), "use a smaller root")
		}
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return w.unreadable(at, err)
		}
		if err := visit(fd, name, at, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return w.unreadable(at, err)
		}
		err = w.below(sub, at, depth+1, visit)
		unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

// hashed writes the entry's line.
func (w *walker) hashed(parent int, name, at string, st *unix.Stat_t) error {
	quoted := strconv.QuoteToASCII(at)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fmt.Fprintf(&w.text, "d %04o %s\n", st.Mode&0o7777, quoted)
	case unix.S_IFLNK:
		target := make([]byte, 4097)
		n, err := unix.Readlinkat(parent, name, target)
		if err != nil {
			return w.unreadable(at, err)
		}
		fmt.Fprintf(&w.text, "l %s %s\n", strconv.QuoteToASCII(string(target[:n])), quoted)
	case unix.S_IFREG:
		sum, err := w.file(parent, name, st)
		if err != nil {
			return w.unreadable(at, err)
		}
		w.bytes += st.Size
		fmt.Fprintf(&w.text, "f %04o %d %s %s\n", st.Mode&0o7777, st.Size, sum, quoted)
	case unix.S_IFCHR, unix.S_IFBLK:
		fmt.Fprintf(&w.text, "s %06o %d %s\n", st.Mode, st.Rdev, quoted)
	default:
		return reason.New(reason.StoreBadTree, path.Join(w.dir, at), "is a pipe or socket, behind which may be a process of the host", "remove it from the root")
	}
	return nil
}

func (w *walker) file(parent int, name string, want *unix.Stat_t) (string, error) {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, w.buf)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Ino != want.Ino || st.Dev != want.Dev || st.Ctim != want.Ctim || n != want.Size {
		return "", fmt.Errorf("it changed while it was read")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (w *walker) unreadable(at string, err error) error {
	return reason.Wrap(reason.StoreBadTree, path.Join(w.dir, at), "cannot be read for its digest", "make it readable, or use another root", err)
}

// FirstDifference names the first entry in which two manifests differ.
func FirstDifference(want, got []byte) string {
	a, b := bytes.SplitAfter(want, []byte("\n")), bytes.SplitAfter(got, []byte("\n"))
	for i := range max(len(a), len(b)) {
		var x, y []byte
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if !bytes.Equal(x, y) {
			if len(x) == 0 || len(y) > 0 && nameOf(y) < nameOf(x) {
				return nameOf(y) + " (not recorded)"
			}
			if nameOf(x) == nameOf(y) {
				return nameOf(x)
			}
			return nameOf(x) + " (missing)"
		}
	}
	return "nothing"
}

// nameOf is the quoted name at a line's end.
func nameOf(line []byte) string {
	line = bytes.TrimSuffix(line, []byte("\n"))
	for i := len(line) - 2; i >= 0; i-- {
		if line[i] == '"' && (i == 0 || line[i-1] == ' ') {
			return string(line[i:])
		}
	}
	return "the manifest itself"
}
