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
	Issuer       string        `koanf:"issuer" doc:"The OpenID provider with which people sign in, as its metadata spell it. The address of this server that is registered there is public_url (else http://localhost and the port) with /console/oidc. Empty: people use tokens only."`
	ClientID     string        `koanf:"client_id" doc:"Id of the client that is registered for this server at oidc.issuer."`
	ClientSecret string        `koanf:"client_secret" doc:"Name of the stored secret that is the client's (junctor secrets set NAME). Empty: the client has none."`
	Scopes       []string      `koanf:"scopes" doc:"Scopes that are asked for besides openid, email and profile, such as groups."`
	GroupsClaim  string        `koanf:"groups_claim" doc:"Claim with the groups of a person. A dot leads into a claim, as in realm_access.roles."`
	Roles        []string      `koanf:"roles" doc:"Who may sign in, and as what: WHO=ROLE, with WHO group:NAME, email:ADDRESS, domain:NAME or subject:ID, and ROLE agent, operator or admin. An address counts if the provider has verified it. The strongest of those that fit is given. A person whom none fits is refused."`
	LoginTTL     time.Duration `koanf:"login_ttl" doc:"How long a sign-in lasts, from one minute to 30 days. A session of the console lasts eight hours at most. Groups and roles are read again at the next sign-in."`
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
