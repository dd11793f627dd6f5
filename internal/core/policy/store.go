package policy

import (
	"context"
	"time"
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
	// UseToken moves the last use of a token to at, unless it is later already. A missing token
	// is ignored.
	UseToken(ctx context.Context, id string, at time.Time) error

	// AskApproval adds a, unless an unexpired pending approval with the same
	// Binding and channel exists, which is returned instead with created false. Atomic. If maxOpen others
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
