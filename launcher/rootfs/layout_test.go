package rootfs

import (
	"bytes"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

func goodOptions() Options {
	return Options{StagedIn: "/state/in", ScratchBytes: 1 << 20, ScratchInodes: 16, OutBytes: 2 << 20, OutInodes: 8,
		WorkloadUID: 10001, WorkloadGID: 10001, ExporterUID: 20002}
}

func TestLayoutOrderAndContent(t *testing.T) {
	c := &Closure{Nodes: []nsexec.Node{
		{Path: "/bin", Kind: nsexec.Symlink, Source: "usr/bin"},
		{Path: "/etc", Kind: nsexec.Dir, Mode: 0o755}, // as a link through /etc/alternatives leaves it
		{Path: "/usr", Kind: nsexec.Dir, Mode: 0o755},
		{Path: "/usr/bin", Kind: nsexec.Dir, Mode: 0o755},
		{Path: "/usr/bin/x", Kind: nsexec.BindFile, Source: "/usr/bin/x", Access: execute},
	}}
	nodes, err := Layout(c, goodOptions())
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]nsexec.NodeKind{}
	for i, n := range nodes {
		if _, twice := made[n.Path]; twice {
			t.Errorf("%s stands twice", n.Path)
		}
		if i == 0 != (n.Path == "/") {
			t.Errorf("node %d is %s; / must stand first", i, n.Path)
		}
		if i > 0 && made[path.Dir(n.Path)] != nsexec.Dir {
			t.Errorf("%s stands before its parent", n.Path)
		}
		made[n.Path] = n.Kind
	}
	const r, l, w, x = nsexec.Read, nsexec.List, nsexec.Write, nsexec.Execute
	for p, want := range map[string]nsexec.Node{
		"/":            {Kind: nsexec.Dir, Mode: 0o755, Access: l},
		"/in":          {Kind: nsexec.BindDir, Source: "/state/in", Access: r | l},
		"/scratch":     {Kind: nsexec.Tmpfs, Mode: 0o700, Bytes: 1 << 20, Inodes: 16, UID: 10001, GID: 10001, Access: r | l | w},
		"/out":         {Kind: nsexec.Tmpfs, Mode: 0o700, Bytes: 2 << 20, Inodes: 8, UID: 10001, GID: 10001, Access: r | l | w},
		"/proc":        {Kind: nsexec.Proc, Access: r | l},
		"/dev":         {Kind: nsexec.Dir, Mode: 0o755},
		"/dev/null":    {Kind: nsexec.Device, Source: "/dev/null", Access: r | w},
		"/dev/zero":    {Kind: nsexec.Device, Source: "/dev/zero", Access: r},
		"/dev/urandom": {Kind: nsexec.Device, Source: "/dev/urandom", Access: r},
		"/dev/stdout":  {Kind: nsexec.Symlink, Source: "/proc/self/fd/1"},
		"/usr/bin/x":   {Kind: nsexec.BindFile, Source: "/usr/bin/x", Access: r | x},
	} {
		n := nodeAt(nodes, p)
		if n == nil {
			t.Errorf("%s is missing", p)
			continue
		}
		want.Path = p
		got := *n
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s has data", p)
		}
		got.Data = nil
		if got.Path != want.Path || got.Kind != want.Kind || got.Source != want.Source || got.Mode != want.Mode || got.Bytes != want.Bytes ||
			got.Inodes != want.Inodes || got.UID != want.UID || got.GID != want.GID || got.Access != want.Access {
			t.Errorf("%s: %+v, want %+v", p, got, want)
		}
	}
	var etc []string
	for _, n := range nodes {
		if path.Dir(n.Path) == "/etc" {
			etc = append(etc, path.Base(n.Path))
			if n.Kind != nsexec.File || n.Access != r || n.Mode != 0o444 {
				t.Errorf("%s: %+v", n.Path, n)
			}
		}
		if n.Access&w != 0 && n.Kind != nsexec.Tmpfs && n.Path != "/dev/null" {
			t.Errorf("%s is writable", n.Path)
		}
	}
	if got := strings.Join(etc, " "); got != "group hosts ld.so.cache localtime nsswitch.conf passwd" {
		t.Errorf("/etc holds %s", got)
	}
	for _, p := range []string{"/tmp", "/sys", "/run", "/home", "/dev/shm"} {
		if nodeAt(nodes, p) != nil {
			t.Errorf("%s exists", p)
		}
	}
	o := goodOptions()
	o.StagedIn = ""
	if nodes, err = Layout(c, o); err != nil || nodeAt(nodes, "/in").Kind != nsexec.Dir {
		t.Errorf("without inputs /in is %+v, %v", nodeAt(nodes, "/in"), err)
	}
}

func TestLayoutRefuses(t *testing.T) {
	with := func(list ...nsexec.Node) *Closure { return &Closure{Nodes: list} }
	bindAt := func(p string) nsexec.Node { return nsexec.Node{Path: p, Kind: nsexec.BindFile, Source: "/x"} }
	for name, c := range map[string]struct {
		c  *Closure
		o  func(*Options)
		id reason.ID
	}{
		"same-path":         {with(bindAt("/scratch")), nil, reason.RootfsDuplicateTarget},
		"same-generated":    {with(nsexec.Node{Path: "/etc", Kind: nsexec.Dir}, bindAt("/etc/passwd")), nil, reason.RootfsDuplicateTarget},
		"link-for-dir":      {with(nsexec.Node{Path: "/etc", Kind: nsexec.Symlink, Source: "x"}), nil, reason.RootfsDuplicateTarget},
		"dir-for-tmpfs":     {with(nsexec.Node{Path: "/out", Kind: nsexec.Dir}), nil, reason.RootfsDuplicateTarget},
		"below-tmpfs":       {with(bindAt("/scratch/x")), nil, reason.RootfsBadParent},
		"below-link":        {with(nsexec.Node{Path: "/bin", Kind: nsexec.Symlink, Source: "usr/bin"}, bindAt("/bin/x")), nil, reason.RootfsBadParent},
		"no-parent":         {with(bindAt("/opt/x")), nil, reason.RootfsBadParent},
		"relative":          {with(bindAt("opt")), nil, reason.RootfsBadParent},
		"unclean":           {with(bindAt("/dev/../x")), nil, reason.RootfsBadParent},
		"scratch-unbounded": {with(), func(o *Options) { o.ScratchBytes = 0 }, reason.RootfsBadOptions},
		"inodes-unbounded":  {with(), func(o *Options) { o.ScratchInodes = 0 }, reason.RootfsBadOptions},
		"out-unbounded":     {with(), func(o *Options) { o.OutBytes = -1 }, reason.RootfsBadOptions},
		"out-inodes":        {with(), func(o *Options) { o.OutInodes = 0 }, reason.RootfsBadOptions},
		"root-workload":     {with(), func(o *Options) { o.WorkloadUID = 0 }, reason.RootfsBadOptions},
		"nobody-workload":   {with(), func(o *Options) { o.WorkloadGID = nobody }, reason.RootfsBadOptions},
		"same-ids":          {with(), func(o *Options) { o.ExporterUID = o.WorkloadUID }, reason.RootfsBadOptions},
		"relative-in":       {with(), func(o *Options) { o.StagedIn = "in" }, reason.RootfsBadOptions},
	} {
		t.Run(name, func(t *testing.T) {
			o := goodOptions()
			if c.o != nil {
				c.o(&o)
			}
			_, err := Layout(c.c, o)
			wantReason(t, err, c.id, "")
		})
	}
}

func TestTreeKeepsOneClaim(t *testing.T) {
	tr := newTree(place{})
	lib := nsexec.Node{Path: "/a/b", Kind: nsexec.BindFile, Source: "/x", Access: nsexec.Read}
	exe := lib
	exe.Access = execute
	for _, n := range []nsexec.Node{lib, exe, {Path: "/s", Kind: nsexec.BindDir, Source: "/s"}, {Path: "/s/inside", Kind: nsexec.BindFile, Source: "/y"}} {
		if err := tr.add(n); err != nil {
			t.Fatal(err)
		}
	}
	if got := tr.nodes["/a/b"].Access; got != execute {
		t.Errorf("access of a library that is also run: %b", got)
	}
	if _, ok := tr.nodes["/s/inside"]; ok {
		t.Error("a file that a bound directory shows is bound again")
	}
	other := lib
	other.Source = "/z"
	wantReason(t, tr.add(other), reason.RootfsDuplicateTarget, "/z")
}

func TestLDCacheOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		sign int
	}{
		{"libz.so.1", "libz.so.1", 0}, {"libz.so.1", "liby.so.1", 1}, {"liba.so.10", "liba.so.9", 1}, {"liba.so.09", "liba.so.9", 0},
		{"lib1", "liba", 1}, {"liba", "lib1", -1}, {"lib", "lib1", -1}, {"lib1", "lib", 1}, {"libBroken", "liba", -1}, {"lib-a", "lib.a", -1},
	} {
		got := libCompare(c.a, c.b)
		if got > 0 != (c.sign > 0) || got < 0 != (c.sign < 0) {
			t.Errorf("libCompare(%s, %s) = %d, want sign %d", c.a, c.b, got, c.sign)
		}
	}
}

func TestLDCacheRoundTripAndDamage(t *testing.T) {
	libs := []Library{{"liba.so.9", "/l/liba.so.9"}, {"liba.so.10", "/l/liba.so.10"}, {"libz.so.1", "/opt/libz.so.1"}}
	b := encodeLDCache(libs)
	for _, prefix := range []string{"", "ld.so-1.7.0\x00old table of another format"} {
		got := parseLDCache(append([]byte(prefix), b...))
		if len(got) != len(libs) {
			t.Fatalf("read %v", got)
		}
		for _, l := range libs {
			if got[l.Name] != l.Path {
				t.Errorf("%s -> %s", l.Name, got[l.Name])
			}
		}
	}
	hwcap := bytes.Clone(b)
	hwcap[ldHeaderSize+16] = 1
	if got := parseLDCache(hwcap); len(got) != len(libs)-1 {
		t.Errorf("a variant for some processors was taken: %v", got)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] = 0xff
		parseLDCache(bad)
		parseLDCache(b[:i])
	}
}

// The host's own tool must read what was written, in an order it also writes.
func TestLDConfigReadsOurCache(t *testing.T) {
	c, err := Resolve("/usr/bin/python3", nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cache")
	if err := os.WriteFile(file, encodeLDCache(c.Libraries), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/sbin/ldconfig", "-p", "-C", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, l := range c.Libraries {
		if !strings.Contains(string(out), "\t"+l.Name+" (libc6,x86-64) => "+l.Path+"\n") {
			t.Errorf("%s is not listed:\n%s", l.Name, out)
		}
	}
	if n := bytes.Count(out, []byte(" => ")); n != len(c.Libraries) {
		t.Errorf("%d entries, want %d", n, len(c.Libraries))
	}
	host, err := exec.Command("/sbin/ldconfig", "-p").Output()
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range strings.Lines(string(host)) {
		name, _, ok := strings.Cut(strings.TrimSpace(line), " (")
		if !ok || !strings.Contains(line, " => ") {
			continue
		}
		if last != "" && libCompare(last, name) < 0 {
			t.Errorf("the host's cache has %s before %s; libCompare says otherwise", last, name)
		}
		last = name
	}
	if last == "" {
		t.Error("the host's cache listed nothing: no comparison took place")
	}
}

func TestLocaltimeIsUTC(t *testing.T) {
	loc, err := time.LoadLocationFromTZData("UTC", utcZone())
	if err != nil {
		t.Fatal(err)
	}
	for _, sec := range []int64{-1 << 40, 0, 1 << 31, 1 << 40} {
		if name, off := time.Unix(sec, 0).In(loc).Zone(); name != "UTC" || off != 0 {
			t.Errorf("%d: zone %s offset %d", sec, name, off)
		}
	}
}

func TestPasswdAndGroup(t *testing.T) {
	o := goodOptions()
	for _, want := range []string{"init:x:0:0:", "sandbox:x:10001:10001:workload:/scratch:", "exporter:x:20002:", "nobody:x:65534:65534:"} {
		if !strings.Contains("\n"+string(passwd(o)), "\n"+want) {
			t.Errorf("passwd lacks %s:\n%s", want, passwd(o))
		}
	}
	o.ExporterUID = o.WorkloadGID
	if n := strings.Count(string(group(o)), ":10001:"); n != 1 {
		t.Errorf("a gid stands %d times in group", n)
	}
}
