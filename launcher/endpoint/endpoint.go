// Package endpoint holds the one form in which nsbox writes, compares and
// orders network destinations. Plan and policy both read them here, so that
// what one side allows and what the other side asks for can only be equal or
// different, never equal in two spellings.
//
// An endpoint is a host and one port: NAME:PORT, IPV4:PORT or [IPV6]:PORT.
//
//   - A name is lower case, without its trailing dot, of letters, digits and
//     inner hyphens. Names beyond ASCII are refused, since IDNA tables change
//     from release to release: write the A-label (xn--…), which is compared as
//     it stands.
//   - A host that ends in a number is an IPv4 address or nothing. The shorter,
//     octal and hexadecimal spellings that resolvers take are refused: they read
//     as one address here and as another there.
//   - An IPv6 address is written as RFC 5952 has it; ::ffff:a.b.c.d is the IPv4
//     address it carries. Zones are refused, they mean something on one host only.
//   - A port is one decimal number. There are no ranges, service names, wildcards,
//     schemes, user names, paths or queries; whatever looks like one is refused
//     and never repeated in an event, since it may hold a secret.
//
// The policy binds the name as written, not an address: who dials resolves and
// pins it, and asks Special about what came out.
package endpoint

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is one normalised destination. The zero value is none. Two endpoints
// are the same destination exactly if they are equal by ==.
type Endpoint struct {
	name string     // or addr
	addr netip.Addr // never 4-in-6, never with a zone
	port uint16
}

// The reasons for which a text is no endpoint. None of them repeats the text.
var (
	ErrForm    = errors.New("is not HOST:PORT with an IPv6 host in brackets")
	ErrPort    = errors.New("has no port from 1 to 65535 as a plain decimal number")
	ErrName    = errors.New("has a host that is no name of letters, digits and inner hyphens")
	ErrUnicode = errors.New("has a name beyond ASCII; write it as its A-label (xn--…)")
	ErrNumber  = errors.New("has a host that ends in a number and is no IPv4 address of four decimal parts")
	ErrAddress = errors.New("has an IPv6 host that cannot be read, or that names a zone")
)

const (
	maxText  = 300 // of what Parse looks at, in bytes; the longest endpoint has 259
	maxName  = 253 // RFC 1035, without the trailing dot
	maxLabel = 63
)

// Parse reads and normalises one endpoint.
func Parse(text string) (Endpoint, error) {
	if len(text) > maxText {
		return Endpoint{}, ErrForm
	}
	cut := strings.LastIndexByte(text, ':')
	if cut < 0 {
		return Endpoint{}, ErrForm
	}
	host, port := text[:cut], text[cut+1:]
	e := Endpoint{}
	var err error
	if e.port, err = parsePort(port); err != nil {
		return Endpoint{}, err
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); !ok {
			return Endpoint{}, ErrForm
		}
		a, err := netip.ParseAddr(inner)
		if err != nil || !a.Is6() || a.Zone() != "" {
			return Endpoint{}, ErrAddress
		}
		e.addr = a.Unmap()
		return e, nil
	}
	if strings.ContainsRune(host, ':') {
		return Endpoint{}, ErrForm // an IPv6 address without brackets: its last group would be the port
	}
	if e.name, err = parseName(host); err != nil {
		return Endpoint{}, err
	}
	if endsInNumber(e.name) {
		a, err := netip.ParseAddr(e.name)
		if err != nil || !a.Is4() || strings.HasSuffix(host, ".") {
			return Endpoint{}, ErrNumber
		}
		e.name, e.addr = "", a
	}
	return e, nil
}

func parsePort(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 || text[0] == '0' || text[0] == '+' {
		return 0, ErrPort
	}
	return uint16(n), nil
}

func parseName(host string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	if name == "" || len(name) > maxName {
		return "", ErrName
	}
	for i := range len(name) {
		if name[i] >= 0x80 {
			return "", ErrUnicode
		}
	}
	name = strings.ToLower(name)
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel || label[0] == '-' || label[len(label)-1] == '-' {
			return "", ErrName
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
				return "", ErrName
			}
		}
	}
	return name, nil
}

// endsInNumber is the rule by which resolvers begin to read a host as an
// address: its last label is decimal, or hexadecimal after 0x.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// Host is the name or the address, without brackets.
func (e Endpoint) Host() string {
	if e.addr.IsValid() {
		return e.addr.String()
	}
	return e.name
}

// Port is from 1 to 65535.
func (e Endpoint) Port() int { return int(e.port) }

// Addr is the literal address; it is not valid if the host is a name.
func (e Endpoint) Addr() netip.Addr { return e.addr }

// String is the one spelling. Parse reads it back to the same Endpoint.
func (e Endpoint) String() string {
	if e == (Endpoint{}) {
		return ""
	}
	if e.addr.Is6() {
		return "[" + e.addr.String() + "]:" + strconv.Itoa(int(e.port))
	}
	return e.Host() + ":" + strconv.Itoa(int(e.port))
}

// MarshalText makes an endpoint its one spelling in JSON.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText is Parse.
func (e *Endpoint) UnmarshalText(text []byte) (err error) {
	*e, err = Parse(string(text))
	return err
}

// Compare orders endpoints: names before addresses, then host, then port.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(e.addr.Compare(o.addr), cmp.Compare(e.name, o.name), cmp.Compare(e.port, o.port))
}

// Sorted returns the endpoints in order, each once. The argument stays as it is.
func Sorted(list []Endpoint) []Endpoint {
	out := slices.Clone(list)
	slices.SortFunc(out, Endpoint.Compare)
	return slices.Compact(out)
}
