package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestAVerifierIsAskedBeforeDangerousApprovals(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.Carry(&programs{p: r.Policy})
	owner := capability.Principal{ID: "operator:o", Role: capability.RoleOperator}
	for _, tt := range []struct {
		name   string
		kind   string
		effect capability.Effect
		reply  policy.Reply
		asked  bool
	}{
		{"a program runs something", policy.KindTerminal, capability.EffectExternal, policy.Reply{Decision: policy.DecideOnce}, true},
		{"a program takes the second option", policy.KindTerminal, capability.EffectExternal, policy.Reply{Text: "2"}, true},
		{"a program may not", policy.KindTerminal, capability.EffectExternal, policy.Reply{Decision: policy.DecideDeny}, false},
		{"an answer to a question", policy.KindQuestion, capability.EffectWrite, policy.Reply{Text: "2"}, false},
		{"a write once", policy.KindCall, capability.EffectWrite, policy.Reply{Decision: policy.DecideOnce}, false},
		{"a write for always", policy.KindCall, capability.EffectWrite, policy.Reply{Decision: policy.DecideAlways}, true},
		{"a mail once", policy.KindCall, capability.EffectExternal, policy.Reply{Decision: policy.DecideOnce}, true},
		{"no mail", policy.KindCall, capability.EffectExternal, policy.Reply{Decision: policy.DecideDeny}, false},
	} {
		id := policy.NewApprovalID(r.now())
		err := r.OpenBlocker(t.Context(), policy.Approval{
			ID: id, Kind: tt.kind, Module: "agents:x", Effect: tt.effect, Binding: policy.Binding{Principal: owner.ID}, Asked: r.now(),
		})
		if err != nil {
			t.Fatalf("%s: asking: %v", tt.name, err)
		}
		refusal := capability.Errorf(capability.CodeDenied, "test", "the person has to confirm it").With("unconfirmed", "")
		asked := ""
		ctx := policy.WithVerifier(t.Context(), func(by, what string) error {
			asked = by + ": " + what
			return refusal
		})
		_, _, err = r.Reply(ctx, owner, id, tt.reply)
		e := capability.AsError(err)
		if refused := e != nil && e.Reason == "unconfirmed"; refused != tt.asked || (asked != "") != tt.asked {
			t.Errorf("%s: asked %q, error %v; want asked and refused: %v", tt.name, asked, err, tt.asked)
		}
		a, err := r.Approval(t.Context(), id)
		if pending := a.State == policy.ApprovalPending; err != nil || pending != tt.asked {
			t.Errorf("%s: then the approval is %s, %v; want pending: %v", tt.name, a.State, err, tt.asked)
		}
	}
}
