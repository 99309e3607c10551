package harness

import (
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"testing"
)

// plainUser is made by tests/setup.sh.
const plainUser = "nsbox-test"

// Caller is an identity that starts nsbox.
type Caller struct {
	Name     string
	UID, GID int
}

// Callers lists the identities every behaviour has to be shown for. It never
// skips: a missing test user is a failure with the command that makes it.
func Callers(t T) []Caller {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		return []Caller{{Name: "self", UID: uid, GID: os.Getegid()}}
	}
	u, err := user.Lookup(plainUser)
	if err != nil {
		t.Fatalf("%v: run sh tests/setup.sh test first", err)
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if uidErr != nil || gidErr != nil || uid == 0 {
		t.Fatalf("the user %s has ids %s:%s", plainUser, u.Uid, u.Gid)
	}
	return []Caller{{Name: "root"}, {Name: "user", UID: uid, GID: gid}}
}

// ForEach runs a test as every caller, each with a site of its own.
func ForEach(t *testing.T, test func(t *testing.T, s *Site)) {
	t.Helper()
	for _, c := range Callers(t) {
		t.Run(c.Name, func(t *testing.T) { test(t, NewSite(t, c)) })
	}
}

// Become makes cmd run as the caller, without supplementary groups.
func (c Caller) Become(cmd *exec.Cmd) {
	if c.UID == os.Geteuid() {
		return
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.UID), Gid: uint32(c.GID)}
}

// own gives a path to the caller.
func (c Caller) own(t T, path string) {
	t.Helper()
	if c.UID == os.Geteuid() {
		return
	}
	if err := os.Lchown(path, c.UID, c.GID); err != nil {
		t.Fatal(err)
	}
}
