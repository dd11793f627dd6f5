package config

import (
	"fmt"
	"net/url"
	"time"

	"github.com/junctor-run/junctor/internal/platform/oauth"
)

// OIDC configures the OpenID provider with which people sign in to the console and with
// junctor login.
type OIDC struct {
	Issuer       string        `koanf:"issuer" doc:"OpenID provider with which people sign in, spelled as in its metadata. Register public_url (else http://localhost and the port) with /console/oidc there. Empty: tokens only."`
	ClientID     string        `koanf:"client_id" doc:"Id of this server's client at oidc.issuer."`
	ClientSecret string        `koanf:"client_secret" doc:"Stored secret of that client, if it has one."`
	Scopes       []string      `koanf:"scopes" doc:"Scopes to request besides openid, email and profile, such as groups."`
	GroupsClaim  string        `koanf:"groups_claim" doc:"Claim with a person's groups. A dot leads into a claim (realm_access.roles)."`
	Roles        []string      `koanf:"roles" doc:"Who may sign in, as WHO=ROLE. WHO: group:NAME, email:ADDRESS, domain:NAME (verified addresses only) or subject:ID. ROLE: agent, operator or admin. The strongest match counts; a person without one is refused."`
	LoginTTL     time.Duration `koanf:"login_ttl" doc:"Lifetime of a sign-in, 1m to 30 days; of a console session eight hours at most. Groups and roles are read at each sign-in."`
}

func defaultOIDC() OIDC { return OIDC{GroupsClaim: "groups", LoginTTL: 8 * time.Hour} }

func (o OIDC) validate(public, host string) error {
	if o.Issuer == "" {
		if o.ClientID != "" || o.ClientSecret != "" || len(o.Roles) > 0 {
			return fmt.Errorf("oidc.issuer: it is missing, and nothing else in the section has a meaning without it")
		}
		return nil
	}
	if o.ClientID == "" {
		return fmt.Errorf("oidc.client_id: name the client that is registered for this server at %s", o.Issuer)
	}
	u, err := url.Parse(public)
	switch {
	case public == "" && !isLoopback(host):
		return fmt.Errorf("public_url: people who sign in with oidc.issuer come back to it; set the https address of the proxy in front")
	case err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("public_url: people who sign in with oidc.issuer come back to it, so it must be https")
	}
	for i, text := range o.Roles {
		if _, err := oauth.ParseRule(text); err != nil {
			return fmt.Errorf("oidc.roles[%d]: %w", i, err)
		}
	}
	if o.LoginTTL < time.Minute || o.LoginTTL > 30*24*time.Hour {
		return fmt.Errorf("oidc.login_ttl: %s is not between 1m and 720h", o.LoginTTL)
	}
	return nil
}
