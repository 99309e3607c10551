package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/attest"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

func statusOf(t testing.TB, d *Decision, name string) attest.Status {
	t.Helper()
	i := slices.IndexFunc(d.Rows, func(r DecisionRow) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no row %s", name)
	}
	return d.Rows[i].Status
}

// TestARefusedPlanHasTheSameRows: whatever stands against a run, the table is
// whole, no row that the fault touches says enforced, and every reason is told.
func TestARefusedPlanHasTheSameRows(t *testing.T) {
	good := decided(t, newFake(t), goodRequest())
	if good.Verdict != VerdictRun || len(good.Reasons) != 0 || good.Plan == nil {
		t.Fatalf("control: %s, %s", good.Verdict, ids(good))
	}
	for name, tc := range map[string]struct {
		change func(*fake, *Request)
		ids    string
		not    []string // rows that must not say enforced
	}{
		"nothing allowed":  {func(_ *fake, r *Request) { r.AllowDegraded = nil }, "controllers_bound_to_v1", []string{"memory", "cpu-rate", "out"}},
		"one word missing": {func(_ *fake, r *Request) { r.AllowDegraded = r.AllowDegraded[:2] }, "degraded_not_allowed", []string{"out"}},
		"two stand": {func(f *fake, _ *Request) {
			f.facts.Host.Kernel, f.facts.Host.ProcMasked = "5.4.0", []string{"/proc/kcore"}
		}, "kernel_too_old proc_masked", []string{"root", "network", "mac", "system-calls", "tasks", "scratch", "ids"}},
		"a limit nobody can read": {func(f *fake, _ *Request) { f.facts.Host.MaxUserNS = -1 }, "userns_unknown", []string{"root", "network", "ids"}},
		"no Landlock": {func(f *fake, _ *Request) {
			f.facts.Host.Landlock, f.facts.Host.LandlockABI, f.facts.Host.LandlockErrno = probe.No, 0, "ENOSYS"
		},
			"landlock_missing_not_built", []string{"mac"}},
		"Landlock not told": {func(f *fake, _ *Request) {
			f.facts.Host.Landlock, f.facts.Host.LandlockABI, f.facts.Host.LandlockErrno = probe.Unknown, 0, "EIO"
		},
			"landlock_missing_unknown", []string{"mac"}},
		"no cgroup": {func(f *fake, _ *Request) { f.facts.Cgroup, f.facts.CgroupErr = false, cgroupError("no_v2_mount") }, "no_v2_cgroup", []string{"cpu-total"}},
		"no program": {func(f *fake, _ *Request) {
			f.facts.Closure, f.err = nil, reason.New(reason.ProgramNotFound, "x", "", "")
		}, "program_not_found", []string{"root", "exec"}},
		"no ids": {func(f *fake, _ *Request) {
			f.facts.Host.SubUID = nil
			_, err := probe.ChooseIdentity(f.facts.Host)
			f.facts.Identity, f.err = probe.ChooseSingle(f.facts.Host, err)
		}, "subordinate_range_missing", []string{"ids"}},
		"no program, and so no choice of ids, which would fail": {func(f *fake, _ *Request) {
			f.facts.Host.SubUID, f.facts.Identity = nil, probe.Identity{}
			f.facts.Closure, f.err = nil, reason.New(reason.ProgramNotFound, "x", "", "")
		}, "program_not_found subordinate_range_missing", []string{"root", "ids"}},
		"nothing could be surveyed": {func(f *fake, _ *Request) {
			f.facts, f.err = Facts{}, reason.New(reason.HostFactsUnreadable, "/proc", "", "")
		}, "host_facts_unreadable", []string{"root", "ids", "network", "wall", "memory"}},
		"an error without a name": {func(f *fake, _ *Request) { f.facts, f.err = Facts{}, errors.New("odd") }, "internal_error", []string{"root"}},
		"an unknown dimension":    {func(_ *fake, r *Request) { r.AllowDegraded = append(r.AllowDegraded, "luck") }, "degrade_unknown", nil},
	} {
		b, req := newFake(t), goodRequest()
		tc.change(&b, &req)
		d := decided(t, b, req)
		if d.Verdict != VerdictRefuse || ids(d) != tc.ids || d.Plan != nil || d.Digest != "" {
			t.Errorf("%s: %s, reasons %q, want %q", name, d.Verdict, ids(d), tc.ids)
		}
		var names, want []string
		for i := range good.Rows {
			want = append(want, good.Rows[i].Name)
		}
		for _, r := range d.Rows {
			names = append(names, r.Name)
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s: rows\n%s", name, diff)
			continue
		}
		for _, n := range tc.not {
			if s := statusOf(t, d, n); s == attest.Enforced {
				t.Errorf("%s: %s says enforced", name, n)
			}
		}
		if _, ran := executed(t, b, d); ran {
			t.Errorf("%s: executed", name)
		}
	}
}

func TestAnUnlistedEndpointIsDenied(t *testing.T) {
	b := newFake(t)
	d := decided(t, b, goodRequest(), "other.example.invalid:443")
	if _, ran := executed(t, b, d); ran || d.Verdict != VerdictRefuse || ids(d) != "capability_denied" {
		t.Errorf("executed %v, %s, %s", ran, d.Verdict, ids(d))
	}
	if what := d.Reasons[0].What; what != "connect other.example.invalid:443" {
		t.Errorf("the reason names %q", what)
	}
	// Order and spelling of two make one decision.
	one, _ := json.Marshal(decided(t, b, goodRequest(), "b.example:1", "A.example.:1"))
	two, _ := json.Marshal(decided(t, b, goodRequest(), "a.EXAMPLE:1", "b.example:1", "b.example.:1"))
	if string(one) != string(two) {
		t.Errorf("two orders, two decisions:\n%s\n%s", one, two)
	}
}

// TestDecidingIsPure: the same arguments give the same bytes, and the plan is
// the one that exec would make.
func TestDecidingIsPure(t *testing.T) {
	p, src := goodPolicy(t)
	f := wholeFacts(t)
	var first string
	for range 3 {
		d := decide(namespaces{}, goodRequest(), p, src, f, nil, nil)
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(text)
		}
		if string(text) != first {
			t.Fatal("two decisions over the same facts differ")
		}
		pl, err := MakePlan(goodRequest(), p, src, f)
		if err != nil {
			t.Fatal(err)
		}
		pl.Box.SharedVM = sharedVM
		if want := mustDigest(t, pl); d.Digest != want {
			t.Errorf("digest %s, exec's is %s", d.Digest, want)
		}
	}
}

func TestSimulatedLooksAtNothingAndSaysSo(t *testing.T) {
	state := t.TempDir() + "/state"
	b, err := BackendByName("simulated", func(context.Context, Request, Streams) Result { t.Error("executed"); return Result{} })
	if err != nil {
		t.Fatal(err)
	}
	req := Request{PolicyArg: "sales-summary", Argv: []string{"python3", "/in/x.py"}, StateDir: state, Inputs: []Input{{Path: "/nowhere"}}}
	d := Consider(b, req, nil)
	if d.Verdict != VerdictRun || d.Backend != SimulatedName {
		t.Fatalf("%s %+v", d.Verdict, d.Reasons)
	}
	for _, r := range d.Rows {
		if r.Status != SimulatedOnly && r.Status != attest.Blocked {
			t.Errorf("%s says %s", r.Name, r.Status)
		}
	}
	res := Start(t.Context(), b, d, req, Streams{})
	if res.Backend != SimulatedName || res.Workload.Outcome != Simulated || res.ExitStatus != ExitOK || len(res.Attestation) != 0 || res.Attempt != "" {
		t.Errorf("%+v", res)
	}
	if _, err := os.Lstat(state); err == nil {
		t.Error("a state directory was made")
	}
	if x := Consider(b, Request{PolicyArg: "sales-summary", Argv: []string{"cat"}}, nil); x.Verdict != VerdictRefuse || ids(x) != "exec_not_allowed" {
		t.Errorf("another program than Python: %s %s", x.Verdict, ids(x))
	}
	req.Deliver = t.TempDir()
	if res := Start(t.Context(), b, d, req, Streams{}); res.ExitStatus != ExitUndelivered {
		t.Errorf("with --deliver: status %d", res.ExitStatus)
	}
	if _, err := BackendByName("namespace", nil); reason.Of(err) == nil || !strings.Contains(err.Error(), "no backend") {
		t.Errorf("an unknown backend: %v", err)
	}
}
