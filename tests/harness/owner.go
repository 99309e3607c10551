package harness

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

// WantForeign fails unless everything at and below dir belongs to one id that is
// neither the caller's nor root's, and nobody but that id can change it.
func WantForeign(t testing.TB, dir string, c Caller) {
	t.Helper()
	owner := -1
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		uid := int(fi.Sys().(*syscall.Stat_t).Uid)
		if owner < 0 {
			owner = uid
		}
		if uid == 0 || uid == c.UID || uid != owner {
			t.Errorf("%s belongs to uid %d", p, uid)
		}
		if fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s has mode %v", p, fi.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
