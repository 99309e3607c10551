package reason

// Destinations that a policy lists.
const (
	// EndpointUnresolved means that a listed destination's name does not resolve to an address that may be dialled, and the policy refuses to start without it.
	EndpointUnresolved ID = "endpoint_unresolved"
	// EndpointUnreachable means that a listed destination did not accept a connection before the start, and the policy refuses to start without it.
	EndpointUnreachable ID = "endpoint_unreachable"
	// EndpointSockets means that the sockets that listen in the box could not be taken over.
	EndpointSockets ID = "endpoint_sockets"
)
