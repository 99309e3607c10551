package launcher

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
)

// Terminal asks for a box with a terminal of its own. Its size changes with
// what Sizes says; Type is the value of TERM.
type Terminal struct {
	Type  string
	Size  nsexec.Terminal
	Sizes <-chan nsexec.Terminal
}

// binds resolves what the operator wants to see of the host and refuses what
// would show a secret. home is the operator's own, state nsbox's.
func (s *state) binds(req Request, p *policy.Policy, home string) ([]rootfs.Bind, error) {
	var out []rootfs.Bind
	for _, b := range slices.Concat(req.RootAdd, req.Live) {
		flag := "--ro"
		if b.Root {
			flag = "--rootfs-add"
		}
		if _, ok := p.Root().(policy.HostRoot); !ok {
			return nil, reason.New(reason.BindRefused, flag+" "+b.Source, "this policy's root is fixed", "use a policy whose root is host directories, such as tool; or copy files in with --in")
		}
		if !p.SocketsFiltered() {
			return nil, reason.New(reason.BindRefused, flag+" "+b.Source, "with a directory of the host in sight the filter has to keep programs from sockets in it, and this policy leaves the filter's rule on sockets out", "copy files in with --in, or list the class in process_policy.seccomp.denied_classes")
		}
		given := b.Source
		abs, err := filepath.Abs(given)
		if err == nil {
			b.Source, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return nil, reason.Wrap(reason.RootfsSourceUnreadable, flag+" "+given, "cannot be resolved", "name a directory or a file that is there", err)
		}
		if b.Target == "" {
			b.Target = abs
		}
		if !path.IsAbs(b.Target) || path.Clean(b.Target) != b.Target || b.Target == "/" {
			return nil, reason.New(reason.BindRefused, flag+" "+b.Source, "its place "+quoted(b.Target)+" is no clean absolute path below /", "write "+flag+" PATH:/PLACE")
		}
		for _, own := range slices.Concat([]string{"/in", "/scratch", "/proc", "/dev"}, p.Filesystem.WritablePaths) {
			if underPath(b.Target, own) || underPath(own, b.Target) {
				return nil, reason.New(reason.BindRefused, flag+" "+b.Source, "its place "+b.Target+" is, holds or lies in "+own+", which the box has for itself", "name another place: "+flag+" "+b.Source+":/PLACE")
			}
		}
		if why := s.secret(p, b.Source, home); why != "" {
			return nil, reason.New(reason.BindRefused, flag+" "+b.Source, why, "name the one directory that is needed, below it")
		}
		if rule, denied := p.DeniesTarget(b.Target, false); denied {
			return nil, reason.New(reason.BindRefused, flag+" "+b.Source, "filesystem.denied_mounts forbids its place "+b.Target+" by "+rule, "name another: "+flag+" PATH:/PLACE")
		}
		out = append(out, b)
	}
	return out, nil
}

// liveBinds tells that directories of the operator's choice are shown as they are,
// with whatever sockets lie in them.
func liveBinds(req Request) bool { return len(req.Live)+len(req.RootAdd) > 0 }

// secret says why a host path must not be seen, or "". A directory above a
// secret brings it along.
func (s *state) secret(p *policy.Policy, source, home string) string {
	if source == "/" {
		return "/ is the whole host"
	}
	if rule, denied := p.Denies(source); denied {
		return "filesystem.denied_mounts forbids it by " + rule + ", which it is, holds or lies in"
	}
	private := []string{s.dir}
	if path.IsAbs(home) && home != "/" {
		for _, name := range policy.HomeSecrets() {
			private = append(private, path.Join(home, name))
		}
	}
	for _, x := range private {
		if underPath(source, x) || underPath(x, source) {
			return "it is, holds or lies in " + x
		}
	}
	return ""
}

// rootFor is what the binds of a request make of the policy's host directories.
func (s *state) hostRoot(req Request, p *policy.Policy, r policy.HostRoot) (*rootfs.Closure, error) {
	home, _ := os.UserHomeDir()
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	binds, err := s.binds(req, p, home)
	if err != nil {
		return nil, err
	}
	return rootfs.Host(r.Directories, binds, req.Argv[0], nil)
}

// environ is the policy's environment with what this request adds: the type of
// the terminal, and where added roots have their programs.
func environ(req Request, p *policy.Policy, c *rootfs.Closure, cpus int) []string {
	env := p.Environ(cpus)
	for i, e := range env {
		if req.Terminal != nil && e == policy.Term+"=dumb" && termType(req.Terminal.Type) {
			env[i] = policy.Term + "=" + req.Terminal.Type
		}
		if value, ok := strings.CutPrefix(e, "PATH="); ok && len(c.Path) > 0 {
			env[i] = "PATH=" + strings.Join(c.Path, ":") + ":" + value
		}
	}
	return env
}

// termType reports whether a text is fit to name a terminal type: it becomes part
// of a file name in every program that asks terminfo.
func termType(t string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"
	return t != "" && len(t) <= 64 && strings.Trim(t, letters) == "" && t[0] != '.'
}

// unreachable reports whether the cpu limits are above what this host could use
// up: then nothing has to hold them.
func unreachableRate(l policy.Limits, h *probe.Host) bool {
	return h.CPUs > 0 && l.CPU.RatePercent >= 100*h.CPUs
}

func unreachableTotal(l policy.Limits, h *probe.Host) bool {
	return h.CPUs > 0 && l.CPU.Total >= l.Wall*time.Duration(h.CPUs)
}

// addressFactor is how much more address space than memory a process may have
// where only that can be limited. A closure is one known program; the programs of
// a whole root reserve far more than they use.
func addressFactor(p *policy.Policy) int64 {
	if p.AnyProgram() {
		return 8
	}
	return 1
}

func addressText(p *policy.Policy) string {
	return fmt.Sprintf("RLIMIT_AS of %d bytes per process", p.Limits().Memory.Bytes*addressFactor(p))
}
