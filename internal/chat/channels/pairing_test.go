package channels_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
)

func TestOperatorPairsNoOneAsAnotherPrincipal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	bob, _, err := r.policy.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleOperator, Name: "bob"})
	must(t, "make a token", err)
	create := func(name string) {
		t.Helper()
		_, _, err := r.policy.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent, Name: name})
		must(t, "make a token", err)
	}
	create("alice")
	create("ended")
	create("telegram.work.4")
	_, err = r.policy.RevokeToken(t.Context(), admin, "ended")
	must(t, "revoke a token", err)
	_, err = r.policy.SignIn(t.Context(), policy.Person{Identity: "00aa", Name: "eve", Role: capability.RoleAgent}, time.Now().Add(time.Hour))
	must(t, "sign in", err)
	pair := func(by capability.Principal, name, user string) (channels.Pairing, error) {
		return r.Pair(t.Context(), by, work, capability.RoleAgent, name, user)
	}
	for name, user := range map[string]string{"alice": "3", "ended": "3", "oidc-eve-00aa": "3", "oidc-new": "3", "bob": "3", "": "4"} {
		if got, err := pair(bob.Principal(), name, user); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("an operator pairs %s as %q: got %+v, %v; want denied", user, name, got, err)
		}
		if name == "" {
			continue
		}
		if got, err := pair(bob.Principal(), name, ""); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("an operator makes a code for %q: got %+v, %v; want denied", name, got, err)
		}
	}
	// A token may be made while the code is open.
	code, err := pair(bob.Principal(), "carl", "")
	must(t, "make a code", err)
	create("carl")
	r.tg.Write(5, 5, "/pair "+code.Code)
	r.eventually("the code is refused", func() bool {
		return slices.ContainsFunc(r.tg.Sent(), func(m faketelegram.Message) bool { return strings.HasPrefix(m.Text, "You are not paired: ") })
	})
	paired := func(principal string) {
		t.Helper()
		got, ok := r.policy.Find(principal)
		if want := []string{policy.PairedBy + "operator:bob"}; !ok || !slices.Equal(got.Labels, want) {
			t.Errorf("the principal %s: got %+v (%t), want the labels %q", principal, got, ok, want)
		}
	}
	_, err = pair(bob.Principal(), "", "6")
	must(t, "pair by an operator", err)
	paired("agent:telegram.work.6")
	code, err = pair(bob.Principal(), "dora", "")
	must(t, "make a code", err)
	r.tg.Write(7, 7, "/pair "+code.Code)
	r.eventually("the code is used", func() bool { _, ok := r.policy.Find("agent:dora"); return ok })
	paired("agent:dora")
	got, err := pair(admin, "alice", "3")
	if err != nil || got.Person == nil || got.Person.Principal != "agent:alice" {
		t.Errorf("an admin pairs 3 as alice: got %+v, %v; want agent:alice", got, err)
	}
}
