package harness

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
)

// Operator is root with an account and a directory to provision, both of which are
// there for one test.
type Operator struct {
	User, Dir string
	Flags     []string // of nsbox provision --apply

	t T
}

// NewOperator names an account that does not exist and a directory that does not
// exist, and undoes whatever a failed test leaves.
func NewOperator(t T, flags ...string) *Operator {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("provisioning makes accounts and mounts: this test runs as root, as make test does")
	}
	b := make([]byte, 4)
	rand.Read(b)
	home, err := os.MkdirTemp("", "nsbox-provision-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	o := &Operator{t: t, User: "nsbox-t" + hex.EncodeToString(b), Dir: home + "/out"}
	o.Flags = append([]string{"--user", o.User}, flags...)
	t.Cleanup(func() {
		if _, err := os.Lstat(o.Dir); err == nil {
			if out, err := o.Command("--undo"); err != nil {
				t.Errorf("what the test made is still there: %v\n%s", err, out)
				return
			}
		}
		if err := os.Remove(home); err != nil {
			t.Error(err)
		}
	})
	return o
}

// Command runs nsbox provision on the directory.
func (o *Operator) Command(args ...string) (string, error) {
	args = append([]string{"provision", "--dir", o.Dir}, args...)
	out, err := exec.Command(Binary(o.t), args...).CombinedOutput()
	return string(out), err
}

// Apply makes account, ids and slots.
func (o *Operator) Apply() {
	o.t.Helper()
	if out, err := o.Command(append([]string{"--apply"}, o.Flags...)...); err != nil {
		o.t.Fatalf("nsbox provision --apply: %v\n%s", err, out)
	}
}

// Caller is the account that was made.
func (o *Operator) Caller() Caller {
	o.t.Helper()
	u, err := user.Lookup(o.User)
	if err != nil {
		o.t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return Caller{Name: "launcher", UID: uid, GID: gid}
}

// Slot is where slot n is mounted.
func (o *Operator) Slot(n int) string { return fmt.Sprintf("%s/%d", o.Dir, n) }
