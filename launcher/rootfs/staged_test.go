package rootfs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"nsbox/launcher/reason"
)

func TestRemoveStagedFollowsNothing(t *testing.T) {
	victim, dir := realDir(t), realDir(t)
	kept := put(t, victim, "kept", 0o644, []byte("x"))
	dst := dir + "/in"
	put(t, dst, "a/b/c", 0o400, nil)
	must(t, os.Symlink(victim, dst+"/a/link"))
	must(t, os.Symlink(kept, dst+"/file-link"))
	must(t, syscall.Mkfifo(dst+"/p", 0o600))
	sibling := put(t, dir, "in2", 0o644, nil)
	must(t, RemoveStaged(dst))
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	for _, p := range []string{kept, sibling} {
		if !(place{}).exists(p) {
			t.Errorf("%s was removed", p)
		}
	}
	must(t, RemoveStaged(dst)) // again: gone is no error
	must(t, RemoveStaged(dir+"/absent/in"))
	must(t, os.Symlink(victim, dst))
	wantReason(t, RemoveStaged(dst), reason.InputStagingFailed, "")
	if !(place{}).exists(kept) {
		t.Error("a link in the place of the copy was followed")
	}
}

// TestStagingCounts: whoever watches a copy sees its bytes.
func TestStagingCounts(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a", make([]byte, 300<<10), 0o644))
	var copied atomic.Int64
	if _, err := StageCounted(context.Background(), dir+"/in", []Input{{Path: dir + "/a"}}, 1<<20, &copied); err != nil || copied.Load() != 300<<10 {
		t.Errorf("%v: %d bytes", err, copied.Load())
	}
}
