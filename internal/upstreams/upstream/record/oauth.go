package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/upstreams/oauthclient"
	"github.com/junctor-run/junctor/secret"
)

// OAuth configures how tokens for an upstream are obtained. Every field is optional: by
// default a user logs in at the authorization server that the upstream names, and the
// client registers itself.
type OAuth struct {
	Grant    string `json:"grant,omitempty"` // authorization_code (default), client_credentials, token_exchange
	ClientID string `json:"client_id,omitempty"`
	// ClientSecret is the name of a secret.
	ClientSecret string `json:"client_secret,omitempty"`
	// SubjectSecret is the name of the secret whose token is exchanged, SubjectType the
	// type of that token; see [oauthclient.Config].
	SubjectSecret string `json:"subject_secret,omitempty"`
	SubjectType   string `json:"subject_type,omitempty"`
	// ClientMetadata is the URL of a client-id metadata document, used if the server
	// supports one. Issuer is the only authorization server that may be used.
	ClientMetadata string   `json:"client_metadata,omitempty"`
	Issuer         string   `json:"issuer,omitempty"`
	Scopes         []string `json:"scopes,omitempty"` // in place of those that the upstream proposes
	// Login is whose login calls use: shared (default), one for all callers, or each, that of the
	// principal who calls or for whom the caller acts.
	Login string `json:"login,omitempty"`
}

// The values of OAuth.Login.
const (
	LoginShared = "shared"
	LoginEach   = "each"
)

// EachLogsIn reports whether each principal logs in to the upstream.
func (r *Record) EachLogsIn() bool { return r.OAuth != nil && r.OAuth.Login == LoginEach }

// LoginKey returns the name under which the tokens of a principal's own login are stored.
func (r *Record) LoginKey(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return r.LoginPrefix() + hex.EncodeToString(sum[:12])
}

// LoginPrefix begins the names of [Record.LoginKey].
func (r *Record) LoginPrefix() string { return "upstream." + r.Name + ".oauth." }

func (r *Record) checkOAuth() error {
	o := r.OAuth
	if o.Grant == "" {
		o.Grant = oauthclient.AuthorizationCode
	}
	if o.Login == "" {
		o.Login = LoginShared
	}
	switch {
	case o.Login != LoginShared && o.Login != LoginEach:
		return fmt.Errorf("login: %.40q is not one of %s, %s", o.Login, LoginShared, LoginEach)
	case o.Login == LoginEach && (o.Grant != oauthclient.AuthorizationCode || r.Isolation == Shared || r.Kind != KindMCP):
		return fmt.Errorf("a login of each principal is for servers of MCP, the grant %s and an isolation other than %s",
			oauthclient.AuthorizationCode, Shared)
	case o.Login == LoginEach && o.ClientSecret != "" && o.Issuer == "":
		// Each principal's login asks the upstream for its authorization server, which gets the secret.
		return fmt.Errorf("a client secret with a login of each principal needs the issuer that it is for")
	case o.Login == LoginEach && len(r.Name) > maxOwnName:
		return fmt.Errorf("the name of an upstream to which each principal logs in has %d characters at most", maxOwnName)
	case r.BearerSecret != "":
		return fmt.Errorf("a bearer token and OAuth do not go together")
	case len(r.Name) > maxOAuthName:
		return fmt.Errorf("the name of an upstream with OAuth has %d characters at most", maxOAuthName)
	case o.ClientSecret != "" && !secretGrammar.MatchString(o.ClientSecret):
		return fmt.Errorf("%.40q is not a name of a secret", o.ClientSecret)
	case o.SubjectSecret != "" && !secretGrammar.MatchString(o.SubjectSecret):
		return fmt.Errorf("%.40q is not a name of a secret", o.SubjectSecret)
	case len(o.ClientID) > maxText || strings.ContainsFunc(o.ClientID, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return fmt.Errorf("the client id is not text of one line")
	}
	if o.Issuer != "" {
		u, err := url.Parse(o.Issuer)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" &&
			(u.Scheme != "http" || !r.PrivateNetwork) {
			return fmt.Errorf("an issuer is an https address without query and fragment")
		}
	}
	cfg := r.OAuthConfig()
	cfg.HTTP = new(http.Client)
	none := func() (secret.Value, error) { return secret.Value{}, nil }
	if o.ClientSecret != "" {
		cfg.ClientSecret = none
	}
	if o.SubjectSecret != "" {
		cfg.Subject = none
	}
	_, err := oauthclient.New(cfg)
	if err != nil {
		return fmt.Errorf("%s", capability.AsError(err).Message)
	}
	return nil
}

// OAuthConfig returns the client's configuration of a record with OAuth. The caller adds
// the HTTP client, the store, the clock and the secrets.
func (r *Record) OAuthConfig() oauthclient.Config {
	o := r.OAuth
	return oauthclient.Config{
		Name: r.Name, Resource: r.URL, Plain: r.PrivateNetwork, Grant: o.Grant, ClientID: o.ClientID, Issuer: o.Issuer,
		Metadata: o.ClientMetadata, Scopes: o.Scopes,
		SubjectType: o.SubjectType, Key: "upstream." + r.Name + ".oauth",
	}
}
