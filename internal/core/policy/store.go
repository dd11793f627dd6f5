package policy

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Store stores tokens, approvals and grants. Implementations run the storetest
// suite. Methods that find nothing return a *capability.Error with code
// not_found; a taken name or a wrong state is code conflict.
type Store interface {
	// CreateToken adds t. A live token of the same name is a conflict.
	CreateToken(ctx context.Context, t Token) error
	// Tokens returns every token, revoked and expired ones too, oldest first.
	Tokens(ctx context.Context) ([]Token, error)
	// RevokeToken marks the live token of that id or name revoked at the time
	// and returns it; an already revoked id is not_found.
	RevokeToken(ctx context.Context, idOrName string, at time.Time) (Token, error)
	// ProlongToken moves the end of an unrevoked token to until, unless it is later already, and
	// returns the token. A token without an end keeps none. A revoked id is not_found.
	ProlongToken(ctx context.Context, id string, until time.Time) (Token, error)

	// AskApproval adds a, unless an unexpired pending approval with the same
	// Binding exists, which is returned instead with created false. Atomic. If maxOpen others
	// of the principal are pending, the error is [TooManyOpen].
	AskApproval(ctx context.Context, a Approval, maxOpen int) (got Approval, created bool, err error)
	// Approval returns one by id.
	Approval(ctx context.Context, id string) (Approval, error)
	// ApprovalInput returns the input of a pending approval. It is empty for any other.
	ApprovalInput(ctx context.Context, id string) ([]byte, error)
	// Approvals returns those in the state ("" = all), newest first, at most limit. If after is
	// the id of an approval, the list begins behind it.
	Approvals(ctx context.Context, state ApprovalState, after string, limit int) ([]Approval, error)
	// DeniedApproval returns an approval that was denied and would not have expired yet for
	// this call; ok is false unless one was.
	DeniedApproval(ctx context.Context, b Binding, now time.Time) (a Approval, ok bool, err error)
	// DecideApproval moves a pending, unexpired approval to approved or denied.
	// Any other state is a conflict that names it. For a decision of once, the
	// approval may be consumed until usableUntil.
	DecideApproval(ctx context.Context, id string, d Decision, by string, at, usableUntil time.Time) (Approval, error)
	// ConsumeApproval spends an approved "once" that fits the binding exactly and is still
	// usable, in one statement; ok is false if none does.
	ConsumeApproval(ctx context.Context, b Binding, now time.Time) (id string, ok bool, err error)
	// ReturnApproval undoes the spending of an approved "once", while it is still usable; ok is
	// false if there is nothing to undo.
	ReturnApproval(ctx context.Context, id string, now time.Time) (ok bool, err error)
	// SupersedeApprovals moves the pending approvals for a module that are bound to another
	// content than the given one to superseded, and returns their number. "" matches every
	// content.
	SupersedeApprovals(ctx context.Context, module, content string) (int, error)
	// EndApprovals moves the pending approvals of a module to ended, only the one with the id if
	// that is not "", and returns their number.
	EndApprovals(ctx context.Context, module, id string, at time.Time) (int, error)
	// ExpireApprovals moves pending approvals past their time to expired and returns their ids
	// in any order.
	ExpireApprovals(ctx context.Context, now time.Time) ([]string, error)

	// CreateGrant adds g.
	CreateGrant(ctx context.Context, g Grant) error
	// Grants returns every grant, newest first.
	Grants(ctx context.Context) ([]Grant, error)
	// RevokeGrant ends an active grant and returns it.
	RevokeGrant(ctx context.Context, id string, at time.Time) (Grant, error)
	// UseGrant checks that g is active, unexpired and under its max uses, and
	// counts one use, in one statement; ok is false when it is not.
	UseGrant(ctx context.Context, id string, now time.Time) (ok bool, err error)
	// AddUses adds uses that were counted elsewhere to a grant, even if it has ended. A
	// missing grant is ignored.
	AddUses(ctx context.Context, id string, uses int) error
}

// Token is a stored credential: the hash, never the token.
type Token struct {
	ID      string          `json:"id"` // "tok_" + 24 hex
	Name    string          `json:"name"`
	Role    capability.Role `json:"role"`
	Hash    string          `json:"-"` // secret.Hash of the token
	Labels  []string        `json:"labels,omitempty"`
	View    string          `json:"view,omitempty"`
	Created time.Time       `json:"created"`
	Expires time.Time       `json:"expires,omitzero"`
	Revoked time.Time       `json:"revoked,omitzero"`
	Limits  Limits          `json:"limits,omitzero"`
	// Most is the strongest effect of calls with the token; "": they are not bounded.
	Most capability.Effect `json:"most,omitempty"`
	// OnBehalfOf bounds the token's rights; nil for a token without a bound.
	OnBehalfOf *Delegation `json:"on_behalf_of,omitempty"`
}

// Delegation is the principal whose rights bound those of a token: the live token of the
// principal, or, for a principal without one (a login elsewhere), the principal as it was
// when the token was created.
type Delegation struct {
	Token string               `json:"token,omitempty"`
	By    capability.Principal `json:"by"`
	// Same marks a further credential of the principal itself: calls with it are calls of By.
	Same bool `json:"same,omitempty"`
}

// Principal returns the principal of calls with this token.
func (t Token) Principal() capability.Principal {
	p := capability.Principal{
		ID: string(t.Role) + ":" + t.Name, Role: t.Role, Labels: t.Labels, View: t.View, Scoped: t.Most != "", Most: t.Most,
	}
	if d := t.OnBehalfOf; d != nil {
		if d.Same {
			return d.By
		}
		p.OnBehalfOf, p.Scoped, p.Most = d.By.ID, d.By.Scoped, d.By.Most
	}
	return p
}

// Live reports whether the token is valid at the given time.
func (t Token) Live(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// ApprovalState is the state of an approval.
type ApprovalState string

// The states of an approval; superseded is reached when the content it was
// bound to changes.
const (
	ApprovalPending    ApprovalState = "pending"
	ApprovalApproved   ApprovalState = "approved"
	ApprovalDenied     ApprovalState = "denied"
	ApprovalExpired    ApprovalState = "expired"
	ApprovalSuperseded ApprovalState = "superseded"
	ApprovalEnded      ApprovalState = "ended" // the program that waited went on
)

// Channel identifies who may answer an approval: the caller itself, an operator or admin, or
// the owner of a device.
type Channel string

// The channels.
const (
	ChannelClient   Channel = "client"
	ChannelOperator Channel = "operator"
	ChannelDevice   Channel = "device"
)

// Binding is the exact call that an approval fits: the same caller, capability, content and
// input.
type Binding struct {
	Principal   string        `json:"principal"`
	Capability  capability.ID `json:"capability"`
	ContentHash string        `json:"content_hash"`
	InputDigest string        `json:"input_digest"`
}

// Approval is one question to a person, and its answer.
type Approval struct {
	ID string `json:"id"` // "apr_" + 24 hex
	// Kind is call, [KindTerminal] or [KindQuestion].
	Kind string `json:"kind"`
	Binding
	Module      string            `json:"module,omitempty"`
	Session     string            `json:"session,omitempty"`
	Permissions []string          `json:"permissions,omitempty"`
	Effect      capability.Effect `json:"effect"`
	Summary     string            `json:"summary"` // the call, described for the approver
	Shown       Shown             `json:"shown,omitzero"`
	Channel     Channel           `json:"channel"`
	State       ApprovalState     `json:"state"`
	Decision    Decision          `json:"decision,omitempty"`
	DecidedBy   string            `json:"decided_by,omitempty"`
	Asked       time.Time         `json:"asked"`
	Decided     time.Time         `json:"decided,omitzero"`
	Expires     time.Time         `json:"expires,omitzero"`      // zero: never
	UsableUntil time.Time         `json:"usable_until,omitzero"` // of an approved once
	Consumed    time.Time         `json:"consumed,omitzero"`
	// OnBehalfOf is the principal for whom the caller acts now, or "". It is not stored.
	OnBehalfOf string `json:"on_behalf_of,omitempty"`
	// Barred is a principal that may not answer because the call is made on its behalf, and it
	// would need an approval for the same call itself.
	Barred string `json:"barred,omitempty"`
	// Input is the whole input of the call. It is stored while the approval is pending and read
	// with ApprovalInput only.
	Input []byte `json:"-"`
}

// Grant is a standing permission. Principal, Role and Action are "*" or a name; a grant ends
// with its content hash. Permissions, if not empty, are those that it restores of what the
// deployment mode withholds, and the most that it covers.
type Grant struct {
	ID          string            `json:"id"` // "grt_" + 24 hex
	Principal   string            `json:"principal"`
	Role        string            `json:"role"`
	Module      string            `json:"module"`
	Action      string            `json:"action"`               // canonical action, <command>.<action> of an extension, or "*"
	Capability  capability.ID     `json:"capability,omitempty"` // narrower than Action if set
	Permissions []string          `json:"permissions,omitempty"`
	Scope       string            `json:"scope"`                  // session, user or global
	ScopeID     string            `json:"scope_id,omitempty"`     // session id, principal id
	ContentHash string            `json:"content_hash,omitempty"` // "" = any
	Channel     Channel           `json:"channel"`
	GrantedBy   string            `json:"granted_by"`
	Approval    string            `json:"approval,omitempty"` // the approval it came from
	Created     time.Time         `json:"created"`
	Expires     time.Time         `json:"expires,omitzero"`
	MaxUses     int               `json:"max_uses,omitempty"` // 0 = unlimited
	Uses        int               `json:"uses"`
	State       string            `json:"state"` // active, revoked, expired
	Effect      capability.Effect `json:"effect,omitempty"`
}
