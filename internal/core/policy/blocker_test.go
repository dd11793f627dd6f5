package policy_test

import (
	"context"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// programs is a program that takes each answer, and stores it as a decision.
type programs struct {
	p   *policy.Policy
	got []policy.Reply
	err error
}

func (p *programs) AnswerApproval(ctx context.Context, by capability.Principal, a policy.Approval, r policy.Reply) error {
	p.got = append(p.got, r)
	if p.err != nil {
		return p.err
	}
	return p.p.SettleBlocker(ctx, by, a.Module, a.ID, policy.DecideOnce)
}

func TestAnswersToWaitingProgramsReachThem(t *testing.T) {
	t.Parallel()
	r := open(t)
	to := &programs{p: r.Policy}
	r.Carry(to)
	owner := capability.Principal{ID: "operator:o", Role: capability.RoleOperator}
	ask := func(kind string) string {
		t.Helper()
		id := policy.NewApprovalID(r.now())
		err := r.OpenBlocker(t.Context(), policy.Approval{
			ID: id, Kind: kind, Module: "agents:x", Binding: policy.Binding{Principal: owner.ID}, Asked: r.now(),
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := ask(policy.KindTerminal)
	a, g, err := r.Decide(t.Context(), owner, first, policy.DecideOnce)
	if err != nil || g != nil || a.State != policy.ApprovalApproved || a.DecidedBy != owner.ID {
		t.Errorf("Decide() by the owner = %+v, grant %v, %v; want approved by %s, without a grant", a, g, err, owner.ID)
	}
	if _, _, err := r.Reply(t.Context(), owner, first, policy.Reply{Text: "1"}); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("Reply() to an answered approval = %v, want conflict", err)
	}
	second := ask(policy.KindQuestion)
	agent := capability.Principal{ID: owner.ID, Role: capability.RoleAgent}
	if _, _, err := r.Reply(t.Context(), agent, second, policy.Reply{Text: "1"}); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("Reply() by an agent = %v, want denied", err)
	}
	if _, _, err := r.Answer(t.Context(), owner, second, policy.DecideOnce); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("Answer() as the caller of a call = %v, want not_found", err)
	}
	if a, _, err := r.Reply(t.Context(), owner, second, policy.Reply{Text: "2"}); err != nil || a.State != policy.ApprovalApproved {
		t.Errorf("Reply() = %+v, %v, want approved", a, err)
	}
	if len(to.got) != 2 || to.got[0].Decision != policy.DecideOnce || to.got[1].Text != "2" {
		t.Errorf("the program received %+v, want the decision once and the text 2", to.got)
	}
	third := ask(policy.KindTerminal)
	if err := r.EndBlockers(t.Context(), "agents:x"); err != nil {
		t.Fatal(err)
	}
	_, _, err = r.Decide(t.Context(), owner, third, policy.DecideDeny)
	if capability.CodeOf(err) != capability.CodeConflict || len(to.got) != 2 {
		t.Errorf("Decide() after the program went on = %v, want conflict, and nothing for the program: %+v", err, to.got)
	}
}
