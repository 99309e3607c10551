package rootfs

import (
	"errors"
	"io/fs"
	"os"
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
