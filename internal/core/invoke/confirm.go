package invoke

import (
	"context"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// Verify asks the [policy.Verifier] of ctx about a call that is not made yet, for callers that store
// something before the call. It returns nil for a call that would fail before it is sent.
func (e *Engine) Verify(ctx context.Context, inv capability.Invocation) error {
	if policy.VerifierOf(ctx) == nil {
		return nil
	}
	r := run{engine: e, inv: inv}
	candidates, err := r.resolve()
	if err == nil {
		candidates, _ = e.permitted(&r.inv, candidates)
	}
	return r.verify(ctx, candidates)
}

// verify asks the verifier of ctx, if it has one, about the first of the entries that is
// dangerous: any of them may be chosen.
func (r *run) verify(ctx context.Context, entries []*catalog.Entry) error {
	if policy.VerifierOf(ctx) == nil {
		return nil
	}
	for _, e := range entries {
		if e.Effect.AtLeast(capability.EffectExternal) || runsPrograms(e) {
			return policy.Confirm(ctx, r.inv.Principal.ID, "call "+text.Visible(e.Name())+" on "+text.Visible(string(e.Key())))
		}
	}
	return nil
}

// runsPrograms reports whether an entry runs what its input holds: such a call can do all that the
// server's user can.
func runsPrograms(e *catalog.Entry) bool {
	return slices.Contains(e.Contribution.Permissions, "exec") ||
		strings.HasPrefix(string(e.Action), "task-agent.") && e.Effect.AtLeast(capability.EffectWrite)
}
