// Package egress connects a confined program, which has an empty network, to permitted
// hosts: an HTTP proxy (CONNECT, and plain forwarding) that permits the hosts of a
// policy, at a bounded rate (capability-runner). A name is resolved once, each of its
// addresses is checked, and a checked address is dialled, so that a different answer to a
// second lookup has no effect.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Policy lists the destinations that a run may connect to. The zero value permits none.
type Policy struct {
	// Allow and Deny are host patterns: "api.example.com", "*.example.org" (every
	// name below it, but not itself), an address, or "*". An entry of Allow permits ports 80
	// and 443, or only PORT if ":PORT" follows; an entry of Deny without a port covers every
	// port. Deny takes precedence.
	Allow, Deny []string
	// Addresses are the loopback, private, link-local or otherwise reserved ranges that may
	// be dialled. A metadata service must be listed with its exact address.
	Addresses []netip.Prefix
	// BytesPerSecond bounds both directions together; 0 means 4 MiB/s, a negative
	// number means unlimited.
	BytesPerSecond int
	// Connections is the maximum number of requests and tunnels at once; 0 means 64.
	Connections int
}

// Decision is the proxy's decision on one connection, for the audit log.
type Decision struct {
	Allowed bool
	Host    string // normalised; if that failed, the requested host, cut at 256 bytes
	Port    int
	Address string // the address that was dialled or denied; "" if the denial came before that
	Reason  string // why it was denied
	At      time.Time
}

// Event returns the audit event of the decision: egress_allowed or egress_denied.
func (d Decision) Event() string {
	if d.Allowed {
		return "egress_allowed"
	}
	return "egress_denied"
}

// Resolver resolves names to addresses; *net.Resolver implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to a literal address; *net.Dialer implements it.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// pattern is one parsed entry of a list.
type pattern struct {
	host string // "" for every host
	sub  bool   // names below host only
	port int    // 0: 80 and 443 to allow, every port to deny
}

// parse parses a pattern. An invalid one is an error, because a skipped entry of Deny would
// permit its hosts.
func parse(text string) (pattern, error) {
	var p pattern
	host := text
	if i := strings.LastIndexByte(text, ':'); i >= 0 && (strings.HasSuffix(text[:i], "]") || strings.Count(text, ":") == 1) {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil || n < 1 || n > 65535 {
			return p, fmt.Errorf("host pattern %q: %q is not a port", text, text[i+1:])
		}
		host, p.port = text[:i], n
	}
	if host == "*" {
		return p, nil
	}
	if rest, ok := strings.CutPrefix(host, "*."); ok {
		host, p.sub = rest, true
	}
	name, err := normalise(host)
	if err != nil {
		return p, fmt.Errorf("host pattern %q: %w", text, err)
	}
	p.host = name
	return p, nil
}

// matches reports whether the pattern, as an entry of Allow, permits a normalised host and port.
func (p pattern) matches(host string, port int) bool {
	switch {
	case p.port != 0 && p.port != port, p.port == 0 && port != 80 && port != 443:
		return false
	case p.host == "":
		return true
	case p.sub:
		return strings.HasSuffix(host, "."+p.host)
	}
	return host == p.host
}

// covers is matches for an entry of Deny, which covers every port if it has none.
func (p pattern) covers(host string, port int) bool {
	if p.port == 0 {
		p.port = port
	}
	return p.matches(host, port)
}

// normalise returns the spelling of a host that patterns are compared with: lower
// case, without trailing dot and brackets; addresses in their shortest form. It rejects
// names that are not ASCII (international names must be written as xn--…), addresses with
// a zone, and names whose last label begins with a digit.
func normalise(host string) (string, error) {
	h := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(h); err == nil {
		if addr.Zone() != "" {
			return "", fmt.Errorf("an address with a zone is not reachable from here")
		}
		return addr.Unmap().String(), nil
	}
	h = strings.ToLower(strings.TrimSuffix(h, "."))
	if h == "" || len(h) > 253 {
		return "", fmt.Errorf("%.64q is not a host name", host)
	}
	numeric := true
	for label := range strings.SplitSeq(h, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", fmt.Errorf("%.64q is not a host name", host)
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", fmt.Errorf("%.64q is not a host name: write international names as xn--…", host)
			}
		}
		numeric = label[0] >= '0' && label[0] <= '9' // after the loop: of the last label
	}
	if numeric { // 127.1, 0x7f000001, 2130706433: old spellings of addresses
		return "", fmt.Errorf("%.64q is not a host name, and no address as it is written today", host)
	}
	return h, nil
}

// filter is a parsed policy.
type filter struct {
	allow, deny []pattern
	addresses   []netip.Prefix
}

func compile(p Policy) (*filter, error) {
	f := &filter{addresses: p.Addresses}
	for _, list := range []struct {
		from []string
		to   *[]pattern
	}{{p.Allow, &f.allow}, {p.Deny, &f.deny}} {
		for _, text := range list.from {
			one, err := parse(text)
			if err != nil {
				return nil, err
			}
			*list.to = append(*list.to, one)
		}
	}
	return f, nil
}

// Check reports whether a policy is valid.
func (p Policy) Check() error {
	_, err := compile(p)
	return err
}

// Admits checks a host and port by the patterns alone, without resolving it. It returns ""
// if they are permitted, and otherwise the reason. An invalid policy admits nothing.
func (p Policy) Admits(host string, port int) string {
	f, err := compile(p)
	if err != nil {
		return "the policy cannot be read"
	}
	name, err := normalise(host)
	if err != nil {
		return err.Error()
	}
	return f.host(name, port)
}

// host returns why a normalised host and port are denied, or "" if they are permitted.
func (f *filter) host(host string, port int) string {
	if slices.ContainsFunc(f.deny, func(p pattern) bool { return p.covers(host, port) }) {
		return "the host is on the deny list"
	}
	if !slices.ContainsFunc(f.allow, func(p pattern) bool { return p.matches(host, port) }) {
		return "no allowed pattern admits this host and port"
	}
	return ""
}

// special returns the reserved ranges, which lead to the machine itself, its network or its cloud.
func special() []netip.Prefix {
	var list []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"::/127", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "fc00::/7", "fe80::/10", "fec0::/10",
		"ff00::/8",
	} {
		list = append(list, netip.MustParsePrefix(s))
	}
	return list
}

// metadata reports whether an address is a metadata service, which gives a machine's own
// credentials to every client.
func metadata(a netip.Addr) bool {
	switch a.String() {
	case "169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254", "168.63.129.16", "192.0.0.192":
		return true
	}
	return false
}

// address returns why a resolved address is denied, or "" if it may be dialled.
func (f *filter) address(a netip.Addr, ranges []netip.Prefix) string {
	a = a.Unmap()
	listed := slices.ContainsFunc(f.addresses, func(p netip.Prefix) bool { return p.Contains(a) })
	if metadata(a) {
		if slices.ContainsFunc(f.addresses, func(p netip.Prefix) bool { return p.Addr() == a && p.IsSingleIP() }) {
			return ""
		}
		return "the address is a metadata service's"
	}
	if listed {
		return ""
	}
	if !a.IsValid() || a.IsUnspecified() || a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast() ||
		slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return "the address is loopback, private, link-local or reserved"
	}
	return ""
}
