package launcher

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/cgroupv2/scope"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
)

// gathered is what Run looked up before planning, and what it must close.
type gathered struct {
	facts  Facts
	cgroup *cgroupv2.Root
	root   *root         // what the box's root rests on
	made   time.Duration // how long an image was unpacked for: no attempt's time
}

// gather asks the host everything a plan depends on, the slow questions side by
// side. make says that an image may be unpacked into the store.
func gather(ctx context.Context, req Request, p *policy.Policy, st *state, make bool) (*gathered, error) {
	g := &gathered{root: &root{state: st, make: make}}
	g.facts.Store = st.storeDir()
	var hostErr, closureErr error
	var wg sync.WaitGroup
	find := func() { g.facts.Closure, closureErr = g.root.find(ctx, req, p) }
	if !g.root.slow(p) {
		wg.Go(find)
	}
	// May move this process into a scope of its own, so the survey comes after it.
	g.findCgroup(req.Cgroup)
	g.facts.Host, hostErr = probe.Survey()
	g.facts.CapLast, g.facts.CPU = capLast(), firstCPU()
	wg.Wait()
	if req.Cgroup != "" && g.facts.CgroupErr != nil {
		// An explicit directory is an order, not a hint.
		return g, probe.CgroupReason(g.facts.CgroupErr)
	}
	if hostErr != nil {
		return g, hostErr
	}
	id, err := probe.ChooseIdentity(g.facts.Host)
	g.facts.Identity = id
	if g.root.slow(p) {
		if err != nil {
			return g, err
		}
		begun := time.Now()
		g.root.facts = g.facts
		find()
		g.made = time.Since(begun)
	} else if err != nil {
		id, err = probe.ChooseSingle(g.facts.Host, err)
		g.facts.Identity = id
	}
	if closureErr != nil {
		return g, closureErr
	}
	if g.facts.CapLast < 0 || g.facts.CPU < 0 {
		return g, reason.New(reason.HostFactsUnreadable, "/proc/sys/kernel/cap_last_cap or the cpu mask", "could not be read", "run nsbox where /proc is mounted")
	}
	if err == nil && len(p.Network.AllowedDestinations) > 0 {
		g.facts.Certificates, err = rootfs.KeepCertificates(st.cache())
	}
	return g, err
}

// findCgroup finds where job cgroups can be made and which controllers they get.
func (g *gathered) findCgroup(explicit string) {
	systemd := scope.New(context.Background())
	defer systemd.Close()
	g.cgroup, g.facts.CgroupErr = cgroupv2.Search{Explicit: explicit, Delegated: systemd.Delegated, Scope: systemd.Enter}.Find()
	g.facts.Cgroup = g.facts.CgroupErr == nil
	if !g.facts.Cgroup {
		return
	}
	g.facts.Controllers, g.facts.Lacks = g.cgroup.Controllers(), map[string]error{}
	for _, c := range []string{"memory", "pids", "cpu"} {
		if err := g.cgroup.Lack(c); err != nil {
			g.facts.Lacks[c] = err
		}
	}
}

func (g *gathered) close() {
	if g == nil {
		return
	}
	g.root.close()
	if g.cgroup != nil {
		g.cgroup.Close()
	}
}

func capLast() int {
	data, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return -1
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return -1
	}
	return n
}

// firstCPU is the lowest cpu this process may run on.
func firstCPU() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return -1
	}
	for n := range 1024 {
		if set.IsSet(n) {
			return n
		}
	}
	return -1
}

// loadPolicy reads the policy and applies --limit; source names what was read.
func loadPolicy(req Request) (*policy.Policy, policy.Source, error) {
	p, src, err := policy.Load(req.PolicyArg)
	if err != nil {
		return nil, src, err
	}
	if len(req.Limits) > 0 {
		if p, err = p.Tighten(req.Limits); err != nil {
			return nil, src, err
		}
	}
	return p, src, nil
}
