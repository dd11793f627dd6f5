package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// asksOperators makes operators need the approval of another person for writes.
const asksOperators = `
@id("two-persons") @approval("operator") permit (principal in Role::"operator", action, resource);
@approval("operator") permit (principal in Role::"task", action, resource);`

func TestOperatorCannotGrantItselfWhatItMayNotApprove(t *testing.T) {
	t.Parallel()
	r := open(t, asksOperators)
	me, _ := r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "me"})
	other, _ := r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "other"})
	child, _ := r.child(t, "mine", me)
	e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	consent := func(p capability.Principal) error {
		_, err := r.Consent(t.Context(), policy.Asked{Principal: p, Entry: e, InputDigest: "d", Channel: policy.ChannelOperator})
		return err
	}
	if _, err := r.CreateGrant(t.Context(), me, policy.Grant{Principal: me.ID}); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("CreateGrant(for itself) = %v, want denied", err)
	}
	_, err := r.CreateGrant(t.Context(), me, policy.Grant{Module: "remote.tools", Scope: "user", ScopeID: me.ID})
	if capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("CreateGrant(for itself by scope) = %v, want denied", err)
	}
	for _, g := range []policy.Grant{{Module: "remote.tools"}, {Principal: child.ID}} {
		if _, err := r.CreateGrant(t.Context(), me, g); err != nil {
			t.Fatal(err)
		}
		for _, p := range []capability.Principal{me, child} {
			if err := consent(p); capability.CodeOf(err) != capability.CodeApprovalRequired {
				t.Errorf("Consent(%s) with a grant by %s = %v, want approval_required", p.ID, me.ID, err)
			}
		}
	}
	err = consent(child)
	_, _, err = r.Decide(t.Context(), me, capability.AsError(err).Details["approval"].(string), policy.DecideOnce)
	if capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("Decide(the call of its own task) = %v, want denied", err)
	}
	if err := consent(other); err != nil {
		t.Errorf("Consent(another operator) = %v, want the grant used", err)
	}
}

func TestOperatorCannotApproveCallsOfTheAgentThatItPaired(t *testing.T) {
	t.Parallel()
	const agents = `@id("agents") @approval("operator") permit (principal in Role::"agent", action, resource);`
	e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	for _, tt := range []struct {
		name, rules string
		want        capability.Code // of the operator who paired
	}{
		{"needs an approval itself", asksOperators, capability.CodeDenied},
		{"may not call it", `permit (principal in Role::"task", action, resource);`, capability.CodeDenied},
		{"may call it at once", `permit (principal in Role::"operator", action, resource);
			permit (principal in Role::"task", action, resource);`, ""},
	} {
		r := open(t, tt.rules, agents)
		me, _ := r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "me"})
		other, _ := r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "other"})
		paired, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "paired", Labels: []string{policy.PairedBy + me.ID}})
		child, _ := r.child(t, "its", paired)
		if _, err := r.CreateGrant(t.Context(), me, policy.Grant{Module: "remote.tools"}); err != nil {
			t.Fatalf("CreateGrant: got %v, want no error", err)
		}
		for _, p := range []capability.Principal{paired, child} {
			asked := policy.Asked{Principal: p, Entry: e, InputDigest: "d", Channel: policy.ChannelOperator}
			c, err := r.Consent(t.Context(), asked)
			if got := err == nil && c.Grant != ""; got != (tt.want == "") {
				t.Errorf("%s: Consent(%s) with a grant by %s = %+v, %v; want the grant used: %t", tt.name, p.ID, me.ID, c, err, tt.want == "")
			}
			if err == nil {
				continue
			}
			id := capability.AsError(err).Details["approval"].(string)
			if _, _, err := r.Decide(t.Context(), me, id, policy.DecideOnce); capability.CodeOf(err) != tt.want {
				t.Errorf("%s: Decide(%s) by %s = %v, want %q", tt.name, p.ID, me.ID, err, tt.want)
			}
			if _, _, err := r.Decide(t.Context(), other, id, policy.DecideOnce); err != nil {
				t.Errorf("%s: Decide(%s) by %s = %v, want no error", tt.name, p.ID, other.ID, err)
			}
		}
	}
}

func TestAnswersOfTheCallersClientDoNotCoverRulesThatAskAnOperator(t *testing.T) {
	t.Parallel()
	const asks = `@id("ask") @approval("%s") permit (principal, action, resource);`
	r := open(t, fmt.Sprintf(asks, "client"))
	me, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "me"})
	child, _ := r.child(t, "mine", me)
	e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	consent := func(p capability.Principal, digest string) (policy.Consent, error) {
		return r.Consent(t.Context(), policy.Asked{Principal: p, Entry: e, InputDigest: digest, Channel: r.Authorize(p, e).Consent})
	}
	approval := func(err error) string {
		t.Helper()
		if capability.CodeOf(err) != capability.CodeApprovalRequired {
			t.Fatalf("Consent = %v, want approval_required", err)
		}
		return capability.AsError(err).Details["approval"].(string)
	}
	answer := func(digest string, d policy.Decision) {
		t.Helper()
		_, err := consent(me, digest)
		if _, _, err := r.Answer(t.Context(), me, approval(err), d); err != nil {
			t.Fatalf("Answer: got %v, want no error", err)
		}
	}
	_, err := consent(me, "open")
	open := approval(err)
	answer("once", policy.DecideOnce)
	answer("always", policy.DecideAlways)
	if c, err := consent(me, "any"); err != nil || c.Grant == "" {
		t.Fatalf("Consent(a rule that asks the client) = %+v, %v; want its grant", c, err)
	}
	// A grant for all tasks is usable on behalf of a creator that needs no approval.
	if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), policy.Grant{Role: "task"}); err != nil {
		t.Fatalf("CreateGrant: got %v, want no error", err)
	}
	if c, err := consent(child, "any"); err != nil || c.Grant == "" {
		t.Fatalf("Consent(for a creator with a grant) = %+v, %v; want the grant", c, err)
	}
	for _, channel := range []policy.Channel{policy.ChannelDevice, policy.ChannelOperator} {
		if err := r.SetRules([]policy.Document{{Name: "d.cedar", Text: fmt.Appendf(nil, asks, channel)}}); err != nil {
			t.Fatalf("SetRules: got %v, want no error", err)
		}
		for _, digest := range []string{"open", "once", "any"} {
			for _, p := range []capability.Principal{me, child} {
				c, err := consent(p, digest)
				if capability.CodeOf(err) != capability.CodeApprovalRequired || capability.AsError(err).Details["approval"] == open {
					t.Errorf("Consent(%s, %s) at %s = %+v, %v; want an approval of its own", p.ID, digest, channel, c, err)
				}
			}
		}
	}
	_, err = consent(me, "once")
	if _, _, err := r.Decide(t.Context(), who(capability.RoleOperator), approval(err), policy.DecideAlways); err != nil {
		t.Fatalf("Decide: got %v, want no error", err)
	}
	if c, err := consent(me, "any"); err != nil || c.Grant == "" {
		t.Errorf("Consent(after an operator's answer) = %+v, %v; want the operator's grant", c, err)
	}
}

func TestOpenApprovalsOfOnePrincipalAreBounded(t *testing.T) {
	t.Parallel()
	r := open(t)
	e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	for i := range 33 {
		want := capability.CodeApprovalRequired
		if i == 32 {
			want = capability.CodeOverloaded
		}
		a := policy.Asked{Principal: who(capability.RoleAgent), Entry: e, InputDigest: fmt.Sprint(i), Channel: policy.ChannelOperator}
		for range 2 { // the second has the same binding
			if _, err := r.Consent(t.Context(), a); capability.CodeOf(err) != want {
				t.Fatalf("Consent(%d) = %v, want %s", i, err, want)
			}
		}
	}
}

func TestLabelsWithHiddenCharactersAreRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, label := range []string{"a\nb", "a\x1b[2K", "a\u202eb", "a\u200b", "\xff", strings.Repeat("a", 257)} {
		_, _, err := r.CreateToken(t.Context(), who(capability.RoleAdmin),
			policy.TokenRequest{Role: capability.RoleAgent, Labels: []string{label}})
		if capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("CreateToken(label %q) = %v, want invalid_input", label, err)
		}
	}
}

func TestVerdictsOfDifferentLabelsAreNotConfused(t *testing.T) {
	t.Parallel()
	r := open(t, `permit (principal, action, resource) when { principal.labels.contains("a b") };`)
	e := entry(t, capability.Contribution{Effect: capability.EffectRead})
	p := who(capability.RoleAgent)
	p.Labels = []string{"a b"}
	if v := r.Authorize(p, e); !v.Permitted {
		t.Fatalf("Authorize(%q) = %+v, want permitted", p.Labels, v)
	}
	p.Labels = []string{"a", "b"}
	if v := r.Authorize(p, e); v.Permitted {
		t.Errorf("Authorize(%q) = %+v, want denied", p.Labels, v)
	}
}

func TestBoundOfATokenIsTheStateOfItsCreatorsToken(t *testing.T) {
	t.Parallel()
	r := open(t, policy.DefaultRules(), `@id("fenced") forbid (principal, action, resource) when { principal.labels.contains("fenced") };`)
	creator, _, err := r.CreateToken(t.Context(), who(capability.RoleAdmin),
		policy.TokenRequest{Role: capability.RoleAgent, Name: "creator", Labels: []string{"fenced"}})
	if err != nil {
		t.Fatal(err)
	}
	stale := creator.Principal()
	stale.Labels = nil
	child := policy.Token{
		ID: "tok_child", Name: "child", Role: capability.RoleTask, Hash: "h", Created: r.now(),
		OnBehalfOf: &policy.Delegation{Token: creator.ID, By: stale},
	}
	if err := r.db.CreateToken(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := r.Authorize(child.Principal(), entry(t, capability.Contribution{Effect: capability.EffectRead})); v.Permitted {
		t.Errorf("Authorize(child) = %+v, want what the creator's token allows now: denied", v)
	}
}
