package launcher

import (
	"os"
	"os/exec"
	"testing"
)

// roleVariable makes the test binary play another process's part.
const roleVariable = "NSBOX_LAUNCHER_TEST_ROLE"

// roles are those parts; each returns an exit status.
func roles() map[string]func(args []string) int {
	return map[string]func([]string) int{
		"hold-lock":   holdLock,
		"full-disk":   lockOnFullDisk,
		"own-deliver": deliverOnce,
		"no-deliver":  deliverAsNobody,
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		if part, ok := roles()[name]; ok {
			os.Exit(part(os.Args[1:]))
		}
		os.Exit(99)
	}
	os.Exit(m.Run())
}

// inRole returns a command that plays a part with an otherwise empty environment.
func inRole(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Env = []string{roleVariable + "=" + name}
	return c
}
