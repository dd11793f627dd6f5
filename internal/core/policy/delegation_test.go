package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/secret"
)

// made is a token of the rig and its principal.
func (r *rig) made(t *testing.T, req policy.TokenRequest) (capability.Principal, secret.Value) {
	t.Helper()
	made, value, err := r.CreateToken(t.Context(), who(capability.RoleAdmin), req)
	if err != nil {
		t.Fatal(err)
	}
	return made.Principal(), value
}

func (r *rig) child(t *testing.T, name string, by capability.Principal) (capability.Principal, secret.Value) {
	t.Helper()
	return r.made(t, policy.TokenRequest{Role: capability.RoleTask, Name: name, OnBehalfOf: &by})
}

// TestWhoActsForAnotherMayWhatBothMay goes through every pair of what two sets of rules
// can say.
func TestWhoActsForAnotherMayWhatBothMay(t *testing.T) {
	t.Parallel()
	strictness := []string{"permit", "client", "device", "operator", "deny"}
	rule := func(role, says string) string {
		head := `permit (principal in Role::"` + role + `", action, resource);`
		switch says {
		case "deny":
			return `forbid (principal in Role::"` + role + `", action, resource);`
		case "permit":
			return head
		}
		return `@consent("` + says + `") ` + head
	}
	for i, own := range strictness {
		for j, creators := range strictness {
			r := open(t, rule("task", own), rule("agent", creators))
			agent, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "creator"})
			child, _ := r.child(t, "pty-1", agent)
			v, got := r.Authorize(child, entry(t, capability.Contribution{Effect: capability.EffectWrite})), "deny"
			if v.Permitted {
				got = "permit"
				if v.Consent != "" {
					got = string(v.Consent)
				}
			}
			if want := strictness[max(i, j)]; got != want {
				t.Errorf("task %s, creator %s: %s, want %s", own, creators, got, want)
			}
		}
	}
}

func TestATaskAgentHasNoMoreThanItsCreatorByDefault(t *testing.T) {
	t.Parallel()
	r := open(t, policy.DefaultRules(), `@id("not-this-one") forbid (principal == Principal::"agent:narrow", action, resource);`)
	wide, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "wide", Labels: []string{"user:ann"}})
	narrow, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "narrow"})
	read := entry(t, capability.Contribution{Effect: capability.EffectRead})
	for name, by := range map[string]capability.Principal{"of-wide": wide, "of-narrow": narrow} {
		child, _ := r.child(t, name, by)
		if got := r.Authorize(child, read).Permitted; got != (by.ID == wide.ID) || child.OnBehalfOf != by.ID ||
			!cmp.Equal(child.Labels, by.Labels) {
			t.Errorf("%+v: %v; want got = (by.ID == wide.ID), child.OnBehalfOf = %v, cmp.Equal(child.Labels, by.Labels)",
				child, got, by.ID)
		}
		// What it starts has the same bound, and outlives it.
		second, _ := r.child(t, name+"-second", child)
		if _, err := r.RevokeToken(t.Context(), who(capability.RoleAdmin), name); err != nil {
			t.Fatal(err)
		}
		if got := r.Authorize(second, read).Permitted; got != (by.ID == wide.ID) || second.OnBehalfOf != by.ID {
			t.Errorf("%+v: %v; want got = (by.ID == wide.ID), second.OnBehalfOf = %v", second, got, by.ID)
		}
		if v := r.Authorize(child, read); v.Permitted {
			t.Errorf("its own token is gone: %+v; want v.Permitted = false", v)
		}
		if _, _, err := r.CreateToken(t.Context(), who(capability.RoleAdmin),
			policy.TokenRequest{
				Role: capability.RoleTask, Name: name + "-third",
				OnBehalfOf: &child,
			}); capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Errorf("on behalf of who is gone: %v; want capability.CodeOf(err) = capability.CodeUnauthenticated", err)
		}
	}
}

// TestATaskAgentsTokenEndsWithItsCreators: revoked, expired, or created again under the same
// name, also after it was read again from the database.
func TestATaskAgentsTokenEndsWithItsCreators(t *testing.T) {
	t.Parallel()
	ends := map[string]func(r *rig) error{
		"revoked": func(r *rig) error {
			_, err := r.RevokeToken(t.Context(), who(capability.RoleAdmin), "creator")
			return err
		},
		"run out": func(r *rig) error {
			r.at.Add(int64(time.Hour))
			return nil
		},
	}
	for name, end := range ends {
		r := open(t)
		req := policy.TokenRequest{Role: capability.RoleAgent, Name: "creator", Expires: time.Hour}
		agent, _ := r.made(t, req)
		child, value := r.child(t, "pty-1", agent)
		read := entry(t, capability.Contribution{Effect: capability.EffectRead})
		good := func() bool {
			_, err := r.Authenticate(value.Reveal())
			_, standing := r.Standing(child.ID)
			verdict := r.Authorize(child, read).Permitted
			if (err == nil) != (standing == nil) || verdict != (err == nil) {
				t.Errorf("%s: they disagree: %v, %v, %v; want (err == nil) = (standing == nil), verdict = (err == nil)",
					name, err, standing, verdict)
			}
			return err == nil
		}
		if err := r.Refresh(t.Context()); err != nil || !good() {
			t.Fatalf("%s: not good before: %v; want no error, good()", name, err)
		}
		if err := end(r); err != nil {
			t.Fatal(err)
		}
		if good() {
			t.Errorf("%s: good after its creator's end; want not good()", name)
		}
		r.made(t, req)
		if err := r.Refresh(t.Context()); err != nil || good() {
			t.Errorf("%s: another token of the same name brought it back (%v); want no error, not good()", name, err)
		}
	}
}

// TestOnBehalfOfALoginElsewhere: no token of ours states who that is, so what it was when
// the session was made counts, and how narrow it was.
func TestOnBehalfOfALoginElsewhere(t *testing.T) {
	t.Parallel()
	r := open(t)
	child, value := r.child(t, "pty-1", capability.Principal{
		ID: "agent:oidc/ann", Role: capability.RoleAgent, Scoped: true,
		Most: capability.EffectRead,
	})
	got, err := r.Authenticate(value.Reveal())
	if err != nil || !cmp.Equal(got, child) || got.OnBehalfOf != "agent:oidc/ann" || got.Covers(capability.EffectWrite) ||
		!got.Covers(capability.EffectRead) {
		t.Errorf(`%+v %v; want no error, cmp.Equal(got, child), got.OnBehalfOf = "agent:oidc/ann", not `+
			"got.Covers(capability.EffectWrite), got.Covers(capability.EffectRead)", got, err)
	}
	if !r.Authorize(child, entry(t, capability.Contribution{Effect: capability.EffectRead})).Permitted {
		t.Error("it may not even read")
	}
}

// TestGrantsOfTaskAgents: a grant that a creator lacks does not replace an approval, except
// for one that was given to the task agent itself.
func TestGrantsOfTaskAgents(t *testing.T) {
	t.Parallel()
	write := capability.Contribution{Effect: capability.EffectWrite}
	admin := who(capability.RoleAdmin)
	tests := []struct {
		name    string
		creator capability.Role
		grants  []policy.Grant
		want    bool
	}{
		{"none", capability.RoleAgent, nil, false},
		{"to its role, of an agent that would be asked", capability.RoleAgent, []policy.Grant{{Role: "task", Module: "remote.tools"}}, false},
		{
			"to both roles", capability.RoleAgent,
			[]policy.Grant{{Role: "task", Module: "remote.tools"}, {Role: "agent", Module: "remote.tools"}},
			true,
		},
		{"to everybody", capability.RoleAgent, []policy.Grant{{Module: "remote.tools"}}, true},
		{"to its role, of a person", capability.RoleOperator, []policy.Grant{{Role: "task", Module: "remote.tools"}}, true},
		{"to itself", capability.RoleAgent, []policy.Grant{{Principal: "task:pty-1", Module: "remote.tools"}}, true},
		{"to its creator alone", capability.RoleAgent, []policy.Grant{{Principal: "agent:creator", Module: "remote.tools"}}, false},
	}
	for _, tt := range tests {
		r := open(t)
		creator, _ := r.made(t, policy.TokenRequest{Role: tt.creator, Name: "creator"})
		child, _ := r.child(t, "pty-1", creator)
		for _, g := range tt.grants {
			if _, err := r.CreateGrant(t.Context(), admin, g); err != nil {
				t.Fatal(err)
			}
		}
		e := entry(t, write)
		_, err := r.Consent(t.Context(), policy.Asked{Principal: child, Entry: e, Channel: r.Authorize(child, e).Consent, InputDigest: "x"})
		if (err == nil) != tt.want || err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired {
			t.Errorf("%s: %v; want (err == nil) = %v, not (err != nil && capability.CodeOf(err) != capability.CodeApprovalRequired)",
				tt.name, err, tt.want)
		}
	}
}

func TestUsersModulesAndTaskAgents(t *testing.T) {
	t.Parallel()
	r := open(t)
	anns, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "a", Labels: []string{"user:ann"}})
	bobs, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "b", Labels: []string{"user:bob"}})
	one, _ := r.child(t, "pty-1", anns)
	two, _ := r.child(t, "pty-2", bobs)
	if !r.Serves(one, []string{"ann"}, "node.x") || r.Serves(two, []string{"ann"}, "node.x") {
		t.Error("what is for ann is for the task agents of her agents, and for nobody else's")
	}
	if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), policy.Grant{Role: "task", Module: "node.x"}); err != nil {
		t.Fatal(err)
	}
	if r.Serves(two, []string{"ann"}, "node.x") {
		t.Error("a grant to its role gives it what its creator has not")
	}
}
