package launcher

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"nsbox/launcher/attest"
	"nsbox/launcher/journal"
	"nsbox/launcher/outslot"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

const heldScope = "per_job_tmpfs_at_/out_single_file_summary.csv_held_by_the_launcher"

// TestPlanOfOut: what a policy asks of /out against what the host has. Whatever is
// not ready is refused by its own id or, where the policy leaves a choice and the
// operator said so, held and degraded.
func TestPlanOfOut(t *testing.T) {
	lacks := func(id reason.ID) OutFacts {
		return OutFacts{Lacks: reason.New(id, "the slot /s/0", "is not fit", "do this")}
	}
	held := map[string]any{"out_storage": "held", "filesystem.export_scope": heldScope}
	must := map[string]any{"out_storage": "provisioned"}
	for _, tc := range []struct {
		name    string
		edits   map[string]any
		out     OutFacts
		allow   bool
		refused reason.ID
		kind    nsexec.NodeKind
		weak    bool
	}{
		{"left out, ready", nil, OutFacts{Ready: true}, false, "", nsexec.Storage, false},
		{"left out, ready and allowed", nil, OutFacts{Ready: true}, true, "", nsexec.Storage, false},
		{"left out, none", nil, OutFacts{}, false, reason.DegradedNotAllowed, "", false},
		{"left out, none, allowed", nil, OutFacts{}, true, "", nsexec.Tmpfs, true},
		{"left out, differs", nil, lacks(reason.OutSlotDiffers), false, reason.OutSlotDiffers, "", false},
		{"left out, unknown lifetime", nil, lacks(reason.OutLifetimeUnknown), false, reason.OutLifetimeUnknown, "", false},
		{"left out, taken", nil, lacks(reason.OutSlotsTaken), false, reason.OutSlotsTaken, "", false},
		{"left out, taken, allowed", nil, lacks(reason.OutSlotsTaken), true, "", nsexec.Tmpfs, true},
		{"must, ready", must, OutFacts{Ready: true}, false, "", nsexec.Storage, false},
		{"must, none, allowed", must, OutFacts{}, true, reason.OutNotProvisioned, "", false},
		{"must, differs, allowed", must, lacks(reason.OutSlotDiffers), true, reason.OutSlotDiffers, "", false},
		{"must, unknown lifetime, allowed", must, lacks(reason.OutLifetimeUnknown), true, reason.OutLifetimeUnknown, "", false},
		{"held, none", held, OutFacts{}, false, "", nsexec.Tmpfs, false},
	} {
		p, src, err := preset(t, tc.edits)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		req := goodRequest()
		req.AllowDegraded = []string{policy.DimMemory, policy.DimCPURate}
		if tc.allow {
			req.AllowDegraded = append(req.AllowDegraded, policy.DimOutStorage)
		}
		f := goodFacts(t)
		f.Out = tc.out
		pl, err := MakePlan(req, p, src, f)
		if tc.refused != "" {
			if e := reason.Of(err); pl != nil || e == nil || e.ID != tc.refused || e.Next == "" {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		i := slices.IndexFunc(pl.Box.Root, func(n nsexec.Node) bool { return n.Path == "/out" })
		n := pl.Box.Root[i]
		if n.Kind != tc.kind || n.Bytes != 8<<20 || n.Inodes != 64 || n.Access != nsexec.Read|nsexec.List|nsexec.Write {
			t.Errorf("%s: %+v", tc.name, n)
		}
		if got := pl.degraded(policy.DimOutStorage); got != tc.weak || pl.provisioned() != (tc.kind == nsexec.Storage) {
			t.Errorf("%s: degraded %v", tc.name, got)
		}
		i = slices.IndexFunc(pl.Restrictions, func(r Restriction) bool { return r.Name == "out" })
		if (pl.Restrictions[i].Status == attest.Degraded) != tc.weak {
			t.Errorf("%s: %+v", tc.name, pl.Restrictions[i])
		}
		if w := wantedMounts(&pl.Box, nil)["/out"]; (w.source == outslot.Source) != (tc.kind == nsexec.Storage) || !slices.Equal(w.super, []string{"size=8192k", "nr_inodes=64"}) {
			t.Errorf("%s: wants %s", tc.name, w)
		}
		if text, _ := json.Marshal(pl); bytes.Contains(text, []byte("/s/0")) {
			t.Errorf("%s: which slot is free is part of the plan", tc.name)
		}
	}
}

// TestOutCandidates: slots are told by their owner, which must be the workload of
// one of this launcher's own slots.
func TestOutCandidates(t *testing.T) {
	id := probe.Identity{UID: probe.Range{Start: int64(os.Getuid()) - 1, Count: 64}, GID: probe.Range{Start: int64(os.Getgid()) - 1, Count: 64}}
	mine := t.TempDir() // of this process's uid, which the range above makes a workload's
	got := outCandidates([]outslot.Mount{{Path: "/proc/1/no-such"}, {Path: mine}}, id)
	if len(got) != 1 || got[0].mount.Path != mine || got[0].n != 0 {
		t.Fatalf("%+v", got)
	}
	for name, start := range map[string]int64{"box root": 0, "exporter's root": -2, "exporter": -3, "far": 1000} {
		id.UID.Start = int64(os.Getuid()) + start
		if got := outCandidates([]outslot.Mount{{Path: mine}}, id); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAWipeInTheMiddleNeedsAProofOfItsOwn: the recorded stop proof is older than
// the box that empties the slot.
func TestAWipeInTheMiddleNeedsAProofOfItsOwn(t *testing.T) {
	story := fullStory(t.TempDir())
	at := func(e journal.Event) int {
		return slices.IndexFunc(story, func(r journal.Record) bool { return r.Event == e })
	}
	for _, tc := range []struct {
		name string
		upto journal.Event
		out  *outRef
		want bool
	}{
		{"held", journal.DestroyIntent, nil, false},
		{"before", journal.CredentialsEmpty, &outRef{"/s/0", "0:38"}, false},
		{"in the middle", journal.DestroyIntent, &outRef{"/s/0", "0:38"}, true},
		{"after", journal.Destroyed, &outRef{"/s/0", "0:38"}, false},
	} {
		st, err := journal.Replay(story[:at(tc.upto)+1])
		if err != nil {
			t.Fatal(err)
		}
		r := &remains{marker: marker{Boot: thisBoot, IDs: unusedIDs(), Out: tc.out}, state: st, records: story[:at(tc.upto)+1], intact: true}
		if got := r.mayBeWiping(); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
		by, err := newProver(t).prove(t.Context(), r)
		if err != nil || (by == "recorded earlier") == tc.want {
			t.Errorf("%s: proven by %q, %v", tc.name, by, err)
		}
	}
}

func TestOutRefThroughTheJournal(t *testing.T) {
	for _, r := range []*outRef{nil, {"/srv/a b/0", "0:38"}} {
		got := parseOutRef(r.String())
		if (got == nil) != (r == nil) || got != nil && *got != *r {
			t.Errorf("%v: %v", r, got)
		}
	}
}
