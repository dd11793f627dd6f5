package egress

import (
	"net/netip"
	"testing"
)

func TestHostPatterns(t *testing.T) {
	t.Parallel()
	policy := Policy{
		Allow: []string{
			"api.example.com", "*.example.org", "Alt.Example.net:8443", "93.184.216.34", "[2606:2800:220:1::1]:443",
			"xn--bcher-kva.example",
		},
		Deny: []string{"secret.example.org"},
	}
	f, err := compile(policy)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		host string
		port int
		want bool
	}{
		{"api.example.com", 443, true},
		{"API.Example.COM.", 80, true},
		{"api.example.com", 22, false},
		{"x.api.example.com", 443, false},
		{"evilapi.example.com", 443, false},
		{"a.example.org", 443, true},
		{"a.b.example.org", 443, true},
		{"example.org", 443, false},
		{"evilexample.org", 443, false},
		{"secret.example.org", 443, false},
		{"SECRET.example.org.", 443, false},
		{"secret.example.org", 8443, false},
		{"alt.example.net", 8443, true},
		{"alt.example.net", 443, false},
		{"93.184.216.34", 443, true},
		{"::ffff:93.184.216.34", 443, true}, // one address, two spellings
		{"[2606:2800:220:1:0:0:0:1]", 443, true},
		{"93.184.216.35", 443, false},
		{"xn--bcher-kva.example", 443, true},
	}
	for _, tt := range tests {
		name, err := normalise(tt.host)
		if err != nil {
			t.Errorf("%s: %v", tt.host, err)
			continue
		}
		if got := f.host(name, tt.port) == ""; got != tt.want {
			t.Errorf("%s port %d: permitted %t, want %t (%s)", tt.host, tt.port, got, tt.want, f.host(name, tt.port))
		}
	}
}

func TestSpellingsThatAreNoHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"", ".", "a..b", "-a.example", "a-.example", "a b.example", "user@api.example.com", "api.example.com/", "api.example.com\x00.evil.com",
		"127.1", "2130706433", "0x7f000001", "0177.0.0.1", "fe80::1%eth0", "bücher.example", "ａpi.example.com", "a。example.com", "1.2.3.4.5",
	} {
		if name, err := normalise(host); err == nil {
			t.Errorf("%q was taken for %q; want an error", host, name)
		}
	}
}

func TestAUnreadablePolicyIsAnError(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{
		{Allow: []string{""}},
		{Allow: []string{"a.example:0"}},
		{Allow: []string{"a.example:http"}},
		{Deny: []string{"a..b"}},
		{Allow: []string{"*.*.example"}},
		{Allow: []string{"a*.example"}},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was accepted; want p.Check() not nil", p)
		}
	}
}

func TestAddressesThatLeadInside(t *testing.T) {
	t.Parallel()
	f := &filter{addresses: []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("100.100.100.200/32"),
	}}
	tests := map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "1.1.1.1": true, "8.8.8.8": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"10.0.0.1": false, "10.1.2.3": true, "172.16.0.1": false, "172.31.255.255": false, "192.168.1.1": false, "100.64.0.1": false,
		"169.254.1.1": true, "169.254.169.254": false, "100.100.100.200": true, "fd00:ec2::254": false, "168.63.129.16": false,
		"fe80::1": false, "fc00::1": false, "fdff::1": false, "ff02::1": false, "224.0.0.1": false, "255.255.255.255": false, "240.0.0.1": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:169.254.169.254": false,
		"64:ff9b::7f00:1": false, "2002:7f00:1::": false, "2001::1": false, "192.0.2.1": false, "198.18.0.1": false,
	}
	ranges := special()
	for text, want := range tests {
		if why := f.address(netip.MustParseAddr(text), ranges); (why == "") != want {
			t.Errorf("%s: permitted %t, want %t (%s)", text, why == "", want, why)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	for _, seed := range []string{"api.example.com", "::1", "[::1]", "127.1", "A.B.", "*.example"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, err := normalise(host)
		if err != nil {
			return
		}
		if again, err := normalise(name); err != nil || again != name {
			t.Errorf("%q became %q, and that %q (%v); want no error, again = %v", host, name, again, err, name)
		}
	})
}
