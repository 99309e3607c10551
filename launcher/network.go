package launcher

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"nsbox/launcher/broker"
	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// drainTime is how long connections may deliver what a program wrote before it
// ended by itself.
const drainTime = 2 * time.Second

// route finds, once, where each destination leads. A policy that refuses to start
// without its destinations also has each tried here.
func (r *run) route(ctx context.Context) error {
	n := r.plan.Network
	if n == nil {
		return nil
	}
	defer r.phase("endpoints", time.Now())
	for _, e := range n.Endpoints {
		route := broker.Route{Endpoint: e.Endpoint, Consent: e.AllowPrivate}
		if e.Address.IsValid() {
			route.Addrs, route.Listed = []netip.Addr{e.Address}, true
		}
		r.routes = append(r.routes, route)
	}
	var errs []error
	r.routes, errs = broker.Resolve(ctx, r.routes, &net.Resolver{PreferGo: true})
	id, next := reason.EndpointUnresolved, "correct the name, give its address in network.destination_rules, or write per_connection in network.unreachable"
	if n.RefuseUnreachable && firstOf(errs) < 0 {
		errs = broker.Reach(ctx, r.routes, n.Connections.DialTime())
		id, next = reason.EndpointUnreachable, "see that the destination is up, or write per_connection in network.unreachable"
	}
	if i := firstOf(errs); i >= 0 && n.RefuseUnreachable {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return reason.Wrap(id, r.routes[i].Endpoint.String(), "the program was not started", next, errs[i])
	}
	return nil
}

// firstOf is the index of the first error, or -1.
func firstOf(errs []error) int {
	for i, err := range errs {
		if err != nil {
			return i
		}
	}
	return -1
}

// routeRecord is what the journal keeps of the routes: the same file says after a
// crash whom the program could have reached.
func (r *run) routeRecord() map[string]string {
	if len(r.routes) == 0 {
		return nil
	}
	record := map[string]string{}
	for _, route := range r.routes {
		list := make([]string, len(route.Addrs))
		for i, a := range route.Addrs {
			list[i] = a.String()
		}
		record["endpoint "+route.Endpoint.String()] = strings.Join(list, " ")
	}
	return record
}

// startBroker takes the box's listening sockets over, before "go".
func (r *run) startBroker(box *nsexec.Box) error {
	n := r.plan.Network
	if n == nil {
		return nil
	}
	sockets := box.Listeners
	box.Listeners = nil // the broker closes them
	c := n.Connections
	var err error
	r.broker, err = broker.Start(sockets, r.routes, broker.Limits{AtOnce: c.AtOnce, InTotal: c.InTotal, BytesOut: int64(c.BytesOut), BytesIn: int64(c.BytesIn),
		Lifetime: c.Lifetime(), DialTime: c.DialTime()}, r.req.Connection)
	if err != nil {
		return reason.Wrap(reason.EndpointSockets, "the box's listening sockets", "could not be taken over", "raise the limit on open files, then run nsbox again", err)
	}
	return nil
}

// stopBroker ends every connection. Only a program that ended by itself may still
// be heard: whoever was stopped says nothing more.
func (r *run) stopBroker() {
	if r.broker == nil {
		return
	}
	grace := time.Duration(0)
	if r.res.Workload.Outcome == Exited {
		grace = drainTime
	}
	use := r.broker.Stop(grace)
	r.res.Network, r.broker = &use, nil
}
