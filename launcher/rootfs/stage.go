package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// Bounds on the shape of the inputs; the policy bounds their bytes.
const (
	maxEntries = 65536 // files and directories together
	maxDepth   = 32    // directories below one another; two descriptors are open for each
	maxName    = 255   // bytes, NAME_MAX
	copyBuffer = 256 << 10
)

// Input is one --in argument.
type Input struct {
	Path string // on the host
	Name string // below /in; empty: the file's basename, or the directory's own contents
}

// Staged is one file of the copy.
type Staged struct {
	Name   string // path below /in, slash-separated
	Bytes  int64
	SHA256 string // hex
}

// Stage copies inputs into the new directory dst, which must not exist; its
// parent must be the launcher's own. Directories get mode 0755 and files 0644
// whatever the umask. maxBytes bounds the sum of all files. On error nothing is
// left at dst and the error is a *reason.Error, or ctx's cause. The result is
// sorted by name.
func Stage(ctx context.Context, dst string, inputs []Input, maxBytes int64) ([]Staged, error) {
	return StageCounted(ctx, dst, inputs, maxBytes, new(atomic.Int64))
}

// StageCounted is Stage that keeps in copied the bytes it has copied so far.
func StageCounted(ctx context.Context, dst string, inputs []Input, maxBytes int64, copied *atomic.Int64) (_ []Staged, err error) {
	if err := unix.Mkdir(dst, 0o700); err != nil {
		return nil, stagingFailed(dst, err)
	}
	defer func() {
		if err == nil {
			return
		}
		if left := RemoveStaged(dst); left != nil {
			err = errors.Join(err, left)
		}
	}()
	fd, err := unix.Open(dst, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, stagingFailed(dst, err)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, 0o755); err != nil {
		return nil, stagingFailed(dst, err)
	}
	return stageAll(ctx, fd, inputs, maxBytes, copied)
}

// Foresee is Stage without the copy: what Stage would put below /in, read and
// hashed, and what it would refuse. Nothing is made.
func Foresee(ctx context.Context, inputs []Input, maxBytes int64) ([]Staged, error) {
	return stageAll(ctx, nowhere, inputs, maxBytes, new(atomic.Int64))
}

// nowhere is the descriptor of a target into which nothing is written.
const nowhere = -1

func stageAll(ctx context.Context, dst int, inputs []Input, maxBytes int64, copied *atomic.Int64) ([]Staged, error) {
	s := &stager{ctx: ctx, limit: maxBytes, left: maxBytes, claims: map[string]string{}, buf: make([]byte, copyBuffer), copied: copied}
	for _, in := range inputs {
		if err := s.input(dst, in); err != nil {
			return nil, err
		}
	}
	sort.Slice(s.done, func(i, j int) bool { return s.done[i].Name < s.done[j].Name })
	return s.done, nil
}

// stager is the state of one call of Stage or Foresee.
type stager struct {
	ctx         context.Context
	limit, left int64             // bytes
	entries     int               // so far
	claims      map[string]string // name below /in -> host path that has it
	buf         []byte
	copied      *atomic.Int64 // bytes, for whoever watches
	done        []Staged
}

// source is an open input or an entry of one.
type source struct {
	fd   int
	stat unix.Stat_t
	host string // for messages
}

func (s *stager) input(dst int, in Input) error {
	// The operator named this path, so a link here is followed, by the one open.
	src, err := openSource(unix.AT_FDCWD, in.Path, in.Path, 0)
	if err != nil {
		return err
	}
	defer unix.Close(src.fd)
	name := in.Name
	if src.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		if name == "" {
			return s.dir(src, dst, "", 0)
		}
		return s.subdir(src, dst, "", name, 0)
	}
	if name == "" {
		name = filepath.Base(in.Path)
	}
	return s.file(src, dst, "", name)
}

// openSource opens name, relative to dir, for reading and refuses everything but
// regular files and directories. It looks before it opens, since opening a
// device may act on it, and again afterwards, since only that is certain.
func openSource(dir int, name, host string, nofollow int) (*source, error) {
	src := &source{fd: -1, host: host}
	flags := 0
	if nofollow != 0 {
		flags = unix.AT_SYMLINK_NOFOLLOW
	}
	if err := retry(func() error { return unix.Fstatat(dir, name, &src.stat, flags) }); err != nil {
		if dir == unix.AT_FDCWD && (err == unix.ENOENT || err == unix.ENOTDIR) {
			return nil, reason.Wrap(reason.InputMissing, quote(host), "does not exist", missingNext, err)
		}
		return nil, sourceError(host, err)
	}
	if err := kindAllowed(host, src.stat.Mode); err != nil {
		return nil, err
	}
	err := retry(func() (err error) {
		src.fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|nofollow, 0)
		return err
	})
	if err != nil {
		return nil, sourceError(host, err)
	}
	if err := settled(src.fd, &src.stat); err != nil {
		unix.Close(src.fd)
		return nil, sourceError(host, err)
	}
	if err := kindAllowed(host, src.stat.Mode); err != nil {
		unix.Close(src.fd)
		return nil, err
	}
	return src, nil
}

// tick bounds how far apart the kernel's coarse file times are: 10 ms at HZ=100.
// Since Linux 6.13 they are fine where it matters, but that cannot be asked.
const tick = 11 * time.Millisecond

// settled takes the file's state at a time when any later change must show in
// its ctime: a file changed within the last tick could change again unseen. Only
// a file that is written without pause is still young after the tries; then
// the change during the copy shows anyway.
func settled(fd int, st *unix.Stat_t) error {
	for try := 0; ; try++ {
		if err := unix.Fstat(fd, st); err != nil {
			return err
		}
		age := time.Since(time.Unix(st.Ctim.Unix()))
		if age < 0 || age >= tick || try == 3 {
			return nil
		}
		time.Sleep(tick - age)
	}
}

func kindAllowed(host string, mode uint32) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR:
		return nil
	case unix.S_IFLNK:
		return reason.New(reason.InputSymlink, quote(host), "is a symbolic link; what it points to was not named with --in",
			"replace the link by a copy, or name its target with --in TARGET:NAME")
	}
	return reason.New(reason.InputSpecial, quote(host), "is neither a regular file nor a directory", "leave it out, or give a regular file")
}

// claim takes one name below /in. rel is empty at the top.
func (s *stager) claim(rel, name, host string) (string, error) {
	if why := badName(name); why != "" {
		return "", reason.New(reason.InputBadName, quote(name), "cannot be a name below /in ("+quote(host)+"): it "+why,
			"rename it, or choose a name with --in PATH:NAME")
	}
	if s.entries++; s.entries > maxEntries {
		return "", reason.New(reason.InputTooMany, quote(host), fmt.Sprintf("the inputs hold more than %d files and directories", maxEntries),
			"pack them into one file, or give fewer")
	}
	full := path.Join(rel, name)
	if other, taken := s.claims[full]; taken {
		if other == host {
			return "", reason.New(reason.InputCollision, "/in/"+full, quote(host)+" is given twice", "name it once, or give one of them another name with --in PATH:NAME")
		}
		return "", reason.New(reason.InputCollision, "/in/"+full, "both "+quote(other)+" and "+quote(host)+" would appear there",
			"give one of them another name with --in PATH:NAME")
	}
	s.claims[full] = host
	return full, nil
}

func badName(name string) string {
	switch {
	case name == "" || name == "." || name == "..":
		return "is empty, . or .."
	case len(name) > maxName:
		return fmt.Sprintf("is longer than %d bytes", maxName)
	case strings.Contains(name, "/"):
		return "contains a slash"
	case !utf8.ValidString(name):
		return "is not valid UTF-8, so the result could not report it"
	case strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }):
		return "contains control characters"
	}
	return ""
}

func (s *stager) subdir(src *source, dst int, rel, name string, depth int) error {
	full, err := s.claim(rel, name, src.host)
	if err != nil {
		return err
	}
	if dst == nowhere {
		return s.dir(src, nowhere, full, depth)
	}
	if err := unix.Mkdirat(dst, name, 0o700); err != nil {
		return stagingFailed("/in/"+full, err)
	}
	fd, err := unix.Openat(dst, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return stagingFailed("/in/"+full, err)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, 0o755); err != nil {
		return stagingFailed("/in/"+full, err)
	}
	return s.dir(src, fd, full, depth)
}

// dir copies the entries of src into the open directory dst.
func (s *stager) dir(src *source, dst int, rel string, depth int) error {
	if depth >= maxDepth {
		return reason.New(reason.InputTooMany, quote(src.host), fmt.Sprintf("lies more than %d directories deep", maxDepth), "give a deeper directory with --in")
	}
	names, err := s.list(src)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		if err := s.entry(src, dst, rel, name, depth); err != nil {
			return err
		}
	}
	return unchanged(src)
}

func (s *stager) entry(parent *source, dst int, rel, name string, depth int) error {
	src, err := openSource(parent.fd, name, filepath.Join(parent.host, name), unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(src.fd)
	if src.stat.Mode&unix.S_IFMT == unix.S_IFDIR {
		return s.subdir(src, dst, rel, name, depth+1)
	}
	return s.file(src, dst, rel, name)
}

// list reads the names of src, sorted, and stops at the bound on entries.
func (s *stager) list(src *source) ([]string, error) {
	// A descriptor of its own: os.File closes what it is given.
	fd, err := unix.FcntlInt(uintptr(src.fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, sourceError(src.host, err)
	}
	d := os.NewFile(uintptr(fd), src.host)
	defer d.Close()
	names, err := d.Readdirnames(maxEntries - s.entries + 1) // one more than fits, so claim refuses it
	if err != nil && len(names) == 0 && !isEOF(err) {
		return nil, sourceError(src.host, err)
	}
	sort.Strings(names)
	return names, nil
}
