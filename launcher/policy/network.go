package policy

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"nsbox/launcher/endpoint"
	"nsbox/launcher/reason"
)

// destinationRule says more about one of allowed_destinations.
type destinationRule struct {
	Destination  string `json:"destination"`
	Address      string `json:"address,omitempty"`       // where the name leads, instead of asking a resolver
	AllowPrivate bool   `json:"allow_private,omitempty"` // the address may be one that no name may lead to
}

// Connections bounds the traffic of one attempt.
type Connections struct {
	AtOnce      int `json:"at_once"`      // a further one waits in the kernel
	InTotal     int `json:"in_total"`     // afterwards nobody listens any more
	BytesOut    int `json:"bytes_out"`    // to the destinations, of all connections
	BytesIn     int `json:"bytes_in"`     // from the destinations, of all connections
	Seconds     int `json:"seconds"`      // of each connection
	DialSeconds int `json:"dial_seconds"` // until a destination answers
}

// Lifetime is the time of one connection.
func (c Connections) Lifetime() time.Duration { return time.Duration(c.Seconds) * time.Second }

// DialTime is how long a destination may take to answer.
func (c Connections) DialTime() time.Duration { return time.Duration(c.DialSeconds) * time.Second }

// Destination is one endpoint that the box may reach.
type Destination struct {
	Endpoint     endpoint.Endpoint `json:"endpoint"`
	Address      netip.Addr        `json:"address,omitzero"` // pinned by the policy; not valid: to be resolved
	AllowPrivate bool              `json:"allow_private,omitempty"`
}

// MaxDestinations bounds the list: each is a listening socket in the box.
const MaxDestinations = 64

// Values of network.unreachable.
const (
	refuseUnreachable Word = "refuse"
	perConnection     Word = "per_connection"
)

const (
	noInterfaces   = "no_network_namespace_interfaces"
	exactEndpoints = "exact_endpoints"
	onlyUnix       = "socket_non_AF_UNIX"
	unixOrTCP      = "socket_non_AF_UNIX_or_TCP"
	noMAC          = "none"
)

// Destinations returns the normalised endpoints in order, each once.
func (p *Policy) Destinations() []Destination {
	var out []Destination
	for _, text := range p.Network.AllowedDestinations {
		e, err := endpoint.Parse(text)
		if err != nil {
			continue // network has told it
		}
		out = append(out, Destination{Endpoint: e, Address: e.Addr()})
	}
	for _, r := range p.Network.DestinationRules {
		e, err := endpoint.Parse(r.Destination)
		for i := range out {
			if err == nil && out[i].Endpoint == e {
				out[i].AllowPrivate = r.AllowPrivate
				if a, err := netip.ParseAddr(r.Address); err == nil {
					out[i].Address = a.Unmap()
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Destination) int { return a.Endpoint.Compare(b.Endpoint) })
	return out
}

// RefusesUnreachable reports whether a destination that cannot be resolved or
// reached before the start is a refusal; otherwise each connection to it fails.
func (p *Policy) RefusesUnreachable() bool { return p.Network.Unreachable != perConnection }

// ConnectionLimits are the policy's own, or the default ones.
func (p *Policy) ConnectionLimits() Connections {
	if p.Network.Connections != nil {
		return *p.Network.Connections
	}
	return Connections{AtOnce: 32, InTotal: 1024, BytesOut: 64 << 20, BytesIn: 1 << 30, Seconds: 600, DialSeconds: 10}
}

// SocketsFiltered reports whether the policy keeps the filter's rule on sockets.
func (p *Policy) SocketsFiltered() bool {
	return slices.Contains(p.ProcessPolicy.Seccomp.DeniedClasses, p.socketClass())
}

// WantsLandlock reports whether the policy asks for Landlock at all.
func (p *Policy) WantsLandlock() bool { return p.ProcessPolicy.MAC != noMAC }

func (p *Policy) socketClass() string {
	if len(p.Network.AllowedDestinations) > 0 {
		return unixOrTCP
	}
	return onlyUnix
}

func (p *Policy) networkMode() wordRule {
	if len(p.Network.AllowedDestinations) > 0 {
		return wordRule{"network.mode", &p.Network.Mode, []string{exactEndpoints}, "the box reaches the listed destinations over its own loopback, and nothing else", plain}
	}
	return wordRule{"network.mode", &p.Network.Mode, []string{noInterfaces}, "without a destination the box has an empty network namespace", plain}
}

func (p *Policy) macs() []string {
	if slices.Contains(p.Degrade, DimLandlock) {
		return []string{"landlock", noMAC}
	}
	return []string{"landlock"}
}

// network holds the destinations and what is said about them. No message repeats
// a text that is no endpoint: it may hold a secret.
func (d *decoder) network(p *Policy) {
	const list, rules = "network.allowed_destinations", "network.destination_rules"
	n := &p.Network
	if len(n.AllowedDestinations) > MaxDestinations {
		d.tell(reason.PolicyInvalid, list, "has "+strconv.Itoa(len(n.AllowedDestinations))+" destinations", "list at most "+strconv.Itoa(MaxDestinations))
		return
	}
	byEndpoint := map[endpoint.Endpoint]string{} // where it stands
	for i, text := range n.AllowedDestinations {
		where := at(list, i)
		e, err := endpoint.Parse(text)
		switch host := e.Host(); {
		case !d.sound(where):
		case err != nil:
			d.tell(reason.PolicyInvalid, where, err.Error(), "write NAME:PORT, IPV4:PORT or [IPV6]:PORT")
		case byEndpoint[e] != "":
			d.tell(reason.PolicyInvalid, where, e.String()+" stands twice", "keep one of them")
		case host == "localhost" || strings.HasSuffix(host, ".localhost"):
			d.tell(reason.PolicyUnenforceable, where, host+" always means the machine that asks, which is the box itself", "write the address, with allow_private in destination_rules")
		default:
			byEndpoint[e] = where
		}
	}
	allowed := map[endpoint.Endpoint]bool{}
	for i, r := range n.DestinationRules {
		where := at(rules, i)
		e, err := endpoint.Parse(r.Destination)
		switch {
		case !d.sound(where, where+".destination"):
			continue
		case err != nil || byEndpoint[e] == "":
			d.tell(reason.PolicyInvalid, where+".destination", "is none of allowed_destinations", "list it there, or remove the rule")
			continue
		}
		if _, again := allowed[e]; again {
			d.tell(reason.PolicyInvalid, where+".destination", e.String()+" has two rules", "keep one of them")
		}
		allowed[e] = r.AllowPrivate
		d.pin(where, e, r)
	}
	for i, text := range n.AllowedDestinations {
		if e, err := endpoint.Parse(text); err == nil && e.Addr().IsValid() {
			d.address(at(list, i), e.Addr(), allowed[e])
		}
	}
	if n.Unreachable != "" && n.Unreachable != refuseUnreachable && n.Unreachable != perConnection {
		d.tell(reason.PolicyUnenforceable, "network.unreachable", n.Unreachable.shown()+" cannot be obeyed", "write "+quoted([]string{string(refuseUnreachable), string(perConnection)}))
	}
	if len(n.AllowedDestinations) == 0 {
		for _, key := range []struct {
			name    string
			present bool
		}{{"unreachable", n.Unreachable != ""}, {"destination_rules", len(n.DestinationRules) > 0}, {"connections", n.Connections != nil}} {
			if key.present {
				d.tell(reason.PolicyInvalid, "network."+key.name, "speaks of destinations, and none is listed", "remove it, or list a destination")
			}
		}
	}
	d.connections(n.Connections)
}

// pin holds the address that a rule gives a name.
func (d *decoder) pin(where string, e endpoint.Endpoint, r destinationRule) {
	if r.Address == "" {
		return
	}
	a, err := netip.ParseAddr(r.Address)
	switch {
	case err != nil || a.Zone() != "":
		d.tell(reason.PolicyInvalid, where+".address", "is no IPv4 or IPv6 address without a zone", "write the address alone, without a port")
	case e.Addr().IsValid():
		d.tell(reason.PolicyInvalid, where+".address", "says where "+e.String()+" leads, which is an address itself", "remove it")
	default:
		d.address(where+".address", a.Unmap(), r.AllowPrivate)
	}
}

// address refuses one that is never dialled, and one that takes allow_private.
func (d *decoder) address(where string, a netip.Addr, private bool) {
	switch word := endpoint.Special(a); {
	case endpoint.Never(a):
		d.tell(reason.PolicyUnenforceable, where, a.String()+" is "+word+": no single host answers there", "list another address")
	case endpoint.NeedsConsent(a) && !private:
		d.tell(reason.PolicyUnenforceable, where, a.String()+" is "+word+", and nothing says that this is meant", "add a rule with allow_private to network.destination_rules")
	}
}
