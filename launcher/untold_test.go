package launcher

import (
	"reflect"
	"testing"

	"nsbox/launcher/probe"
)

// untoldFacts has a row for each field of the facts: how it looks when the host
// does not tell it, and the reasons that then stand against a run. A field that
// nothing is decided by says so.
func untoldFacts() map[string]struct {
	untell func(*fake)
	ids    string
	why    string // no reason stands, and why that is right
} {
	type row = struct {
		untell func(*fake)
		ids    string
		why    string
	}
	host := func(f func(*probe.Host)) func(*fake) { return func(b *fake) { f(b.facts.Host) } }
	minus := int64(-1)
	const (
		survey   = "Survey fails as a whole when it cannot be read"
		undecide = "nothing is decided by it; it is told in messages and evidence"
		message  = "it only says in a message why another fact is no"
	)
	return map[string]row{
		"Host.Kernel":           {untell: host(func(h *probe.Host) { h.Kernel = "" }), ids: "kernel_too_old"},
		"Host.BootID":           {untell: host(func(h *probe.Host) { h.BootID = "" }), ids: "host_facts_unreadable"},
		"Host.Arch":             {why: undecide},
		"Host.CPUs":             {why: undecide},
		"Host.UID":              {why: survey},
		"Host.GID":              {why: survey},
		"Host.RealUID":          {why: survey},
		"Host.RealGID":          {why: survey},
		"Host.User":             {untell: host(func(h *probe.Host) { h.User, h.Unread = "", []string{"/etc/passwd"} }), ids: "degraded_not_allowed"},
		"Host.Groups":           {untell: host(func(h *probe.Host) { h.Groups[0].Name = "" }), ids: "degraded_not_allowed"},
		"Host.PrivilegedGroups": {untell: host(func(h *probe.Host) { h.Unread = []string{"/etc/group"} }), ids: "degraded_not_allowed"},
		"Host.CapEff":           {why: survey},
		"Host.NoNewPrivs":       {why: survey},
		"Host.SeccompMode":      {why: survey},
		"Host.SubUID":           {untell: host(func(h *probe.Host) { h.SubUID = nil }), ids: "subordinate_range_missing"},
		"Host.SubGID":           {untell: host(func(h *probe.Host) { h.SubGID = nil }), ids: "subordinate_range_missing"},
		"Host.FreeSubID":        {why: message},
		"Host.DefaultFree": {untell: host(func(h *probe.Host) {
			h.UID, h.RealUID, h.CapEff, h.SubUID, h.SubGID, h.DefaultFree = 0, 0, 1<<41-1, nil, nil, false
		}), ids: "subordinate_range_missing"},
		"Host.Unread":                  {why: "its rows are User, Groups and PrivilegedGroups"},
		"Host.Problems":                {why: message},
		"Host.UIDMapHelper":            {untell: host(func(h *probe.Host) { h.UIDMapHelper = probe.Helper{} }), ids: "idmap_helper_missing"},
		"Host.GIDMapHelper":            {untell: host(func(h *probe.Host) { h.GIDMapHelper = probe.Helper{} }), ids: "idmap_helper_missing"},
		"Host.SelfUIDMap":              {untell: host(func(h *probe.Host) { h.SelfUIDMap = nil }), ids: "subuid_not_mapped_here"},
		"Host.SelfGIDMap":              {untell: host(func(h *probe.Host) { h.SelfGIDMap = nil }), ids: "subuid_not_mapped_here"},
		"Host.MaxUserNS":               {untell: host(func(h *probe.Host) { h.MaxUserNS = -1 }), ids: "userns_unknown"},
		"Host.UnprivilegedUsernsClone": {untell: host(func(h *probe.Host) { h.UnprivilegedUsernsClone = &minus }), ids: "userns_unknown"},
		"Host.AppArmorRestrictUserns":  {untell: host(func(h *probe.Host) { h.AppArmorRestrictUserns = &minus }), ids: "userns_apparmor"},
		"Host.AppArmorLabel": {untell: host(func(h *probe.Host) {
			one := int64(1)
			h.AppArmorRestrictUserns, h.AppArmorLabel = &one, ""
		}), ids: "userns_apparmor"},
		"Host.Landlock":      {untell: host(func(h *probe.Host) { h.Landlock = probe.Unknown }), ids: "landlock_missing_unknown"},
		"Host.LandlockABI":   {untell: host(func(h *probe.Host) { h.LandlockABI = 0 }), ids: "landlock_missing_unknown"},
		"Host.LandlockErrno": {why: message},
		"Host.ProcMasked":    {why: survey},
		"Host.CgroupV2":      {why: message},
		"Host.RLimits":       {untell: host(func(h *probe.Host) { delete(h.RLimits, "nofile") }), ids: "rlimit_too_low"},
		"Host.SelfExe":       {untell: host(func(h *probe.Host) { h.SelfExe = probe.SelfExe{} }), ids: "launcher_exe_unreadable launcher_not_static"},
		"Identity":           {why: "its rows are the fields of Host that it is chosen by"},
		"Closure":            {why: "the run is refused with the closure's own error"},
		"Cgroup":             {untell: func(b *fake) { b.facts.Cgroup = false }, ids: "no_v2_cgroup"},
		"CgroupErr":          {why: message},
		"Controllers":        {untell: func(b *fake) { b.facts.Controllers = nil }, ids: "controllers_bound_to_v1"},
		"Lacks":              {why: message},
		"CapLast":            {untell: func(b *fake) { b.facts.CapLast = 0 }, ids: "host_facts_unreadable"},
		"CPU":                {untell: func(b *fake) { b.facts.CPU = -1 }, ids: "host_facts_unreadable"},
		"Certificates":       {why: "the bytes that are bound are the ones whose digest is in the plan; none, and the run fails"},
		"Host.OutMounts":     {why: survey},
		"Store":              {why: "a path of nsbox's own; without it denied_mounts speaks of more"},
		"Out":                {untell: func(b *fake) { b.facts.Out = OutFacts{} }, ids: "degraded_not_allowed"},
		"Inputs":             {why: "staging reads them itself, and the digest of the plan says what it read"},
		"Slot":               {untell: func(b *fake) { b.facts.Slot = -1 }, ids: "identity_slots_exhausted"},
	}
}

// TestWhatCannotBeToldIsNotAYes: with any one fact untold nothing is executed.
func TestWhatCannotBeToldIsNotAYes(t *testing.T) {
	fields := map[string]bool{}
	host, facts := reflect.TypeFor[probe.Host](), reflect.TypeFor[Facts]()
	for i := range host.NumField() {
		fields["Host."+host.Field(i).Name] = true
	}
	for i := range facts.NumField() {
		if name := facts.Field(i).Name; name != "Host" {
			fields[name] = true
		}
	}
	table := untoldFacts()
	for name := range fields {
		if r, ok := table[name]; !ok || (r.untell == nil) == (r.why == "") {
			t.Errorf("%s: what if the host does not tell it? One row of untoldFacts answers", name)
		}
	}
	for name, r := range table {
		if !fields[name] {
			t.Errorf("untoldFacts has a row %s, which is no fact", name)
		}
		if r.untell == nil {
			continue
		}
		b, req := newFake(t), goodRequest()
		// Everything is there, and nothing may be weaker.
		b.facts.Controllers, b.facts.Host.CgroupV2.V1Controllers = []string{"memory", "pids", "cpu"}, nil
		b.facts.Out, req.AllowDegraded = OutFacts{Ready: true}, nil
		if name == "Host.DefaultFree" {
			req.AllowDegraded = append(req.AllowDegraded, "launcher_identity")
		}
		if name == "Controllers" {
			b.facts.Host.CgroupV2.V1Controllers = []string{"memory", "cpu"}
		}
		if d := decided(t, b, req); d.Verdict != VerdictRun {
			t.Fatalf("control: %s", ids(d))
		}
		r.untell(&b)
		if b.facts.Identity, b.err = probe.ChooseIdentity(b.facts.Host); b.err != nil {
			b.facts.Identity, b.err = probe.ChooseSingle(b.facts.Host, b.err)
		}
		d := decided(t, b, req)
		if _, ran := executed(t, b, d); ran || d.Verdict != VerdictRefuse || ids(d) != r.ids {
			t.Errorf("%s: executed %v, %s, %q; want %q", name, ran, d.Verdict, ids(d), r.ids)
		}
	}
}
