package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"nsbox/launcher/endpoint"
)

// Resolver is the part of net.Resolver that is used.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// ErrUnresolved says that a name has no address that may be dialled.
var ErrUnresolved = errors.New("does not resolve")

// maxAddrs bounds what is kept of one answer.
const maxAddrs = 8

// Resolve finds once where each route leads, all at the same time, within ctx. A
// route that has its address already keeps it. The error of a route stands at its
// index; its Addrs are then empty.
//
// A name is asked for as it stands, never below a search domain. An answer that
// may not be dialled is dropped; if nothing else is left, its kind is the error.
func Resolve(ctx context.Context, routes []Route, r Resolver) ([]Route, []error) {
	out, errs := slices.Clone(routes), make([]error, len(routes))
	var all sync.WaitGroup
	for i := range out {
		if len(out[i].Addrs) > 0 {
			continue
		}
		all.Go(func() { out[i].Addrs, errs[i] = lookUp(ctx, out[i], r) })
	}
	all.Wait()
	return out, errs
}

func lookUp(ctx context.Context, route Route, r Resolver) ([]netip.Addr, error) {
	answer, err := r.LookupNetIP(ctx, "ip", route.Endpoint.Host()+".")
	if err != nil {
		var d *net.DNSError
		if errors.As(err, &d) { // its own text may name the resolver's address
			err = errors.New(d.Err)
		}
		return nil, fmt.Errorf("%w: %v", ErrUnresolved, err)
	}
	var keep []netip.Addr
	var refused []string
	for _, a := range answer {
		a = a.Unmap()
		switch word := route.refuses(a); {
		case word != "":
			refused = append(refused, a.String()+" is "+word)
		case len(keep) < maxAddrs && !slices.Contains(keep, a):
			keep = append(keep, a)
		}
	}
	if len(keep) == 0 && len(refused) > 0 {
		return nil, fmt.Errorf("%w to an address that may be dialled: %s", ErrUnresolved, strings.Join(refused[:min(len(refused), 3)], ", "))
	}
	if len(keep) == 0 {
		return nil, fmt.Errorf("%w: no address", ErrUnresolved)
	}
	return keep, nil
}

// Reach tries to connect to every route at the same time and closes again at
// once. The error of a route stands at its index.
func Reach(ctx context.Context, routes []Route, dialTime time.Duration) []error {
	errs := make([]error, len(routes))
	var all sync.WaitGroup
	for i, r := range routes {
		all.Go(func() {
			b := &Broker{ctx: ctx, limits: Limits{DialTime: dialTime, Lifetime: dialTime}}
			c, end := b.dial(r, time.Now())
			if c == nil {
				errs[i] = fmt.Errorf("no connection to %s: %s", addressList(r), end)
				return
			}
			c.Close()
		})
	}
	all.Wait()
	return errs
}

func addressList(r Route) string {
	list := make([]string, len(r.Addrs))
	for i, a := range r.Addrs {
		list[i] = a.String()
	}
	return strings.Join(list, ", ")
}

// Literal is the route of an endpoint whose address the policy names.
func Literal(e endpoint.Endpoint, a netip.Addr, consent bool) Route {
	return Route{Endpoint: e, Addrs: []netip.Addr{a}, Listed: true, Consent: consent}
}
