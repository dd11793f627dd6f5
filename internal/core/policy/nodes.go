package policy

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/secret"
)

// nodeOrigin is the origin of the modules of nodes.
const nodeOrigin = "node"

// kept reports whether an entry is withheld from the principal because it is reserved for other
// users, and no grant that names the module covers the entry.
func (p *Policy) kept(principal capability.Principal, e *catalog.Entry) bool {
	if isOne(principal, e.Module.Users) {
		return false
	}
	now, asked := p.now().UTC(), Asked{Principal: principal, Entry: e}
	return !slices.ContainsFunc(*p.grants.Load(), func(g Grant) bool {
		return g.Module == e.Module.Extension && g.Scope != "session" && g.covers(asked, now)
	})
}

// Serves reports whether a principal may see an entry that is reserved for certain users: its
// name or a label of its token matches, it is an operator or admin, or a grant names the
// module. An empty list permits everyone.
func (p *Policy) Serves(principal capability.Principal, users []string, module string) bool {
	if principal.OnBehalfOf != "" {
		creator, ok := p.creator(principal)
		if !ok || !p.Serves(creator, users, module) {
			return false
		}
	}
	if isOne(principal, users) {
		return true
	}
	now := p.now().UTC()
	return slices.ContainsFunc(*p.grants.Load(), func(g Grant) bool {
		return g.Module == module && g.Scope != "session" && g.Channel != ChannelClient && g.state(now) == grantActive && g.of(principal)
	})
}

// isOne reports whether the principal is one of the users. An empty list matches every
// principal.
func isOne(principal capability.Principal, users []string) bool {
	if len(users) == 0 || principal.Role == capability.RoleAdmin || principal.Role == capability.RoleOperator {
		return true
	}
	_, name, _ := strings.Cut(principal.ID, ":")
	return slices.Contains(users, name) || slices.ContainsFunc(principal.Labels, func(l string) bool {
		user, is := strings.CutPrefix(l, "user:")
		return is && slices.Contains(users, user)
	})
}

// AskedAbout returns the capabilities for which the principal's call with this input is
// approved, pending or rejected, in that order.
func (p *Policy) AskedAbout(ctx context.Context, principal capability.Principal, inputDigest string) (ids []capability.ID, err error) {
	now := p.now().UTC()
	for _, state := range []ApprovalState{ApprovalApproved, ApprovalPending, ApprovalDenied} {
		list, err := p.store.Approvals(ctx, state, "", maxRecentApprovals)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			if a.Principal == principal.ID && a.InputDigest == inputDigest && a.Consumed.IsZero() && now.Before(a.until()) {
				ids = append(ids, a.Capability)
			}
		}
	}
	return ids, nil
}

// until returns the time until which an approval can be used or, before a decision, is open.
func (a *Approval) until() time.Time {
	if a.UsableUntil.IsZero() {
		return a.Expires
	}
	return a.UsableUntil
}

// named reports whether a live grant names the module and the action of an entry.
func (p *Policy) named(principal capability.Principal, e *catalog.Entry) bool {
	now, asked := p.now().UTC(), Asked{Principal: principal, Entry: e}
	return slices.ContainsFunc(*p.grants.Load(), func(g Grant) bool {
		return g.Module == e.Module.Extension && g.Action == string(e.Action) && g.Scope != "session" && g.covers(asked, now)
	})
}

// granted returns the verdict, except that an administrative action of a node which no rule forbids
// is permitted, with an operator's consent, if a grant names its module and action.
func (p *Policy) granted(principal capability.Principal, e *catalog.Entry, v Verdict) Verdict {
	forbidden := len(v.Policies) > 0 || v.Fault != ""
	if v.Permitted || forbidden || e.Module.Origin != nodeOrigin || e.Effect != capability.EffectAdmin {
		return v
	}
	if p.named(principal, e) {
		return Verdict{Permitted: true, Consent: ChannelOperator, Policies: []string{"grant"}}
	}
	return v
}

// Token returns the live token with the given value. Errors are those of [Policy.Authenticate].
func (p *Policy) Token(value string) (Token, error) {
	if _, err := p.Authenticate(value); err != nil {
		return Token{}, err
	}
	m := p.tokens.Load()
	t, ok := m.hashes[secret.Hash(value)]
	if d := t.OnBehalfOf; ok && d != nil && d.Same {
		t, ok = m.ids[d.Token] // the person's own, with which all of their sessions end
	}
	if !ok { // revoked meanwhile
		return Token{}, capability.Errorf(capability.CodeUnauthenticated, "authenticate",
			"this token is not valid here: unknown, expired or revoked").With("invalid_token", "")
	}
	return t, nil
}

// StandingToken returns the token with the given id unless it was revoked. One of role node
// may have expired: it does not admit new nodes, and admitted nodes stay.
func (p *Policy) StandingToken(id string) (t Token, ok bool) {
	t, ok = p.tokens.Load().ids[id]
	return t, ok && t.stands(p.now())
}

// stands reports whether the token is still valid as a basis for other rights.
func (t Token) stands(now time.Time) bool {
	return t.Live(now) || t.Role == capability.RoleNode && t.Revoked.IsZero()
}

// Standing returns the current principal with the given id. The error is unauthenticated if
// it does not have a live token.
func (p *Policy) Standing(id string) (capability.Principal, error) {
	m := p.tokens.Load()
	if t, ok := m.names[id]; ok && m.good(t, p.now()) {
		return t.Principal(), nil
	}
	return capability.Principal{}, notStanding(id)
}

func notStanding(id string) error {
	return capability.Errorf(capability.CodeUnauthenticated, "authenticate", "the token of %s is not valid any more",
		id).With("invalid_token", "")
}
