package rootfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// place is where a root lies on the host; the zero value is the host's own root.
// Its methods take absolute paths of that root, and a link in it leads to where
// it would lead if the place were "/".
type place struct {
	dir string // host directory of the root; "" for "/"
	// over is a host directory that stands at the inside path at, there or not.
	at, over string
}

// own reports that paths inside are the host's, so that the kernel can follow them.
func (r place) own() bool { return r.dir == "" && r.over == "" }

// maxSmall bounds what is read whole of a file in a root.
const maxSmall = 1 << 20

// walk resolves p component by component and shows each directory and link on
// the way to visit, which may be nil. The last component is not shown, and
// followed only if follow is set. It returns the path inside without links.
func (r place) walk(p string, follow bool, visit func(at, link string) error) (string, error) {
	if !path.IsAbs(p) {
		return "", &fs.PathError{Op: "walk", Path: p, Err: errors.New("not an absolute path")}
	}
	if visit == nil {
		visit = func(string, string) error { return nil }
	}
	cur, links := "/", 0
	todo := strings.Split(p, "/")
	for len(todo) > 0 {
		c := todo[0]
		todo = todo[1:]
		switch c {
		case "", ".":
			continue
		case "..":
			cur = path.Dir(cur)
			continue
		}
		next, last := path.Join(cur, c), onlyDots(todo)
		if last && !follow {
			return next, nil
		}
		fi, err := os.Lstat(r.host(next))
		if errors.Is(err, fs.ErrNotExist) && r.over != "" && within(r.at, next) {
			// On the way to what stands over the root, a missing directory is made.
			if err := visit(next, ""); err != nil {
				return "", err
			}
			cur = next
			continue
		}
		if err != nil {
			return "", err
		}
		switch {
		case fi.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", &fs.PathError{Op: "walk", Path: p, Err: unix.ELOOP}
			}
			target, err := os.Readlink(r.host(next))
			if err != nil {
				return "", err
			}
			if err := visit(next, target); err != nil {
				return "", err
			}
			if path.IsAbs(target) {
				cur = "/"
			}
			todo = append(strings.Split(target, "/"), todo...)
		case last:
			return next, nil
		case !fi.IsDir():
			return "", &fs.PathError{Op: "walk", Path: next, Err: unix.ENOTDIR}
		default:
			if err := visit(next, ""); err != nil {
				return "", err
			}
			cur = next
		}
	}
	return cur, nil
}

// host is the host path of an inside path that holds no link.
func (r place) host(p string) string {
	if r.over != "" && within(p, r.at) {
		return r.over + p[len(r.at):]
	}
	return r.dir + p
}

// within reports whether the clean path p is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// real follows every link of p.
func (r place) real(p string) (string, error) {
	if r.own() {
		return filepath.EvalSymlinks(p)
	}
	return r.walk(p, true, nil)
}

// follow returns the host path of what p leads to. On the host itself the
// kernel does the following.
func (r place) follow(p string) (string, error) {
	if r.own() {
		return p, nil
	}
	at, err := r.walk(p, true, nil)
	return r.host(at), err
}

func (r place) stat(p string) (fs.FileInfo, error) {
	at, err := r.follow(p)
	if err != nil {
		return nil, err
	}
	return os.Stat(at)
}

func (r place) open(p string) (*os.File, error) {
	at, err := r.follow(p)
	if err != nil {
		return nil, err
	}
	return os.Open(at)
}

func (r place) readDir(p string) ([]os.DirEntry, error) {
	at, err := r.follow(p)
	if err != nil {
		return nil, err
	}
	return os.ReadDir(at)
}

// readSmall reads a file of at most maxSmall bytes.
func (r place) readSmall(p string) ([]byte, error) {
	f, err := r.open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(b) > maxSmall {
		err = &fs.PathError{Op: "read", Path: p, Err: unix.EFBIG}
	}
	return b, err
}

// exists reports that p leads to a regular file.
func (r place) exists(p string) bool {
	fi, err := r.stat(p)
	return err == nil && fi.Mode().IsRegular()
}

func (r place) isDir(p string) bool {
	fi, err := r.stat(p)
	return err == nil && fi.IsDir()
}

// onlyDots reports that no component of rest changes the result of a walk.
func onlyDots(rest []string) bool {
	for _, c := range rest {
		if c != "" && c != "." {
			return false
		}
	}
	return true
}
