package launcher

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// marker is the file open/<attempt>: everything recovery needs to find what an
// attempt made, apart from its journal. The directory open/ holds the attempts
// that are not closed and nothing else, so that a start looks at those and never
// at the closed ones, however many there are. The launcher holds a lock on its
// marker as long as it lives; the marker is renamed into place when it is whole
// and locked.
type marker struct {
	Attempt string      `json:"attempt"`
	Boot    string      `json:"boot"`
	Nonce   string      `json:"nonce"` // 128 bits, also in the attempt's directory
	Dir     fileID      `json:"dir"`
	Cgroup  string      `json:"cgroup,omitempty"` // directory below which the job cgroup may be made
	IDs     *probe.Slot `json:"ids,omitempty"`    // exclusive host ids; nil: no such proof
	Out     *outRef     `json:"out,omitempty"`    // provisioned slot of /out; nil: held
	Deliver string      `json:"deliver,omitempty"`
	Exe     fileID      `json:"exe,omitzero"` // the launcher's program
}

// fileID tells a directory from another one that got its name or its inode
// number. Born is the birth time in ns, 0 where the file system has none.
type fileID struct {
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	Born int64  `json:"born"`
}

func (f fileID) String() string { return fmt.Sprintf("%d:%d:%d", f.Dev, f.Ino, f.Born) }

// identify looks at the open directory, never through a link.
func identify(dirfd int) (fileID, error) {
	var st unix.Statx_t
	if err := unix.Statx(dirfd, "", unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		return fileID{}, err
	}
	id := fileID{Dev: unix.Mkdev(st.Dev_major, st.Dev_minor), Ino: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id, nil
}

// ownProgram is the file that this process executes, zero if that is not shown.
func ownProgram() fileID {
	var st unix.Stat_t
	if unix.Stat("/proc/self/exe", &st) != nil {
		return fileID{}
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}
}

// mark is an open and locked marker.
type mark struct {
	marker
	file *os.File
	path string
}

const (
	nonceName  = "nonce"
	markerName = "marker" // in the attempt's directory: not yet, or no longer, in open/
)

func (s *state) open() string { return s.dir + "/open" }

// mark makes the attempt findable. It comes after the attempt's directory and
// empty journal, and before the first record: what dies before it has made
// nothing else. Nonce, Dir and Attempt are filled in here.
func (s *state) mark(a *attempt, m marker) (*mark, error) {
	if err := privateDir(s.open()); err != nil {
		return nil, err
	}
	m.Attempt, m.Nonce, m.Exe = a.id, newNonce(), ownProgram()
	k, err := s.writeMark(a.dir, m)
	if err != nil {
		_ = a.journal.Close()
		_ = removeIn(s.dir+"/attempts", a.id) // nothing was begun
		return nil, reason.Wrap(reason.StateDir, s.open()+"/"+a.id, "cannot be written, and nothing is started that could not be found again", "free space in the state directory", err)
	}
	return k, nil
}

func newNonce() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails: documented to crash the program instead
	return hex.EncodeToString(b)
}

func (s *state) writeMark(dir string, m marker) (*mark, error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if m.Dir, err = identify(int(d.Fd())); err != nil {
		return nil, err
	}
	if m.readNonce(dir) != nil {
		if err := os.WriteFile(dir+"/"+nonceName, []byte(m.Nonce+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	temp := dir + "/" + markerName
	f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	k := &mark{m, f, s.open() + "/" + m.Attempt}
	locked, err := tryLock(f)
	if err == nil && !locked {
		err = unix.EWOULDBLOCK
	}
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err == nil {
		err = os.Rename(temp, k.path)
	}
	if err != nil {
		f.Close()
		os.Remove(temp)
		return nil, err
	}
	return k, nil
}

// end takes the attempt out of open/: clean, its marker goes; otherwise the
// marker is put beside the journal, since reconcile needs what it says.
func (k *mark) end(dir string, clean bool) error {
	if k == nil || clean {
		return k.close()
	}
	defer k.file.Close()
	if err := os.Rename(k.path, dir+"/"+markerName); err != nil {
		return reason.Wrap(reason.StateDir, k.path, "cannot be moved to "+dir, "nsbox reconcile closes the attempt", err)
	}
	return nil
}

// close removes the marker: nothing of the attempt is left but its record.
func (k *mark) close() error {
	if k == nil {
		return nil
	}
	defer k.file.Close()
	if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reason.Wrap(reason.StateDir, k.path, "cannot be removed, so the attempt looks unfinished", "nsbox reconcile closes it", err)
	}
	return nil
}

// keep leaves the attempt open for the next command: its stop is not proven, or
// its journal does not say how it ended.
func (k *mark) keep() {
	if k != nil {
		k.file.Close()
	}
}

// openMarks lists the attempts that are not closed.
func (s *state) openMarks() ([]string, error) {
	names, err := readNames(s.open())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, stateError(s.open(), err)
	}
	var ids []string
	for _, n := range names {
		if validID(n) {
			ids = append(ids, n)
		}
	}
	return ids, nil
}

// validID is what a name must be before it becomes part of a path.
func validID(id string) bool {
	_, err := ulid.ParseStrict(id)
	return err == nil && strings.ToUpper(id) == id
}

// errAlive: the launcher of the attempt lives.
var errAlive = errors.New("its launcher is alive")

// seize opens and locks the marker of a dead launcher; errAlive if it lives, and
// fs.ErrNotExist if the attempt was closed meanwhile. A marker that cannot be
// read as one still gives the lock and the attempt's name.
func (s *state) seize(id string) (*mark, error) {
	path := s.open() + "/" + id
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	locked, err := tryLock(f)
	if err == nil && !locked {
		err = errAlive
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(int(f.Fd()), &st)
	}
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = fmt.Errorf("%s is not a regular file", path)
	case st.Nlink == 0:
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	k := &mark{file: f, path: path}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0)
	if json.Unmarshal(b[:n], &k.marker) != nil || k.Attempt != id {
		k.marker = marker{}
	}
	k.Attempt = id
	return k, nil
}

// same checks that the directory under the attempt's name is the one that was
// made for it. A marker that says nothing (a file system lost it) proves nothing.
func (m *marker) same(dir string) error {
	foreign := func(why string) error {
		return reason.New(reason.AttemptForeign, dir, why, "find out who changed it; nsbox leaves it alone")
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	if m.Nonce == "" {
		return foreign("its marker in open/ cannot be read, so nothing shows whose it is")
	}
	id, err := identify(int(d.Fd()))
	if err != nil {
		return err
	}
	if id != m.Dir {
		return foreign(fmt.Sprintf("is %s (device:inode:birth) and the attempt's was %s", id, m.Dir))
	}
	if m.readNonce(dir) != nil {
		return foreign("does not hold the attempt's nonce")
	}
	return nil
}

// readNonce returns an error unless the directory holds the marker's nonce.
func (m *marker) readNonce(dir string) error {
	b, err := readRegular(dir+"/"+nonceName, 64)
	if err == nil && strings.TrimSpace(string(b)) != m.Nonce {
		err = errors.New("another nonce")
	}
	return err
}
