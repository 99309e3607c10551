package launcher

import (
	"slices"
	"strings"
	"testing"

	"nsbox/cgroupv2"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// weakest is a host that weakens every dimension it can.
func weakest(t testing.TB) Facts {
	f := onRoot(t)
	f.Cgroup, f.CgroupErr = false, cgroupError(cgroupv2.NotDelegated)
	f.Host.Landlock, f.Host.LandlockErrno = probe.No, "ENOSYS"
	return f
}

func TestEveryMissingDimensionIsNamedAtOnce(t *testing.T) {
	p, _ := goodPolicy(t)
	var all []string
	for _, w := range weaknesses(p, weakest(t)) {
		all = append(all, w.dimension)
	}
	if len(all) != len(policy.Dimensions())-2 || slices.Contains(all, policy.DimIdentity) || slices.Contains(all, policy.DimSeccompNetwork) {
		t.Fatalf("weak: %v", all)
	}
	_, err := plan(t, nil, weakest(t))
	e := reason.Of(err)
	if e == nil {
		t.Fatalf("not refused: %v", err)
	}
	for _, w := range weaknesses(p, weakest(t)) {
		if !strings.Contains(e.What, w.dimension) || !strings.Contains(e.What, w.cause) {
			t.Errorf("%s is not named with its cause: %s", w.dimension, e.What)
		}
	}
	if want := "--allow-degraded " + strings.Join(all, ","); !strings.Contains(e.Next, want) {
		t.Errorf("next is %q, want %q in it", e.Next, want)
	}
	// The step that is offered works, and each name is needed.
	pl, err := plan(t, all, weakest(t))
	if err != nil {
		t.Fatalf("all allowed: %v", err)
	}
	if len(pl.Degraded) != len(all) || pl.UseCgroup || pl.Box.LandlockABI != 0 {
		t.Errorf("degraded %v, cgroup %v, Landlock %d", pl.Degraded, pl.UseCgroup, pl.Box.LandlockABI)
	}
	for i, d := range all {
		_, err := plan(t, slices.Delete(slices.Clone(all), i, i+1), weakest(t))
		e := reason.Of(err)
		if e == nil || !strings.HasSuffix(e.Next, "--allow-degraded "+strings.Join(all, ",")) {
			t.Errorf("without %s: %v", d, err)
			continue
		}
		for _, other := range all {
			if named := strings.Contains(e.What, other+" ("); named != (other == d) {
				t.Errorf("without %s: %s is named: %v: %s", d, other, named, e.What)
			}
		}
	}
}

func TestDegradeNames(t *testing.T) {
	allow := goodRequest().AllowDegraded
	for name, c := range map[string]struct {
		allow []string
		want  reason.ID
	}{
		"exactly what is weak": {allow, ""},
		"an enforced one too":  {append(slices.Clone(allow), policy.DimLandlock, policy.DimLauncherIdentity, policy.DimCPUTotal), ""},
		"doubled":              {append(slices.Clone(allow), policy.DimMemory), ""},
		"unknown":              {append(slices.Clone(allow), "memroy"), reason.DegradeUnknown},
		"another case":         {append(slices.Clone(allow), "Landlock"), reason.DegradeUnknown},
		"empty":                {append(slices.Clone(allow), ""), reason.DegradeUnknown},
	} {
		if _, err := plan(t, c.allow, goodFacts(t)); idOf(err) != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// The file's word counts like the command line's.
	p, src, err := preset(t, map[string]any{"degrade": allow})
	if err != nil {
		t.Fatal(err)
	}
	req := goodRequest()
	req.AllowDegraded = nil
	if _, err := MakePlan(req, p, src, goodFacts(t)); err != nil {
		t.Errorf("degrade in the file: %v", err)
	}
}

// Every weakness says why, what holds instead and what that leaves open; the
// plan's restriction of that dimension and its attestation repeat it.
func TestDegradedTable(t *testing.T) {
	p, _ := goodPolicy(t)
	weak := weaknesses(p, weakest(t))
	restriction := map[string]string{policy.DimMemory: "memory", policy.DimCPURate: "cpu-rate", policy.DimCPUTotal: "cpu-total",
		policy.DimLauncherIdentity: "launcher", policy.DimOutStorage: "out", policy.DimLandlock: "mac"}
	var all []string
	for _, w := range weak {
		all = append(all, w.dimension)
		if w.id == "" || w.cause == "" || w.instead == "" || w.notCovered == "" {
			t.Errorf("%s: %+v", w.dimension, w)
		}
	}
	pl, err := plan(t, all, weakest(t))
	if err != nil {
		t.Fatal(err)
	}
	rows := pl.attestation()
	for _, w := range weak {
		if !pl.degraded(w.dimension) {
			t.Errorf("%s is not degraded in the plan", w.dimension)
		}
		name := restriction[w.dimension]
		i := slices.IndexFunc(pl.Restrictions, func(r Restriction) bool { return r.Name == name })
		if i < 0 {
			t.Errorf("%s has no restriction", w.dimension)
			continue
		}
		if r := pl.Restrictions[i]; r.Status != attest.Degraded || r.Primitive != w.instead || !strings.Contains(r.Note, w.notCovered) {
			t.Errorf("%s: %+v", w.dimension, r)
		}
		i = slices.IndexFunc(rows, func(r attest.Row) bool { return r.Restriction == name })
		if i < 0 || rows[i].Status != attest.Degraded || rows[i].Grade != attest.None || !strings.Contains(rows[i].Note, w.notCovered) {
			t.Errorf("%s: its attestation does not say so: %+v", w.dimension, rows)
		}
	}
	if pl.degraded(policy.DimIdentity) {
		t.Error("identity is degraded, which no host here does")
	}
}

// Each restriction of a plan has a line in the attestation: one of the
// launcher's, or one that inspect reads from the box.
func TestEveryRestrictionIsAttested(t *testing.T) {
	fromBox := map[string]string{"root": "mount /", "exec": "mount /usr/bin/python3", "ids": "workload-uid", "network": "network-interfaces", "mac": "landlock",
		"system-calls": "seccomp-program", "tasks": "rlimit-nproc", "scratch": "mount /scratch", "out": "mount /out"}
	for name, f := range map[string]Facts{"user": goodFacts(t), "weakest": weakest(t)} {
		pl, err := plan(t, policy.Dimensions(), f)
		if err != nil {
			t.Fatal(err)
		}
		shown := map[string]attest.Row{}
		for _, r := range compare(goodBox(pl), &pl.Box, goodSight(pl)) {
			shown[r.Restriction] = r
		}
		own := map[string]attest.Row{}
		for _, r := range pl.attestation() {
			if own[r.Restriction].Restriction != "" {
				t.Errorf("%s: %s stands twice", name, r.Restriction)
			}
			own[r.Restriction] = r
		}
		for _, r := range pl.Restrictions {
			row, held := own[r.Name]
			if !held {
				row = shown[fromBox[r.Name]]
			}
			if row.Restriction == "" || row.Status != r.Status {
				t.Errorf("%s: restriction %s is %s, its attestation row %+v", name, r.Name, r.Status, row)
			}
		}
	}
}
