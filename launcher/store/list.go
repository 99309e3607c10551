package store

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// Below lists the names in one of the store's directories.
func (s *Store) Below(kind string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.Dir, kind))
	if err != nil {
		return nil, s.failed(kind, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}

// Entries lists the digests of all trees.
func (s *Store) Entries() ([]string, error) {
	names, err := s.Below("entries")
	for i := range names {
		names[i] = "sha256:" + names[i]
	}
	return names, err
}

// Ref is a name or image digest that stands for a tree.
type Ref struct {
	Kind, Name string // "names" or "images", the file's name
	Tree       string
	Used       time.Time
	Err        error // it cannot be read
}

// Refs lists all of them.
func (s *Store) Refs() ([]Ref, error) {
	var all []Ref
	for _, kind := range []string{"names", "images"} {
		names, err := s.Below(kind)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			r := Ref{Kind: kind, Name: name}
			r.Tree, r.Err = s.Ref(kind, name)
			if fi, err := os.Stat(s.refPath(kind, name)); err == nil {
				r.Used = fi.ModTime()
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// DropRef forgets a name or image.
func (s *Store) DropRef(kind, name string) error {
	if err := os.Remove(s.refPath(kind, name)); err != nil {
		return s.failed(s.refPath(kind, name), err)
	}
	return nil
}

// Release takes an entry that no run uses out of the store and returns where in
// trash/ it is. The error is StoreBusy if one does.
func (s *Store) Release(digest string) (string, error) {
	at := s.entry(digest)
	f, err := os.OpenFile(filepath.Join(at, "meta"), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err == nil {
		defer f.Close() // the lock ends with it, when nobody can find the entry any more
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == unix.EWOULDBLOCK {
			return "", reason.New(reason.StoreBusy, digest, "is in use by a run", "wait for its end: nsbox attempts")
		}
	}
	if os.IsNotExist(err) && !exists(at) {
		return "", reason.Wrap(reason.StoreMissing, digest, "is not in the store", "nsbox store list", err)
	}
	return s.ToTrash(at) // an entry without its meta file goes too
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ToTrash moves a directory of the store into trash/, as DIR/it.
func (s *Store) ToTrash(at string) (string, error) {
	dir, err := s.NewDir("trash")
	if err != nil {
		return "", err
	}
	if err := os.Rename(at, dir+"/it"); err != nil {
		return "", s.failed(at, err)
	}
	return dir, nil
}
