package launcher

import (
	"fmt"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
)

// root finds the program in the root that the policy names and what of that
// root the box needs. Every source comes down to a Closure: the nodes of the
// box, the program's path inside, and what both rest on.
func (s *state) root(req Request, p *policy.Policy) (*rootfs.Closure, error) {
	switch r := p.Root().(type) {
	case policy.ClosureRoot:
		if _, err := s.binds(req, p, ""); err != nil {
			return nil, err
		}
		if p.Prepared() != nil {
			return nil, notYet("rootfs.prepared")
		}
		c, _, err := rootfs.Cached(s.cache(), req.Argv[0], nil)
		return c, err
	case policy.HostRoot:
		return s.hostRoot(req, p, r)
	case policy.DirectoryRoot:
		return nil, notYet("rootfs.directory")
	case policy.OCIRoot:
		return nil, notYet("rootfs.oci")
	default:
		return nil, reason.New(reason.Internal, fmt.Sprintf("%T", r), "is no source of a root", "report this as a fault of nsbox")
	}
}

func notYet(key string) error {
	return reason.New(reason.PolicyReserved, key, "this release cannot use it yet", "remove it from the policy")
}
