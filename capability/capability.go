// Package capability declares the types that all parts of junctor share: capabilities
// (Contribution, Module), callers (Principal), requests (Target, Invocation), calls to
// providers and their results (Call, Result), and failures (Error, with sixteen codes). It
// also declares Provider, the interface of everything that can make a call, local or remote.
//
// The package contains no policy and does no I/O. Inputs and results stay raw JSON from the
// inbound socket to the provider; only the parts needed for a decision are parsed.
package capability

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ID names one invocable catalog entry: <extension id>/<contribution
// id>#<canonical action>@<instance>. It is stable across restarts.
type ID string

// Action is a canonical, provider-independent verb such as "fs.readText", or an id
// created by the host that begins with "ext." or "fn.".
type Action string

// Effect is the class of changes that a call may make, ordered read < write <
// external < admin.
type Effect string

// The effect classes. An unknown effect is treated as external.
const (
	EffectRead     Effect = "read"
	EffectWrite    Effect = "write"
	EffectExternal Effect = "external"
	EffectAdmin    Effect = "admin"
)

func (e Effect) rank() int {
	switch e {
	case EffectRead:
		return 0
	case EffectWrite:
		return 1
	case EffectAdmin:
		return 3
	}
	return 2
}

// AtLeast reports whether e is floor or a stronger class.
func (e Effect) AtLeast(floor Effect) bool { return e.rank() >= floor.rank() }

// Mutates reports whether calls of this class need a begin record and a durable
// end record: every class but read.
func (e Effect) Mutates() bool { return e.AtLeast(EffectWrite) }

// ProviderKey identifies a provider instance: <domain>:<kind>:<instance>,
// for example "fs:endpoint:cloud". Bytes outside [A-Za-z0-9._~-] are
// percent-encoded per segment.
type ProviderKey string

// NewProviderKey joins and escapes the three segments.
func NewProviderKey(domain, kind, instance string) ProviderKey {
	return ProviderKey(escapeSegment(domain) + ":" + escapeSegment(kind) + ":" + escapeSegment(instance))
}

// Parts returns the three escaped segments; missing ones are empty.
func (k ProviderKey) Parts() (domain, kind, instance string) {
	domain, rest, _ := strings.Cut(string(k), ":")
	kind, instance, _ = strings.Cut(rest, ":")
	return domain, kind, instance
}

func escapeSegment(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._~-", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

// Member addresses a contribution of a module, as in the router protocol; on the command
// line it is written module:kind:name.
type Member struct {
	Module string `json:"module"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

func (m Member) String() string { return m.Module + ":" + m.Kind + ":" + m.Name }

// IsZero reports whether m is the zero Member.
func (m Member) IsZero() bool { return m == Member{} }

// Selector selects among several providers. Every field that is set must match; a blank
// value is an error and never means "any".
type Selector map[string]string

// Target is the requested capability. Exactly one of the first three fields is set.
type Target struct {
	Capability ID       `json:"capability,omitempty"`
	Action     Action   `json:"action,omitempty"`
	Member     Member   `json:"member,omitzero"`
	Select     Selector `json:"select,omitempty"`
}

func (t Target) String() string {
	switch {
	case t.Capability != "":
		return string(t.Capability)
	case t.Action != "":
		return string(t.Action)
	}
	return t.Member.String()
}

// ParseTarget parses the TARGET of the command line: a capability id contains '#', a member
// is module:kind:name (the name may contain colons), and a text without colon is an action.
// Any other text is invalid_input.
func ParseTarget(s string) (Target, error) {
	if s == "" {
		return Target{}, Errorf(CodeInvalidInput, "target", "a target is required: an action (fs.list), a capability id, or module:kind:name")
	}
	if strings.Contains(s, "#") {
		return Target{Capability: ID(s)}, nil
	}
	parts := strings.SplitN(s, ":", 3)
	switch {
	case len(parts) == 1:
		return Target{Action: Action(s)}, nil
	case len(parts) == 3 && parts[0] != "" && parts[1] != "" && parts[2] != "":
		return Target{Member: Member{parts[0], parts[1], parts[2]}}, nil
	}
	return Target{}, Errorf(CodeInvalidInput, "target", "%q is neither an action, a capability id nor module:kind:name", s)
}

// Role is the purpose of a token, on which its rights depend.
type Role string

// The roles of tokens.
const (
	RoleAdmin    Role = "admin"
	RoleOperator Role = "operator"
	RoleAgent    Role = "agent"
	RoleNode     Role = "node"
	RoleTask     Role = "task"
)

// Roles returns every role.
func Roles() []Role { return []Role{RoleAdmin, RoleOperator, RoleAgent, RoleNode, RoleTask} }

// Principal is the authenticated caller. It is determined by the credential of the
// connection only, never by a payload. ID is "<role>:<name>".
type Principal struct {
	ID     string   `json:"id"`
	Role   Role     `json:"role"`
	Labels []string `json:"labels,omitempty"` // granted with the token
	View   string   `json:"view,omitempty"`   // default view of the token
	// OnBehalfOf is the id of the principal whose current rights bound those of this one,
	// because it started this task agent, or "".
	OnBehalfOf string `json:"on_behalf_of,omitempty"`
	// Scoped is true if the credential permits less than its principal may do. Then Most is
	// the strongest effect that it covers, or "" for none.
	Scoped bool   `json:"scoped,omitempty"`
	Most   Effect `json:"most,omitempty"`
}

// AssistantPrefix begins the ids of the principals with which the server's own agent acts for a
// person.
const AssistantPrefix = "task:chat-"

// Person returns the id of the principal whose limits count for this one: the one for whom it acts,
// otherwise its own.
func (p *Principal) Person() string { return cmp.Or(p.OnBehalfOf, p.ID) }

// Owner returns the id of the principal that owns what this one creates: the person for whom an
// assistant acts, otherwise the principal itself.
func (p *Principal) Owner() string {
	if p.OnBehalfOf != "" && strings.HasPrefix(p.ID, AssistantPrefix) {
		return p.OnBehalfOf
	}
	return p.ID
}

// Covers reports whether the credential permits calls of an effect.
func (p *Principal) Covers(e Effect) bool {
	return !p.Scoped || p.Most != "" && p.Most.AtLeast(e)
}

// Audience is one of the three views of the catalog.
type Audience string

// The audiences.
const (
	AudienceAgent    Audience = "agent"
	AudienceOperator Audience = "operator"
	AudienceInternal Audience = "internal"
)

// Provider makes calls. It contains no policy. Invoke must end with ctx, must be safe for
// concurrent use, and must not use Call.Input after it returns. Its error should be an
// *Error; any other counts as failed. CodeUnavailable guarantees that the work was not
// started.
type Provider interface {
	Key() ProviderKey
	Invoke(ctx context.Context, c Call) (Result, error)
}

// Prober is a Provider that can check whether it is available again. The engine probes
// before it rejects a call because all providers are marked unavailable, so that a call
// right after a restart succeeds. Probe must return within about a second and must share
// one attempt among concurrent callers.
type Prober interface {
	Probe(ctx context.Context) error
}

// Prompt is a Provider whose Invoke returns very soon after the end of its context, because
// it only waits for operations that the context ends (a network call, not a program or a
// file system). The engine runs it on the caller's goroutine. Any other provider runs in its
// own goroutine, so that the engine can stop waiting for it.
type Prompt interface {
	Provider
	ReturnsPromptly()
}

// Arguer is a Provider whose input is not always an object of arguments by name. Arguments
// returns the part of the input to which the schema applies, or nil if the arguments are
// positional; those are checked by the provider itself.
type Arguer interface {
	Provider
	Arguments(input json.RawMessage) (json.RawMessage, error)
}

// Settler is a Provider whose calls need time to end after their context, for example to
// stop a program. Settle returns how long the engine waits for that.
type Settler interface {
	Settle() time.Duration
}

// Source publishes the modules of one provider kind to the catalog. Run publishes batches
// until ctx ends; a later batch with the same Batch.Source replaces the earlier one. publish
// may be called from several goroutines, each with its own sources.
type Source interface {
	Run(ctx context.Context, publish func(Batch) error) error
}

// Batch holds everything that one source instance currently offers. It is applied as a whole.
// A batch without modules and providers withdraws the instance.
type Batch struct {
	Source    string // "endpoint/cloud", "local"
	Modules   []Module
	Providers []Provider
}

// State of a provider instance or an entry.
type State string

// Availability states; ready and degraded are eligible for calls.
const (
	StateReady        State = "ready"
	StateDegraded     State = "degraded"
	StateStarting     State = "starting"
	StateDraining     State = "draining"
	StateUnconfigured State = "unconfigured"
	StateUnauthorized State = "unauthenticated"
	StateUnavailable  State = "unavailable"
)

// Availability is the state of an instance and the reason for it.
type Availability struct {
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Login  string    `json:"login,omitempty"` // who logs in how, if only a login is missing
	Since  time.Time `json:"since,omitzero"`
}

// Eligible reports whether calls may be sent.
func (a Availability) Eligible() bool {
	return a.State == StateReady || a.State == StateDegraded || a.State == ""
}

// Origins of modules that several packages use. OriginExtension is also the provider kind of
// installed extensions; OriginSkill is that of skills on nodes.
const (
	OriginExtension = "extension"
	OriginSkill     = "skill"
)

// Module is the unit of installation, trust, loading and unloading.
type Module struct {
	Extension     string          `json:"extension"` // catalog-wide id: "remote.tools", "endpoint.cloud", "local"
	ID            string          `json:"id"`        // id in its own protocol: "tools"
	Name          string          `json:"name"`
	Label         string          `json:"label,omitempty"`
	Version       string          `json:"version,omitempty"`
	Origin        string          `json:"origin"` // "endpoint", "node", "local", "mcp", "a2a", "extension"
	Stage         string          `json:"stage,omitempty"`
	Endpoint      string          `json:"endpoint,omitempty"`
	Digest        string          `json:"digest,omitempty"` // "sha256:<hex>" over the canonical manifest
	Manifest      json.RawMessage `json:"manifest,omitempty"`
	Contributions []Contribution  `json:"contributions"`
	// Users restricts callers of role agent, task or node to the listed users and to holders
	// of a grant for the module. If empty, only the rules decide.
	Users []string `json:"users,omitempty"`
}

// Contribution is one declaration of a module, made by one provider instance.
type Contribution struct {
	ID           string          `json:"id"`   // unique in its module
	Kind         string          `json:"kind"` // catalog kind: "capability.agent-tool", "capability.rpc", …
	Action       Action          `json:"action,omitempty"`
	Tool         string          `json:"tool,omitempty"` // declared name of a single tool, whose action the host creates
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	Member       Member          `json:"member"`
	Provider     ProviderKey     `json:"provider"`
	Rank         int             `json:"rank,omitempty"`
	Effect       Effect          `json:"effect"`
	Permissions  []string        `json:"permissions,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Definition is the declaration in the form of its own protocol (a tool, prompt, resource
	// or resource template of MCP), for surfaces with the same protocol.
	Definition   json.RawMessage   `json:"definition,omitempty"`
	Availability Availability      `json:"availability"`
	Timeout      time.Duration     `json:"timeout,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Telemetry    map[string]string `json:"telemetry,omitempty"`

	// Members that only some contributions declare.
	Visibility  Visibility   `json:"visibility,omitempty"`
	Exact       bool         `json:"exact,omitempty"`       // the tool is withheld rather than renamed
	Unsupported bool         `json:"unsupported,omitempty"` // the provider's account cannot do this action
	Approval    bool         `json:"approval,omitempty"`    // requires an approval of each call, in addition to the rules
	Confirm     string       `json:"confirm,omitempty"`     // "first" or "always": requires an approval, see Preview.Confirm
	Aliases     []string     `json:"aliases,omitempty"`     // other names that a call may use; not listed
	Scope       *Scope       `json:"scope,omitempty"`
	Arbitration *Arbitration `json:"arbitration,omitempty"`
	Depends     *Depends     `json:"dependsOn,omitempty"`
	Backend     *Backend     `json:"backend,omitempty"`
	Augment     *Augment     `json:"augment,omitempty"`
}

// UnknownCapability returns the error for a target that does not exist or is not visible. It
// is the same for both, so that it reveals nothing.
func UnknownCapability(target fmt.Stringer) *Error {
	return &Error{
		Code: CodeUnknownCapability, Op: "resolve", Target: target.String(),
		Message: fmt.Sprintf("no capability %q is known to you", target),
		Hint:    "list what you can reach with: junctor catalog agent",
	}
}
