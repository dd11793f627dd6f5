package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// delegation returns the delegation for a principal started by the given one. A principal that a
// task agent starts gets the task agent's own delegation, so that it may outlive the agent but
// does not have more rights. Error: unauthenticated if by does not have a live token.
func (p *Policy) delegation(by capability.Principal) (Delegation, error) {
	m := p.tokens.Load()
	t, ok := m.names[by.ID]
	switch {
	case !fromToken(by.ID):
		return Delegation{By: by}, nil
	case !ok || !m.good(t, p.now()):
		return Delegation{}, notStanding(by.ID)
	case t.OnBehalfOf != nil:
		return *t.OnBehalfOf, nil
	}
	return Delegation{Token: t.ID, By: t.Principal()}, nil
}

// fromToken reports whether a principal with this id is created by a token of this server.
func fromToken(id string) bool {
	_, name, ok := strings.Cut(id, ":")
	return ok && tokenName.MatchString(name)
}

// creator returns the principal on whose behalf a principal acts, as its token makes it now. A
// principal without a token of this server is as it was when the token was created.
// ok is false if a token of either is no longer live.
func (p *Policy) creator(who capability.Principal) (creator capability.Principal, ok bool) {
	m := p.tokens.Load()
	t, ok := m.names[who.ID]
	if !ok || t.OnBehalfOf == nil || !m.good(t, p.now()) {
		return capability.Principal{}, false
	}
	if id := t.OnBehalfOf.Token; id != "" {
		return m.ids[id].Principal(), true // good: it is there
	}
	return t.OnBehalfOf.By, true
}

// and returns the combination of two verdicts: it permits only what both permit, with the stricter
// consent. v must be permitted.
func (v Verdict) and(o Verdict) Verdict {
	if !o.Permitted {
		return o
	}
	v.Consent = stricter(v.Consent, o.Consent)
	v.Waives = v.Waives && o.Waives
	v.Policies = slices.Concat(v.Policies, o.Policies)
	slices.Sort(v.Policies)
	v.Policies = slices.Compact(v.Policies)
	return v
}

// reaches reports whether a grant may be used for a call on behalf of another principal. It must
// name the acting principal, or the creator must be able to make the call without an approval
// too. It returns true for calls not made on behalf of another.
func (p *Policy) reaches(g *Grant, a Asked, now time.Time) bool {
	if a.Principal.OnBehalfOf == "" || g.Principal == a.Principal.ID {
		return true
	}
	creator, ok := p.creator(a.Principal)
	if !ok {
		return false
	}
	v := p.alone(creator, a.Entry)
	if v.Permitted && v.Consent == "" {
		return true
	}
	a.Principal, a.Channel = creator, v.Consent
	return slices.ContainsFunc(*p.grants.Load(), func(o Grant) bool {
		return o.MaxUses == 0 && o.covers(a, now) && o.gives(a.Entry)
	})
}
