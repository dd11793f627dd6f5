// Package record defines an operator's record of an upstream: its address, the isolation
// of its connections, its trust, and the names of its secrets. [Record.Check] sets
// defaults and validates. The package does no I/O.
package record

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/managed"
)

// The values of a record's fields.
const (
	KindMCP     = "mcp"
	KindA2A     = "a2a"
	KindOpenAPI = "openapi"
	KindGraphQL = "graphql"

	Shared        = "shared"         // one connection for all principals
	PerPrincipal  = "principal"      // one for each principal
	ClientSession = "client-session" // one for each session of a principal

	Trusted   = "trusted"   // new definitions are published
	Untrusted = "untrusted" // new definitions wait for an approval

	Deny    = "deny"
	Forward = "forward"

	Hold   = "hold"   // a changed definition waits; calls of the old one are refused
	Warn   = "warn"   // a changed definition is published and recorded
	Follow = "follow" // a changed definition is published

	Sandboxed  = "sandbox"   // the program is confined
	Unconfined = "none"      // the program runs as the server's user
	Container  = "container" // the program starts a container, which the container's engine confines

	NetworkAll  = "all"
	NetworkNone = "none"
)

// Record describes an upstream. It contains the names of secrets in the secret store,
// never their values.
type Record struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind,omitempty"` // mcp (default), a2a, openapi or graphql
	Command []string `json:"command,omitempty"`
	Dir     string   `json:"dir,omitempty"` // "": a folder of its own in the home
	URL     string   `json:"url,omitempty"`
	// Document is the URL or absolute path of the OpenAPI document of an API. URL is then the
	// address of the API; by default it is Document, for a document on the server of its API.
	// APISecret is the secret for the security scheme that the document declares.
	Document  string `json:"document,omitempty"`
	APISecret string `json:"api_secret,omitempty"`
	SSE       bool   `json:"sse,omitempty"` // the transport of 2024-11-05
	// Env adds variables to the environment of a program, EnvSecrets variables whose values are
	// secrets; likewise Headers and HeaderSecrets for a URL. BearerSecret is sent as Authorization.
	Env           map[string]string `json:"env,omitempty"`
	EnvSecrets    map[string]string `json:"env_secrets,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	HeaderSecrets map[string]string `json:"header_secrets,omitempty"`
	BearerSecret  string            `json:"bearer_secret,omitempty"`
	OAuth         *OAuth            `json:"oauth,omitempty"` // in place of BearerSecret
	// Confinement is that of a program: sandbox (default), container (default of a command such as
	// docker run) or none. The rest is for sandbox: named directories that the program may read and
	// those that it may change, and its network: all (default), none, or host patterns.
	Confinement string            `json:"confinement,omitempty"`
	ReadOnly    []string          `json:"read_only,omitempty"`
	ReadWrite   []string          `json:"read_write,omitempty"`
	Network     []string          `json:"network,omitempty"`
	Keys        []json.RawMessage `json:"keys,omitempty"`  // of an A2A agent: JWKs, one of which signs its card
	Roots       []string          `json:"roots,omitempty"` // directories in the response to roots/list
	Registry    *Origin           `json:"registry,omitempty"`
	// Managed is the mark of a record that a file of the home declares; nil if a user added it.
	Managed *managed.Mark `json:"managed,omitempty"`

	Isolation string `json:"isolation,omitempty"` // shared (default), principal, client-session
	// OwnCredentials makes each principal's connection use that principal's secrets, named
	// by OwnSecret. It requires an Isolation other than shared. The lists are read with
	// the record's secrets.
	OwnCredentials bool   `json:"own_credentials,omitempty"`
	Trust          string `json:"trust,omitempty"`         // trusted (default), untrusted
	HintsTrusted   bool   `json:"hints_trusted,omitempty"` // its readOnlyHint determines the effect
	Sampling       string `json:"sampling,omitempty"`      // deny (default), forward
	ChangedPin     string `json:"changed_pin,omitempty"`   // hold (default), warn, follow
	PrivateNetwork bool   `json:"private_network,omitempty"`
	TimeoutMS      int64  `json:"timeout_ms,omitempty"` // of one call; 0: the server's default
	// ConnectTimeoutMS bounds one attempt to connect; 0: the server's default.
	ConnectTimeoutMS int64 `json:"connect_timeout_ms,omitempty"`
	IdleTimeoutMS    int64 `json:"idle_timeout_ms,omitempty"` // of one call without progress; 0: 60 s, of A2A agents 5 min
	Disabled         bool  `json:"disabled,omitempty"`        // stored, but neither connected nor published
}

// Origin is the entry of the MCP registry that an upstream was added from.
type Origin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Package string `json:"package"` // npm, pypi, oci or remote
}

var (
	nameGrammar   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	envGrammar    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	secretGrammar = regexp.MustCompile(`^[A-Za-z0-9._-]{1,120}$`)
	headerGrammar = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
)

// ownHeaders are the headers of protocol and connection, which a record must not set.
var ownHeaders = []string{
	"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id", "origin", "te", "trailer",
	"transfer-encoding", "upgrade", "user-agent",
}

// Check sets the defaults and validates the record. The error is invalid_input, reason
// invalid_upstream.
func (r *Record) Check() error {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "upstreams.add", format, args...).With("invalid_upstream",
			"see: junctor mcp add --help")
	}
	if r.Name == "" || len(r.Name) > maxNameBytes || !nameGrammar.MatchString(r.Name) {
		return bad("%.130q is not a name of an upstream: 1 to %d letters, digits, '.', '_' and '-', beginning with a letter or digit", r.Name,
			maxNameBytes)
	}
	if r.EachLogsIn() && r.Isolation == "" {
		r.Isolation = PerPrincipal
	}
	for _, w := range []struct {
		field  string
		value  *string
		values []string // the first is the default
	}{
		{"kind", &r.Kind, []string{KindMCP, KindA2A, KindOpenAPI, KindGraphQL}},
		{"isolation", &r.Isolation, []string{Shared, PerPrincipal, ClientSession}},
		{"trust", &r.Trust, []string{Trusted, Untrusted}},
		{"sampling", &r.Sampling, []string{Deny, Forward}},
		{"changed_pin", &r.ChangedPin, []string{Hold, Warn, Follow}},
	} {
		if *w.value == "" {
			*w.value = w.values[0]
		}
		if !slices.Contains(w.values, *w.value) {
			return bad("%s: %.40q is not one of %s", w.field, *w.value, strings.Join(w.values, ", "))
		}
	}
	if r.OwnCredentials && (r.Isolation == Shared || r.OAuth != nil || len(r.Secrets()) == 0) {
		return bad("own credentials are for upstreams with secrets and without OAuth, whose isolation is %s or %s", PerPrincipal, ClientSession)
	}
	for _, name := range r.Secrets() {
		if r.OwnCredentials && len(name) > maxOwnName {
			return bad("the names of secrets that each principal has of its own have %d bytes at most", maxOwnName)
		}
	}
	if most := maxTimeout.Milliseconds(); r.TimeoutMS < 0 || r.TimeoutMS > most || r.IdleTimeoutMS < 0 || r.IdleTimeoutMS > most {
		return bad("a timeout is between 0 and %d ms", most)
	}
	if most := maxConnectTimeout.Milliseconds(); r.ConnectTimeoutMS < 0 || r.ConnectTimeoutMS > most {
		return bad("the timeout of connecting is between 0 and %d ms", most)
	}
	switch {
	case len(r.Command) == 0 && r.URL == "":
		return bad("an upstream needs a command or a URL, and %.64q was given neither", r.Name)
	case len(r.Command) > 0 && r.URL != "":
		return bad("an upstream has a command or a URL, and not both")
	case r.URL != "":
		if err := r.checkURL(); err != nil {
			return bad("%s", err)
		}
	default:
		if err := r.checkCommand(); err != nil {
			return bad("%s", err)
		}
	}
	if o := r.Registry; o != nil && (o.Name == "" || o.Version == "" || len(o.Name)+len(o.Version)+len(o.Package) > maxText) {
		return bad("the entry of the registry has a name and a version")
	}
	if err := r.checkAgent(); err != nil {
		return bad("%s", err)
	}
	if len(r.Roots) > maxPairs || slices.ContainsFunc(r.Roots, func(d string) bool { return !filepath.IsAbs(d) || len(d) > maxText }) {
		return bad("roots are absolute directories, %d at most", maxPairs)
	}
	return nil
}

func (r *Record) checkURL() error {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil || u.Host == "" || len(r.URL) > maxText:
		return fmt.Errorf("this is not the URL of a server: write https://host/path")
	case u.User != nil:
		return fmt.Errorf("a URL holds no user or password: give the name of a secret instead")
	case u.Fragment != "":
		return fmt.Errorf("a URL of an upstream has no fragment")
	case u.Scheme != "https" && (u.Scheme != "http" || !r.PrivateNetwork):
		return fmt.Errorf("a URL of an upstream begins with https; plain http is for local addresses (--local)")
	case len(r.Env)+len(r.EnvSecrets) > 0 || r.Dir != "":
		return fmt.Errorf("environment and folder are for commands, not for URLs")
	case r.Confinement != "" || len(r.ReadOnly)+len(r.ReadWrite)+len(r.Network) > 0:
		return fmt.Errorf("confinement, its folders and its network are for commands, not for URLs")
	case len(r.Headers)+len(r.HeaderSecrets) > maxPairs:
		return fmt.Errorf("there are more than %d headers", maxPairs)
	}
	seen := make(map[string]bool)
	if r.OAuth != nil {
		seen["authorization"] = true
		if err := r.checkOAuth(); err != nil {
			return err
		}
	}
	if r.BearerSecret != "" {
		seen["authorization"] = true
		if !secretGrammar.MatchString(r.BearerSecret) {
			return fmt.Errorf("%.40q is not a name of a secret", r.BearerSecret)
		}
	}
	for i, pairs := range []map[string]string{r.Headers, r.HeaderSecrets} {
		for name, value := range pairs {
			lower := strings.ToLower(name)
			switch {
			case !headerGrammar.MatchString(name) || slices.Contains(ownHeaders, lower) || strings.HasPrefix(lower, "mcp-"):
				return fmt.Errorf("%.40q is not a header that can be set", name)
			case seen[lower]:
				return fmt.Errorf("the header %s is given twice", name)
			case i == 0 && (lower == "authorization" || lower == "proxy-authorization" || lower == "cookie"):
				return fmt.Errorf("the header %s holds a credential: give the name of a secret for it", name)
			case i == 0 && (len(value) > maxText || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })):
				return fmt.Errorf("the value of the header %s is not text of one line", name)
			case i == 1 && !secretGrammar.MatchString(value):
				return fmt.Errorf("%.40q is not a name of a secret", value)
			}
			seen[lower] = true
		}
	}
	return nil
}

func (r *Record) checkCommand() error {
	switch {
	case len(r.Command) > maxWords || r.Command[0] == "" || slices.ContainsFunc(r.Command,
		func(w string) bool { return len(w) > maxText || strings.ContainsRune(w, 0) }):
		return fmt.Errorf("a command has 1 to %d words of at most %d bytes", maxWords, maxText)
	case r.SSE || r.OAuth != nil || r.BearerSecret != "" || len(r.Headers)+len(r.HeaderSecrets) > 0:
		return fmt.Errorf("headers, bearer tokens, OAuth and SSE are for URLs, not for commands")
	case r.Dir != "" && !filepath.IsAbs(r.Dir):
		return fmt.Errorf("the folder of an upstream is an absolute path")
	case len(r.Env)+len(r.EnvSecrets) > maxPairs:
		return fmt.Errorf("there are more than %d variables", maxPairs)
	}
	for i, pairs := range []map[string]string{r.Env, r.EnvSecrets} {
		for name, value := range pairs {
			_, twice := r.Env[name]
			switch {
			case !envGrammar.MatchString(name) || len(name) > maxNameBytes:
				return fmt.Errorf("%.40q is not a name of a variable", name)
			case i == 0 && (len(value) > maxText || strings.ContainsRune(value, 0)):
				return fmt.Errorf("the value of %s is longer than %d bytes", name, maxText)
			case i == 1 && twice:
				return fmt.Errorf("the variable %s is given twice", name)
			case i == 1 && !secretGrammar.MatchString(value):
				return fmt.Errorf("%.40q is not a name of a secret", value)
			}
		}
	}
	return r.checkConfinement()
}

// CheckVariables returns an error if the record sets a variable that changes what its program loads
// or trusts. Records that are stored already are not checked for it.
func (r *Record) CheckVariables() error {
	for _, pairs := range []map[string]string{r.Env, r.EnvSecrets} {
		for name := range pairs {
			if text.IsSteering(name) {
				return capability.Errorf(capability.CodeInvalidInput, "upstreams.check",
					"the variable %s changes what programs load or trust, so an upstream may not set it", name).
					With("invalid_upstream", "if the program needs it, set it in a script that starts the program")
			}
		}
	}
	return nil
}

// checkAgent returns an error for fields that only another kind of upstream has.
func (r *Record) checkAgent() error {
	switch {
	case r.Kind != KindA2A && len(r.Keys) > 0:
		return fmt.Errorf("keys are for A2A agents: servers of MCP sign nothing")
	case r.Kind != KindOpenAPI && r.Document != "", r.Kind != KindOpenAPI && r.Kind != KindGraphQL && r.APISecret != "":
		return fmt.Errorf("a document and its secret are for APIs: the kind is openapi")
	case r.Kind == KindMCP:
		return nil
	case r.URL == "" && r.Kind != KindOpenAPI:
		return fmt.Errorf("an A2A agent is added by the URL of its card, a GraphQL API by its own")
	case r.SSE || r.Sampling != Deny || len(r.Roots) > 0:
		return fmt.Errorf("SSE, sampling and roots are for servers of MCP only")
	case r.Isolation != Shared:
		return fmt.Errorf("only servers of MCP have connections to keep apart: the isolation is shared")
	case r.Kind == KindOpenAPI && (r.Document == "" || len(r.Document) > maxText):
		return fmt.Errorf("an API is added by the URL or the absolute path of its OpenAPI document")
	case r.APISecret != "" && !secretGrammar.MatchString(r.APISecret):
		return fmt.Errorf("%.40q is not a name of a secret", r.APISecret)
	case len(r.Keys) > maxKeys:
		return fmt.Errorf("there are more than %d keys", maxKeys)
	}
	return nil
}

// Secrets returns the names of the secrets that the record uses, sorted.
func (r *Record) Secrets() (names []string) {
	for _, pairs := range []map[string]string{r.EnvSecrets, r.HeaderSecrets} {
		for _, name := range pairs {
			names = append(names, name)
		}
	}
	for _, name := range []string{r.BearerSecret, r.APISecret} {
		if name != "" {
			names = append(names, name)
		}
	}
	if r.OAuth != nil && r.OAuth.ClientSecret != "" {
		names = append(names, r.OAuth.ClientSecret)
	}
	if r.OAuth != nil && r.OAuth.SubjectSecret != "" {
		names = append(names, r.OAuth.SubjectSecret)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Origin returns the name that the upstream's module and tools have in the catalog and in policies:
// mcp for an API too, because its operations are tools like those of an MCP server.
func (r *Record) Origin() string {
	if r.Kind == KindOpenAPI || r.Kind == KindGraphQL {
		return KindMCP
	}
	return r.Kind
}

// Idle returns how long a call may run without progress.
func (r *Record) Idle() time.Duration {
	if r.IdleTimeoutMS > 0 {
		return time.Duration(r.IdleTimeoutMS) * time.Millisecond
	}
	if r.Kind == KindA2A { // agents may be silent for longer
		return 5 * time.Minute
	}
	return time.Minute
}

var plainID = regexp.MustCompile(`^[a-z]+:[A-Za-z0-9-][A-Za-z0-9_-]*$`)

// OwnSecret returns the name of the secret that a principal uses instead of the one that a
// record with OwnCredentials names: own.NAME.agent.ann for agent:ann, with a digest for an
// id with other characters. Ids may be chosen by untrusted parties; no id yields the secret
// of another purpose or principal.
func OwnSecret(name, principal string) string {
	own := "own." + name + "." + strings.Replace(principal, ":", ".", 1)
	if plainID.MatchString(principal) && secretGrammar.MatchString(own) {
		return own
	}
	sum := sha256.Sum256([]byte(principal))
	return "own." + name + "._" + hex.EncodeToString(sum[:12])
}
