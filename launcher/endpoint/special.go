package endpoint

import "net/netip"

// specialRanges are addresses that no name may lead to: a policy reaches them
// only by listing the literal address. The first match gives the word.
var specialRanges = []struct{ prefix, word string }{
	{"0.0.0.0/8", "unspecified"},
	{"127.0.0.0/8", "loopback"},
	{"169.254.0.0/16", "link-local"}, // the metadata services of clouds among them
	{"10.0.0.0/8", "private"},
	{"172.16.0.0/12", "private"},
	{"192.168.0.0/16", "private"},
	{"100.64.0.0/10", "shared"}, // RFC 6598; metadata of some clouds
	{"192.0.0.0/24", "reserved"},
	{"192.0.2.0/24", "documentation"},
	{"198.18.0.0/15", "benchmark"},
	{"198.51.100.0/24", "documentation"},
	{"203.0.113.0/24", "documentation"},
	{"224.0.0.0/4", "multicast"},
	{"240.0.0.0/4", "reserved"}, // broadcast among them
	{"::/128", "unspecified"},
	{"::1/128", "loopback"},
	// IPv4 addresses in other clothes: a translator on the way would reach them.
	{"::/96", "ipv4-in-ipv6"},
	{"::ffff:0:0:0/96", "ipv4-in-ipv6"},
	{"64:ff9b::/96", "ipv4-in-ipv6"},
	{"64:ff9b:1::/48", "ipv4-in-ipv6"},
	{"2002::/16", "ipv4-in-ipv6"},
	{"2001::/32", "ipv4-in-ipv6"},
	{"100::/64", "discard"},
	{"2001:db8::/32", "documentation"},
	{"fc00::/7", "private"},
	{"fe80::/10", "link-local"},
	{"fec0::/10", "private"},
	{"ff00::/8", "multicast"},
}

// Special says why an address may not be dialled unless the policy lists it
// literally, in one word, or returns "".
func Special(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if !a.IsValid() {
		return "invalid"
	}
	for _, r := range specialRanges {
		if netip.MustParsePrefix(r.prefix).Contains(a) {
			return r.word
		}
	}
	return ""
}

// Never says of an address that it is dialled under no policy: it names no single
// host, or, like 0.0.0.0, another one than it says.
func Never(a netip.Addr) bool {
	switch Special(a) {
	case "unspecified", "multicast", "reserved", "discard", "invalid":
		return true
	}
	return false
}

// NeedsConsent says of an address that listing it is not enough: a policy has to
// say besides that an address of this kind is meant. Addresses of documentation
// and benchmarks lead nowhere that matters.
func NeedsConsent(a netip.Addr) bool {
	switch Special(a) {
	case "", "documentation", "benchmark":
		return false
	}
	return true
}
