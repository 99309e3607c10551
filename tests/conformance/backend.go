package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

// ways are the kinds of process every attempt of the backend's suite is made by.
func ways() []string { return []string{"self", "thread", "child", "after exec"} }

// backendFixtures are the suite that the specification's second document asks of
// a backend.
func backendFixtures() []Fixture {
	return []Fixture{
		{ID: "B1", Title: "files and a credential, from every kind of process", Profile: "TP-PROD", Run: b1,
			Attempt: "read an input and its neighbour, write scratch and six other places, cross the boundary by 3 symbolic links, read a planted credential, start the host's shell; each from the program, a thread, a child and after exec",
			Shows:   "what is allowed works, everything else fails alike for all four, and no target changed", Cannot: "resistance to kernel bugs"},
		{ID: "B2", Title: "the box's state, from every kind of process", Profile: "TP-PROD", Quick: true, Run: b2,
			Attempt: "read ids, capabilities, limits, namespaces, mounts, descriptors, names; one call of each denied class whose answer tells the filter from everything else; from all four",
			Shows:   "the kernel shows all four the same, closed as the policy asks", Cannot: "what the kernel does not tell a process about itself"},
		{ID: "B3", Title: "endpoints and a redirect, from every kind of process", Profile: "TP-PROD", Run: b3,
			Attempt: "connect to the listed endpoint and to one beside it, follow a redirect from the one to the other, from all four",
			Shows:   "the listed one answers, the other has no hit", Cannot: "an endpoint that relays by itself"},
		{ID: "B4", Title: "limits met by a thread, a child and after exec", Profile: "TP-PROD", Run: b4,
			Attempt: "exceed tasks, output, wall time and memory, each from a thread, a child and after exec",
			Shows:   "each limit ends or denies it whoever exceeds it", Cannot: "memory where no controller is delegated: the rest is then shown and the verdict BLOCKED"},
		{ID: "B5", Title: "a primitive that is not there", Profile: "TP-PROD", Run: b5,
			Attempt: "start with user namespaces used up, without Landlock, without seccomp, and with a dimension this host cannot hold and nobody allowed to weaken",
			Shows:   "each start is refused with a reason, and the program has not run", Cannot: "primitives that fail later than at the start"},
		{ID: "B6", Title: "what else an artifact may not be", Profile: "TP-PROD", Run: b6,
			Attempt: "leave a directory, a socket, a file with NUL, one that is not UTF-8, an archive, a program, under the artifact's name",
			Shows:   "each is REJECTED with its own reason code, and nothing leaves", Cannot: "kinds of content that nobody has named"},
	}
}

// everyWay runs a set of attempts by all four and returns the reports by way.
func (c *Case) everyWay(j harness.Job) map[string]map[string]string {
	return c.byWay(c.Do(j).WantOK())
}

func (c *Case) byWay(run *harness.Run) map[string]map[string]string {
	by := map[string]map[string]string{}
	for name, how := range run.Report() {
		way, what, _ := strings.Cut(name, ": ")
		if by[way] == nil {
			by[way] = map[string]string{}
		}
		by[way][what] = how
	}
	for _, w := range ways() {
		if len(by[w]) == 0 {
			c.Fatalf("nothing was attempted by %q", w)
		}
	}
	return by
}

// wantEverywhere compares all four reports with one table.
func (c *Case) wantEverywhere(by map[string]map[string]string, want map[string][]string) {
	for _, w := range ways() {
		for name, values := range want {
			if got, tried := by[w][name]; !tried || !slices.Contains(values, got) {
				c.Errorf("%s, %s: %q, want one of %q", w, name, got, values)
			}
		}
	}
	c.Note("attempts", fmt.Sprintf("%d by each of %q", len(by["self"]), ways()))
}

func b1(c *Case) {
	const secret = "NSBOX-VERIFY-CREDENTIAL-OF-THE-CALLER"
	allowed, denied, credential, folder := c.File("given/allowed.csv", "allowed"), c.File("given/denied.csv", Canary), c.canaries()[1], c.Folder()
	job := c.Program("backend.py", "files", "", "/in/allowed.csv", denied, credential, folder)
	job.In, job.Env = []string{allowed}, []string{"NSBOX_VERIFY=" + secret}
	before := harness.Fingerprint(c, allowed, denied, credential, folder)
	by := c.everyWay(job)
	c.Control("the input can be read, also by a link, and scratch written; outside the box the caller reads the rest", func() {
		c.wantEverywhere(by, map[string][]string{"read allowed": {"ok allowed"}, "read by a link within": {"ok allowed"}, "write allowed": {"ok"}})
		for path, want := range map[string]string{denied: Canary, credential: homeCanary} {
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				c.Errorf("%s reads %q: %v", path, got, err)
			}
		}
	})
	absent, refused := []string{"ENOENT", "EACCES"}, []string{"EROFS", "EACCES", "EPERM"}
	c.wantEverywhere(by, map[string][]string{
		"read denied": absent, "read credential": absent, "read by a link": absent,
		"write folder": absent, "write neighbour": absent, "write by a link": absent, "write by a link to a folder": absent,
		"write in": refused, "write usr": refused, "write root": refused, "write input": refused,
		"credential in the environment": {"KeyError"}, "a program of the host": absent,
	})
	if harness.Fingerprint(c, allowed, denied, credential, folder) != before {
		c.Error("a target on the host changed")
	}
}

func b2(c *Case) {
	host := map[string]string{}
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		link, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			c.Fatal(err)
		}
		host["namespace "+name] = link
	}
	run := c.Do(c.Program("backend.py", "state", "")).WantOK()
	for _, row := range run.Result.Attestation {
		if row.Status == attest.Mismatch {
			c.Errorf("%s: asked for %q, the kernel shows %q", row.Restriction, row.Requested, row.Shown)
		}
	}
	by := c.byWay(run)
	for _, w := range ways()[1:] {
		if !maps.Equal(by[w], by["self"]) {
			c.Errorf("%s is shown another box than the program itself: %s", w, unequal(by["self"], by[w]))
		}
	}
	for name, link := range host {
		if by["self"][name] == "" || by["self"][name] == link {
			c.Errorf("%s is the host's", name)
		}
	}
	none, zero := []string{"0000000000000000"}, []string{"0 0"}
	c.wantEverywhere(by, map[string][]string{
		"status CapEff": none, "status CapPrm": none, "status CapInh": none, "status CapBnd": none, "status CapAmb": none, "status NoNewPrivs": {"1"}, "status Seccomp": {"2"},
		"status Uid": {"10001\t10001\t10001\t10001"}, "status Gid": {"10001\t10001\t10001\t10001"}, "status Groups": {""}, "status SigBlk": none,
		"limit open files": {"64 64"}, "limit file size": {"67108864 67108864"}, "limit cpu time": {"25 26"}, "limit core file size": {"1 1"}, "limit processes": {"32 32"},
		"limit msgqueue size": zero, "limit pending signals": {"256 256"}, "limit realtime priority": zero, "limit nice priority": zero, "limit locked memory": {"65536 65536"},
		"names": {"nsbox (none)"}, "interfaces": {"lo"}, "descriptors": {"0 1 2"}, "session": {"2"}, "pids": {"0"},
		"most user_namespaces": {"0"}, "most inotify_instances": {"8"}, "most inotify_watches": {"1024"},
	})
	if strings.Trim(by["self"]["cgroup"], "/ ") != "" {
		c.Errorf("the box sees its place in the host's cgroups: %s", by["self"]["cgroup"])
	}
	c.wantMounts(by["self"])
	calls := c.everyWay(c.Program("backend.py", "calls", ""))
	c.Control("calls that need no right work: a local socket, an open of /dev/null", func() {
		c.wantEverywhere(calls, map[string][]string{"local": {"ok"}, "a device": {"ok"}})
	})
	eperm := []string{"EPERM"}
	c.wantEverywhere(calls, map[string][]string{"mount": eperm, "unshare": eperm, "setns": eperm, "ptrace": eperm, "keyctl": eperm, "bpf": eperm, "perf": eperm, "userfaultfd": eperm,
		"io_uring": {"ENOSYS"}, "inet": eperm, "vsock": eperm, "netlink": eperm, "only Landlock": {"EACCES"}})
}

// wantMounts: two writable mounts, nothing set-id or a device anywhere, nothing
// executable where something can be written, nothing shared.
func (c *Case) wantMounts(state map[string]string) {
	seen := 0
	for name, how := range state {
		at, ok := strings.CutPrefix(name, "mount ")
		if !ok {
			continue
		}
		seen++
		f := strings.Fields(how)
		writable := slices.Contains(f, "rw")
		if writable != (at == "/scratch" || at == "/out") || !slices.Contains(f, "nosuid") || strings.Contains(how, "shared:") {
			c.Errorf("%s is mounted %s", at, how)
		}
		device := strings.HasPrefix(at, "/dev/") || strings.HasPrefix(at, "/proc/") // a node of the host, bound as one file
		if !device && !slices.Contains(f, "nodev") || (writable || device || at == "/in" || at == "/proc") && !slices.Contains(f, "noexec") {
			c.Errorf("%s is mounted %s", at, how)
		}
	}
	for _, at := range []string{"/", "/in", "/scratch", "/out", "/proc", "/proc/keys", "/proc/kallsyms", "/proc/cmdline", "/proc/bus", "/proc/fs"} {
		if state["mount "+at] == "" {
			c.Errorf("nothing is mounted at %s", at)
		}
	}
	c.Note("mounts", seen)
}

func unequal(a, b map[string]string) string {
	var diff []string
	for k := range a {
		if a[k] != b[k] {
			diff = append(diff, fmt.Sprintf("%s: %q, %q", k, a[k], b[k]))
		}
	}
	return strings.Join(diff, "; ")
}

func b3(c *Case) {
	n := c.ownNetwork(endpointAt, denyAt)
	denied := n.listen(denyAt, denyPort)
	allowed := n.listen(endpointAt, endpointPort)
	hops := n.redirect(endpointAt, endpointPort+2, denied.addr.String())
	names := []string{fmt.Sprintf("%s:%d", endpointName, endpointPort), fmt.Sprintf("%s:%d", endpointName, endpointPort+2)}
	rules := []map[string]any{}
	for _, to := range names {
		rules = append(rules, map[string]any{"destination": to, "address": endpointAt, "allow_private": true})
	}
	changes := []harness.Change{{Path: "network.allowed_destinations", Value: names}, {Path: "network.mode", Value: "exact_endpoints"},
		{Path: "process_policy.seccomp.denied_classes", Value: classes("socket_non_AF_UNIX_or_TCP")}, harness.Add("network.destination_rules", rules)}
	var outside atomic.Int32
	c.Control("outside the box the redirect leads to the deny target", func() {
		job := c.Program("backend.py", "endpoints", "self", allowed.addr.String(), denied.addr.String(), hops.addr.String())
		got := c.OnHost(job).Report()
		if outside.Store(denied.hits.Load()); got["denied"] != "ok mock" || outside.Load() != 2 {
			c.Errorf("%v, %d hits on the deny target", got, outside.Load())
		}
	})
	before := hops.hits.Load()
	job := c.Program("backend.py", "endpoints", "", names[0], denied.addr.String(), names[1])
	job.Policy = changes
	by := c.everyWay(job)
	c.Control("the listed endpoint answers all four, and so does the one that redirects", func() {
		c.wantEverywhere(by, map[string][]string{"allowed": {"ok mock"}})
		if got := hops.hits.Load() - before; got < 4 {
			c.Errorf("the redirect was asked for %d times", got)
		}
	})
	c.wantEverywhere(by, map[string][]string{"denied": {"EACCES", "EPERM", "ENETUNREACH", "ECONNREFUSED"}, "redirect": {"URLError", "EACCES", "EPERM", "ENETUNREACH", "ECONNREFUSED", "None"}})
	if got := denied.hits.Load(); got != outside.Load() {
		c.Errorf("%d hits on the deny target, want the control's %d", got, outside.Load())
	}
}

func b4(c *Case) {
	tight := map[string][]harness.Change{
		"processes": {harness.Set("tasks_job", 8)},
		"output":    nil,
		"time":      {harness.Set("wall_workload", 2)},
		"memory":    {harness.Set("memory_workload", 64)},
	}
	most := map[string][]string{"processes": {"processes", "16"}, "output": {"output", "64"}, "time": {"time", "20"}, "memory": {"memory", "16"}}
	least := map[string][]string{"processes": {"processes", "2"}, "output": {"output", "4"}, "time": {"time", "0.01"}, "memory": {"memory", "1"}}
	run := func(changes []harness.Change, way string, args []string) *harness.Run {
		job := c.Program("backend.py", append([]string{"limit", way}, args...)...)
		job.Policy = changes
		return c.Do(job)
	}
	c.Control("below each limit the same program ends by itself", func() {
		for kind, args := range least {
			changes := tight[kind]
			if kind == "time" {
				changes = nil // a busy machine may need two seconds for the start alone
			}
			run(changes, "child", args).WantOK()
		}
	})
	var memory *harness.Run
	for _, way := range ways()[1:] {
		beyond := func(kind string) *harness.Run { return run(tight[kind], way, most[kind]) }
		report := beyond("processes").WantOK().Report()
		if n := c.number(report, "forked"); report["ended"] != "11" || n > 7 || n < 4 {
			c.Errorf("%s: forked %v", way, report)
		}
		beyond("output").Want(launcher.LimitExceededOutput, launcher.ExitLimit)
		beyond("time").Want(launcher.TimeoutWall, launcher.ExitLimit)
		memory = beyond("memory")
		if memory.Result.Workload.Outcome == launcher.Exited && strings.Contains(string(memory.Stdout), `"held"`) {
			c.Errorf("%s: 128 MiB were held under 64: %s", way, memory.Stdout)
		}
	}
	c.Degraded(memory, policy.DimMemory, "no memory controller is delegated to this caller; the other limits held")
}

// without makes one system call, by its number, fail with ENOSYS for what is
// started: a kernel without it. It exempts nothing else.
const without = `import ctypes, os, struct, sys
number = int(sys.argv[1])
code = struct.pack('HBBI', 0x20, 0, 0, 0) + struct.pack('HBBI', 0x15, 0, 1, number) + struct.pack('HBBI', 0x06, 0, 0, 0x50000 | 38) + struct.pack('HBBI', 0x06, 0, 0, 0x7fff0000)
held = ctypes.create_string_buffer(code)
prog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(code) // 8, ctypes.addressof(held)))
if ctypes.CDLL(None, use_errno=True).prctl(22, 2, prog, 0, 0) != 0: sys.exit('no filter: ' + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[2], sys.argv[2:])
`

func b5(c *Case) {
	ran := "the program has run"
	job := harness.Job{Code: "print('" + ran + "')\n"}
	refused := func(what string, j harness.Job) {
		r := c.Do(j)
		if r.Status != launcher.ExitRefused || strings.Contains(string(r.Stdout), ran) || !r.HasResult || r.Result.Reason == nil {
			c.Errorf("%s: status %d, %+v, printed %s%s", what, r.Status, r.Result.Workload, r.Stdout, r.Stderr)
			return
		}
		c.Note(what, fmt.Sprintf("%s: %s", r.Result.Reason.ID, r.Result.Reason.What))
	}
	var whole *harness.Run
	c.Control("with everything there it runs", func() { whole = c.Do(job).WantOK() })
	// A namespace of the caller's own whose limit of user namespaces is zero.
	none := job
	none.Shell = `exec unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"' sh "$@"`
	refused("no user namespace is left", none)
	if c.suite.caller.UID == 0 { // another caller's filter would take newuidmap its set-id bit
		filter := c.File("without.py", without)
		under := func(number int) harness.Job {
			j := job
			j.Shell = fmt.Sprintf(`exec /usr/bin/python3 %s %d "$@"`, filter, number)
			return j
		}
		c.Control("under a filter that takes away what nobody calls it runs", func() { c.Do(under(9999)).WantOK() })
		for what, number := range map[string]int{"no Landlock": 444, "no seccomp": 317, "no mount_setattr": 442, "no pivot_root": 155} {
			refused(what, under(number))
		}
	}
	if bare := job; len(whole.Result.Degraded) > 0 {
		bare.Bare = true
		refused("a dimension that nobody allowed to weaken: "+whole.Result.Degraded[0].Dimension, bare)
	}
}

// b6 is the rest of what artifact_export.reject names, beside S4, S10 and S16.
func b6(c *Case) {
	c.exports()
	for code, make := range map[string]string{
		"directory":        "os.mkdir(p)\n",
		"socket":           "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind(p)\n",
		"nul_byte":         "put('summary.csv', b'a,b\\n1,\\x00\\n')\n",
		"not_utf8":         "put('summary.csv', b'a,b\\n1,\\xff\\n')\n",
		"archive_magic":    "import io, zipfile\nwith zipfile.ZipFile(p, 'w') as z: z.writestr('a.csv', 'a,b')\n",
		"executable_magic": "put('summary.csv', b'#!/bin/sh\\n')\n",
	} {
		job, folder := c.leave(make)
		c.WantRejected(c.Do(job), folder, code)
	}
}
