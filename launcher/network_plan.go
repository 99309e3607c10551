package launcher

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"nsbox/launcher/policy"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// NetworkPlan is what a box may reach, and by which address of its own. Where a
// name leads is found by the attempt and stands in its result. A nil plan is a
// box without a network.
type NetworkPlan struct {
	Endpoints          []EndpointPlan     `json:"endpoints"` // in the order of the box's listening sockets
	Connections        policy.Connections `json:"connections"`
	RefuseUnreachable  bool               `json:"refuse_unreachable"`
	CertificatesSHA256 string             `json:"certificates_sha256"` // of the CA certificates put into the box; empty: its root brings its own
}

// EndpointPlan is one destination and where the box listens for it.
type EndpointPlan struct {
	policy.Destination
	Inside netip.AddrPort `json:"inside"`
}

// certificatesPlaceholder stands for the kept copy of the CA certificates.
const certificatesPlaceholder = "/certificates-of-the-host"

// networkPlan gives every name a loopback address of its own, so that two
// endpoints of one port can be told apart; a literal keeps its own address.
func networkPlan(p *policy.Policy, f Facts) *NetworkPlan {
	list := p.Destinations()
	if len(list) == 0 {
		return nil
	}
	n := &NetworkPlan{Connections: p.ConnectionLimits(), RefuseUnreachable: p.RefusesUnreachable(), CertificatesSHA256: f.Certificates.SHA256}
	literal := map[netip.Addr]bool{}
	for _, d := range list {
		literal[d.Endpoint.Addr()] = true
	}
	next, names := netip.AddrFrom4([4]byte{127, 64, 0, 1}), map[string]netip.Addr{}
	for _, d := range list {
		inside := d.Endpoint.Addr()
		if !inside.IsValid() {
			var known bool
			if inside, known = names[d.Endpoint.Host()]; !known {
				for literal[next] {
					next = next.Next()
				}
				inside, next = next, next.Next()
				names[d.Endpoint.Host()] = inside
			}
		}
		n.Endpoints = append(n.Endpoints, EndpointPlan{d, netip.AddrPortFrom(inside, uint16(d.Endpoint.Port()))})
	}
	return n
}

// names are the lines of the box's /etc/hosts.
func (n *NetworkPlan) names() []rootfs.HostName {
	if n == nil {
		return nil
	}
	var out []rootfs.HostName
	seen := map[string]bool{}
	for _, e := range n.Endpoints {
		if name := e.Endpoint.Host(); !e.Endpoint.Addr().IsValid() && !seen[name] {
			seen[name] = true
			out = append(out, rootfs.HostName{Addr: e.Inside.Addr().String(), Name: name})
		}
	}
	return out
}

func (n *NetworkPlan) certificates() string {
	if n == nil {
		return ""
	}
	return certificatesPlaceholder
}

// bring clears the digest if the root has its own certificates, so that none are
// put there.
func (n *NetworkPlan) bring(nodes []nsexec.Node) {
	if n != nil && !slices.ContainsFunc(nodes, func(x nsexec.Node) bool { return x.Source == certificatesPlaceholder }) {
		n.CertificatesSHA256 = ""
	}
}

// listen is the same for the set-up of the box.
func (n *NetworkPlan) listen() []nsexec.Listen {
	if n == nil {
		return nil
	}
	out := make([]nsexec.Listen, len(n.Endpoints))
	for i, e := range n.Endpoints {
		out[i] = nsexec.Listen{Name: e.Inside.String(), IP: e.Inside.Addr().AsSlice(), Port: e.Inside.Port()}
	}
	return out
}

func (n *NetworkPlan) primitive() string {
	if n == nil {
		return "empty network namespace, seccomp"
	}
	return "network namespace without a route but to itself, seccomp, Landlock"
}

func (n *NetworkPlan) list() string {
	texts := make([]string, len(n.Endpoints))
	for i, e := range n.Endpoints {
		texts[i] = e.Endpoint.String()
	}
	return strings.Join(texts, ", ")
}

func (n *NetworkPlan) bounds() string {
	c := n.Connections
	return fmt.Sprintf("%d at once, %d in total, %d bytes out, %d bytes in, %s each", c.AtOnce, c.InTotal, c.BytesOut, c.BytesIn, c.Lifetime())
}

// sockets is the filter's plan for the policy.
func sockets(p *policy.Policy) seccompgen.Sockets {
	switch {
	case !p.SocketsFiltered():
		return seccompgen.AnySocket
	case len(p.Network.AllowedDestinations) > 0:
		return seccompgen.TCPSockets
	}
	return seccompgen.UnixSockets
}
