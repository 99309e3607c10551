package broker

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"nsbox/launcher/endpoint"
)

// answers is a resolver that knows some names and notes what it was asked.
type answers struct {
	known map[string]string
	asked chan string
}

func (a answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	a.asked <- host
	text, ok := a.known[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, Server: "203.0.113.53:53", IsNotFound: true}
	}
	var out []netip.Addr
	for f := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddr(f))
	}
	return out, nil
}

func TestResolve(t *testing.T) {
	r := answers{map[string]string{
		"good.example.":    "8.8.8.8 2606:4700::1111",
		"mixed.example.":   "127.0.0.1 8.8.4.4 64:ff9b::808:404 ::ffff:8.8.4.4",
		"rebound.example.": "10.0.0.1 169.254.169.254 fd00:ec2::254 ::1",
		"docs.example.":    "192.0.2.1",
		"empty.example.":   "",
	}, make(chan string, 20)}
	var routes []Route
	for _, text := range []string{"good.example:1", "mixed.example:1", "rebound.example:1", "docs.example:1", "empty.example:1", "missing.example:1"} {
		e, err := endpoint.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, Route{Endpoint: e})
	}
	lit, _ := endpoint.Parse("192.0.2.9:1")
	routes = append(routes, Literal(lit, lit.Addr(), false))
	got, errs := Resolve(context.Background(), routes, r)
	for i, want := range []string{"8.8.8.8, 2606:4700::1111", "8.8.4.4", "", "", "", "", "192.0.2.9"} {
		if list := addressList(got[i]); list != want {
			t.Errorf("%s leads to %q, want %q", routes[i].Endpoint, list, want)
		}
		if (errs[i] != nil) != (want == "") || errs[i] != nil && !errors.Is(errs[i], ErrUnresolved) {
			t.Errorf("%s: %v", routes[i].Endpoint, errs[i])
		}
	}
	if !strings.Contains(errs[2].Error(), "169.254.169.254 is link-local") {
		t.Errorf("a refused answer is not named: %v", errs[2])
	}
	if strings.Contains(errs[5].Error(), "203.0.113.53") {
		t.Errorf("the operator's resolver is named: %v", errs[5])
	}
	if len(r.asked) != 6 {
		t.Errorf("asked %d times, want once per name and never for a literal", len(r.asked))
	}
	if len(routes[0].Addrs) != 0 {
		t.Error("the argument was changed")
	}
}

func TestReach(t *testing.T) {
	at := server(t, echo)
	up, _ := endpoint.Parse(at.String())
	n, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
	down, _ := endpoint.Parse(n.Addr().String())
	errs := Reach(context.Background(), []Route{Literal(up, at.Addr(), true), Literal(down, at.Addr(), true), {Endpoint: up}}, patience)
	if errs[0] != nil || errs[1] == nil || errs[2] == nil {
		t.Errorf("got %v", errs)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if errs := Reach(ctx, []Route{Literal(up, at.Addr(), true)}, time.Hour); errs[0] == nil {
		t.Error("a cancelled attempt still connects")
	}
}
