package store

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// Store is the directory; every method takes what it needs of it.
type Store struct{ Dir string }

// Kinds of entries.
const (
	KindImage    = "image"    // a whole root, from an OCI image
	KindPrepared = "prepared" // Python packages
)

// Meta says what an entry is.
type Meta struct {
	Kind    string         `json:"kind"`
	Digest  string         `json:"digest"`           // of the tree
	Source  string         `json:"source"`           // the image's manifest digest, or the lock file's digest
	Python  string         `json:"python,omitempty"` // version that prepared packages are for
	Entries int            `json:"entries"`
	Bytes   int64          `json:"bytes"`
	Left    map[string]int `json:"left_out,omitempty"` // what was not taken over, counted
	UID     int            `json:"uid"`                // host ids that own the tree
	GID     int            `json:"gid"`
	Made    time.Time      `json:"made"`
}

// Open makes the store's directories, the caller's own and 0700.
func Open(dir string) (*Store, error) {
	s := &Store{dir}
	for _, d := range []string{"", "entries", "images", "names", "quarantine", "new", "trash"} {
		at := filepath.Join(dir, d)
		if err := os.Mkdir(at, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, s.failed(at, err)
		}
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return nil, s.failed(at, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
			return nil, reason.New(reason.StoreUnusable, at, "is not a directory of mode 0700 that belongs to the caller", "look at what it holds, then remove it or chmod 700 it")
		}
	}
	return s, nil
}

func (s *Store) failed(what string, err error) error {
	return reason.Wrap(reason.StoreUnusable, what, "the store cannot be used", "check the free space and the modes of "+s.Dir, err)
}

// Lock serialises what makes and removes entries, until the file is closed.
func (s *Store) Lock() (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, s.failed("its lock", err)
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, s.failed("its lock", err)
	}
	return f, nil
}

// NewDir makes an empty directory below new/ (or quarantine/, trash/).
func (s *Store) NewDir(kind string) (string, error) {
	var b [8]byte
	rand.Read(b[:])
	dir := filepath.Join(s.Dir, kind, time.Now().UTC().Format("20060102T150405Z-")+hex.EncodeToString(b[:]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", s.failed(dir, err)
	}
	return dir, nil
}

// Adopt gives the tree at dir/root, which nobody changes any more, its name. An
// entry of the same content that is there already is kept; dir then stays for
// the caller to discard.
func (s *Store) Adopt(dir string, m Meta) (Meta, bool, error) {
	t, err := Read(filepath.Join(dir, "root"))
	if err != nil {
		return m, false, err
	}
	m.Digest, m.Entries, m.Bytes, m.Made = t.Digest, t.Entries, t.Bytes, time.Now().UTC().Truncate(time.Second)
	at := s.entry(t.Digest)
	if _, err := s.Meta(t.Digest); err == nil {
		return m, false, nil
	}
	if err := s.write(filepath.Join(dir, "manifest"), t.Manifest, 0o400); err != nil {
		return m, false, err
	}
	if err := s.seal(filepath.Join(dir, "meta"), m); err != nil {
		return m, false, err
	}
	if err := os.Rename(dir, at); err != nil {
		return m, false, s.failed(at, err)
	}
	return m, true, s.sync("entries")
}

func (s *Store) sync(dir string) error {
	d, err := os.Open(filepath.Join(s.Dir, dir))
	if err == nil {
		err = errors.Join(d.Sync(), d.Close())
	}
	if err != nil {
		return s.failed(dir, err)
	}
	return nil
}

func (s *Store) entry(digest string) string {
	return filepath.Join(s.Dir, "entries", strings.TrimPrefix(digest, "sha256:"))
}

// Root is where an entry's tree lies.
func (s *Store) Root(digest string) string { return filepath.Join(s.entry(digest), "root") }

// Meta reads an entry's description.
func (s *Store) Meta(digest string) (Meta, error) {
	var m Meta
	if err := s.open(filepath.Join(s.entry(digest), "meta"), &m); err != nil {
		return m, err
	}
	if m.Digest != digest {
		return m, s.damaged(s.entry(digest)+"/meta", "is of another entry, "+m.Digest)
	}
	return m, nil
}

// Use keeps an entry from being removed until the file is closed.
func (s *Store) Use(digest string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.entry(digest), "meta"), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
			f.Close()
		}
	}
	if err != nil {
		return nil, reason.Wrap(reason.StoreMissing, digest, "is not in the store, or is being removed", "nsbox store list", err)
	}
	return f, nil
}

// Verify reads an entry's whole tree again.
func (s *Store) Verify(digest string) error {
	if _, err := s.Meta(digest); err != nil {
		return err
	}
	at := s.entry(digest)
	want, err := os.ReadFile(filepath.Join(at, "manifest"))
	if err != nil {
		return s.damaged(at+"/manifest", "cannot be read: "+err.Error())
	}
	if DigestOf(want) != digest {
		return s.damaged(at+"/manifest", "does not have the digest of its entry")
	}
	got, err := Read(filepath.Join(at, "root"))
	if err != nil {
		return err
	}
	if got.Digest != digest {
		return s.damaged(at+"/root", "differs from what was stored, first at "+FirstDifference(want, got.Manifest))
	}
	return nil
}

func (s *Store) damaged(what, why string) error {
	return reason.New(reason.StoreDamaged, what, why, "remove the entry with nsbox store rm and make it again; find out who changed it")
}

// ref is a sealed file of names/ or images/.
type ref struct {
	Tree string `json:"tree"`
}

// SetRef lets the name (kind "names") or image digest ("images") stand for a tree.
func (s *Store) SetRef(kind, name, digest string) error {
	return s.seal(s.refPath(kind, name), ref{digest})
}

func (s *Store) refPath(kind, name string) string {
	return filepath.Join(s.Dir, kind, strings.TrimPrefix(name, "sha256:"))
}

// Ref returns the tree that a name or image stands for; StoreMissing if none.
func (s *Store) Ref(kind, name string) (string, error) {
	var r ref
	err := s.open(s.refPath(kind, name), &r)
	return r.Tree, err
}

// seal writes v atomically below the SHA-256 of its JSON.
func (s *Store) seal(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return s.failed(path, err)
	}
	text := []byte(DigestOf(data) + "\n" + string(data) + "\n")
	return s.write(path, text, 0o600)
}

// write is atomic. What a killed writer leaves stands in new/, where gc finds it,
// and never among names or images.
func (s *Store) write(path string, data []byte, mode os.FileMode) error {
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Join(s.Dir, "new"))); err != nil {
		return s.failed(path, err)
	}
	return nil
}

const maxSealed = 64 << 10

func (s *Store) open(path string, v any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return reason.Wrap(reason.StoreMissing, path, "is not in the store", "nsbox store list shows what is", err)
	}
	if err != nil {
		return s.failed(path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSealed))
	if err != nil {
		return s.failed(path, err)
	}
	head, body, ok := bytes.Cut(data, []byte("\n"))
	body, ended := bytes.CutSuffix(body, []byte("\n"))
	if !ok || !ended || string(head) != DigestOf(body) {
		return s.damaged(path, "is not what was written there")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return s.damaged(path, fmt.Sprintf("cannot be understood: %v", err))
	}
	return nil
}

// Touch notes that an image was used, once a day at most: gc goes by it.
func (s *Store) Touch(kind, name string) {
	at := s.refPath(kind, name)
	if fi, err := os.Stat(at); err == nil && time.Since(fi.ModTime()) > 24*time.Hour {
		now := time.Now()
		_ = os.Chtimes(at, now, now) // only gc's patience depends on it
	}
}
