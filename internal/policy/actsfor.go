package policy

import (
	"cmp"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
)

const actsForLabel = "acts-for:"

// ActsFor is the label of a token that acts for a principal: its rights are those that both
// have, as the rules stand at each call, and none once the other one's token has ended
// (spec/README, R41).
func ActsFor(principal string) string { return actsForLabel + principal }

func actsFor(p capability.Principal) (id string, ok bool) {
	for _, l := range p.Labels {
		if id, ok = strings.CutPrefix(l, actsForLabel); ok {
			return id, true
		}
	}
	return "", false
}

// narrowed is a verdict as far as the principal that is acted for has it too.
func (p *Policy) narrowed(v Verdict, id string, e *catalog.Entry) Verdict {
	who, err := p.Standing(id)
	if err != nil {
		if !strings.HasPrefix(id, "agent:oidc/") {
			return Verdict{Policies: []string{actsForLabel + id}}
		}
		who = capability.Principal{ID: id, Role: capability.RoleAgent} // those have no token of ours
	}
	other := p.authorize(who, e)
	if !other.Permitted {
		return other
	}
	v.Consent = cmp.Or(v.Consent, other.Consent)
	return v
}
