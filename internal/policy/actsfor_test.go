package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/policy"
)

// TestWhatActsForSomebodyMayDoNoMore: a session has the rights that it and whoever began it
// both have, as the rules stand now.
func TestWhatActsForSomebodyMayDoNoMore(t *testing.T) {
	t.Parallel()
	r := open(t, policy.DefaultRules(), `@id("not-x") forbid (principal == Principal::"agent:narrow", action, resource) when { resource.tags.contains("secret") };
		@id("yes-all") permit (principal in Role::"task", action, resource);`)
	token := func(role capability.Role, name string, labels ...string) capability.Principal {
		made, _, err := r.CreateToken(t.Context(), capability.Principal{ID: "test"}, policy.TokenRequest{Role: role, Name: name, Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		return made.Principal()
	}
	token(capability.RoleAdmin, "boss")
	token(capability.RoleAgent, "wide")
	token(capability.RoleAgent, "narrow")
	token(capability.RoleAgent, "gone")
	if _, err := r.RevokeToken(t.Context(), capability.Principal{ID: "test"}, "gone"); err != nil {
		t.Fatal(err)
	}
	const yes, ask, no = "yes", "ask", "no"
	for creator, want := range map[string][3]string{ // reads a secret, reads, writes
		"admin:boss":         {yes, yes, yes},
		"agent:wide":         {yes, yes, ask},
		"agent:narrow":       {no, yes, ask},
		"agent:gone":         {no, no, no},
		"agent:oidc/someone": {yes, yes, ask},
		"":                   {no, no, no},
	} {
		session := token(capability.RoleTask, "", policy.ActsFor(creator))
		for i, c := range []capability.Contribution{
			{Effect: capability.EffectRead, Tags: []string{"secret"}}, {Effect: capability.EffectRead}, {Effect: capability.EffectWrite},
		} {
			v, got := r.Authorize(session, entry(t, c)), no
			switch {
			case v.Permitted && v.Consent == "":
				got = yes
			case v.Permitted:
				got = ask
			}
			if got != want[i] {
				t.Errorf("for %q, %d: %s, want %s (%+v)", creator, i, got, want[i], v)
			}
		}
	}
}
