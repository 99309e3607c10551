package tool

import (
	"testing"

	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

// In surroundings like a container's, nsbox either runs or names the true cause.
// Each is made around the plain user's nsbox; the control is a run without it.
func TestSurroundings(t *testing.T) {
	callers := harness.Callers(t)
	plain := callers[len(callers)-1]
	// A filter as a container engine loads it: clone and unshare fail with EPERM
	// where they ask for a user namespace, and clone3 is unknown.
	const filter = `exec /usr/bin/python3 -c '
import ctypes, os, struct, sys
def op(code, k, jt=0, jf=0): return struct.pack("HBBI", code, jt, jf, k)
CLONE, UNSHARE, CLONE3, NEWUSER = 56, 272, 435, 0x10000000
prog = [op(0x20, 0), op(0x15, CLONE3, 4, 0), op(0x15, CLONE, 1, 0), op(0x15, UNSHARE, 0, 3), op(0x20, 16), op(0x45, NEWUSER, 2, 1), op(0x06, 0x50026), op(0x06, 0x7fff0000), op(0x06, 0x50001)]
data = ctypes.create_string_buffer(b"".join(prog))
fprog = struct.pack("HxxxxxxQ", len(prog), ctypes.addressof(data))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(22, 2, ctypes.c_char_p(fprog), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])' "$@"`
	for name, c := range map[string]struct {
		shell  string
		reason []reason.ID // one of them; none: it runs
		caller harness.Caller
	}{
		"nothing around it":          {`exec "$@"`, nil, plain},
		"no_new_privs":               {`exec setpriv --no-new-privs "$@"`, []reason.ID{reason.NoNewPrivsSet}, plain},
		"outer user namespace":       {`exec unshare --user --map-root-user "$@"`, []reason.ID{reason.SubuidNotMappedHere, reason.SubordinateRangeMissing}, plain},
		"masked /proc":               {`exec unshare --mount sh -c 'mount --bind /dev/null /proc/timer_list && exec "$@"' sh "$@"`, []reason.ID{reason.ProcMasked}, callers[0]},
		"no user namespaces allowed": {filter, []reason.ID{reason.OuterSeccomp}, callers[0]},
	} {
		t.Run(name, func(t *testing.T) {
			s := harness.NewSite(t, c.caller)
			j := everyday("true")
			j.Shell = c.shell
			run := s.Run(j)
			if len(c.reason) == 0 {
				run.WantOK()
				return
			}
			if run.Status != 125 || run.Result.Reason == nil {
				t.Fatalf("status %d, %.900s", run.Status, run.Stderr)
			}
			t.Logf("%s: %s", run.Result.Reason.ID, run.Result.Reason.Why)
			for _, id := range c.reason {
				if run.Result.Reason.ID == id {
					return
				}
			}
			t.Errorf("reason %s, want one of %v; next: %s", run.Result.Reason.ID, c.reason, run.Result.Reason.Next)
		})
	}
}
