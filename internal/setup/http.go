package setup

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

// tokenHeader is the header of an entry with a URL that has the token.
const tokenHeader = "Authorization"

// entry returns junctor as a server of a client: the bridge, or with req.HTTP its URL with the
// client's token, which is created unless req is a dry run.
func (s *Service) entry(ctx context.Context, by capability.Principal, c clients.Client, req setupserve.Request, r *record) (
	own clients.Server, err error,
) {
	if !req.HTTP {
		return clients.Server{Command: s.cfg.Command[0], Args: append(slices.Clone(s.cfg.Command[1:]), "--client", c.Name)}, nil
	}
	own = clients.Server{URL: s.cfg.URL, Headers: map[string]string{tokenHeader: "Bearer •••"}}
	if req.DryRun {
		return own, nil
	}
	if err := s.token(ctx, by, r); err != nil {
		return own, err
	}
	value, _, err := secretstore.ReadFile(s.tokenFile(c.Name))
	if err != nil {
		return own, capability.Wrap(capability.CodeFailed, "setup", "the token of the client cannot be read", err)
	}
	own.Headers[tokenHeader] = "Bearer " + value.Reveal()
	return own, nil
}

// warnings returns what a person should consider about an entry with a URL.
func (s *Service) warnings(req setupserve.Request) (out []string) {
	if req.HTTP && s.cfg.URLEnds {
		out = append(out, "the address "+s.cfg.URL+" ends with this run of the server, because listen names no port; "+
			"name one in config.yaml, or leave --http out")
	}
	return out
}

// private fails with invalid_input, reason client_file_open, if other users may read or change a file that
// is to hold a token.
func private(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "setup", "the token would be in %s, which other users may read or change", file).
		With("client_file_open", "make it yours alone with: chmod 600 "+text.ShellWord(file)+", or leave --http out")
}

// LocalURL replaces a host that means every address of this machine, as a listener has it, by one that
// its programs can connect to.
func LocalURL(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() || u.Hostname() == "" {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}
