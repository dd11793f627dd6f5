package endpoint_test

import (
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/secret"
)

func markOf(gateway string) managed.Mark {
	return managed.Mark{File: "config.d/a.yaml", Gateway: gateway}
}

func (r *rig) declare(id, spec string) error {
	return r.Declare(r.Context(), admin(), markOf("one"), id, []byte(spec))
}

func TestADeclaredEndpointIsChangedByItsFileOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h := device(t)
	r.vault.m["far-token"] = token
	spec := `{"url":"` + h.url() + `","token_secret":"far-token","allowed_modules":["field-notes"]}`
	if err := r.declare("far", spec); err != nil {
		t.Fatalf("declaring: %v", err)
	}
	s, err := r.Show("far")
	if err != nil || s.Managed == nil || *s.Managed != markOf("one") || !s.HasToken || !s.Persisted || !slices.Equal(s.Modules, []string{"field-notes"}) {
		t.Errorf("Show = %+v, %v; want it with its mark, its token and one module", s, err)
	}
	if r.vault.len() != 1 {
		t.Errorf("%d secrets, want only that of the user", r.vault.len())
	}

	ctx := t.Context()
	_, _, same := r.Connect(ctx, endpoint.Request{ID: "far", BaseURL: h.url(), Token: secret.New(token), By: admin()})
	_, _, url := r.Connect(ctx, endpoint.Request{ID: "other", BaseURL: h.url(), Token: secret.New(token), By: admin()})
	for what, err := range map[string]error{"disconnect": r.Disconnect(ctx, admin(), "far"), "same id": same, "same URL": url} {
		const want = "the endpoint far is managed by config.d/a.yaml; change it there"
		if e := fails(t, err, capability.CodeConflict, managed.Reason); e.Message != want {
			t.Errorf("%s: %q, want %q", what, e.Message, want)
		}
	}
	fails(t, r.declare("twin", spec), capability.CodeConflict, managed.Reason)

	// Twice changes nothing; another value of the secret, or another member, does.
	d, err := r.Compare(markOf("two"), "far", []byte(spec))
	if err != nil || !d.Exists || len(d.Members) != 0 {
		t.Errorf("Compare = %+v, %v; want no difference", d, err)
	}
	_ = r.vault.Set("far-token", []byte("another"))
	if d, _ := r.Compare(markOf("one"), "far", []byte(spec)); !slices.Equal(d.Members, []string{"token"}) {
		t.Errorf("Compare = %+v; want the token", d)
	}
	_ = r.vault.Set("far-token", []byte(token))
	all := `{"url":"` + h.url() + `","token_secret":"far-token"}`
	if d, _ := r.Compare(markOf("one"), "far", []byte(all)); !slices.Equal(d.Members, []string{"allowed_modules"}) {
		t.Errorf("Compare = %+v; want allowed_modules", d)
	}
	if err := r.declare("far", all); err != nil {
		t.Fatalf("declaring a change: %v", err)
	}
	if s, _ := r.Show("far"); len(s.Modules) != 2 {
		t.Errorf("modules %v, want both", s.Modules)
	}

	if err := r.Withdraw(ctx, admin(), "two", "far"); err != nil || r.Declared("one")["far"] != "config.d/a.yaml" {
		t.Errorf("another gateway: %v, %v; want the endpoint to stay", err, r.Declared("one"))
	}
	for range 2 {
		if err := r.Withdraw(ctx, admin(), "one", "far"); err != nil || len(r.List()) != 0 {
			t.Errorf("withdrawing: %v and %d endpoints, want none", err, len(r.List()))
		}
	}
	if r.vault.len() != 1 {
		t.Errorf("%d secrets, want that of the user", r.vault.len())
	}
}

func TestAFileTakesNoEndpointOfAUser(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h := device(t)
	r.connect("far", h)
	spec := `{"url":"` + h.url() + `"}`
	for _, id := range []string{"far", "other"} {
		fails(t, r.declare(id, spec), capability.CodeConflict, managed.Reason)
	}
	if s, err := r.Show("far"); err != nil || s.Managed != nil {
		t.Errorf("Show = %+v, %v; want it as it was", s, err)
	}
}

func TestADeclaredEndpointThatIsAwayIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h := device(t)
	h.stop()
	spec := `{"url":"` + h.url() + `","token_secret":"far-token"}`
	if err := r.declare("far", spec); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("without its secret: %v, want unavailable", err)
	}
	_ = r.vault.Set("far-token", []byte(token))
	if err := r.declare("far", spec); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("while it is away: %v, want unavailable", err)
	}
	r.halt()

	again := newRigOn(t, r.db, r.vault, nil)
	if d, err := again.Compare(markOf("one"), "far", []byte(spec)); err != nil || !d.Exists || len(d.Members) != 0 {
		t.Errorf("Compare after a restart = %+v, %v; want no difference", d, err)
	}
	h.start()
	again.eventually("it is ready", func() bool { return again.state("far") == capability.StateReady })

	// An address that does not answer replaces the one that did.
	moved := `{"url":"http://127.0.0.1:1","token_secret":"far-token"}`
	if err := again.declare("far", moved); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("at another address: %v, want unavailable", err)
	}
	if s, err := again.Show("far"); err != nil || s.BaseURL != "http://127.0.0.1:1" || s.Managed == nil || len(s.Modules) != 0 {
		t.Errorf("Show = %+v, %v; want the new address without modules", s, err)
	}
	if again.vault.len() != 1 {
		t.Errorf("%d secrets, want that of the user", again.vault.len())
	}
}

func TestWrongDeclarationsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for name, spec := range map[string]string{
		"nothing": `{}`, "unknown member": `{"url":"http://127.0.0.1:1","urll":1}`, "a secret": `{"url":"http://127.0.0.1:1","token_secret":"a b"}`,
		"a timeout": `{"url":"http://127.0.0.1:1","timeout_ms":-1}`, "a URL": `{"url":"ftp://x"}`,
		"a provider": `{"url":"http://127.0.0.1:1","provider":"x"}`, "no module": `{"url":"http://127.0.0.1:1","allowed_modules":[]}`,
		"a rule": `{"url":"http://127.0.0.1:1","trust_policy":{"requireEverything":true}}`,
	} {
		if err := r.declare("far", spec); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: got %v, want invalid_input", name, err)
		}
	}
	if err := r.declare("node:x", `{"url":"http://127.0.0.1:1"}`); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("an id of nodes: got %v, want invalid_input", err)
	}
	if got := len(r.List()); got != 0 {
		t.Errorf("%d endpoints, want none", got)
	}
}
