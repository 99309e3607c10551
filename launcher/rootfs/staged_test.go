package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"nsbox/launcher/reason"
)

func TestVerifyStagedNotices(t *testing.T) {
	for name, alter := range map[string]func(dst string) error{
		"content": func(d string) error { return os.WriteFile(d+"/s/a", []byte("2"), 0o644) },
		"longer":  func(d string) error { return os.WriteFile(d+"/s/a", []byte("11"), 0o644) },
		"added":   func(d string) error { return os.WriteFile(d+"/b", nil, 0o644) },
		"removed": func(d string) error { return os.Remove(d + "/s/a") },
		"link": func(d string) error {
			return errors.Join(os.Rename(d+"/s/a", d+"/../a"), os.Symlink("../../a", d+"/s/a"))
		},
		"gone": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			host, dst := realDir(t), filepath.Join(realDir(t), "in")
			put(t, host, "s/a", 0o644, []byte("1"))
			staged, err := Stage(t.Context(), dst, []Input{{host, ""}}, 9)
			must(t, err)
			must(t, VerifyStaged(t.Context(), dst, staged))
			must(t, alter(dst))
			wantReason(t, VerifyStaged(t.Context(), dst, staged), reason.InputStagedAltered, "")
		})
	}
}

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
		if !exists(p) {
			t.Errorf("%s was removed", p)
		}
	}
	must(t, RemoveStaged(dst)) // again: gone is no error
	must(t, RemoveStaged(dir+"/absent/in"))
	must(t, os.Symlink(victim, dst))
	wantReason(t, RemoveStaged(dst), reason.InputStagingFailed, "")
	if !exists(kept) {
		t.Error("a link in the place of the copy was followed")
	}
}
