package rootfs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// TestForeseeIsStage holds both to one answer: the same names, sizes and digests,
// or a refusal with the same id.
func TestForeseeIsStage(t *testing.T) {
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	for _, d := range []string{"tree/sub", "linked", "pipes"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a", "tree/a", "tree/sub/b"} {
		if err := os.WriteFile(at(f), []byte("12345"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", at("linked/l")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at("pipes/p"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		in   []Input
		max  int64
		want reason.ID
	}{
		"a file":         {[]Input{{at("a"), ""}}, 5, ""},
		"a tree":         {[]Input{{at("tree"), ""}}, 10, ""},
		"a named tree":   {[]Input{{at("tree"), "t"}, {at("a"), ""}}, 15, ""},
		"missing":        {[]Input{{at("none"), ""}}, 15, reason.InputMissing},
		"below a file":   {[]Input{{at("a/x"), ""}}, 15, reason.InputMissing},
		"twice":          {[]Input{{at("a"), ""}, {at("a"), ""}}, 15, reason.InputCollision},
		"with a tree":    {[]Input{{at("a"), ""}, {at("tree"), ""}}, 15, reason.InputCollision},
		"sum too large":  {[]Input{{at("tree"), ""}}, 9, reason.InputTooLarge},
		"a link inside":  {[]Input{{at("linked"), ""}}, 15, reason.InputSymlink},
		"a pipe inside":  {[]Input{{at("pipes"), ""}}, 15, reason.InputSpecial},
		"a bad name":     {[]Input{{at("a"), ".."}}, 15, reason.InputBadName},
		"a device named": {[]Input{{"/dev/null", "x"}}, 15, reason.InputSpecial},
	} {
		dst := filepath.Join(t.TempDir(), "in")
		staged, stageErr := Stage(context.Background(), dst, tc.in, tc.max)
		foreseen, err := Foresee(context.Background(), tc.in, tc.max)
		for who, err := range map[string]error{"Stage": stageErr, "Foresee": err} {
			var got reason.ID
			if err != nil {
				got = reason.Of(err).ID
			}
			if got != tc.want {
				t.Errorf("%s, %s: %q (%v), want %q", name, who, got, err, tc.want)
			}
		}
		if !slices.Equal(staged, foreseen) || (tc.want == "") != (len(staged) > 0) {
			t.Errorf("%s: staged %v, foreseen %v", name, staged, foreseen)
		}
	}
}
