package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestAnAssistantActsForOnePersonAndEndsWithTheirToken(t *testing.T) {
	t.Parallel()
	r := open(t, policy.DefaultRules())
	ann, _ := r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "ann"})
	ben, _ := r.made(t, policy.TokenRequest{Role: capability.RoleAgent, Name: "ben"})
	assistant := func(of capability.Principal) capability.Principal {
		t.Helper()
		who, err := r.Assistant(t.Context(), of)
		if err != nil {
			t.Fatalf("the assistant of %s: got %v, want no error", of.ID, err)
		}
		return who
	}
	first := assistant(ann)
	if again := assistant(ann); again.ID != first.ID {
		t.Errorf("the second time: got %s, want %s", again.ID, first.ID)
	}
	if other := assistant(ben); other.ID == first.ID || other.OnBehalfOf != ben.ID || other.Role != capability.RoleTask {
		t.Errorf("the assistant of ben: got %+v, want another one, of role task, on behalf of %s", other, ben.ID)
	}
	read := entry(t, capability.Contribution{Effect: capability.EffectRead})
	write := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	if v := r.Authorize(first, read); !v.Permitted || v.Consent != "" {
		t.Errorf("a read: got %+v, want it permitted at once", v)
	}
	if v := r.Authorize(first, write); !v.Permitted || v.Consent != policy.ChannelOperator {
		t.Errorf("a write: got %+v, want an approval of an operator", v)
	}

	if _, err := r.RevokeToken(t.Context(), who(capability.RoleAdmin), "ann"); err != nil {
		t.Fatalf("revoke: got %v, want no error", err)
	}
	if v := r.Authorize(first, read); v.Permitted {
		t.Errorf("a read after the person's token ended: got %+v, want it denied", v)
	}
	if _, err := r.Assistant(t.Context(), ann); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("the assistant of a revoked token: got %v, want unauthenticated", err)
	}
	ann, _ = r.made(t, policy.TokenRequest{Role: capability.RoleOperator, Name: "ann"})
	if again := assistant(ann); again.ID != first.ID || !r.Authorize(again, read).Permitted {
		t.Errorf("with a new token: got %+v, want %s again, which may read", again, first.ID)
	}

	for name, of := range map[string]capability.Principal{
		"an assistant":           first,
		"a login of elsewhere":   {ID: "agent:oidc/ann", Role: capability.RoleAgent},
		"a person without token": {ID: "cli", Role: capability.RoleAdmin},
	} {
		if _, err := r.Assistant(t.Context(), of); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("the assistant of %s: got %v, want denied", name, err)
		}
	}
}
