package endpoint

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, tc := range []struct {
		text, want string
		err        error
	}{
		{"packages.example.invalid:443", "packages.example.invalid:443", nil},
		{"Packages.Example.INVALID.:443", "packages.example.invalid:443", nil},
		{"xn--bcher-kva.example:1", "xn--bcher-kva.example:1", nil},
		{"localhost:65535", "localhost:65535", nil},
		{"a-b.c:80", "a-b.c:80", nil},
		{"3com.example:80", "3com.example:80", nil},
		{"192.0.2.1:80", "192.0.2.1:80", nil},
		{"[2001:DB8:0:0:0:0:0:1]:80", "[2001:db8::1]:80", nil},
		{"[2001:db8::0:1]:80", "[2001:db8::1]:80", nil},
		{"[::ffff:192.0.2.1]:80", "192.0.2.1:80", nil},
		{"[::FFFF:c000:201]:80", "192.0.2.1:80", nil},
		{"[64:ff9b::192.0.2.1]:80", "[64:ff9b::c000:201]:80", nil},
		{long + "." + long + "." + long + "." + strings.Repeat("b", 61) + ".:1", long + "." + long + "." + long + "." + strings.Repeat("b", 61) + ":1", nil},

		{"", "", ErrForm}, {"example", "", ErrForm}, {"2001:db8::1:80", "", ErrForm}, {"[::1:80", "", ErrForm},
		{"https://example.org:443", "", ErrForm}, {strings.Repeat("a.", 200) + "b:1", "", ErrForm},
		{"example.org:443/path?token=x", "", ErrPort}, {"example.org:", "", ErrPort}, {"example.org:0", "", ErrPort}, {"example.org:65536", "", ErrPort},
		{"example.org:080", "", ErrPort}, {"example.org:+80", "", ErrPort}, {"example.org:-1", "", ErrPort}, {"example.org:80-90", "", ErrPort},
		{"example.org:https", "", ErrPort}, {"example.org:*", "", ErrPort}, {"example.org:8 0", "", ErrPort}, {"example.org:٨٠", "", ErrPort}, {"[::1]", "", ErrPort},
		{":80", "", ErrName}, {".:80", "", ErrName}, {"a..b:80", "", ErrName}, {"example.org..:80", "", ErrName}, {"-a.org:80", "", ErrName}, {"a-.org:80", "", ErrName},
		{"*.example.org:80", "", ErrName}, {"a_b.org:80", "", ErrName}, {"user@example.org:80", "", ErrName}, {"example.org\x00:80", "", ErrName},
		{" example.org:80", "", ErrName}, {"exa%6dple.org:80", "", ErrName}, {long + "a.org:80", "", ErrName},
		{"bücher.example:80", "", ErrUnicode}, {"example。org:80", "", ErrUnicode}, {"exаmple.org:80", "", ErrUnicode}, {"\u212a.example:80", "", ErrUnicode},
		{"127.1:80", "", ErrNumber}, {"2130706433:80", "", ErrNumber}, {"0x7f000001:80", "", ErrNumber}, {"0x7f.1:80", "", ErrNumber}, {"010.0.0.1:80", "", ErrNumber},
		{"1.2.3.4.:80", "", ErrNumber}, {"1.2.3.256:80", "", ErrNumber}, {"1.2.3.4.5:80", "", ErrNumber}, {"example.1:80", "", ErrNumber}, {"a.0x:80", "", ErrNumber},
		{"[fe80::1%eth0]:80", "", ErrAddress}, {"[1.2.3.4]:80", "", ErrAddress}, {"[]:80", "", ErrAddress}, {"[::g]:80", "", ErrAddress}, {"[::ffff:1.2.3.4%1]:80", "", ErrAddress},
	} {
		e, err := Parse(tc.text)
		if e.String() != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%.80q: %q, %v; want %q, %v", tc.text, e, err, tc.want, tc.err)
		}
		if err != nil && len(tc.text) > 3 && strings.Contains(err.Error(), tc.text) {
			t.Errorf("%q: the error repeats the text", tc.text)
		}
	}
}

func TestOrderIsOfTheSet(t *testing.T) {
	texts := []string{"b.example:443", "[2001:db8::1]:443", "a.example:8443", "192.0.2.1:443", "A.Example.:443", "[::ffff:192.0.2.1]:443", "a.example:443"}
	want := []string{"a.example:443", "a.example:8443", "b.example:443", "192.0.2.1:443", "[2001:db8::1]:443"}
	for shift := range texts {
		var list []Endpoint
		for _, text := range slices.Concat(texts[shift:], texts[:shift]) {
			e, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, e)
		}
		var got []string
		for _, e := range Sorted(list) {
			got = append(got, e.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("from %d: %q, want %q", shift, got, want)
		}
	}
}

func TestSpecial(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1": "loopback", "169.254.169.254": "link-local", "10.1.2.3": "private", "172.31.0.1": "private", "172.32.0.1": "",
		"100.100.100.200": "shared", "0.1.2.3": "unspecified", "255.255.255.255": "reserved", "224.0.0.1": "multicast",
		"::": "unspecified", "::1": "loopback", "::7f00:1": "ipv4-in-ipv6", "::ffff:127.0.0.1": "loopback", "64:ff9b::a9fe:a9fe": "ipv4-in-ipv6",
		"2002:7f00:1::": "ipv4-in-ipv6", "2001:0:1::": "ipv4-in-ipv6", "fe80::1%lo": "link-local", "fd00:ec2::254": "private", "ff02::1": "multicast",
		"8.8.8.8": "", "2606:4700::1111": "",
	} {
		if got := Special(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if Special(netip.Addr{}) == "" {
		t.Error("no address at all is let pass")
	}
}

// FuzzParse holds that the canonical form is a fixed point and free of
// whatever a reader could take for something else.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"a.example:1", "[::ffff:1.2.3.4]:80", "A.:65535", "1.2.3.4:5", "[fe80::1%x]:1", "0x1:1", "a..b:2", "xn--a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			if e != (Endpoint{}) {
				t.Fatalf("%q: an endpoint beside %v", text, err)
			}
			return
		}
		again, err := Parse(e.String())
		if err != nil || again != e || again.String() != e.String() {
			t.Fatalf("%q: %q is no fixed point: %q, %v", text, e, again, err)
		}
		if s := e.String(); s != strings.ToLower(s) || strings.ContainsAny(s, "/?#@% \t\n*_") || e.Port() < 1 || e.Addr().Is4In6() || e.Addr().Zone() != "" {
			t.Fatalf("%q: %q", text, s)
		}
		for _, other := range []string{strings.ToUpper(text), strings.ToLower(text)} {
			if x, err := Parse(other); strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0 && (err != nil || x != e) {
				t.Fatalf("%q and %q: %q and %q, %v", text, other, e, x, err)
			}
		}
	})
}
