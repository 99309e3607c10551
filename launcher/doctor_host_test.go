package launcher

import (
	"context"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// brokenHosts is one host for everything that probe.Check can say.
func brokenHosts() map[reason.ID]func(*probe.Host) {
	zero, one := int64(0), int64(1)
	return map[reason.ID]func(*probe.Host){
		reason.KernelTooOld:          func(h *probe.Host) { h.Kernel = "5.13.19" },
		reason.UsernsUnknown:         func(h *probe.Host) { h.MaxUserNS = -1 },
		reason.UsernsDisabled:        func(h *probe.Host) { h.MaxUserNS = 0 },
		reason.UsernsSysctl:          func(h *probe.Host) { h.UnprivilegedUsernsClone = &zero },
		reason.UsernsApparmor:        func(h *probe.Host) { h.AppArmorRestrictUserns, h.AppArmorLabel = &one, "unconfined" },
		reason.ProcMasked:            func(h *probe.Host) { h.ProcMasked = []string{"/proc/kcore"} },
		reason.LauncherExeUnreadable: func(h *probe.Host) { h.SelfExe.WorldReadable = probe.Unknown },
		reason.LauncherNotStatic:     func(h *probe.Host) { h.SelfExe.Static = probe.Unknown },
	}
}

// TestWhateverStandsIsARow: for each refusal of exec the doctor has exactly one
// finding that is not yes, with the same id and a next step.
func TestWhateverStandsIsARow(t *testing.T) {
	notYes := func(h *probe.Host) (out []Finding) {
		for _, f := range hostFindings(h) {
			if f.Answer != probe.Yes {
				out = append(out, f)
			}
		}
		return out
	}
	if bad := notYes(goodHost()); len(bad) != 0 {
		t.Fatalf("control: %+v", bad)
	}
	for id, broken := range brokenHosts() {
		h := goodHost()
		broken(h)
		stands := probe.Check(h)
		if len(stands) != 1 || stands[0].ID != id {
			t.Fatalf("%s: the host is not broken as meant: %v", id, stands)
		}
		bad := notYes(h)
		if len(bad) != 1 || bad[0].ID != id || bad[0].Next == "" || bad[0].Serves != everyBox {
			t.Errorf("%s: %+v", id, bad)
		}
		if id == reason.UsernsUnknown && bad[0].Answer != probe.Unknown {
			t.Errorf("%s is %s", id, bad[0].Answer)
		}
		if x := (&Examination{Findings: bad}); x.Ready() {
			t.Errorf("%s: ready all the same", id)
		}
	}
}

func TestTheLaunchersOwnState(t *testing.T) {
	row := func(h *probe.Host, name string) Finding {
		all := hostFindings(h)
		i := slices.IndexFunc(all, func(f Finding) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no row %s", name)
		}
		return all[i]
	}
	for name, tc := range map[string]struct {
		change func(*probe.Host)
		row    string
		answer probe.Answer
	}{
		"nnp as a user":    {func(h *probe.Host) { h.NoNewPrivs = true }, "no-new-privs", probe.No},
		"nnp as root":      {func(h *probe.Host) { h.NoNewPrivs, h.UID = true, 0 }, "no-new-privs", probe.Yes},
		"outer filter":     {func(h *probe.Host) { h.SeccompMode = 2 }, "outer-seccomp", probe.No},
		"sudo":             {func(h *probe.Host) { h.PrivilegedGroups = []string{"sudo"} }, "account", probe.No},
		"a nameless group": {func(h *probe.Host) { h.Groups = append(h.Groups, probe.Group{ID: 7}) }, "account", probe.No},
		"Landlock off":     {func(h *probe.Host) { h.Landlock, h.LandlockErrno = probe.No, "EOPNOTSUPP" }, "abi", probe.No},
		"Landlock unknown": {func(h *probe.Host) { h.Landlock, h.LandlockErrno = probe.Unknown, "EIO" }, "abi", probe.Unknown},
		"Landlock newer":   {func(h *probe.Host) { h.LandlockABI = 99 }, "abi", probe.Yes},
	} {
		h := goodHost()
		tc.change(h)
		f := row(h, tc.row)
		if f.Answer != tc.answer || (f.Answer != probe.Yes) != (f.Next != "") {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for abi := 1; abi <= 8; abi++ {
		h := goodHost()
		h.LandlockABI = abi
		if got := row(h, "abi").Shown; strings.Contains(got, "signals") != (abi < 6) || strings.Contains(got, "TCP") != (abi < 4) {
			t.Errorf("ABI %d: %s", abi, got)
		}
	}
}

func TestIdentityRows(t *testing.T) {
	h := goodHost()
	h.UIDMapHelper = probe.Helper{Path: "/usr/bin/newuidmap", Why: "not installed"}
	h.Problems = []string{"/etc/subuid: line 3"}
	id, err := probe.ChooseIdentity(h)
	got := map[string]Finding{}
	for _, f := range identityFindings(h, id, err) {
		got[f.Name] = f
	}
	if got["newuidmap"].Answer != probe.No || got["newgidmap"].Answer != probe.Yes || got["range"].ID != reason.IdmapHelperMissing || got["left-out"].Shown != h.Problems[0] {
		t.Errorf("%+v", got)
	}
}

// TestAnUnansweredQuestionIsNoYes: nothing asked, nothing ready.
func TestAnUnansweredQuestionIsNoYes(t *testing.T) {
	x := &Examination{}
	x.add(Finding{Name: "a", Serves: everyBox, Answer: probe.Yes})
	if !x.Ready() {
		t.Error("control")
	}
	x.add(Finding{Name: "b", Serves: everyBox})
	if x.Ready() || x.find("nobody").Answer != probe.Unknown {
		t.Error("unknown counts as yes")
	}
	if f := x.rowFinding("seccomp", everyBox, "", "seccomp-effect"); f.Answer != probe.Unknown || f.Next == "" {
		t.Errorf("a row that the box did not show: %+v", f)
	}
}

// TestTrialsWithoutAChild: what cannot be started is a no only where the kernel
// itself said so.
func TestTrialsWithoutAChild(t *testing.T) {
	seen := map[string]bool{}
	for _, tr := range trials() {
		if seen[tr.name] || tr.next == "" || tr.how == "" {
			t.Errorf("trial %q stands twice, or has no next step", tr.name)
		}
		seen[tr.name] = true
	}
	h := goodHost()
	h.UID = 0
	if a, shown := trials()[0].run(context.Background(), h, probe.Identity{}); a != probe.Unknown {
		t.Errorf("root without ids: %s, %s", a, shown)
	}
	if RunDoctorTrial([]string{DoctorStage, "no-such-trial", ""}) == 0 || RunDoctorTrial([]string{DoctorStage}) == 0 {
		t.Error("an unknown trial ends well")
	}
}
