package launcher

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

func plan(t testing.TB, allow []string, f Facts) (*Plan, error) {
	t.Helper()
	p, src := goodPolicy(t)
	req := goodRequest()
	req.AllowDegraded = allow
	return MakePlan(req, p, src, f)
}

// Every host that cannot hold a box is refused with its own id; the same facts
// without the fault make a plan, which is each row's control.
func TestMakePlanRefuses(t *testing.T) {
	zero, one := int64(0), int64(1)
	allow := goodRequest().AllowDegraded
	if _, err := plan(t, allow, goodFacts(t)); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, c := range map[string]struct {
		spoil func(*Facts)
		want  reason.ID
	}{
		"kernel too old":         {func(f *Facts) { f.Host.Kernel = "5.10.0-30-amd64" }, reason.KernelTooOld},
		"kernel without number":  {func(f *Facts) { f.Host.Kernel = "" }, reason.KernelTooOld},
		"no user namespaces":     {func(f *Facts) { f.Host.MaxUserNS = 0 }, reason.UsernsDisabled},
		"limit unreadable":       {func(f *Facts) { f.Host.MaxUserNS = -1 }, reason.UsernsUnknown},
		"sysctl":                 {func(f *Facts) { f.Host.UnprivilegedUsernsClone = &zero }, reason.UsernsSysctl},
		"apparmor":               {func(f *Facts) { f.Host.AppArmorRestrictUserns = &one }, reason.UsernsApparmor},
		"masked proc":            {func(f *Facts) { f.Host.ProcMasked = []string{"/proc/kcore"} }, reason.ProcMasked},
		"unreadable binary":      {func(f *Facts) { f.Host.SelfExe.WorldReadable = probe.Unknown }, reason.LauncherExeUnreadable},
		"dynamic binary":         {func(f *Facts) { f.Host.SelfExe.Static = probe.No }, reason.LauncherNotStatic},
		"rlimit nofile":          {func(f *Facts) { f.Host.RLimits["nofile"] = 63 }, reason.RlimitTooLow},
		"rlimit fsize":           {func(f *Facts) { f.Host.RLimits["fsize"] = 1 << 20 }, reason.RlimitTooLow},
		"rlimit nproc":           {func(f *Facts) { f.Host.RLimits["nproc"] = 31 }, reason.RlimitTooLow},
		"rlimit cpu":             {func(f *Facts) { f.Host.RLimits["cpu"] = 24 }, reason.RlimitTooLow},
		"no ids":                 {func(f *Facts) { f.Identity = probe.Identity{} }, reason.IdentitySlotsExhausted},
		"three ids":              {func(f *Facts) { f.Identity.GID.Count = 3 }, reason.IdentitySlotsExhausted},
		"no Landlock":            {func(f *Facts) { f.Host.Landlock, f.Host.LandlockErrno = probe.No, "ENOSYS" }, reason.LandlockNotBuilt},
		"Landlock off":           {func(f *Facts) { f.Host.Landlock, f.Host.LandlockErrno = probe.No, "EOPNOTSUPP" }, reason.LandlockDisabled},
		"sudo member":            {func(f *Facts) { f.Host.PrivilegedGroups = []string{"sudo"} }, reason.DegradedNotAllowed},
		"a capability":           {func(f *Facts) { f.Host.CapEff = 1 }, reason.DegradedNotAllowed},
		"no cgroup mount":        {func(f *Facts) { f.Cgroup, f.CgroupErr = false, cgroupError(cgroupv2.NoV2Mount) }, reason.NoV2Cgroup},
		"cgroup not delegated":   {func(f *Facts) { f.Cgroup, f.CgroupErr = false, cgroupError(cgroupv2.NotDelegated) }, reason.CgroupNotDelegated},
		"cgroup without a cause": {func(f *Facts) { f.Cgroup = false }, reason.NoV2Cgroup},
		"no interpreter":         {func(f *Facts) { f.Closure.Python = "" }, reason.ExecNotAllowed},
		"foreign path in root": {func(f *Facts) {
			f.Closure.Nodes = append(f.Closure.Nodes, nsexec.Node{Path: "/usr/bin/x/y", Kind: nsexec.BindFile, Source: "/usr/bin/y"})
		}, reason.RootfsBadParent},
	} {
		f := goodFacts(t)
		c.spoil(&f)
		if pl, err := plan(t, allow, f); idOf(err) != c.want || pl != nil {
			t.Errorf("%s: got %v and plan %v, want %s", name, err, pl != nil, c.want)
		} else if e := reason.Of(err); e.What == "" || e.Next == "" {
			t.Errorf("%s: what %q, next %q", name, e.What, e.Next)
		}
	}
}

func TestRootPlansWithItsOwnMaps(t *testing.T) {
	allow := append(goodRequest().AllowDegraded, policy.DimLauncherIdentity)
	if _, err := plan(t, goodRequest().AllowDegraded, onRoot(t)); idOf(err) != reason.DegradedNotAllowed {
		t.Errorf("root without leave: %v", err)
	}
	root, err := plan(t, allow, onRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	user := mustPlan(t, goodFacts(t))
	if k := root.Box.Identity; k.Kind != probe.Privileged || k.UIDHelper != "" || k.GIDHelper != "" {
		t.Errorf("root's maps: %+v", k)
	}
	if k := user.Box.Identity; k.Kind != probe.Subordinate || k.UIDHelper != "/usr/bin/newuidmap" || k.GIDHelper != "/usr/bin/newgidmap" {
		t.Errorf("a user's maps: %+v", k)
	}
	for name, pl := range map[string]*Plan{"root": root, "user": user} {
		ids := map[int]int{}
		for _, m := range pl.Box.Identity.UIDs {
			ids[m.Host]++
			if m.Host == 0 || m.Host == 1000 || m.Count != 1 {
				t.Errorf("%s: the box has host uid %d", name, m.Host)
			}
		}
		for _, m := range pl.Exporter.Identity.UIDs {
			if m.Inside != pl.Box.UID && ids[m.Host] > 0 {
				t.Errorf("%s: box and exporter share host uid %d", name, m.Host)
			}
		}
	}
}

// The policy may name who launches. Another is refused in planRows.
func TestTheNamedLauncherMayLaunch(t *testing.T) {
	p, src, err := preset(t, map[string]any{"execution_identity.host_launcher.uid": 1000})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakePlan(goodRequest(), p, src, goodFacts(t)); err != nil {
		t.Error(err)
	}
}

func TestOnlyPythonWhereThePolicySaysSo(t *testing.T) {
	p, src, err := preset(t, map[string]any{"process_policy.exec_allowlist": "named_program_only"})
	if err != nil {
		t.Fatal(err)
	}
	f := goodFacts(t)
	f.Closure.Python = ""
	if _, err := MakePlan(goodRequest(), p, src, f); err != nil {
		t.Errorf("named_program_only: %v", err)
	}
	if _, err := plan(t, goodRequest().AllowDegraded, f); idOf(err) != reason.ExecNotAllowed {
		t.Errorf("python_interpreter_only: %v", err)
	}
}

func TestDeniedMountsHitSourcesAndTargets(t *testing.T) {
	for name, c := range map[string]struct {
		entry string
		want  string // what the refusal names; empty: the plan is made
	}{
		"a source":              {"/usr/lib/python3.11", "/usr/lib/python3.11"},
		"above a source":        {"/usr/bin", "/usr/bin/python3"},
		"below a source":        {"/usr/lib/python3.11/secret", "/usr/lib/python3.11"},
		"a target's own source": {"/usr/bin/python3.11", "/usr/bin/python3.11"},
		"a target only":         {"/usr/bin/python3", "/usr/bin/python3"},
		"elsewhere":             {"/usr/share", ""},
	} {
		p, src, err := preset(t, map[string]any{"filesystem.denied_mounts[+]": c.entry})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = MakePlan(goodRequest(), p, src, goodFacts(t))
		switch e := reason.Of(err); {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (e == nil || e.ID != reason.PolicyUnenforceable || e.What != c.want || !strings.Contains(e.Why, c.entry)):
			t.Errorf("%s: got %v, want a refusal of %s", name, err, c.want)
		}
	}
}

// nsbox's own staging may lie where the policy denies sources, and nowhere else.
func TestStagingIsNoDeniedSource(t *testing.T) {
	p, src, err := preset(t, map[string]any{"filesystem.denied_mounts[+]": stagedPlaceholder})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := MakePlan(goodRequest(), p, src, goodFacts(t)); err != nil {
		t.Error(err)
	}
	f := goodFacts(t)
	f.Closure.Nodes = append(f.Closure.Nodes, nsexec.Node{Path: "/usr/lib/x", Kind: nsexec.BindFile, Source: stagedPlaceholder + "/x"})
	if _, err := MakePlan(goodRequest(), p, src, f); idOf(err) != reason.PolicyUnenforceable {
		t.Errorf("a source below it: %v", err)
	}
}

func TestPlanIsPure(t *testing.T) {
	a, b := mustPlan(t, goodFacts(t)), mustPlan(t, goodFacts(t))
	if !reflect.DeepEqual(a, b) || mustDigest(t, a) != mustDigest(t, b) {
		t.Error("equal inputs give different plans")
	}
	// The arguments are not written to.
	p, src := goodPolicy(t)
	req, f := goodRequest(), goodFacts(t)
	before, _ := json.Marshal([]any{req, p, src, f.Host, f.Closure, f.Identity})
	if _, err := MakePlan(req, p, src, f); err != nil {
		t.Fatal(err)
	}
	if after, _ := json.Marshal([]any{req, p, src, f.Host, f.Closure, f.Identity}); string(before) != string(after) {
		t.Errorf("MakePlan changed its arguments:\n%s\n%s", before, after)
	}
}

func TestPlanDigestFollowsTheInputs(t *testing.T) {
	base := mustDigest(t, mustPlan(t, goodFacts(t)))
	with := func(edit func(*Request, *Facts), policyEdits map[string]any) string {
		t.Helper()
		p, src, err := preset(t, policyEdits)
		if err != nil {
			t.Fatal(err)
		}
		if policyEdits == nil {
			_, src = goodPolicy(t)
		}
		req, f := goodRequest(), goodFacts(t)
		if edit != nil {
			edit(&req, &f)
		}
		pl, err := MakePlan(req, p, src, f)
		if err != nil {
			t.Fatal(err)
		}
		return mustDigest(t, pl)
	}
	for name, got := range map[string]string{
		"argv":         with(func(r *Request, _ *Facts) { r.Argv = append(r.Argv, "x") }, nil),
		"stdin":        with(func(r *Request, _ *Facts) { r.Stdin = true }, nil),
		"no inputs":    with(func(r *Request, _ *Facts) { r.Inputs = nil }, nil),
		"environment":  with(nil, map[string]any{"process_policy.env_allowlist[0]": "HOME"}),
		"policy":       with(nil, map[string]any{"resources.wall_workload.value": 29}),
		"Landlock ABI": with(func(_ *Request, f *Facts) { f.Host.LandlockABI = 3 }, nil),
		"ids":          with(func(_ *Request, f *Facts) { f.Identity.UID.Start++ }, nil),
		"closure":      with(func(_ *Request, f *Facts) { f.Closure.Digest = "other" }, nil),
		"capabilities": with(func(_ *Request, f *Facts) { f.CapLast++ }, nil),
		"stack":        with(func(_ *Request, f *Facts) { f.Host.RLimits["stack"] = 4 << 20 }, nil),
	} {
		if got == base {
			t.Errorf("%s: the digest stays the same", name)
		}
	}
	for name, got := range map[string]string{
		"nothing":   with(nil, nil),
		"boot":      with(func(_ *Request, f *Facts) { f.Host.BootID = "other" }, nil),
		"state dir": with(func(r *Request, _ *Facts) { r.StateDir = "/srv/other" }, nil),
		"delivery":  with(func(r *Request, _ *Facts) { r.Deliver, r.ResultFile = "/srv/out", "/srv/r.json" }, nil),
		"enforced": with(func(r *Request, _ *Facts) {
			r.AllowDegraded = append(r.AllowDegraded, policy.DimLandlock, policy.DimIdentity)
		}, nil),
	} {
		if got != base {
			t.Errorf("%s: the digest changes", name)
		}
	}
}

func TestRlimitsOfThePlan(t *testing.T) {
	f := goodFacts(t)
	f.Host.RLimits["stack"], f.Host.RLimits["nofile"] = 1<<20, 64
	pl, err := plan(t, goodRequest().AllowDegraded, f)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pl.Box.Rlimits, func(r nsexec.Rlimit) bool { return r.Resource == unix.RLIMIT_STACK })
	if r := pl.Box.Rlimits[i]; r.Soft != 1<<20 || r.Hard != 1<<20 {
		t.Errorf("the stack limit is above the inherited one: %+v", r)
	}
	for _, r := range pl.Box.Rlimits {
		if r.Soft > r.Hard || r.Name == "nofile" && r.Hard != 64 {
			t.Errorf("%+v", r)
		}
	}
}
