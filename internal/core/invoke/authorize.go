package invoke

import (
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// authorize drops the candidates that the rules deny, before arbitration, so that a
// fallback can never reach one. If none is left, the capability does not exist for an
// agent, whereas an operator receives the policy that denied it.
func (r *run) authorize(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	permitted, denied := r.engine.permitted(&r.inv, candidates)
	if len(permitted) > 0 {
		return permitted, nil
	}
	r.entry, r.verdict = candidates[0], denied
	r.hidden = true
	switch r.inv.Principal.Role {
	case capability.RoleAdmin, capability.RoleOperator:
		if len(denied.Withheld) > 0 {
			return nil, capability.Errorf(capability.CodeDenied, "authorize", "this server keeps %s from extensions (%s), so %s cannot be called",
				strings.Join(denied.Withheld, ", "), strings.Join(denied.Policies, ", "), r.inv.Target).
				With("permission_denied", fmt.Sprintf("an administrator grants it with: junctor grants create --module %s --permission %s; or starts the server with deployment_mode local_open", r.entry.Module.Extension, strings.Join(denied.Withheld, " --permission "))).Detail("denied_permissions", denied.Withheld)
		}
		because := "no policy permits it"
		if len(denied.Policies) > 0 {
			because = "policy " + strings.Join(denied.Policies, ", ") + " forbids it"
		}
		if denied.Fault != "" {
			because = "policy " + strings.Join(denied.Policies, ", ") + " cannot be evaluated (" + denied.Fault +
				"), and until that is mended all is denied that it is asked about"
		}
		return nil, capability.Errorf(capability.CodeDenied, "authorize", "%s may not call %s: %s", r.inv.Principal.ID, r.inv.Target, because).
			With("permission_denied", "change the Cedar policies in the home's policy folder")
	}
	return nil, capability.UnknownCapability(r.inv.Target)
}

// permitted returns the entries that the rules permit, in the same slice if all are. denied is
// the verdict on the first entry dropped.
func (e *Engine) permitted(inv *capability.Invocation, entries []*catalog.Entry) (kept []*catalog.Entry, denied policy.Verdict) {
	for i, entry := range entries {
		v := e.authorize(inv, entry)
		if v.Permitted {
			continue
		}
		denied = v
		kept = append(kept, entries[:i]...)
		for _, entry := range entries[i+1:] {
			if e.authorize(inv, entry).Permitted {
				kept = append(kept, entry)
			}
		}
		return kept, denied
	}
	return entries, denied
}

// authorize returns the verdict on one entry. An entry outside the caller's view is denied,
// as by a rule.
func (e *Engine) authorize(inv *capability.Invocation, entry *catalog.Entry) policy.Verdict {
	if inv.Within != nil && !inv.Within(entry.Module.Extension) {
		return policy.Verdict{}
	}
	return e.cfg.Policy.Authorize(inv.Principal, entry)
}

// ReasonScope is the reason of a denied call that the principal may make, but not with this
// credential.
const ReasonScope = "insufficient_scope"

// covered drops the candidates whose effect the credential does not cover. If none is
// left, the error is denied, reason [ReasonScope].
func (r *run) covered(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	if !r.inv.Principal.Scoped {
		return candidates, nil
	}
	var kept []*catalog.Entry
	for _, e := range candidates {
		if r.inv.Principal.Covers(e.Effect) {
			kept = append(kept, e)
		}
	}
	if len(kept) > 0 {
		return kept, nil
	}
	r.entry = candidates[0]
	return nil, capability.Errorf(capability.CodeDenied, "authorize", "this token does not cover %s, which has effect %s",
		r.inv.Target, r.entry.Effect).
		With(ReasonScope, "use a token that covers this effect").Detail("effect", string(r.entry.Effect))
}
