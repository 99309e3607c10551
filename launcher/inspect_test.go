package launcher

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/nsexec"
)

// pinned is a plan whose box has every row: the cpu is pinned, Landlock is on.
func pinned(t *testing.T) *Plan { return mustPlan(t, goodFacts(t)) }

func edit(field *string, old, new string) {
	if !strings.Contains(*field, old) {
		panic("nothing to doctor: " + old)
	}
	*field = strings.Replace(*field, old, new, 1)
}

// Whatever the kernel or the child shows otherwise than the plan asks is a
// mismatch, of exactly the rows that speak of it. Nothing doctored: none.
func TestADoctoredAnswerIsAMismatch(t *testing.T) {
	pl := pinned(t)
	if got := mismatches(t, pl, nil); len(got) != 0 {
		t.Fatalf("control: %v", got)
	}
	type doctor = func(*sight, *nsexec.Box)
	child := func(old, new string) doctor { return func(v *sight, _ *nsexec.Box) { edit(&v.child, old, new) } }
	init := func(old, new string) doctor { return func(v *sight, _ *nsexec.Box) { edit(&v.init, old, new) } }
	limit := func(old, new string) doctor { return func(v *sight, _ *nsexec.Box) { edit(&v.limits, old, new) } }
	mount := func(old, new string) doctor { return func(v *sight, _ *nsexec.Box) { edit(&v.mounts, old, new) } }
	report := func(f func(*nsexec.Report)) doctor { return func(_ *sight, b *nsexec.Box) { f(b.Report) } }
	none := "0000000000000000"
	table := map[string]struct {
		doctor doctor
		rows   []string
	}{
		"real uid":            {child("Uid:\t100001", "Uid:\t1000"), []string{"workload-uid"}},
		"saved gid":           {child("200001\nFDSize", "0\nFDSize"), []string{"workload-gid"}},
		"a group":             {child("Groups:\t ", "Groups:\t27 "), []string{"supplementary-groups"}},
		"inheritable":         {child("CapInh:\t"+none, "CapInh:\t0000000000000001"), []string{"capabilities-CapInh"}},
		"permitted":           {child("CapPrm:\t"+none, "CapPrm:\t0000000000000001"), []string{"capabilities-CapPrm"}},
		"effective":           {child("CapEff:\t"+none, "CapEff:\t0000000000000001"), []string{"capabilities-CapEff"}},
		"bounding":            {child("CapBnd:\t"+none, "CapBnd:\t000001ffffffffff"), []string{"capabilities-CapBnd"}},
		"ambient":             {child("CapAmb:\t"+none, "CapAmb:\t0000000000000001"), []string{"capabilities-CapAmb"}},
		"may gain privileges": {child("NoNewPrivs:\t1", "NoNewPrivs:\t0"), []string{"no-new-privs"}},
		"no filter":           {child("Seccomp:\t2\nSeccomp_filters:\t2", "Seccomp:\t0\nSeccomp_filters:\t0"), []string{"seccomp-filters", "seccomp-mode"}},
		"only the outer one":  {child("Seccomp_filters:\t2", "Seccomp_filters:\t1"), []string{"seccomp-filters"}},
		"blocked signal":      {child("SigBlk:\t"+none, "SigBlk:\t0000000000004000"), []string{"signals-blocked"}},
		"ignored signal":      {child("SigIgn:\t"+none, "SigIgn:\t0000000000001000"), []string{"signals-ignored"}},
		"caught signal":       {child("SigCgt:\t"+none, "SigCgt:\t0000000000000002"), []string{"signals-caught"}},
		"umask":               {child("Umask:\t0022", "Umask:\t0000"), []string{"umask"}},
		"pid 3":               {child("NSpid:\t702\t2", "NSpid:\t702\t3"), []string{"pid-inside"}},
		"caller's session":    {child("NSsid:\t702\t2", "NSsid:\t690\t0"), []string{"session-inside"}},
		"another parent":      {child("PPid:\t701", "PPid:\t1"), []string{"parent-is-init"}},
		"a thread more":       {child("Threads:\t1", "Threads:\t2"), []string{"threads"}},
		"another cpu":         {child("Cpus_allowed_list:\t2", "Cpus_allowed_list:\t0-3"), []string{"cpu-affinity"}},

		"init's uid":         {init("Uid:\t100000", "Uid:\t0"), []string{"init-uid"}},
		"init's gid":         {init("Gid:\t200000", "Gid:\t0"), []string{"init-gid"}},
		"init's permitted":   {init("CapPrm:\t"+none, "CapPrm:\t0000000000200000"), []string{"init-capabilities-CapPrm"}},
		"init's effective":   {init("CapEff:\t"+none, "CapEff:\t0000000000200000"), []string{"init-capabilities-CapEff"}},
		"init's inheritable": {init("CapInh:\t"+none, "CapInh:\t0000000000200000"), []string{"init-capabilities-CapInh"}},
		"init's bounding":    {init("CapBnd:\t"+none, "CapBnd:\t0000000000200000"), []string{"init-capabilities-CapBnd"}},
		"init's ambient":     {init("CapAmb:\t"+none, "CapAmb:\t0000000000200000"), []string{"init-capabilities-CapAmb"}},
		"init may gain":      {init("NoNewPrivs:\t1", "NoNewPrivs:\t0"), []string{"init-no-new-privs"}},
		"init without mode":  {init("Seccomp:\t2", "Seccomp:\t0"), []string{"init-seccomp-mode"}},
		"init's outer one":   {init("Seccomp_filters:\t2", "Seccomp_filters:\t1"), []string{"init-seccomp-filters"}},
		"init's groups":      {init("Groups:\t \nNSpid:\t701", "Groups:\t27 \nNSpid:\t701"), []string{"init-groups"}},
		"init blocks":        {init("SigBlk:\t0000000000000000", "SigBlk:\t0000000000000001"), []string{"init-signals-blocked"}},
		"init is pid 2":      {init("NSpid:\t701\t1", "NSpid:\t701\t2"), []string{"init-pid-inside"}},
		"init's parent":      {init("PPid:\t700", "PPid:\t1"), []string{"init-parent"}},
		"init's own view":    {func(_ *sight, b *nsexec.Box) { b.Init.Caps[3] = 1 }, []string{"init-own-view"}},
		"init's environment": {func(_ *sight, b *nsexec.Box) { b.Init.Environment = 3 }, []string{"init-environment"}},
		"own filters hidden": {func(v *sight, _ *nsexec.Box) { v.self = "Seccomp:\t2\n" }, []string{"init-seccomp-filters", "seccomp-filters"}},

		"uid inside":            {report(func(r *nsexec.Report) { r.UIDs[2] = 0 }), []string{"uids-inside"}},
		"gid inside":            {report(func(r *nsexec.Report) { r.GIDs[1] = 0 }), []string{"gids-inside"}},
		"groups inside":         {report(func(r *nsexec.Report) { r.Groups = 1 }), []string{"groups-inside"}},
		"groups unanswered":     {report(func(r *nsexec.Report) { r.Groups = -int(unix.EPERM) }), []string{"groups-inside"}},
		"capability inside":     {report(func(r *nsexec.Report) { r.Caps[0] = 1 }), []string{"capabilities-inside"}},
		"no randomization":      {report(func(r *nsexec.Report) { r.Personality = 0x0040000 }), []string{"personality"}},
		"real time":             {report(func(r *nsexec.Report) { r.Policy = 1 }), []string{"scheduling"}},
		"deadline":              {report(func(r *nsexec.Report) { r.Policy = 6 }), []string{"scheduling"}},
		"unknown policy":        {report(func(r *nsexec.Report) { r.Policy = 0x40000000 }), []string{"scheduling"}},
		"ahead of others":       {report(func(r *nsexec.Report) { r.Nice = -1 }), []string{"scheduling"}},
		"nice unanswered":       {report(func(r *nsexec.Report) { r.Nice = 20 - -1 }), []string{"scheduling"}},
		"session inside":        {report(func(r *nsexec.Report) { r.Session = 0 }), []string{"session"}},
		"directory":             {report(func(r *nsexec.Report) { r.Dir = "/" }), []string{"working-directory"}},
		"unreachable":           {report(func(r *nsexec.Report) { r.Dir = "(unreachable)/scratch" }), []string{"working-directory"}},
		"host's name":           {report(func(r *nsexec.Report) { r.Hostname = "workstation" }), []string{"hostname"}},
		"host's domain":         {report(func(r *nsexec.Report) { r.Domainname = "corp" }), []string{"domainname"}},
		"host's cgroups":        {report(func(r *nsexec.Report) { r.Cgroup = "1:cpu:/\n0::/user.slice\n" }), []string{"cgroup-view"}},
		"inotify as the host's": {report(func(r *nsexec.Report) { r.Inotify = [2]string{"128", "65536"} }), []string{"inotify-instances", "inotify-watches"}},
		"cgroup view cut":       {report(func(r *nsexec.Report) { r.Cgroup = "1:cpu:/\n0::" }), []string{"cgroup-view"}},
		"no cgroup view":        {report(func(r *nsexec.Report) { r.Cgroup = "" }), []string{"cgroup-view"}},
		"caller's keyring":      {report(func(r *nsexec.Report) { r.Keyring = 1000001 }), []string{"session-keyring"}},
		"keyring unanswered":    {report(func(r *nsexec.Report) { r.Keyring = -int64(unix.EACCES) }), []string{"session-keyring"}},
		"no serial":             {report(func(r *nsexec.Report) { r.Keyring = 0 }), []string{"session-keyring"}},
		"keyrings inside only":  {report(func(r *nsexec.Report) { r.Keyring = -int64(unix.ENOSYS) }), []string{"session-keyring"}},
		"no listing":            {report(func(r *nsexec.Report) { r.Descriptors = nil }), []string{"descriptors"}},
		"empty listing":         {report(func(r *nsexec.Report) { r.Descriptors = []int{} }), []string{"descriptors"}},
		"descriptor 3":          {report(func(r *nsexec.Report) { r.Descriptors = []int{0, 1, 2, 3, 4, 60} }), []string{"descriptors"}},
		"stdin closed":          {report(func(r *nsexec.Report) { r.Descriptors = []int{1, 2, 3, 60} }), []string{"descriptors"}},
		"stdin is the listing":  {report(func(r *nsexec.Report) { r.Descriptors = []int{0, 1, 2, 60} }), []string{"descriptors"}},
		"a low one":             {report(func(r *nsexec.Report) { r.Descriptors = []int{0, 1, 2, 3, 17, 60} }), []string{"descriptors"}},
		"a high one":            {report(func(r *nsexec.Report) { r.Descriptors = []int{0, 1, 2, 3, 60, 62} }), []string{"descriptors"}},
		"nsbox's own image":     {report(func(r *nsexec.Report) { r.Descriptors = []int{0, 1, 2, 3, 60, 61} }), []string{"descriptors"}},
		"caller's stdin":        {report(func(r *nsexec.Report) { r.Files[0] = pipe(7) }), []string{"descriptor-0"}},
		"streams crossed":       {report(func(r *nsexec.Report) { r.Files[1], r.Files[2] = r.Files[2], r.Files[1] }), []string{"descriptor-1", "descriptor-2"}},
		"stream unanswered":     {report(func(r *nsexec.Report) { delete(r.Files, 2) }), []string{"descriptor-2"}},
		"kept over exec":        {report(func(r *nsexec.Report) { r.CloseOnExec[0] = 0 }), []string{"close-on-exec"}},
		"exec flags unanswered": {report(func(r *nsexec.Report) { r.CloseOnExec = nil }), []string{"close-on-exec"}},
		"another directory":     {func(v *sight, _ *nsexec.Box) { v.held = "directory of 0:1" }, []string{"held-directory"}},
		"held is no directory":  {func(v *sight, _ *nsexec.Box) { v.held = "no directory" }, []string{"held-directory"}},
		"set-up unscoped":       {report(func(r *nsexec.Report) { r.SetUpCaps[0] |= 1 << unix.CAP_NET_ADMIN }), []string{"set-up-capabilities"}},
		"set-up permitted":      {report(func(r *nsexec.Report) { r.SetUpCaps[1] = 1<<41 - 1 }), []string{"set-up-capabilities"}},
		"set-up outlives":       {report(func(r *nsexec.Report) { r.DeathSignal = 0 }), []string{"set-up-death-signal"}},
		"launcher's socket":     {report(func(r *nsexec.Report) { r.OldNumber = 0 }), []string{"set-up-descriptors"}},
		"init outlives":         {func(_ *sight, b *nsexec.Box) { b.Init.DeathSignal = 15 }, []string{"init-death-signal"}},
		"init's core":           {func(_ *sight, b *nsexec.Box) { b.Init.Core[1] = 1 }, []string{"init-core-limit"}},
		"init's stdout":         {func(_ *sight, b *nsexec.Box) { b.Init.Streams[1] = ^uint64(0) }, []string{"init-streams"}},
		"init's descriptors":    {func(_ *sight, b *nsexec.Box) { b.Init.Descriptors |= 1 << 9 }, []string{"init-descriptors"}},
		"Landlock lets through": {report(func(r *nsexec.Report) { r.Landlock.Forbidden[0] = 4 }), []string{"landlock"}},
		"another refusal":       {report(func(r *nsexec.Report) { r.Landlock.Forbidden[0] = -int64(unix.EPERM) }), []string{"landlock"}},
		"the control fails too": {report(func(r *nsexec.Report) { r.Landlock.Control = -int64(unix.EACCES) }), []string{"landlock"}},
		"Landlock not tried":    {report(func(r *nsexec.Report) { r.Landlock = nil }), []string{"landlock"}},
		"a namespace more":      {report(func(r *nsexec.Report) { r.NestedUserNS = 0 }), []string{"nested-user-namespaces"}},
		"refused by another":    {report(func(r *nsexec.Report) { r.NestedUserNS = -int64(unix.EPERM) }), []string{"nested-user-namespaces"}},
		"filter not accepted":   {report(func(r *nsexec.Report) { r.Filter = -int64(unix.EACCES) }), []string{"seccomp-program"}},
		"filter without effect": {report(func(r *nsexec.Report) { r.Filtered = 0 }), []string{"seccomp-effect"}},

		"nofile":          {limit("64                   64                   files", "64                   1024                 files"), []string{"rlimit-nofile"}},
		"fsize":           {limit("67108864             67108864 ", "unlimited            unlimited"), []string{"rlimit-fsize"}},
		"cpu":             {limit("25                   26", "25                   27"), []string{"rlimit-cpu"}},
		"core":            {limit("1                    1 ", "0                    1 "), []string{"rlimit-core"}},
		"nproc":           {limit("32                   32", "96364                96364"), []string{"rlimit-nproc"}},
		"a limit missing": {limit("Max msgqueue size ", "Max messagequeue  "), []string{"rlimit-msgqueue"}},

		"root writable":     {mount("/ ro,nosuid,nodev,relatime - tmpfs", "/ rw,nosuid,nodev,relatime - tmpfs"), []string{"mount /"}},
		"root of the host":  {mount("/ ro,nosuid,nodev,relatime - tmpfs", "/ ro,nosuid,nodev,relatime - ext4"), []string{"mount /"}},
		"inputs executable": {mount("/in ro,nosuid,nodev,noexec", "/in ro,nosuid,nodev"), []string{"mount /in"}},
		"a shared mount":    {mount("/in ro,nosuid,nodev,noexec,relatime -", "/in ro,nosuid,nodev,noexec,relatime shared:5 -"), []string{"mount /in"}},
		"a slave mount":     {mount("/out rw,nosuid,nodev,noexec,relatime -", "/out rw,nosuid,nodev,noexec,relatime master:5 -"), []string{"mount /out"}},
		"out too large":     {mount("size=8192k", "size=8196k"), []string{"mount /out"}},
		"out unbounded":     {mount("nr_inodes=64,", ""), []string{"mount /out"}},
		"scratch with suid": {mount("/scratch rw,nosuid,", "/scratch rw,"), []string{"mount /scratch"}},
		"device writable":   {mount("/dev/null ro,", "/dev/null rw,"), []string{"mount /dev/null"}},
		"processes visible": {mount("hidepid=invisible", "hidepid=off"), []string{"mount /proc"}},
		"a missing bind":    {mount("/usr/bin/python3 ro", "/usr/bin/python4 ro"), []string{"mount /usr/bin/python3", "mount /usr/bin/python4"}},
		"a mask missing":    {mount("/proc/keys ro", "/usr/lib/python3.11/x ro,nosuid,nodev"), []string{"mount /proc/keys"}},
		"one mount more":    {func(v *sight, _ *nsexec.Box) { v.mounts += "99 50 0:99 / /srv ro,nosuid,nodev - ext4 none rw\n" }, []string{"mount /srv"}},
		"over another":      {func(v *sight, _ *nsexec.Box) { v.mounts += "99 50 0:99 / /in ro,nosuid,nodev,noexec - ext4 none rw\n" }, []string{"mount /in"}},
		"below the inputs": {func(v *sight, _ *nsexec.Box) {
			v.mounts += "99 50 0:99 / /in/x ro,nosuid,nodev,noexec - ext4 none rw\n"
		}, []string{"mount /in/x"}},
		"writable submount": {func(v *sight, _ *nsexec.Box) {
			v.mounts += "99 50 0:99 / /usr/lib/python3.11/x rw,nosuid,nodev - ext4 none rw\n"
		}, []string{"mount /usr/lib/python3.11/x"}},
		"no mounts at all": {func(v *sight, _ *nsexec.Box) { v.mounts = "" }, nil},

		"uid map":         {func(v *sight, _ *nsexec.Box) { edit(&v.uidMap, "100001", "  1000") }, []string{"uid_map"}},
		"a range":         {func(v *sight, _ *nsexec.Box) { edit(&v.gidMap, "1\n", "9\n") }, []string{"gid_map"}},
		"one line more":   {func(v *sight, _ *nsexec.Box) { v.uidMap += "65534 0 1\n" }, []string{"uid_map"}},
		"no map":          {func(v *sight, _ *nsexec.Box) { v.gidMap = "" }, []string{"gid_map"}},
		"an interface":    {func(v *sight, _ *nsexec.Box) { v.netDev += "  eth0: 0 0\n" }, []string{"network-interfaces"}},
		"no interface":    {func(v *sight, _ *nsexec.Box) { v.netDev = "" }, []string{"network-interfaces"}},
		"loopback up":     {func(v *sight, _ *nsexec.Box) { v.fibTrie = "Local:\n  |-- 127.0.0.1\n     /32 host LOCAL\n" }, []string{"network-addresses"}},
		"IPv6 address":    {func(v *sight, _ *nsexec.Box) { v.ifInet6 = strings.Repeat("0", 31) + "1 01 80 10 80       lo\n" }, []string{"network-addresses"}},
		"launcher's user": {func(v *sight, _ *nsexec.Box) { v.boxNS[0] = v.ownNS[0] }, []string{"namespace-user"}},
		"launcher's net":  {func(v *sight, _ *nsexec.Box) { v.boxNS[3] = v.ownNS[3] }, []string{"namespace-net"}},
		"unread link":     {func(v *sight, _ *nsexec.Box) { v.boxNS[6] = "" }, []string{"namespace-cgroup"}},
	}
	shown := map[string]bool{}
	for name, c := range table {
		got := sortedKeys(mismatches(t, pl, c.doctor))
		for _, r := range got {
			shown[r] = true
		}
		if c.rows == nil && len(got) == 0 || c.rows != nil && !slices.Equal(got, c.rows) {
			t.Errorf("%s: mismatches %v, want %v", name, got, c.rows)
		}
	}
	// No row can be without a doctored answer but those of a series.
	series := regexp.MustCompile(`^(namespace-.*|rlimit-.*)$`)
	for _, r := range compare(goodBox(pl), &pl.Box, goodSight(pl)) {
		if !shown[r.Restriction] && !series.MatchString(r.Restriction) {
			t.Errorf("no doctored answer for %s", r.Restriction)
		}
	}
}

// A line that the kernel does not show, or shows twice, is never agreement; the
// groups' line is the one whose good value is empty.
func TestSilenceIsAMismatch(t *testing.T) {
	pl := pinned(t)
	for name, which := range map[string]func(*sight) *string{
		"workload": func(v *sight) *string { return &v.child },
		"init":     func(v *sight) *string { return &v.init },
		"limits":   func(v *sight) *string { return &v.limits },
		"mounts":   func(v *sight) *string { return &v.mounts },
	} {
		full := *which(rawSight(pl))
		rows := 0
		for line := range strings.Lines(full) {
			missing := mismatches(t, pl, func(v *sight, _ *nsexec.Box) { *which(v) = strings.Replace(full, line, "", 1) })
			changed := mismatches(t, pl, func(v *sight, _ *nsexec.Box) {
				*which(v) = strings.Replace(full, line, strings.Replace(line, ":\t", ":\tx", 1), 1)
			})
			if len(changed) > 0 && len(missing) == 0 {
				t.Errorf("%s: the row passes without its line %q", name, line)
			}
			rows += min(len(missing), 1)
		}
		if rows < 10 {
			t.Errorf("%s: only %d lines are missed", name, rows)
		}
	}
	got := mismatches(t, pl, func(v *sight, _ *nsexec.Box) { edit(&v.child, "Groups:\t \n", "") })
	if got["supplementary-groups"] != absent {
		t.Errorf("without the line Groups: %v", got)
	}
	got = mismatches(t, pl, func(v *sight, _ *nsexec.Box) { v.child = "NoNewPrivs:\t0\n" + v.child })
	if _, ok := got["no-new-privs"]; !ok {
		t.Errorf("two answers to one question: %v", got)
	}
}

// A mask is optional only where the kernel has nothing to cover.
func TestMasksAreWantedWhereTheKernelHasTheFile(t *testing.T) {
	pl := pinned(t)
	got := mismatches(t, pl, func(v *sight, _ *nsexec.Box) { v.maskable = append(v.maskable, "kcore") })
	if got["mount /proc/kcore"] != "absent" || len(got) != 1 {
		t.Errorf("kcore is there and not covered: %v", got)
	}
	got = mismatches(t, pl, func(v *sight, _ *nsexec.Box) {
		v.maskable = []string{"keys"}
		edit(&v.mounts, " /proc/kallsyms ro", " /proc/timer_list ro")
	})
	if len(got) != 0 {
		t.Errorf("a kernel without kallsyms: %v", got)
	}
}

// A submount that a recursive bind brings along must be as closed as the bind.
func TestSubmountsOfABind(t *testing.T) {
	got := mismatches(t, pinned(t), func(v *sight, _ *nsexec.Box) {
		v.mounts += "99 50 0:99 / /usr/lib/python3.11/x ro,nosuid,nodev - ext4 none rw\n"
	})
	if len(got) != 0 {
		t.Error(got)
	}
}

// Landlock and the affinity have rows only where the plan has them; the status
// of a degraded one is told by the plan's own rows.
func TestRowsFollowTheSpec(t *testing.T) {
	pl, err := plan(t, policy.Dimensions(), weakest(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range compare(goodBox(pl), &pl.Box, goodSight(pl)) {
		if r.Restriction == "landlock" || r.Status == attest.Mismatch {
			t.Errorf("%+v", r)
		}
	}
	noKeys := goodBox(pl)
	noKeys.Report.Keyring = -int64(unix.ENOSYS)
	sight := goodSight(pl)
	sight.keyring = -int64(unix.ENOSYS)
	if err := attest.Check(compare(noKeys, &pl.Box, sight)); err != nil {
		t.Errorf("a kernel without keyrings: %v", err)
	}
}

// look reads a real process; the values are those of this one.
func TestLookReadsTheRealFiles(t *testing.T) {
	spec := &nsexec.Spec{MaskProc: []string{"version", "no-such-file"}, Listable: -1}
	v, err := look(&nsexec.Box{ChildPID: os.Getpid(), InitPID: os.Getpid()}, spec)
	if err != nil {
		t.Fatal(err)
	}
	if v.child.field("Threads") == absent || v.init.field("NSpid") == absent || v.self.field("Uid") == absent {
		t.Errorf("status: %v", v.child)
	}
	var own unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_STACK, &own)
	if len(parseLimits(v.limits)) != 12 || len(v.mounts) == 0 || len(parseMap(v.uidMap)) == 0 || !slices.Contains(parseInterfaces(v.netDev), "lo") {
		t.Errorf("limits %v, %d mounts, maps %q, interfaces %v", parseLimits(v.limits), len(v.mounts), v.uidMap, parseInterfaces(v.netDev))
	}
	if !v.maskable["version"] || v.maskable["no-such-file"] {
		t.Errorf("maskable: %v", v.maskable)
	}
	if !slices.Equal(v.ownNS, v.boxNS) || len(v.ownNS) != 7 {
		t.Errorf("namespaces %v and %v", v.ownNS, v.boxNS)
	}
	// A process that is gone cannot be looked at.
	c := inRole(t, "hold-lock")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	if _, err := look(&nsexec.Box{ChildPID: c.Process.Pid, InitPID: os.Getpid()}, spec); err == nil {
		t.Error("a process that is gone was looked at")
	}
}
