package nsexec

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNestedBox: with one id there are two user namespaces, and the program's has
// the policy's ids, none of the set-up's capabilities, its own limits, and no way
// to init, which to the kernel is the same user.
func TestNestedBox(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root's own id is never given to a box; TestAsUser runs this test")
	}
	const look = `import os
print(os.getpid(), os.getuid(), os.getgid(), os.stat('.').st_uid, os.path.exists('/proc/1/status'))
try: os.kill(1, 9)
except OSError as e: print(e)
open('/scratch/x', 'w').write('y')
for f in 'status', 'uid_map', 'gid_map': print(open('/proc/self/' + f).read())
for f in 'max_user_namespaces', 'max_inotify_instances': print(f, open('/proc/sys/user/' + f).read())`
	for _, vm := range []bool{false, true} {
		s := nested(testSpec("/usr/bin/python3", "-c", look))
		s.SharedVM = vm
		e, out, errs := run(t, s)
		if !e.Reported || !e.Status.Exited() || e.Status.ExitStatus() != 0 || errs != "" {
			t.Fatalf("vm=%v: %+v\n%s%s", vm, e, out, errs)
		}
		words := strings.Join(strings.Fields(out), " ")
		for _, want := range []string{"2 10001 10001 10001 False", "CapPrm: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1", "10001 0 1 10001 0 1", "max_user_namespaces 0", "max_inotify_instances " + InotifyInstances} {
			if !strings.Contains(words, want) {
				t.Errorf("vm=%v: no %q in\n%s", vm, want, out)
			}
		}
	}
	for name, s := range map[string]*Spec{"a terminal and shared storage": terminalSpec(), "a stage": exporterSpec()} {
		if len(s.Open) > 0 {
			s.Open, s.Listable = nil, -1
		}
		b, err := Spawn(nested(s), Files{Self: selfFD(t), Cgroup: -1, Work: -1}, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.Report.NestedUserNS != -int64(unix.ENOSPC) {
			t.Errorf("%s: a user namespace inside: %d", name, b.Report.NestedUserNS)
		}
		b.Abort()
	}
}
