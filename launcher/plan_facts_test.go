package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"nsbox/cgroupv2"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
)

// goodHost is a machine on which every box can be made, as its plain user alice
// sees it. The memory and cpu controllers are on version 1.
func goodHost() *probe.Host {
	whole := []probe.Extent{{Inside: 0, Outside: 0, Count: 1<<32 - 1}}
	return &probe.Host{
		Kernel: "6.1.0-18-amd64", BootID: "6f0e7f60-5a4f-4f42-9c6f-0d1fd8b0a001", Arch: "amd64", CPUs: 4,
		UID: 1000, GID: 1000, RealUID: 1000, RealGID: 1000, User: "alice", Groups: []probe.Group{{ID: 1000, Name: "alice"}},
		SubUID: []probe.Range{{Start: 100000, Count: 65536}}, SubGID: []probe.Range{{Start: 200000, Count: 65536}},
		UIDMapHelper: probe.Helper{Path: "/usr/bin/newuidmap", OK: true}, GIDMapHelper: probe.Helper{Path: "/usr/bin/newgidmap", OK: true},
		SelfUIDMap: whole, SelfGIDMap: whole, MaxUserNS: 30000,
		Landlock: probe.Yes, LandlockABI: 4,
		CgroupV2: probe.CgroupV2{Mount: "/sys/fs/cgroup", Self: "/", Dir: "/sys/fs/cgroup", V1Controllers: []string{"memory", "cpu"}},
		RLimits: map[string]int64{"nofile": 1 << 20, "fsize": probe.Unlimited, "cpu": probe.Unlimited, "core": probe.Unlimited,
			"stack": probe.Unlimited, "as": probe.Unlimited, "nproc": 96000, "memlock": probe.Unlimited, "sigpending": 96000},
		SelfExe: probe.SelfExe{Path: "/usr/local/bin/nsbox", WorldReadable: probe.Yes, Static: probe.Yes},
	}
}

// goodFacts are goodHost's, with a Python interpreter and a job cgroup.
func goodFacts(t testing.TB) Facts {
	t.Helper()
	h := goodHost()
	id, err := probe.ChooseIdentity(h)
	if err != nil {
		t.Fatal(err)
	}
	return Facts{Host: h, Identity: id, Closure: pythonClosure(), Cgroup: true, CapLast: 40, CPU: 2, Certificates: rootfs.Certificates{Path: "/cache/ca-1.pem", SHA256: "1"}}
}

func pythonClosure() *rootfs.Closure {
	dir := func(p string) nsexec.Node { return nsexec.Node{Path: p, Kind: nsexec.Dir, Mode: 0o755} }
	return &rootfs.Closure{
		Command: "/usr/bin/python3", Program: "/usr/bin/python3", Real: "/usr/bin/python3.11", Python: "3.11", Digest: "c105e",
		Nodes: []nsexec.Node{dir("/usr"), dir("/usr/bin"), dir("/usr/lib"),
			{Path: "/usr/bin/python3", Kind: nsexec.BindFile, Source: "/usr/bin/python3.11", Access: nsexec.Read | nsexec.Execute},
			{Path: "/usr/lib/python3.11", Kind: nsexec.BindDir, Source: "/usr/lib/python3.11", Access: nsexec.Read | nsexec.List}},
	}
}

// onRoot is goodFacts for uid 0.
func onRoot(t testing.TB) Facts {
	t.Helper()
	f := goodFacts(t)
	h := f.Host
	h.UID, h.GID, h.RealUID, h.RealGID, h.User, h.CapEff = 0, 0, 0, 0, "root", 1<<41-1
	h.Groups, h.PrivilegedGroups = []probe.Group{{ID: 0, Name: "root"}}, []string{"root"}
	h.SubUID, h.SubGID, h.DefaultFree = nil, nil, true
	var err error
	if f.Identity, err = probe.ChooseIdentity(h); err != nil {
		t.Fatal(err)
	}
	return f
}

func cgroupError(k cgroupv2.Kind) error {
	return &cgroupv2.Error{Op: "find", Path: "/sys/fs/cgroup", Kind: k, Err: errors.New("as found")}
}

func goodRequest() Request {
	return Request{Argv: []string{"python3", "/in/summarise.py"}, Inputs: []Input{{Path: "/srv/txhousing.csv"}},
		AllowDegraded: []string{policy.DimMemory, policy.DimCPURate, policy.DimOutStorage}}
}

// preset is the decoded sales-summary with values put at JSON paths.
func preset(t testing.TB, edits map[string]any) (*policy.Policy, policy.Source, error) {
	t.Helper()
	raw, ok := policy.PresetBytes("sales-summary")
	if !ok {
		t.Fatal("the preset is missing")
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for path, value := range edits {
		doc = put(t, doc, strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }), value)
	}
	edited, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policy.Decode("edited", edited)
	return p, policy.Source{Arg: "/srv/policy.json", Digest: fmt.Sprintf("sha256:%x", len(edited))}, err
}

func goodPolicy(t testing.TB) (*policy.Policy, policy.Source) {
	t.Helper()
	p, src, err := preset(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, src
}

func put(t testing.TB, v any, path []string, value any) any {
	t.Helper()
	if len(path) == 0 {
		return value
	}
	switch v := v.(type) {
	case map[string]any:
		v[path[0]] = put(t, v[path[0]], path[1:], value)
		return v
	case []any:
		if path[0] == "+" {
			return append(v, value)
		}
		i, err := strconv.Atoi(path[0])
		if err != nil || i >= len(v) {
			t.Fatalf("no element %q", path[0])
		}
		v[i] = put(t, v[i], path[1:], value)
		return v
	}
	t.Fatalf("nothing at %v", path)
	return nil
}

// mustPlan makes the plan of the good request and policy.
func mustPlan(t testing.TB, f Facts) *Plan {
	t.Helper()
	p, src := goodPolicy(t)
	pl, err := MakePlan(goodRequest(), p, src, f)
	if err != nil {
		t.Fatal(err)
	}
	return pl
}

func mustDigest(t testing.TB, pl *Plan) string {
	t.Helper()
	d, err := pl.Digest(nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// idOf is the reason id of a refusal, or empty.
func idOf(err error) reason.ID {
	if e := reason.Of(err); e != nil {
		return e.ID
	}
	return ""
}
