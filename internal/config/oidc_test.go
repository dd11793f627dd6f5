package config

import (
	"strings"
	"testing"
	"time"
)

func TestSettingsForSigningPeopleIn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"good on this machine":        {func(*Config) {}, ""},
		"good behind a proxy":         {func(c *Config) { c.PublicURL = "https://junctor.example.org" }, ""},
		"a proxy without TLS":         {func(c *Config) { c.PublicURL = "http://junctor.example.org" }, "public_url: "},
		"open without an address":     {func(c *Config) { c.Listen, c.InsecurePlainHTTP = "0.0.0.0:7777", true }, "public_url: "},
		"no client":                   {func(c *Config) { c.OIDC.ClientID = "" }, "oidc.client_id: "},
		"no issuer":                   {func(c *Config) { c.OIDC.Issuer = "" }, "oidc.issuer: "},
		"nothing":                     {func(c *Config) { c.OIDC = OIDC{} }, ""},
		"a rule without a kind":       {func(c *Config) { c.OIDC.Roles = []string{"group:a=agent", "ops=operator"} }, "oidc.roles[1]: "},
		"a role that people have not": {func(c *Config) { c.OIDC.Roles = []string{"group:a=node"} }, "oidc.roles[0]: "},
		"a short sign-in":             {func(c *Config) { c.OIDC.LoginTTL = time.Second }, "oidc.login_ttl: "},
		"an endless sign-in":          {func(c *Config) { c.OIDC.LoginTTL = 1000 * time.Hour }, "oidc.login_ttl: "},
	} {
		cfg := Default()
		cfg.OIDC.Issuer, cfg.OIDC.ClientID, cfg.OIDC.Roles = "https://login.example.org", "junctor", []string{"group:ops=operator"}
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error that begins with %q", name, err, c.want)
		}
	}
}
