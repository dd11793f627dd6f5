package config

import (
	"fmt"
	"slices"
	"strings"
)

// OAuth configures an authorization server whose access tokens the MCP and A2A doors accept
// in addition to junctor's own tokens.
type OAuth struct {
	Issuer     string   `koanf:"issuer" doc:"Authorization server whose access tokens /mcp and /a2a accept, spelled as in its tokens."`
	Resource   string   `koanf:"resource" doc:"Audience of the tokens. Empty: public_url, or the listen address, with /mcp."`
	KeysURL    string   `koanf:"keys_url" doc:"Address of the issuer's keys. Empty: from its metadata."`
	Algorithms []string `koanf:"algorithms" doc:"Accepted signatures. Empty: RS256, PS256, ES256 and EdDSA."`
	Scopes     []string `koanf:"scopes" doc:"Scopes as scope=effect: calls up to that effect (read, write, external, admin), within the rules. Empty: scopes are ignored."`
	Role       string   `koanf:"role" doc:"Role for such tokens: agent, operator, task or node. The principal is <role>:oidc/<subject>."`
	View       string   `koanf:"view" doc:"Default view for such tokens."`
}

func (o *OAuth) check() error {
	if o.Issuer == "" {
		if o.Resource != "" || o.KeysURL != "" || len(o.Scopes) > 0 {
			return fmt.Errorf("oauth.issuer: it is missing, and nothing else in the section has a meaning without it")
		}
		return nil
	}
	for i, s := range o.Scopes {
		name, effect, ok := strings.Cut(s, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \"\\") || !slices.Contains([]string{"read", "write", "external", "admin"}, effect) {
			return fmt.Errorf("oauth.scopes[%d]: %q is not scope=effect, with effect read, write, external or admin", i, s)
		}
	}
	return nil
}
