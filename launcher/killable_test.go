package launcher

import (
	"os"
	"path/filepath"
	"testing"

	"nsbox/launcher/reason"
)

func TestKillable(t *testing.T) {
	for had, want := range map[string]string{"-1000\n": "0", "-1\n": "0", "0\n": "0\n", "300\n": "300\n"} {
		file := filepath.Join(t.TempDir(), "score")
		if err := os.WriteFile(file, []byte(had), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := killable(file); err != nil {
			t.Errorf("%q: %v", had, err)
		}
		if got, _ := os.ReadFile(file); string(got) != want {
			t.Errorf("%q became %q, want %q", had, got, want)
		}
	}
	if err := killable(filepath.Join(t.TempDir(), "none")); reason.Of(err).ID != reason.HostFactsUnreadable {
		t.Errorf("no score at all: %v", err)
	}
	if err := killable(ownOOMScore); err != nil {
		t.Errorf("the kernel's own file: %v", err)
	}
}
