// Package capability holds the nouns that every part of junctor shares: what
// can be invoked (Contribution, Module), who asks (Principal), what is asked
// (Target, Invocation), what reaches the place of work (Call, Result) and how
// failures are named (Error, sixteen codes). It also declares the one shared
// port, Provider: everything that can carry out a call, near or far, is one.
//
// The package decides nothing and does no I/O. Inputs and results are raw JSON
// from the inbound socket to the provider; only what a decision needs is read.
package capability

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// ID names one invocable catalog entry: <extension id>/<contribution
// id>#<canonical action>@<instance>. It is stable across restarts.
type ID string

// Action is a canonical, provider-independent verb such as "fs.readText", or a
// host-minted one beginning with "ext." or "fn.".
type Action string

// Effect is the class of what a call may change, ordered read < write <
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

// AtLeast reports whether e is the class floor or a stronger one.
func (e Effect) AtLeast(floor Effect) bool { return e.rank() >= floor.rank() }

// Mutates reports whether calls of this class need a begin record and a durable
// end record: every class but read.
func (e Effect) Mutates() bool { return e.AtLeast(EffectWrite) }

// ProviderKey names a concrete provider instance: <domain>:<kind>:<instance>,
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

// Member addresses a contribution inside a module, the affinity form of the
// router protocol; on the command line module:kind:name.
type Member struct {
	Module string `json:"module"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
}

func (m Member) String() string { return m.Module + ":" + m.Kind + ":" + m.Name }

// IsZero reports whether no member is named.
func (m Member) IsZero() bool { return m == Member{} }

// Selector names what a caller wants among several providers. Every field set
// must match; a blank value is an error, never "any".
type Selector map[string]string

// Target is what is asked for; exactly one of the first three is set.
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

// ParseTarget reads the TARGET of the command line: a capability id holds '#',
// a member has two colons (its name may hold more), the rest is an action.
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

// Role is what a token was made for.
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

// Principal is who asks, as the credential of the connection says; nothing in a
// payload can change it. ID is "<role>:<name>".
type Principal struct {
	ID     string   `json:"id"`
	Role   Role     `json:"role"`
	Labels []string `json:"labels,omitempty"` // granted with the token
	View   string   `json:"view,omitempty"`   // default view of the token
	// OnBehalfOf is the principal whose rights, as they stand, bound this one's: who
	// started the task agent that this is. "" if no user did.
	OnBehalfOf string `json:"on_behalf_of,omitempty"`
	// Scoped reports that the credential is narrower than its principal: Most is the
	// strongest effect that it covers, "" if it covers none.
	Scoped bool   `json:"scoped,omitempty"`
	Most   Effect `json:"most,omitempty"`
}

// Covers reports whether the credential is wide enough for calls of an effect.
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

// Provider carries calls to where the work happens. It decides nothing.
// Invoke must honour ctx, must be safe for concurrent use, and must not keep
// Call.Input after it returns. An error it returns is an *Error, or counts as
// failed. CodeUnavailable promises that the work was not started.
type Provider interface {
	Key() ProviderKey
	Invoke(ctx context.Context, c Call) (Result, error)
}

// Prober is a Provider that can be asked whether it is back. The engine asks
// before it refuses a call because the only provider left is marked
// unavailable, so that a call right after a restart succeeds. Probe must answer
// within a second or so and must share one attempt among concurrent callers.
type Prober interface {
	Probe(ctx context.Context) error
}

// Prompt is a Provider that returns within moments of its context's end, because
// all it ever waits for is cut short by the context (a network call, not a
// program or a file system). The engine runs it on the caller's goroutine; any
// other provider gets one of its own, so that it can be left behind.
type Prompt interface {
	Provider
	ReturnsPromptly()
}

// Arguer is a Provider whose input may have other forms than an object of arguments
// by name. Arguments returns the part of the input that its schema speaks of, nil
// when arguments are given by place: the provider that runs the call checks those.
type Arguer interface {
	Provider
	Arguments(input json.RawMessage) (json.RawMessage, error)
}

// Settler is a Provider whose calls take their time to end once they are over: what
// they started has to be stopped. The engine waits for them so long before it
// leaves one behind.
type Settler interface {
	Settle() time.Duration
}

// Source feeds the modules of one provider kind into the catalog. Run publishes
// until ctx ends; a later batch of the same Batch.Source replaces the earlier. publish
// may be called from several goroutines, each for instances of its own.
type Source interface {
	Run(ctx context.Context, publish func(Batch) error) error
}

// Batch is everything one source instance offers now; it is applied as a whole.
// A batch without modules withdraws the instance.
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

// Availability reports whether calls may go to an instance, and why not.
type Availability struct {
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Eligible reports whether calls may be sent.
func (a Availability) Eligible() bool {
	return a.State == StateReady || a.State == StateDegraded || a.State == ""
}

// Origins of modules that more than one package compares. OriginExtension is also the
// provider kind of installed extensions; OriginSkill is that of skills on nodes.
const (
	OriginExtension = "extension"
	OriginSkill     = "skill"
)

// Module is the unit of delivery, trust, load and unload.
type Module struct {
	Extension     string          `json:"extension"` // catalog-wide id: "remote.tools", "endpoint.cloud", "local"
	ID            string          `json:"id"`        // id on its own wire: "tools"
	Name          string          `json:"name"`
	Label         string          `json:"label,omitempty"`
	Version       string          `json:"version,omitempty"`
	Origin        string          `json:"origin"` // "endpoint", "node", "local", "mcp", "a2a", "extension"
	Stage         string          `json:"stage,omitempty"`
	Endpoint      string          `json:"endpoint,omitempty"`
	Digest        string          `json:"digest,omitempty"` // "sha256:<hex>" over the canonical manifest
	Manifest      json.RawMessage `json:"manifest,omitempty"`
	Contributions []Contribution  `json:"contributions"`
	// Users are the only ones of role agent, task or node who may call it, besides
	// those whom a grant names; none: everybody whom the rules permit.
	Users []string `json:"users,omitempty"`
}

// Contribution is one declaration of a module, made by one provider instance.
type Contribution struct {
	ID           string          `json:"id"`   // unique in its module
	Kind         string          `json:"kind"` // catalog kind: "capability.agent-tool", "capability.rpc", …
	Action       Action          `json:"action,omitempty"`
	Tool         string          `json:"tool,omitempty"` // declared name of a single tool; its action is minted
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	Member       Member          `json:"member"`
	Provider     ProviderKey     `json:"provider"`
	Rank         int             `json:"rank,omitempty"`
	Effect       Effect          `json:"effect"`
	Permissions  []string        `json:"permissions,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
	// Definition is the declaration in the form of its own protocol, a tool, prompt,
	// resource or resource template of MCP, for surfaces that speak it too.
	Definition   json.RawMessage   `json:"definition,omitempty"`
	Availability Availability      `json:"availability"`
	Timeout      time.Duration     `json:"timeout,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	Telemetry    map[string]string `json:"telemetry,omitempty"`

	// What only some declare.
	Visibility  Visibility   `json:"visibility,omitempty"`
	Exact       bool         `json:"exact,omitempty"`       // insists on Tool as it is
	Unsupported bool         `json:"unsupported,omitempty"` // the provider's account cannot do this action
	Approval    bool         `json:"approval,omitempty"`    // asks for an approval of each call, whatever the rules say
	Confirm     string       `json:"confirm,omitempty"`     // "first" or "always": people are asked too, once for each version or each time
	Aliases     []string     `json:"aliases,omitempty"`     // other names a call may use; never listed
	Scope       *Scope       `json:"scope,omitempty"`
	Arbitration *Arbitration `json:"arbitration,omitempty"`
	Depends     *Depends     `json:"dependsOn,omitempty"`
	Backend     *Backend     `json:"backend,omitempty"`
	Augment     *Augment     `json:"augment,omitempty"`
}

// UnknownCapability is the one answer for a target that is absent or invisible:
// the text must not tell the two apart.
func UnknownCapability(target fmt.Stringer) *Error {
	return &Error{
		Code: CodeUnknownCapability, Op: "resolve", Target: target.String(),
		Message: fmt.Sprintf("no capability %q is known to you", target),
		Hint:    "list what you can reach with: junctor catalog agent",
	}
}
