package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

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
	// Client reports that a rule asks at [ChannelClient]. Otherwise approvals on that channel do not fit.
	Client bool `json:"-"`
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
	// Barred is a principal that may not answer because the call is made on its behalf, or by an agent that
	// it paired, and it would need an approval for the same call itself.
	Barred string `json:"barred,omitempty"`
	// Input is the whole input of the call. It is stored while the approval is pending and read
	// with ApprovalInput only.
	Input []byte `json:"-"`
}

// Decision is an answer to an approval. Every decision except once and deny writes a Grant.
type Decision string

// The decisions.
const (
	DecideOnce    Decision = "once"
	DecideSession Decision = "session"
	DecideTimed   Decision = "timed" // one hour
	DecideAlways  Decision = "always"
	DecideDeny    Decision = "deny"
)

// Asked is a call that requires consent.
type Asked struct {
	Principal   capability.Principal
	Entry       *catalog.Entry
	Session     string
	Run         string // of the invocation, for the record
	InputDigest string
	Channel     Channel
	Summary     string
	Shown       Shown
	Input       []byte
	// Exact accepts only grants for exactly this capability, because the approval is about its
	// effect and not about permissions.
	Exact bool
	// Once requires one approval only, which is valid while the content is unchanged.
	Once bool
	// Fresh accepts no grant but the one that was made by answering Approval, which is about an
	// earlier attempt of this call.
	Fresh    bool
	Approval string
}

// Consent is the reason why a call that requires consent may continue; exactly one field is
// set.
type Consent struct {
	Grant    string
	Approval string
}

// Consent returns a live grant that covers the call, or consumes an approval with decision once
// that fits it exactly. Otherwise it opens an approval, unless one for this call is open, and
// fails with approval_required and the approval's id. If a person has denied the same call
// recently, the error is denied, reason confirmation_rejected, except on the client channel.
// On that channel the calling principal may answer ([Policy.Answer]); on the others, an
// operator answers.
func (p *Policy) Consent(ctx context.Context, a Asked) (Consent, error) {
	now := p.now().UTC()
	if id, ok, err := p.useGrant(ctx, a, now); err != nil || ok {
		return Consent{Grant: id}, err
	}
	b := Binding{
		Principal: a.Principal.ID, Capability: a.Entry.ID,
		ContentHash: a.Entry.ContentHash(), InputDigest: a.InputDigest, Client: a.Channel == ChannelClient,
	}
	id, ok, err := p.store.ConsumeApproval(ctx, b, now)
	if err == nil && ok && a.Once {
		err = p.standing(ctx, id)
	}
	if err != nil || ok {
		return Consent{Approval: id}, err
	}
	open := clientApprovalTTL
	if a.Channel != ChannelClient { // a person who denied their own call may reconsider
		open = operatorApprovalTTL
		if err := p.rejected(ctx, b, now); err != nil {
			return Consent{}, err
		}
	}
	ap := Approval{
		ID: NewApprovalID(now), Kind: KindCall, Binding: b, Module: a.Entry.Module.Extension, Session: a.Session,
		Permissions: a.Entry.Contribution.Permissions, Effect: a.Entry.Effect, Summary: a.Summary,
		Shown: a.Shown, Input: a.Input, Channel: a.Channel, State: ApprovalPending, Asked: now, Expires: now.Add(open),
		Barred: p.barred(a),
	}
	got, created, err := p.store.AskApproval(ctx, ap, maxOpenApprovals)
	if err != nil {
		return Consent{}, err
	}
	if created {
		p.record(ctx, audit.ConfirmationRequested, a.Principal, true, audit.Synced,
			audit.Attr{Key: "approval", Value: got.ID}, audit.Attr{Key: "capability_id", Value: string(a.Entry.ID)},
			audit.Attr{Key: "channel", Value: string(got.Channel)})
		if got.Channel != ChannelClient { // the summary quotes the input, which is not logged
			p.logger.Info("a call waits for an approval", "principal", a.Principal.ID, "action", NameOf(a.Entry),
				"approve_with", "junctor approvals approve "+got.ID)
		}
	}
	asks := capability.Errorf(capability.CodeApprovalRequired, "authorize", "%s needs an operator's approval (%s)", NameOf(a.Entry), got.ID).
		With("confirmation_required", fmt.Sprintf("an operator approves it with: junctor approvals approve %s; then call again with the same arguments", got.ID))
	if got.Channel == ChannelClient {
		asks = capability.Errorf(capability.CodeApprovalRequired, "authorize", "%s needs your approval (%s)", NameOf(a.Entry), got.ID).
			With("confirmation_required", fmt.Sprintf("approve it with --yes, or with: junctor approvals approve %s; then call again with the same arguments", got.ID))
	}
	return Consent{}, asks.Detail("approval", got.ID).Detail("expires", jsonx.Stamp(got.Expires)).
		Detail("channel", string(got.Channel)).Detail("summary", got.Summary)
}

// standing creates a grant from a consumed approval, which is valid while the content is
// unchanged.
func (p *Policy) standing(ctx context.Context, id string) error {
	a, err := p.store.Approval(ctx, id)
	if err != nil {
		return err
	}
	_, err = p.CreateGrant(ctx, capability.Principal{ID: a.DecidedBy}, a.grant())
	return err
}

// PairedBy is the prefix of a label of principals that an operator, and not an admin, paired with a chat account. The id of
// the operator follows.
const PairedBy = "paired-by:"

// ReasonRejected is the reason of a call that a person has denied.
const ReasonRejected = "confirmation_rejected"

// rejected returns denied if a person has denied the same call and the denied approval would not
// have expired yet. Otherwise a repeating caller could open approvals until a person makes a
// mistake.
func (p *Policy) rejected(ctx context.Context, b Binding, now time.Time) error {
	a, ok, err := p.store.DeniedApproval(ctx, b, now)
	if err != nil || !ok {
		return err
	}
	return capability.Errorf(capability.CodeDenied, "authorize", "this call was rejected (%s)", a.ID).
		With(ReasonRejected, "do something else, or ask an operator for a grant").Detail("approval", a.ID)
}

// barred returns the operator who paired the caller, if it may not make the same call itself without
// an operator's approval, otherwise the principal on whose behalf the call is made, if that needs one, or "".
func (p *Policy) barred(a Asked) string {
	for _, label := range a.Principal.Labels {
		if id, ok := strings.CutPrefix(label, PairedBy); ok {
			by, ok := p.Find(id)
			if !ok { // an operator who has no token of this server
				by = capability.Principal{ID: id, Role: capability.RoleOperator}
			}
			if v := p.alone(by, a.Entry); !v.Permitted || v.Consent == ChannelOperator {
				return id
			}
		}
	}
	if creator, ok := p.creator(a.Principal); ok && p.alone(creator, a.Entry).Consent == ChannelOperator {
		return creator.ID
	}
	return ""
}

// ReasonTooManyApprovals is the reason of a call whose principal has too many open approvals.
const ReasonTooManyApprovals = "too_many_approvals"

// TooManyOpen is the error of a principal that has maxOpen open approvals: overloaded.
func TooManyOpen(principal string, maxOpen int) error {
	e := capability.Errorf(capability.CodeOverloaded, "authorize", "%s has %d open approvals, and no more are opened for it",
		principal, maxOpen).
		With(ReasonTooManyApprovals, "have them answered: junctor approvals list --state pending")
	e.RetryAfter = time.Minute
	return e
}

// Return restores the approval that Consent consumed for a call which did not start. It can be
// consumed again until it expires; after that, or for a consent by grant, Return does nothing.
func (p *Policy) Return(ctx context.Context, c Consent) error {
	if c.Approval == "" {
		return nil
	}
	_, err := p.store.ReturnApproval(ctx, c.Approval, p.now().UTC())
	return err
}

// Supersede ends the open approvals for a module that are bound to another content than the given
// one. "" means that the module was removed, and ends all of them.
func (p *Policy) Supersede(ctx context.Context, module, content string) error {
	n, err := p.store.SupersedeApprovals(ctx, module, content)
	if n > 0 && p.publish != nil {
		p.publish(EventApprovalExpired, map[string]any{"module": module, "superseded": n})
	}
	return err
}

// Withdraw ends an approval that is pending, because its call will not be made any more.
func (p *Policy) Withdraw(ctx context.Context, id string) error {
	a, err := p.store.Approval(ctx, id)
	if err != nil || a.State != ApprovalPending {
		return err
	}
	return p.SettleBlocker(ctx, capability.Principal{}, a.Module, id, "")
}

// Run ends approvals that are overdue until ctx ends, so that the feed reports them even if
// no client reads them.
func (p *Policy) Run(ctx context.Context) {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := p.expire(ctx); err != nil && ctx.Err() == nil {
				p.logger.Debug("overdue approvals cannot be ended", "err", err)
			}
		}
	}
}

// expire ends the approvals that are overdue and publishes an event for each.
func (p *Policy) expire(ctx context.Context) error {
	ids, err := p.store.ExpireApprovals(ctx, p.now().UTC())
	for _, id := range ids {
		if p.publish != nil {
			p.publish(EventApprovalExpired, map[string]string{"approval": id})
		}
	}
	return err
}

// Approval returns one approval.
func (p *Policy) Approval(ctx context.Context, id string) (Approval, error) {
	if err := p.expire(ctx); err != nil {
		return Approval{}, err
	}
	a, err := p.store.Approval(ctx, id)
	a.OnBehalfOf = p.onBehalfOf(a.Principal)
	return a, err
}

// onBehalfOf returns the principal for whom another acts, or "".
func (p *Policy) onBehalfOf(id string) string {
	if t := p.tokens.Load().names[id]; t.OnBehalfOf != nil {
		return t.OnBehalfOf.By.ID
	}
	return ""
}

// ApprovalInput returns the whole input of the call that a pending approval is about. It is empty
// for any other approval.
func (p *Policy) ApprovalInput(ctx context.Context, id string) ([]byte, error) {
	return p.store.ApprovalInput(ctx, id)
}

// Approvals lists at most limit approvals in the state ("" = all), newest first, beginning behind
// the one with the id after if it is not "".
func (p *Policy) Approvals(ctx context.Context, state ApprovalState, after string, limit int) ([]Approval, error) {
	if err := p.expire(ctx); err != nil {
		return nil, err
	}
	list, err := p.store.Approvals(ctx, state, after, limit)
	for i := range list {
		list[i].OnBehalfOf = p.onBehalfOf(list[i].Principal)
	}
	return list, err
}

// Decide answers an approval. The principal must be an operator or admin and, except on the client
// channel, must not have made the call. Every decision except once and deny writes a Grant,
// which is returned. Errors: invalid_input for an unknown decision, or session outside a
// session; denied; not_found; conflict if the approval is no longer pending.
func (p *Policy) Decide(ctx context.Context, by capability.Principal, id string, d Decision) (Approval, *Grant, error) {
	const op = "approvals.decide"
	if !slices.Contains([]Decision{DecideOnce, DecideSession, DecideTimed, DecideAlways, DecideDeny}, d) {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op,
			"%q is not a decision; use once, session, timed, always or deny", d)
	}
	if err := p.Require(ctx, by, op, capability.RoleAdmin, capability.RoleOperator); err != nil {
		return Approval{}, nil, err
	}
	if err := p.ready(); err != nil {
		return Approval{}, nil, err
	}
	a, err := p.store.Approval(ctx, id)
	if err != nil {
		return Approval{}, nil, err
	}
	if a.Waits() {
		a, err = p.pass(ctx, by, a, Reply{Decision: d})
		return a, nil, err
	}
	if (a.Principal == by.ID || a.Barred == by.ID) && a.Channel != ChannelClient {
		return Approval{}, nil, capability.Errorf(capability.CodeDenied, op, "a caller may not approve its own request").
			With("forbidden", "let another operator or the admin decide")
	}
	return p.decide(ctx, by, a, d)
}

// Answer is like [Policy.Decide] for the calling principal: the person behind a program that
// was asked directly. It accepts only the channel client; any other approval, and those of
// other principals, are not_found. Decisions are once, timed, always and deny.
func (p *Policy) Answer(ctx context.Context, who capability.Principal, id string, d Decision) (Approval, *Grant, error) {
	const op = "approvals.answer"
	if !slices.Contains([]Decision{DecideOnce, DecideTimed, DecideAlways, DecideDeny}, d) {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a decision; use once, timed, always or deny", d)
	}
	if err := p.ready(); err != nil {
		return Approval{}, nil, err
	}
	a, err := p.store.Approval(ctx, id)
	if err == nil && (a.Principal != who.ID || a.Channel != ChannelClient || a.Waits()) {
		err = capability.Errorf(capability.CodeNotFound, op, "no approval has the id %q", id)
	}
	if err != nil {
		return Approval{}, nil, err
	}
	return p.decide(ctx, who, a, d)
}

// decide stores and records the decision of a principal that may answer, and creates the grant.
func (p *Policy) decide(ctx context.Context, by capability.Principal, a Approval, d Decision) (Approval, *Grant, error) {
	if d == DecideSession && a.Session == "" {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, "approvals.decide",
			"%s was asked outside a session, so it cannot be granted for one", a.ID).
			With("", "use once, timed or always")
	}
	if err := verify(ctx, by, a, d); err != nil {
		return Approval{}, nil, err
	}
	now := p.now().UTC()
	defer p.decisions.begin(a.ID)() // until the grant is there, which a waiting call needs
	a, err := p.store.DecideApproval(ctx, a.ID, d, by.ID, now, now.Add(onceTTL))
	if err != nil {
		return Approval{}, nil, err
	}
	p.record(ctx, audit.ConfirmationAnswered, by, true, audit.Synced,
		audit.Attr{Key: "approval", Value: a.ID}, audit.Attr{Key: "answer", Value: string(d)},
		audit.Attr{Key: "capability_id", Value: string(a.Capability)}, audit.Attr{Key: "asked_by", Value: a.Principal})
	if d == DecideOnce || d == DecideDeny {
		return a, nil, nil
	}
	g := a.grant()
	switch d {
	case DecideSession:
		g.Scope, g.ScopeID = "session", a.Session
	case DecideTimed:
		g.Expires = now.Add(timedGrantTTL)
	}
	g, err = p.CreateGrant(ctx, by, g)
	if err != nil {
		return a, nil, err
	}
	return a, &g, nil
}
