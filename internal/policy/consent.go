package policy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/jsonx"
)

const (
	operatorAnswer = 24 * time.Hour   // an operator approval stays open
	clientAnswer   = 2 * time.Minute  // the caller is there to answer, or is gone
	onceUsable     = 15 * time.Minute // an approved once may be used
	timedGrant     = 15 * time.Minute
	recentDenials  = 1000 // that are looked through before a question is asked
)

// Asked is the call that needs a yes.
type Asked struct {
	Principal   capability.Principal
	Entry       *catalog.Entry
	Session     string
	Run         string // of the invocation, for the record
	InputDigest string
	Channel     Channel
	Summary     string
	// Exact lets only grants for this very capability stand for an answer: the
	// question is about what it does, not about who may.
	Exact bool
	// Once asks once: the answer stands for as long as the content is the same.
	Once bool
}

// Consent is why a call that needed a yes may go on; exactly one is set.
type Consent struct {
	Grant    string
	Approval string
}

// Consent looks for a live grant, then for an approved once that fits the call
// exactly, and spends it. Without either it opens an approval, or finds the one
// already open for this very call, and fails with consent_required and its id.
// On the client channel whoever called may answer ([Policy.Answer]); a caller that
// cannot be asked has an operator answer for it (decision R54).
func (p *Policy) Consent(ctx context.Context, a Asked) (Consent, error) {
	now := p.now().UTC()
	if id, ok, err := p.useGrant(ctx, a, now); err != nil || ok {
		return Consent{Grant: id}, err
	}
	b := Binding{
		Principal: a.Principal.ID, Capability: a.Entry.ID,
		ContentHash: a.Entry.ContentHash(), InputDigest: a.InputDigest,
	}
	id, ok, err := p.store.ConsumeApproval(ctx, b, now)
	if err == nil && ok && a.Once {
		err = p.standing(ctx, id)
	}
	if err != nil || ok {
		return Consent{Approval: id}, err
	}
	open := clientAnswer
	if a.Channel != ChannelClient { // people who said no to themselves may think again
		open = operatorAnswer
		if err := p.rejected(ctx, b, now); err != nil {
			return Consent{}, err
		}
	}
	ap := Approval{
		ID: newID("cnf_", now), Kind: "call", Binding: b, Module: a.Entry.Module.Extension, Session: a.Session,
		Permissions: a.Entry.Contribution.Permissions, Effect: a.Entry.Effect, Summary: a.Summary,
		Channel: a.Channel, State: ApprovalPending, Asked: now, Expires: now.Add(open),
	}
	got, created, err := p.store.AskApproval(ctx, ap)
	if err != nil {
		return Consent{}, err
	}
	if created {
		p.record(ctx, audit.ConfirmationRequested, a.Principal, true, audit.Synced,
			audit.Attr{Key: "approval", Value: got.ID}, audit.Attr{Key: "capability_id", Value: string(a.Entry.ID)}, audit.Attr{Key: "channel", Value: string(got.Channel)})
	}
	asks := capability.Errorf(capability.CodeConsentRequired, "authorize", "%s needs an operator's approval (%s)", a.Entry.Name(), got.ID).
		With("confirmation_required", fmt.Sprintf("an operator approves it with: junctor confirmations approve %s; then call again with the same arguments", got.ID))
	if got.Channel == ChannelClient {
		asks = capability.Errorf(capability.CodeConsentRequired, "authorize", "%s asks for a confirmation (%s)", a.Entry.Name(), got.ID).
			With("confirmation_required", fmt.Sprintf("say yes with --yes, or with: junctor confirmations approve %s; then call again with the same arguments", got.ID))
	}
	return Consent{}, asks.Detail("approval", got.ID).Detail("expires", jsonx.Stamp(got.Expires)).
		Detail("channel", string(got.Channel)).Detail("summary", got.Summary)
}

// standing makes an approval that was given once stand for as long as the content
// is what was approved.
func (p *Policy) standing(ctx context.Context, id string) error {
	a, err := p.store.Approval(ctx, id)
	if err != nil {
		return err
	}
	_, err = p.CreateGrant(ctx, capability.Principal{ID: a.DecidedBy}, a.grant())
	return err
}

// rejected says no where a human has said no to this very call: until that answer
// is as old as the question could have become, it is not asked again, or a caller
// that repeats itself would ask until somebody errs.
func (p *Policy) rejected(ctx context.Context, b Binding, now time.Time) error {
	denied, err := p.store.Approvals(ctx, ApprovalDenied, recentDenials)
	if err != nil {
		return err
	}
	for _, a := range denied {
		if a.Binding == b && now.Before(a.Expires) {
			return capability.Errorf(capability.CodeDenied, "authorize", "this call was rejected (%s)", a.ID).
				With("confirmation_rejected", "do something else, or ask an operator for a grant").Detail("approval", a.ID)
		}
	}
	return nil
}

// useGrant finds a grant that covers the call: session scope first, then user,
// then global; an exact action before "*". SQL is asked only where uses are
// counted (decision R58).
func (p *Policy) useGrant(ctx context.Context, a Asked, now time.Time) (string, bool, error) {
	live := *p.grants.Load()
	for _, scope := range []string{"session", "user", "global"} {
		for _, exact := range []bool{true, false} {
			for i := range live {
				g := &live[i]
				if g.Scope != scope || (g.Action != "*") != exact || a.Exact && !g.exact(a.Entry) || !g.covers(a, now) || !g.gives(a.Entry) || !p.reaches(g, a, now) {
					continue
				}
				if g.MaxUses > 0 {
					ok, err := p.store.UseGrant(ctx, g.ID, now)
					if err != nil {
						return "", false, err
					}
					if !ok {
						continue
					}
				}
				if g.MaxUses == 0 {
					p.uses.count(g.ID)
				}
				p.recordUse(ctx, a, g.ID)
				return g.ID, true, nil
			}
		}
	}
	return "", false, nil
}

// exact reports whether the grant is about this very thing that an extension does,
// or this very capability.
func (g *Grant) exact(e *catalog.Entry) bool {
	return g.Capability != "" || g.Action != "*" && g.Action == typed(e) && g.Module == e.Module.Extension
}

// gives reports whether the permissions that a grant names, if it names any, are
// all that the entry needs: a grant for a part of them lets nothing pass that asks.
func (g *Grant) gives(e *catalog.Entry) bool {
	if len(g.Permissions) == 0 || slices.Contains(g.Permissions, "*") {
		return true
	}
	for _, permission := range e.Contribution.Permissions {
		if !slices.Contains(g.Permissions, permission) {
			return false
		}
	}
	return true
}

func (g *Grant) covers(a Asked, now time.Time) bool {
	switch {
	case g.state(now) != grantActive:
		return false
	case !g.of(a.Principal):
		return false
	case g.Module != "*" && g.Module != a.Entry.Module.Extension:
		return false
	case g.Action != "*" && g.Action != string(a.Entry.Action) && g.Action != typed(a.Entry):
		return false
	case g.Capability != "" && g.Capability != a.Entry.ID:
		return false
	case g.Scope == "session" && (a.Session == "" || g.ScopeID != a.Session):
		return false
	case g.ContentHash != "" && g.ContentHash != a.Entry.ContentHash():
		return false
	case a.Entry.Effect == capability.EffectAdmin && g.Effect != capability.EffectAdmin:
		return false // a grant for writes never reaches an administrative action
	}
	return true
}

// Return gives an approved once back that was spent on a call which did not start.
// It may be spent again in the rest of its time; when that is over, nothing happens.
// What stands for an answer from then on (see Asked.Once) is left as it is.
func (p *Policy) Return(ctx context.Context, c Consent) error {
	if c.Approval == "" {
		return nil
	}
	_, err := p.store.ReturnApproval(ctx, c.Approval, p.now().UTC())
	return err
}

// Supersede ends the open questions about a module whose content is another one by
// now, or which is gone ("").
func (p *Policy) Supersede(ctx context.Context, module, content string) error {
	_, err := p.store.SupersedeApprovals(ctx, module, content)
	return err
}

// Approvals lists approvals in the state ("" = all), newest first.
func (p *Policy) Approvals(ctx context.Context, state ApprovalState, limit int) ([]Approval, error) {
	if _, err := p.store.ExpireApprovals(ctx, p.now().UTC()); err != nil {
		return nil, err
	}
	return p.store.Approvals(ctx, state, limit)
}

// Decide answers an approval. Only an operator or admin may, and only one who did
// not ask may answer the operator channel. Everything but once and deny writes a Grant,
// which is returned.
func (p *Policy) Decide(ctx context.Context, by capability.Principal, id string, d Decision) (Approval, *Grant, error) {
	const op = "confirmations.decide"
	if !slices.Contains([]Decision{DecideOnce, DecideSession, DecideTimed, DecideAlways, DecideDeny}, d) {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a decision; use once, session, timed, always or deny", d)
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
	if a.Principal == by.ID && a.Channel != ChannelClient {
		return Approval{}, nil, capability.Errorf(capability.CodeDenied, op, "nobody may approve what they asked for themselves").
			With("forbidden", "let another operator or the admin decide")
	}
	return p.decide(ctx, by, a, d)
}

// Answer is Decide for whoever asked: the person behind a program that was asked on
// the spot. It holds for the channel client alone; any other approval, and those of
// others, are not there. Decisions are once, timed, always and deny.
func (p *Policy) Answer(ctx context.Context, who capability.Principal, id string, d Decision) (Approval, *Grant, error) {
	const op = "confirmations.answer"
	if !slices.Contains([]Decision{DecideOnce, DecideTimed, DecideAlways, DecideDeny}, d) {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a decision; use once, timed, always or deny", d)
	}
	if err := p.ready(); err != nil {
		return Approval{}, nil, err
	}
	a, err := p.store.Approval(ctx, id)
	if err == nil && (a.Principal != who.ID || a.Channel != ChannelClient) {
		err = capability.Errorf(capability.CodeNotFound, op, "there is no confirmation %q", id)
	}
	if err != nil {
		return Approval{}, nil, err
	}
	return p.decide(ctx, who, a, d)
}

// decide answers an approval by somebody who may.
func (p *Policy) decide(ctx context.Context, by capability.Principal, a Approval, d Decision) (Approval, *Grant, error) {
	if d == DecideSession && a.Session == "" {
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, "confirmations.decide", "%s was asked outside a session, so it cannot be granted for one", a.ID).
			With("", "use once, timed or always")
	}
	now := p.now().UTC()
	a, err := p.store.DecideApproval(ctx, a.ID, d, by.ID, now, now.Add(onceUsable))
	if err != nil {
		return Approval{}, nil, err
	}
	p.record(ctx, audit.ConfirmationAnswered, by, true, audit.Synced,
		audit.Attr{Key: "approval", Value: a.ID}, audit.Attr{Key: "answer", Value: string(d)}, audit.Attr{Key: "capability_id", Value: string(a.Capability)}, audit.Attr{Key: "asked_by", Value: a.Principal})
	if d == DecideOnce || d == DecideDeny {
		return a, nil, nil
	}
	g := a.grant()
	switch d {
	case DecideSession:
		g.Scope, g.ScopeID = "session", a.Session
	case DecideTimed:
		g.Expires = now.Add(timedGrant)
	}
	g, err = p.CreateGrant(ctx, by, g)
	if err != nil {
		return a, nil, err
	}
	return a, &g, nil
}

// grant is what the caller may then always do: exactly this.
func (a *Approval) grant() Grant {
	return Grant{
		Principal: a.Principal, Role: "*", Module: a.Module, Action: "*", Capability: a.Capability, Permissions: a.Permissions,
		Scope: "user", ScopeID: a.Principal, ContentHash: a.ContentHash, Channel: a.Channel, Approval: a.ID, Effect: a.Effect,
	}
}

// CreateGrant adds a standing permission; blank wildcards become "*".
func (p *Policy) CreateGrant(ctx context.Context, by capability.Principal, g Grant) (Grant, error) {
	const op = "grants.create"
	if err := p.ready(); err != nil {
		return Grant{}, err
	}
	now := p.now().UTC()
	g.ID, g.Created, g.GrantedBy, g.State = newID("grt_", now), now, by.ID, grantActive
	for _, f := range []*string{&g.Principal, &g.Role, &g.Module, &g.Action} {
		if *f == "" {
			*f = "*"
		}
	}
	if g.Scope == "" {
		g.Scope = "global"
	}
	if g.Channel == "" {
		g.Channel = ChannelOperator
	}
	if !slices.Contains([]string{"session", "user", "global"}, g.Scope) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a scope; use session, user or global", g.Scope)
	}
	if g.Scope != "global" && g.ScopeID == "" {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "a grant of scope %s needs its scope_id", g.Scope).With("", "give the principal or session that is meant: --scope-id")
	}
	if g.MaxUses < 0 || (!g.Expires.IsZero() && !g.Expires.After(now)) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "the grant would be over before it begins")
	}
	if g.Role != "*" && !slices.Contains(capability.Roles(), capability.Role(g.Role)) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a role; use admin, operator, agent, node or task", g.Role)
	}
	if g.Principal == "*" && g.Role == "*" && g.Module == "*" && g.Action == "*" {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "a grant for everybody and everything is a policy, not a grant").
			With("", "name a principal, role, module or action; or write a Cedar policy")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.store.CreateGrant(ctx, g); err != nil {
		return Grant{}, err
	}
	p.changeGrants(g)
	p.record(ctx, audit.GrantCreated, by, true, audit.Synced,
		audit.Attr{Key: "grant", Value: g.ID}, audit.Attr{Key: "principal", Value: g.Principal}, audit.Attr{Key: "module", Value: g.Module}, audit.Attr{Key: "action", Value: g.Action}, audit.Attr{Key: "scope", Value: g.Scope})
	return g, nil
}

// Grants lists every grant, ended ones too.
func (p *Policy) Grants(ctx context.Context) ([]Grant, error) {
	p.uses.saving.Lock() // so that none is counted twice, or not at all
	defer p.uses.saving.Unlock()
	all, err := p.store.Grants(ctx)
	for i := range all {
		all[i].State = all[i].state(p.now())
		all[i].Uses += p.uses.of(all[i].ID)
	}
	return all, err
}

// RevokeGrant ends a grant at once.
func (p *Policy) RevokeGrant(ctx context.Context, by capability.Principal, id string) (Grant, error) {
	if err := p.ready(); err != nil {
		return Grant{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.store.RevokeGrant(ctx, id, p.now().UTC())
	if err != nil {
		return Grant{}, err
	}
	p.changeGrants(g)
	p.record(ctx, audit.GrantRevoked, by, true, audit.Synced,
		audit.Attr{Key: "grant", Value: g.ID})
	return g, nil
}

// setGrants makes all the mirror, without those that have ended.
func (p *Policy) setGrants(all []Grant) {
	live := make([]Grant, 0, len(all))
	for _, g := range all {
		if g.state(p.now()) == grantActive {
			live = append(live, g)
		}
	}
	p.grants.Store(&live)
}

// changeGrants is changeTokens for grants. Caller holds mu.
func (p *Policy) changeGrants(g Grant) {
	all := slices.DeleteFunc(slices.Clone(*p.grants.Load()), func(o Grant) bool { return o.ID == g.ID })
	p.setGrants(append([]Grant{g}, all...)) // newest first, as the store has them
}

const grantActive = "active"

// state is what the grant is at the time: the store learns of an expiry or of the
// last use no sooner than anybody asks.
func (g *Grant) state(now time.Time) string {
	if g.State == grantActive && (!g.Expires.IsZero() && !now.Before(g.Expires) || g.MaxUses > 0 && g.Uses >= g.MaxUses) {
		return "expired"
	}
	return g.State
}

// of reports whether the grant is the principal's.
func (g *Grant) of(p capability.Principal) bool {
	return (g.Principal == "*" || g.Principal == p.ID) && (g.Role == "" || g.Role == "*" || g.Role == string(p.Role)) &&
		(g.Scope != "user" || g.ScopeID == p.ID)
}
