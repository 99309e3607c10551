package probe

import (
	"strings"
	"testing"

	"nsbox/launcher/reason"
)

var wholeMap = []Extent{{0, 0, 4294967295}}

// plainHost is an ordinary user on a host where everything is in order.
func plainHost() *Host {
	r := []Range{{100000, 65536}}
	return &Host{
		Kernel: "6.1.0", BootID: "b", UID: 1000, RealUID: 1000, GID: 1000, RealGID: 1000, User: "alice",
		Groups: []Group{{1000, "alice"}},
		SubUID: r, SubGID: []Range{{200000, 4000}}, FreeSubID: 165536, DefaultFree: true,
		UIDMapHelper: Helper{Path: "/usr/bin/newuidmap", OK: true},
		GIDMapHelper: Helper{Path: "/usr/bin/newgidmap", OK: true},
		SelfUIDMap:   wholeMap, SelfGIDMap: wholeMap,
		MaxUserNS: 1000, Landlock: Yes, LandlockABI: 4,
		RLimits: map[string]int64{"nofile": 1024, "cpu": Unlimited},
		SelfExe: SelfExe{Path: "/opt/nsbox", WorldReadable: Yes, Static: Yes},
	}
}

func rootHost() *Host {
	h := plainHost()
	h.UID, h.RealUID, h.GID, h.RealGID, h.User = 0, 0, 0, 0, "root"
	h.CapEff = 1<<41 - 1
	h.SubUID, h.SubGID = nil, nil
	h.UIDMapHelper, h.GIDMapHelper = Helper{}, Helper{}
	return h
}

func TestChooseIdentity(t *testing.T) {
	one := int64(1)
	for _, c := range []struct {
		name     string
		host     *Host
		edit     func(h *Host)
		kind     string
		uid, gid Range
		id       reason.ID
		next     string // part of the next step
	}{
		{name: "user", host: plainHost(), kind: Subordinate, uid: Range{100000, 65536}, gid: Range{200000, 4000}},
		{name: "user, no uid range", host: plainHost(), edit: func(h *Host) { h.SubUID = nil },
			id: reason.SubordinateRangeMissing, next: "sudo usermod --add-subuids 165536-231071 --add-subgids 165536-231071 alice"},
		{name: "user, no gid range", host: plainHost(), edit: func(h *Host) { h.SubGID = nil }, id: reason.SubordinateRangeMissing, next: "usermod"},
		{name: "no name, no range", host: plainHost(), edit: func(h *Host) { h.User, h.SubUID = "", nil },
			id: reason.SubordinateRangeMissing, next: "echo 1000:165536:65536 | sudo tee -a /etc/subuid /etc/subgid"},
		{name: "no range and none free", host: plainHost(), edit: func(h *Host) { h.SubUID, h.FreeSubID = nil, 0 },
			id: reason.SubordinateRangeMissing, next: "assign 65536 ids"},
		{name: "no_new_privs", host: plainHost(), edit: func(h *Host) { h.NoNewPrivs = true }, id: reason.NoNewPrivsSet, next: "NoNewPrivileges"},
		{name: "no newuidmap", host: plainHost(), edit: func(h *Host) { h.UIDMapHelper = Helper{Path: "/usr/bin/newuidmap", Why: "not installed"} }, id: reason.IdmapHelperMissing, next: "apt install uidmap"},
		{name: "no newgidmap", host: plainHost(), edit: func(h *Host) { h.GIDMapHelper = Helper{Path: "/usr/bin/newgidmap", Why: "not installed"} }, id: reason.IdmapHelperMissing, next: "apt install uidmap"},
		{name: "uids not mapped", host: plainHost(), edit: func(h *Host) { h.SelfUIDMap = []Extent{{0, 1000, 1}} }, id: reason.SubuidNotMappedHere},
		{name: "gids not mapped", host: plainHost(), edit: func(h *Host) { h.SelfGIDMap = []Extent{{0, 1000, 1}} }, id: reason.SubuidNotMappedHere},
		{name: "three ids mapped", host: plainHost(), edit: func(h *Host) { h.SelfUIDMap = []Extent{{0, 0, 100003}} }, id: reason.SubuidNotMappedHere},
		{name: "four ids mapped", host: plainHost(), edit: func(h *Host) { h.SelfUIDMap = []Extent{{0, 0, 100004}} },
			kind: Subordinate, uid: Range{100000, 4}, gid: Range{200000, 4000}},
		{name: "unset map", host: plainHost(), edit: func(h *Host) { h.SelfUIDMap = nil }, id: reason.SubuidNotMappedHere},
		{name: "setuid root", host: plainHost(), edit: func(h *Host) { h.UID = 0 }, id: reason.LauncherSetuid, next: "chmod ug-s"},
		{name: "setgid", host: plainHost(), edit: func(h *Host) { h.GID = 27 }, id: reason.LauncherSetuid},
		{name: "dropped to a user", host: rootHost(), edit: func(h *Host) { h.UID = 1000 }, id: reason.LauncherSetuid},

		{name: "root, default", host: rootHost(), kind: Privileged, uid: Range{defaultBase, defaultCount}, gid: Range{defaultBase, defaultCount}},
		{name: "root, own range", host: rootHost(), edit: func(h *Host) { h.SubUID, h.SubGID = []Range{{500000, 100}}, []Range{{600000, 100}} },
			kind: Privileged, uid: Range{500000, 100}, gid: Range{600000, 100}},
		{name: "root, half a range", host: rootHost(), edit: func(h *Host) { h.SubUID = []Range{{500000, 100}} },
			kind: Privileged, uid: Range{defaultBase, defaultCount}, gid: Range{defaultBase, defaultCount}},
		{name: "root, own range not mapped, default is", host: rootHost(), edit: func(h *Host) {
			h.SubUID, h.SubGID = []Range{{500000, 100}}, []Range{{500000, 100}}
			h.SelfUIDMap = []Extent{{defaultBase, 5, 100}}
			h.SelfGIDMap = h.SelfUIDMap
		}, kind: Privileged, uid: Range{defaultBase, 100}, gid: Range{defaultBase, 100}},
		{name: "root of a small container", host: rootHost(), edit: func(h *Host) { h.SelfUIDMap = []Extent{{0, 100000, 65536}} }, id: reason.SubuidNotMappedHere},
		{name: "root, default taken", host: rootHost(), edit: func(h *Host) { h.DefaultFree = false }, id: reason.SubordinateRangeMissing},
		{name: "root without CAP_SETGID", host: rootHost(), edit: func(h *Host) { h.CapEff &^= 1 << capSetgid }, id: reason.LauncherCapsMissing},
		{name: "root, no_new_privs is no matter", host: rootHost(), edit: func(h *Host) { h.NoNewPrivs = true; h.UnprivilegedUsernsClone = &one },
			kind: Privileged, uid: Range{defaultBase, defaultCount}, gid: Range{defaultBase, defaultCount}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(c.host)
			}
			got, err := ChooseIdentity(c.host)
			if c.id != "" {
				r := reason.Of(err)
				if r == nil || r.ID != c.id || !strings.Contains(r.Next, c.next) || r.Next == "" || r.Why == "" {
					t.Fatalf("%+v %#v, want %s with next %q", got, r, c.id, c.next)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != c.kind || got.UID != c.uid || got.GID != c.gid || got.Source == "" {
				t.Errorf("%+v, want %s %v %v", got, c.kind, c.uid, c.gid)
			}
		})
	}
}

func TestProblemIsNamed(t *testing.T) {
	h := plainHost()
	h.SubUID, h.Problems = nil, []string{"/etc/subuid:1: the line ends in a carriage return"}
	_, err := ChooseIdentity(h)
	if !strings.Contains(err.Error(), "carriage return") {
		t.Errorf("%v does not say which line was left out", err)
	}
}

func TestSlotsShareNoID(t *testing.T) {
	i := Identity{Kind: Subordinate, UID: Range{100000, 43}, GID: Range{200000, 41}, Source: "test"}
	if i.Slots() != 10 {
		t.Fatalf("%d slots of 41 ids", i.Slots())
	}
	uids, gids := map[int64]bool{}, map[int64]bool{}
	for n := range i.Slots() {
		s, err := i.Map(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []HostID{s.Root, s.Workload, s.ExportRoot, s.Exporter} {
			if uids[id.UID] || gids[id.GID] {
				t.Errorf("slot %d: id %+v is used twice", n, id)
			}
			uids[id.UID], gids[id.GID] = true, true
			if id.UID < 100000 || id.UID >= 100043 || id.GID < 200000 || id.GID >= 200041 {
				t.Errorf("slot %d: id %+v is outside of the ranges", n, id)
			}
		}
	}
	if len(uids) != 40 {
		t.Errorf("%d ids", len(uids))
	}
	for _, n := range []int{-1, 10, 1 << 62} {
		if s, err := i.Map(n); reason.Of(err) == nil || reason.Of(err).ID != reason.IdentitySlotsExhausted {
			t.Errorf("slot %d: %+v, %v", n, s, err)
		}
	}
}

func TestPowers(t *testing.T) {
	file := parseGroup("sudo:x:27:bob\ndocker:x:999:\nadm:x:4:alice\nroot:x:0:\n")
	for _, c := range []struct {
		name   string
		groups []Group
		user   string
		want   string
	}{
		{"plain", []Group{{1000, "alice"}, {4, "adm"}}, "alice", ""},
		{"in the process", []Group{{999, "docker"}}, "alice", "docker"},
		{"in the file only", []Group{{1000, "bob"}}, "bob", "sudo"},
		{"root's group by number", []Group{{0, ""}}, "alice", "root"},
		{"no name is no member", []Group{{1000, ""}}, "", ""},
	} {
		if got := strings.Join(privilegedNames(c.groups, c.user, file), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name string
		edit func(h *Host)
		want string
	}{
		{"plain", func(h *Host) {}, ""},
		{"root", func(h *Host) { h.UID, h.RealUID = 0, 0 }, "uid 0"},
		{"real root", func(h *Host) { h.RealUID = 0 }, "uid 0"},
		{"capability", func(h *Host) { h.CapEff = 0x2 }, "capabilities 0x2"},
		{"group", func(h *Host) { h.PrivilegedGroups = []string{"docker"} }, "member of docker"},
		{"nameless group", func(h *Host) { h.Groups = append(h.Groups, Group{4242, ""}) }, "4242"},
	} {
		h := plainHost()
		c.edit(h)
		got := strings.Join(h.Powers(), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNoTwoAccountsShareIDs: every account's launcher holds its locks in a place of
// its own, so whatever the files say, no id may come to two of them. A user called
// nsbox is one like the others.
func TestNoTwoAccountsShareIDs(t *testing.T) {
	const passwd = "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/:/bin/sh\nnsbox:x:998:998::/:/bin/sh\n"
	accounts := []int{0, 998, 1000}
	for _, c := range []struct {
		name, sub string
		have      int // accounts that come to ids
	}{
		{"nothing but nsbox's", "nsbox:700000:65536\n", 2},
		{"nsbox's by number", "998:700000:65536\n", 2},
		{"nsbox has what root would fall back to", "nsbox:1879048192:65536\n", 1},
		{"each its own", "nsbox:700000:65536\nroot:800000:65536\nalice:100000:65536\n", 3},
		{"root's and nsbox's overlap", "nsbox:700000:65536\nroot:765535:65536\nalice:100000:65536\n", 2},
		{"root's other name", "toor:700000:65536\nnsbox:700000:65536\n", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []Identity
			for _, uid := range accounts {
				h := plainHost()
				if uid == 0 {
					h = rootHost()
				}
				h.UID, h.RealUID, h.Problems = uid, uid, nil
				h.surveyAccounts(func(path string) string {
					return map[string]string{"/etc/passwd": passwd, "/etc/subuid": c.sub, "/etc/subgid": c.sub}[path]
				})
				if id, err := ChooseIdentity(h); err == nil {
					got = append(got, id)
				}
			}
			for i, a := range got {
				for _, b := range got[:i] {
					if a.UID.overlaps(b.UID) || a.GID.overlaps(b.GID) {
						t.Errorf("%+v and %+v", a, b)
					}
				}
			}
			if len(got) != c.have {
				t.Errorf("%d accounts have ids, want %d: %+v", len(got), c.have, got)
			}
		})
	}
}
