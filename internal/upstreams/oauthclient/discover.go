package oauthclient

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// challenge is the bearer challenge of an upstream that refused a request.
type challenge struct {
	metadata string
	scopes   []string
	code     string // insufficient_scope, invalid_token, …
}

// readChallenge returns the bearer challenge of an answer, empty if absent or unreadable.
func readChallenge(h http.Header) (ch challenge) {
	list, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
	if err != nil {
		return ch
	}
	for _, c := range list {
		if c.Scheme != "bearer" {
			continue
		}
		if ch.metadata == "" && len(c.Params["resource_metadata"]) <= maxAddress {
			ch.metadata = c.Params["resource_metadata"]
		}
		if scopes := strings.Fields(c.Params["scope"]); ch.scopes == nil && soundScopes(scopes) {
			ch.scopes = scopes
		}
		if ch.code == "" {
			ch.code = c.Params["error"]
		}
	}
	return ch
}

// servers is who gives tokens for the upstream, and what the upstream says of itself.
type servers struct {
	audience string // for the parameter resource
	scopes   []string
	issuer   string
	oauthex.AuthServerMeta
}

// discover finds the authorization server of the upstream: by the metadata it names, at the two
// well-known places (RFC 9728), or, for servers of 2025-03-26, at its own origin.
func (s *Source) discover(ctx context.Context, ch *challenge) (*servers, error) {
	var places []string
	if ch != nil && ch.metadata != "" {
		places = append(places, ch.metadata)
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	if path := strings.TrimRight(s.resource.Path, "/"); path != "" {
		places = append(places, s.origin()+wellKnown+path)
	}
	places = append(places, s.origin()+wellKnown)
	for _, place := range places {
		var doc oauthex.ProtectedResourceMetadata
		found, err := s.fetch(ctx, place, &doc)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if !s.names(doc.Resource) {
			return nil, s.refused("the metadata of %s is of another resource: %.200q", s.cfg.Name, doc.Resource)
		}
		out := &servers{audience: doc.Resource}
		if soundScopes(doc.ScopesSupported) {
			out.scopes = doc.ScopesSupported
		}
		if out.issuer = s.choose(doc.AuthorizationServers); out.issuer == "" {
			return nil, s.refused("the metadata of %s names no authorization server that may be used", s.cfg.Name)
		}
		found, err = s.describe(ctx, out)
		if err == nil && !found {
			err = s.refused("the authorization server of %s, %.200s, has no metadata", s.cfg.Name, out.issuer)
		}
		return out, err
	}
	out := &servers{audience: s.cfg.Resource, issuer: s.origin()}
	if s.cfg.Issuer != "" && !sameIssuer(out.issuer, s.cfg.Issuer) {
		return nil, s.refused("%s names no authorization server", s.cfg.Name)
	}
	found, err := s.describe(ctx, out)
	if err == nil && !found { // the defaults of 2025-03-26
		out.AuthServerMeta = oauthex.AuthServerMeta{
			Issuer: out.issuer, AuthorizationEndpoint: out.issuer + "/authorize", TokenEndpoint: out.issuer + "/token",
			RegistrationEndpoint:          out.issuer + "/register",
			CodeChallengeMethodsSupported: []string{"S256"},
		}
	}
	return out, err
}

// choose takes the operator's issuer, else the one whose tokens there are, else the first.
func (s *Source) choose(list []string) string {
	list = list[:min(len(list), maxServers)]
	for _, want := range []string{s.cfg.Issuer, s.kept.Issuer} {
		if want != "" {
			if i := slices.IndexFunc(list, func(one string) bool { return sameIssuer(one, want) }); i >= 0 {
				return list[i]
			}
		}
	}
	if s.cfg.Issuer != "" || len(list) == 0 {
		return ""
	}
	return list[0]
}

// describe reads the metadata of the issuer, by RFC 8414 or OpenID Connect.
func (s *Source) describe(ctx context.Context, out *servers) (found bool, err error) {
	u, err := url.Parse(out.issuer)
	if err != nil {
		return false, s.refused("the authorization server of %s has no address that can be read", s.cfg.Name)
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimRight(u.EscapedPath(), "/")
	places := []string{origin + "/.well-known/oauth-authorization-server" + path, origin + "/.well-known/openid-configuration" + path}
	if path != "" {
		places = append(places, origin+path+"/.well-known/openid-configuration")
	}
	for _, place := range places {
		var doc oauthex.AuthServerMeta
		if found, err := s.fetch(ctx, place, &doc); err != nil {
			return false, err
		} else if !found {
			continue
		}
		if !sameIssuer(doc.Issuer, out.issuer) {
			return false, s.refused("the metadata of the authorization server %.200s is that of %.200q", out.issuer, doc.Issuer)
		}
		if s.cfg.Issuer != "" && !sameIssuer(doc.Issuer, s.cfg.Issuer) {
			return false, s.refused("%s has another authorization server than the one its client belongs to: %.200s", s.cfg.Name, doc.Issuer)
		}
		for _, address := range []string{doc.TokenEndpoint, doc.AuthorizationEndpoint, doc.RegistrationEndpoint} {
			if address != "" && !s.permitted(address) {
				return false, s.refused("the authorization server %.200s names an address that may not be used", out.issuer)
			}
		}
		if doc.TokenEndpoint == "" {
			return false, s.refused("the authorization server %.200s names no token endpoint", out.issuer)
		}
		out.AuthServerMeta = doc
		return true, nil
	}
	return false, nil
}

// fetch reads one document; false if it does not exist.
func (s *Source) fetch(ctx context.Context, address string, into any) (bool, error) {
	if !s.permitted(address) {
		return false, s.refused("%s has its metadata at an address that may not be used", s.cfg.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false, s.refused("%s has its metadata at an address that cannot be read", s.cfg.Name)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return false, s.unreachable(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests:
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, s.silent("a metadata document for %s was answered with HTTP %d", s.cfg.Name, resp.StatusCode)
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" &&
		!strings.HasSuffix(kind, "+json") {
		return false, nil // a site that shows a page for everything
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	switch {
	case err != nil:
		return false, s.unreachable(err)
	case len(body) > maxDocument:
		return false, s.refused("a metadata document for %s has more than %d KiB", s.cfg.Name, maxDocument>>10)
	}
	if err := jsonx.Unmarshal(body, into); err != nil {
		return false, s.refused("a metadata document for %s cannot be read", s.cfg.Name)
	}
	return true, nil
}

// unreachable is the error for an authorization server that was not reached. The cause
// names addresses, never what was sent there.
func (s *Source) unreachable(err error) error {
	if e := capability.AsError(err); e.Reason == capability.ReasonAddressDenied {
		return e
	}
	return capability.Wrap(capability.CodeUnavailable, "oauth", "what gives tokens for "+s.cfg.Name+" cannot be reached",
		err).With(reasonSilent, "try again later")
}

func (s *Source) silent(format string, args ...any) error {
	return capability.Errorf(capability.CodeUnavailable, "oauth", format, args...).With(reasonSilent, "try again later")
}

// permitted reports whether an address from a metadata document may be used.
func (s *Source) permitted(address string) bool {
	u, err := url.Parse(address)
	return err == nil && len(address) <= maxAddress && u.Host != "" && u.User == nil && u.Fragment == "" &&
		(u.Scheme == "https" || u.Scheme == "http" && s.cfg.Plain)
}

func (s *Source) origin() string { return s.resource.Scheme + "://" + s.resource.Host }

// names reports whether the resource of a metadata document is the upstream: the same
// origin, and a path at or above the upstream's. RFC 9728 §3.3 requires the same path,
// but servers publish that of a parent.
func (s *Source) names(resource string) bool {
	u, err := url.Parse(resource)
	if err != nil || len(resource) > maxAddress || u.Fragment != "" || !strings.EqualFold(u.Scheme, s.resource.Scheme) ||
		!strings.EqualFold(u.Host, s.resource.Host) {
		return false
	}
	above := strings.TrimRight(u.Path, "/")
	return s.resource.Path == above || strings.HasPrefix(s.resource.Path, above+"/") || above == ""
}

// sameIssuer forgives one slash at the end, which RFC 8414 does not and servers do.
func sameIssuer(a, b string) bool {
	return strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/")
}
