package config

import (
	"fmt"
	"slices"
	"strings"
)

// OAuth configures an authorization server whose access tokens the MCP and A2A doors accept
// in addition to junctor's own tokens.
type OAuth struct {
	Issuer     string   `koanf:"issuer" doc:"The authorization server whose access tokens /mcp and /a2a take, as its tokens spell it. Empty: none are taken."`
	Resource   string   `koanf:"resource" doc:"The address that tokens must be made for (audience). Empty: public_url, or the listen address, with /mcp."`
	KeysURL    string   `koanf:"keys_url" doc:"Where the keys of the issuer are. Empty: where its metadata says."`
	Algorithms []string `koanf:"algorithms" doc:"Signatures that are taken. Empty: RS256, PS256, ES256 and EdDSA."`
	Scopes     []string `koanf:"scopes" doc:"What a scope allows, as scope=effect: calls of that effect (read, write, external, admin) and all lesser ones, inside what the rules permit. Empty: scopes are not looked at."`
	Role       string   `koanf:"role" doc:"Role of who comes with such a token: agent, operator, task or node. The principal is <role>:oidc/<subject>."`
	View       string   `koanf:"view" doc:"Default view of who comes with such a token."`
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
