package policy

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

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

// useGrant returns the id of a grant that covers the call, counts the use and records it. It accesses
// the store only for a grant with a maximum number of uses.
func (p *Policy) useGrant(ctx context.Context, a Asked, now time.Time) (string, bool, error) {
	for g := range p.fitting(a, now) {
		if g.MaxUses > 0 {
			ok, err := p.store.UseGrant(ctx, g.ID, now)
			if err != nil {
				return "", false, err
			}
			if !ok {
				continue
			}
		} else {
			p.uses.count(g.ID)
		}
		p.recordUse(ctx, a, g.ID)
		return g.ID, true, nil
	}
	return "", false, nil
}

// fitting yields the grants that cover the call. Session scope takes precedence over user and global, and
// a named action over "*".
func (p *Policy) fitting(a Asked, now time.Time) iter.Seq[*Grant] {
	return func(yield func(*Grant) bool) {
		live := *p.grants.Load()
		for _, scope := range []string{"session", "user", "global"} {
			for _, exact := range []bool{true, false} {
				for i := range live {
					g := &live[i]
					if g.Scope != scope || (g.Action != "*") != exact || a.Exact && !g.exact(a.Entry) || !g.covers(a, now) || !g.gives(a.Entry) ||
						p.ownGrant(g, a) || !p.reaches(g, a, now) || a.Fresh && (a.Approval == "" || g.Approval != a.Approval) {
						continue
					}
					if !yield(g) {
						return
					}
				}
			}
		}
	}
}

// StandingGrant returns the grant without a number of uses by which the call needs no approval. Only the
// store has how often the others were used.
func (p *Policy) StandingGrant(a Asked) (Grant, bool) {
	for g := range p.fitting(a, p.now()) {
		if g.MaxUses == 0 {
			return *g, true
		}
	}
	return Grant{}, false
}

// ownGrant reports whether the grant was made by a principal that may not approve the call: the
// caller itself, or the one that [Approval.Barred] names. A grant from an approval that the caller
// was entitled to answer is not one of these.
func (p *Policy) ownGrant(g *Grant, a Asked) bool {
	switch {
	case a.Channel == ChannelClient:
		return false
	case g.GrantedBy == a.Principal.ID:
		return true
	}
	return g.GrantedBy != "" && p.barred(a) == g.GrantedBy
}

// exact reports whether the grant names a capability, or exactly this action of an extension.
func (g *Grant) exact(e *catalog.Entry) bool {
	return g.Capability != "" || g.Action != "*" && g.Action == typed(e) && g.Module == e.Module.Extension
}

// gives reports whether the permissions of the grant include all that the entry requires. A grant
// without permissions includes all.
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

// covers reports whether the grant is active and matches the call's principal, module, action,
// capability, session, content, channel and effect. It does not check permissions.
func (g *Grant) covers(a Asked, now time.Time) bool {
	switch {
	case g.state(now) != grantActive:
		return false
	case !g.of(a.Principal):
		return false
	case g.Channel == ChannelClient && a.Channel != ChannelClient:
		return false // the caller's own client answered, which decides only what a rule asks that client
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

// grant returns a grant for the approved capability and content, for the calling principal and any
// input.
func (a *Approval) grant() Grant {
	return Grant{
		Principal: a.Principal, Role: "*", Module: a.Module, Action: "*", Capability: a.Capability, Permissions: a.Permissions,
		Scope: "user", ScopeID: a.Principal, ContentHash: a.ContentHash, Channel: a.Channel, Approval: a.ID, Effect: a.Effect,
	}
}

// CreateGrant validates, stores and records a standing permission. Empty names become "*", an empty
// scope global. A grant without any restriction is invalid_input, one of an operator for itself
// denied. It does not check the rights of by otherwise.
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
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "a grant of scope %s needs its scope_id", g.Scope).With("",
			"give the principal or session that is meant: --scope-id")
	}
	if g.MaxUses < 0 || (!g.Expires.IsZero() && !g.Expires.After(now)) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "the grant would be over before it begins")
	}
	if g.Role != "*" && !slices.Contains(capability.Roles(), capability.Role(g.Role)) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "%q is not a role; use admin, operator, agent, node or task", g.Role)
	}
	if g.Effect != "" && !slices.Contains([]capability.Effect{
		capability.EffectRead, capability.EffectWrite, capability.EffectExternal,
		capability.EffectAdmin,
	}, g.Effect) {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "%q is not an effect; use read, write, external or admin", g.Effect)
	}
	if g.Principal == "*" && g.Role == "*" && g.Module == "*" && g.Action == "*" {
		return Grant{}, capability.Errorf(capability.CodeInvalidInput, op, "a grant for everybody and everything is a policy, not a grant").
			With("", "name a principal, role, module or action; or write a Cedar policy")
	}
	if by.Role == capability.RoleOperator && g.Channel != ChannelClient && (g.Principal == by.ID || g.Scope == "user" && g.ScopeID == by.ID) {
		return Grant{}, capability.Errorf(capability.CodeDenied, op, "an operator may not grant anything to itself").
			With("forbidden", "let another operator or an administrator make the grant")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.store.CreateGrant(ctx, g); err != nil {
		return Grant{}, err
	}
	p.changeGrants(g)
	p.record(ctx, audit.GrantCreated, by, true, audit.Synced,
		audit.Attr{Key: "grant", Value: g.ID}, audit.Attr{Key: "granted_to", Value: g.Principal}, audit.Attr{Key: "module", Value: g.Module},
		audit.Attr{Key: "action", Value: g.Action}, audit.Attr{Key: "scope", Value: g.Scope})
	return g, nil
}

// Grants returns every grant, including ended ones.
func (p *Policy) Grants(ctx context.Context) ([]Grant, error) {
	p.uses.saving.Lock() // otherwise uses could be counted twice or not at all
	defer p.uses.saving.Unlock()
	all, err := p.store.Grants(ctx)
	for i := range all {
		all[i].State = all[i].state(p.now())
		all[i].Uses += p.uses.of(all[i].ID)
	}
	return all, err
}

// RevokeGrant ends an active grant at once and records it. It does not check the rights of by.
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

// setGrants replaces the mirror by those of the grants that are active.
func (p *Policy) setGrants(all []Grant) {
	live := make([]Grant, 0, len(all))
	for _, g := range all {
		if g.state(p.now()) == grantActive {
			live = append(live, g)
		}
	}
	p.grants.Store(&live)
}

// changeGrants adds g to the mirror, or removes it if it has ended. Caller holds mu.
func (p *Policy) changeGrants(g Grant) {
	all := slices.DeleteFunc(slices.Clone(*p.grants.Load()), func(o Grant) bool { return o.ID == g.ID })
	p.setGrants(append([]Grant{g}, all...)) // newest first, like the store
}

const grantActive = "active"

// state returns the state of the grant at the given time, because the store records an
// expiry or the last use only when the grant is read.
func (g *Grant) state(now time.Time) string {
	if g.State == grantActive && (!g.Expires.IsZero() && !now.Before(g.Expires) || g.MaxUses > 0 && g.Uses >= g.MaxUses) {
		return "expired"
	}
	return g.State
}

// of reports whether the grant applies to the principal, by its id, role and user scope.
func (g *Grant) of(p capability.Principal) bool {
	return (g.Principal == "*" || g.Principal == p.ID) && (g.Role == "" || g.Role == "*" || g.Role == string(p.Role)) &&
		(g.Scope != "user" || g.ScopeID == p.ID)
}
