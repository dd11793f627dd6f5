package policy_test

import (
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// signIn signs a person in for an hour.
func (r *rig) signIn(t *testing.T, name string, role capability.Role) policy.Token {
	t.Helper()
	token, err := r.SignIn(t.Context(), policy.Person{Identity: "00112233aabb", Name: name, Role: role}, r.now().Add(time.Hour))
	if err != nil {
		t.Fatalf("signing %s in: got %v, want no error", name, err)
	}
	return token
}

func TestAPersonKeepsOnePrincipalWhoseTokenEndsWithTheSignIn(t *testing.T) {
	t.Parallel()
	r := open(t)
	first := r.signIn(t, "Ann <b>@Example.org", capability.RoleOperator)
	const want = "operator:oidc-ann__b_@example.org-00112233aabb"
	if got := first.Principal().ID; got != want {
		t.Errorf("the principal is %s, want %s", got, want)
	}
	r.at.Add(int64(30 * time.Minute))
	again := r.signIn(t, "ann.married@example.org", capability.RoleOperator)
	if again.ID != first.ID || again.Name != first.Name || !again.Expires.Equal(r.now().Add(time.Hour)) {
		t.Errorf("a second sign-in, of another name: got %+v, want the token %s, an hour longer", again, first.ID)
	}
	r.at.Add(int64(2 * time.Hour))
	if _, err := r.Standing(first.Principal().ID); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("after the sign-in ended: got %v, want unauthenticated", err)
	}
	r.signIn(t, "ann", capability.RoleOperator)
	if _, err := r.Standing(first.Principal().ID); err != nil {
		t.Errorf("after the next sign-in: got %v, want the same principal", err)
	}
}

func TestAnotherRoleEndsWhatWasSignedInBefore(t *testing.T) {
	t.Parallel()
	r := open(t)
	before := r.signIn(t, "ann", capability.RoleAdmin)
	_, value, err := r.Credential(t.Context(), before, r.now().Add(time.Hour))
	if err != nil {
		t.Fatalf("a credential: got %v, want no error", err)
	}
	after := r.signIn(t, "ann", capability.RoleAgent)
	if got := after.Principal().ID; got != "agent:oidc-ann-00112233aabb" {
		t.Errorf("with another role the principal is %s, want agent:oidc-ann-00112233aabb", got)
	}
	if _, err := r.Authenticate(value.Reveal()); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("the credential from before: got %v, want unauthenticated", err)
	}
	if _, ok := r.StandingToken(before.ID); ok {
		t.Error("the token with the former role stands, want it revoked")
	}
	if ended, err := r.EndSignIns(t.Context(), "00112233aabb"); err != nil || !ended {
		t.Errorf("ending the person's sign-ins: got %v, %v, want true", ended, err)
	}
	if ended, err := r.EndSignIns(t.Context(), "00112233aabb"); err != nil || ended {
		t.Errorf("ending them again: got %v, %v, want false", ended, err)
	}
}

func TestACredentialIsThePersonItself(t *testing.T) {
	t.Parallel()
	r := open(t)
	person := r.signIn(t, "ann", capability.RoleOperator)
	_, value, err := r.Credential(t.Context(), person, r.now().Add(time.Hour))
	if err != nil {
		t.Fatalf("a credential: got %v, want no error", err)
	}
	_, second, err := r.Credential(t.Context(), person, r.now().Add(time.Hour))
	if err != nil {
		t.Fatalf("a second credential: got %v, want no error", err)
	}
	who, err := r.Authenticate(value.Reveal())
	if err != nil || who.ID != person.Principal().ID || who.OnBehalfOf != "" || who.Role != capability.RoleOperator {
		t.Errorf("the credential is of %+v, %v; want %s itself", who, err, person.Principal().ID)
	}
	if got, err := r.Token(value.Reveal()); err != nil || got.ID != person.ID {
		t.Errorf("the token of the credential: got %s, %v, want %s", got.ID, err, person.ID)
	}
	assistant, err := r.Assistant(t.Context(), who)
	if err != nil || assistant.OnBehalfOf != who.ID {
		t.Errorf("the assistant of a person: got %+v, %v, want one on behalf of %s", assistant, err, who.ID)
	}
	if got, err := r.RevokeCredential(t.Context(), value.Reveal()); err != nil || got.ID != who.ID {
		t.Errorf("revoking the credential: got %v, %v, want %s", got.ID, err, who.ID)
	}
	if _, err := r.Authenticate(value.Reveal()); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("a revoked credential: got %v, want unauthenticated", err)
	}
	if _, err := r.Authenticate(second.Reveal()); err != nil {
		t.Errorf("the other credential: got %v, want no error", err)
	}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatalf("Refresh: got %v, want no error", err)
	}
	if got, err := r.Authenticate(second.Reveal()); err != nil || got.ID != who.ID {
		t.Errorf("after reading the store again: got %s, %v, want %s", got.ID, err, who.ID)
	}
	if _, err := r.RevokeToken(t.Context(), who, person.ID); err != nil {
		t.Fatalf("revoking the person's token: got %v, want no error", err)
	}
	if _, err := r.Authenticate(second.Reveal()); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("a credential of a person whose token was revoked: got %v, want unauthenticated", err)
	}
	if next := r.signIn(t, "ann", capability.RoleOperator); next.ID == person.ID || next.Name != person.Name {
		t.Errorf("after a revocation: got %+v, want another token with the name %s", next, person.Name)
	}
}

func TestOrdinaryTokensAreNotTakenForPeople(t *testing.T) {
	t.Parallel()
	r := open(t)
	_, _, err := r.CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{
		Role: capability.RoleOperator, Name: "oidc-ann-00112233aabb",
	})
	if capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a token with the name of a person: got %v, want invalid_input", err)
	}
	_, value, err := r.CreateToken(t.Context(), who(capability.RoleAdmin), policy.TokenRequest{Role: capability.RoleOperator, Name: "ann"})
	if err != nil {
		t.Fatalf("an ordinary token: got %v, want no error", err)
	}
	if _, err := r.RevokeCredential(t.Context(), value.Reveal()); capability.AsError(err).Reason != "not_signed_in" {
		t.Errorf("signing an ordinary token out: got %v, want the reason not_signed_in", err)
	}
	if _, err := r.Authenticate(value.Reveal()); err != nil {
		t.Errorf("the ordinary token afterwards: got %v, want no error", err)
	}
}
