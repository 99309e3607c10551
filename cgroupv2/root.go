package cgroupv2

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	probePrefix = "nsbox-probe-"
	groupPrefix = "nsbox-"

	// A probe leaf lives for well under a millisecond. One that is older was
	// left by a launcher that was killed between mkdir and rmdir.
	staleProbe = time.Minute
)

// Root is an opened directory below which groups may be created.
type Root struct {
	dir     *os.File
	path    string
	enabled []string         // shown to work below, in the order of wanted
	lacks   map[string]error // why the others are not
}

// Path returns the directory's path at the time it was opened, for messages.
func (r *Root) Path() string { return r.path }

// Close releases the directory. Groups made from it stay usable, except that
// Remove needs the Root to be open.
func (r *Root) Close() error { return r.dir.Close() }

// openRoot opens dir and proves that groups can be made in it. own is the
// directory of the caller's group, or "" if it is not known.
func openRoot(dir, own string) (*Root, error) {
	r, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	if err := r.check(own); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func openDir(dir string) (*Root, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		e := failure("open", dir, err)
		if e.Kind == Gone {
			e.Kind = NotACgroup
		}
		return nil, e
	}
	r := &Root{dir: os.NewFile(uintptr(fd), dir), path: dir}
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		r.Close()
		return nil, failure("statfs", dir, err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		r.Close()
		return nil, &Error{Kind: NotACgroup, Path: dir, Op: "open"}
	}
	return r, nil
}

func (r *Root) check(own string) error {
	typ, err := readSmall(r.dir, "cgroup.type")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// Only the top of the whole hierarchy has no type.
		if systemdManages() {
			return &Error{Kind: SystemdOwnsRoot, Path: r.path, Op: "use"}
		}
	case err != nil:
		return failure("read cgroup.type of", r.path, err)
	case strings.TrimSpace(typ) != "domain":
		return &Error{Kind: Threaded, Path: r.path, Op: "use", Err: errors.New("cgroup.type is " + strings.TrimSpace(typ))}
	}
	r.sweepProbes(time.Now().Add(-staleProbe))
	if err := r.probeLeaf(); err != nil {
		return err
	}
	if own == "" {
		// Not being able to see the own group is no proof against the
		// directory; the clone into it will tell.
		return nil
	}
	top := commonAncestor(r.path, own)
	err = unix.Faccessat(unix.AT_FDCWD, top+"/cgroup.procs", unix.W_OK, unix.AT_EACCESS)
	if err != nil && err != unix.ENOENT { // ENOENT: another mount of the hierarchy; the clone will tell
		e := failure("move processes through", top, err)
		if e.Kind == Denied {
			e.Kind = Boundary
		}
		return e
	}
	return nil
}

// probeLeaf makes a leaf, looks whether processes could enter it, removes it.
func (r *Root) probeLeaf() error {
	name := probePrefix + nonce()
	dir := r.path + "/" + name
	if err := unix.Mkdirat(r.fd(), name, 0o755); err != nil {
		return ownership("mkdir", dir, err)
	}
	accessErr := unix.Faccessat(r.fd(), name+"/cgroup.procs", unix.W_OK, unix.AT_EACCESS)
	if err := unix.Unlinkat(r.fd(), name, unix.AT_REMOVEDIR); err != nil {
		return failure("rmdir", dir, err)
	}
	if accessErr != nil {
		return ownership("write cgroup.procs of", dir, accessErr)
	}
	return nil
}

// sweepProbes removes probe leaves that were made before the given time. Being
// in use makes rmdir fail, so nothing but an empty leftover can go; failure to
// remove one is no fault of this attempt.
func (r *Root) sweepProbes(before time.Time) {
	for _, name := range subdirs(r.dir) {
		if !strings.HasPrefix(name, probePrefix) {
			continue
		}
		var st unix.Stat_t
		if unix.Fstatat(r.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue
		}
		if time.Unix(st.Ctim.Unix()).Before(before) {
			_ = unix.Unlinkat(r.fd(), name, unix.AT_REMOVEDIR)
		}
	}
}

func (r *Root) fd() int { return int(r.dir.Fd()) }

// systemdManages reports whether systemd is the manager of this system, and
// with it the only one who may write at the top of the hierarchy. An
// unreadable answer counts as yes.
func systemdManages() bool {
	if _, err := os.Stat("/run/systemd/system"); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	comm, err := os.ReadFile("/proc/1/comm")
	return err != nil || strings.TrimSpace(string(comm)) == "systemd"
}

func nonce() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: documented to crash the program instead
	return hex.EncodeToString(b)
}
