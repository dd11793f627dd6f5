package endpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

// pair is two registries on one store; each has its own secrets.
func pair(t *testing.T) (a, b *rig) {
	t.Helper()
	url := pgtest.Start(t).Database(t)
	open := func() *rig {
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: url, Password: secret.New(pgtest.Password)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return newRigOn(t, db, &vault{m: make(map[string]string)}, nil)
	}
	return open(), open()
}

func (r *rig) keep(id string, h *host, tune func(*endpoint.Request)) {
	r.Helper()
	req := endpoint.Request{ID: id, BaseURL: h.url(), By: admin(), Persist: true}
	if tune != nil {
		tune(&req)
	}
	if _, _, err := r.Connect(r.Context(), req); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) refresh() {
	r.Helper()
	if err := r.Refresh(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) ready(id string) {
	r.Helper()
	r.eventually(id+" is ready", func() bool { return r.state(id) == capability.StateReady })
}

func TestWhatAnotherServerConnectsIsTakenOver(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	h, said := scripted(t, manifest("one", oneAction), manifest("two", oneAction))
	a.keep("far", h, nil)
	if _, err := b.Show("far"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Fatalf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	b.refresh()
	if s, err := b.Show("far"); err != nil || !slices.Equal(s.Modules, []string{"one", "two"}) || !s.Persisted {
		t.Errorf(`what it was seen with last is not there at once: %+v %v; want no error, s.Modules = []string{"one", "two"}, `+
			"s.Persisted = true", s, err)
	}
	b.ready("far")
	b.must("one:action:GO", `{}`)
	events := b.events(audit.EndpointConnected)
	b.refresh() // nothing new
	b.ready("far")
	if events != 1 || b.events(audit.EndpointConnected) != 1 {
		t.Errorf("%d connects on record; want events = 1, b.events(audit.EndpointConnected) = 1", events)
	}

	// Connected again with less allowed. Before b knows, it saves what it sees: that
	// must not bring back what was allowed before.
	a.keep("far", h, func(r *endpoint.Request) { r.AllowedModules = []string{"one"} })
	said.offer(manifest("one", oneAction+`,"priority":2`), manifest("two", oneAction))
	if _, err := b.Sync(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	saved, err := endpoint.NewSQLStore(a.db.SQL()).Endpoints(t.Context())
	if err != nil || len(saved) != 1 || !slices.Equal(saved[0].AllowedModules, []string{"one"}) {
		t.Fatalf(`%+v %v; want no error, len(saved) = 1, saved[0].AllowedModules = []string{"one"}`, saved, err)
	}
	b.must("two:action:GO", `{}`)
	b.refresh()
	b.ready("far")
	if _, err := b.call("two:action:GO", `{}`); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("a module that is no longer allowed: %v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
	b.must("one:action:GO", `{}`)

	// Disconnected elsewhere: it does not come back by what b saves, and is gone.
	if err := a.Disconnect(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	said.offer(manifest("one", oneAction+`,"priority":3`))
	if _, err := b.Sync(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	b.refresh()
	if list := b.List(); len(list) != 0 {
		t.Errorf("%+v; want len(list) = 0", list)
	}
	if _, err := b.call("one:action:GO", `{}`); capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
	if a.refresh(); len(a.List()) != 0 {
		t.Error("it came back; want len(a.List()) = 0")
	}
}

func TestWhatIsConnectedHereAloneStays(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	mine, _ := scripted(t, manifest("mine", oneAction))
	theirs, _ := scripted(t, manifest("theirs", oneAction))
	b.connect("far", mine)
	b.connect("alone", theirs)
	a.keep("far", theirs, nil)
	b.refresh()
	b.must("mine:action:GO", `{}`)
	if list := b.List(); len(list) != 2 || list[1].BaseURL != mine.url() {
		t.Errorf("%+v; want len(list) = 2, list[1].BaseURL = mine.url()", list)
	}
	_ = b.db.Close()
	if err := b.Refresh(t.Context()); err == nil {
		t.Error("a closed store was read; want an error")
	}
	b.must("mine:action:GO", `{}`)
	b.must("theirs:action:GO", `{}`)
	b.halt()
	if err := b.Refresh(t.Context()); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestAnEndpointIsNotAskedWithoutItsToken(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	h := device(t)
	a.keep("far", h, func(r *endpoint.Request) { r.Token = secret.New(token) })
	b.refresh()
	s, err := b.Show("far")
	_, name, told := strings.Cut(s.Reason, "junctor secrets set ")
	if err != nil || s.State != capability.StateUnauthorized || !told || !s.HasToken || b.vault.len() != 0 {
		t.Fatalf("%+v %v; want no error, s.State = capability.StateUnauthorized, told = true, s.HasToken = true, b.vault.len() = 0",
			s, err)
	}
	reports, err := b.Sync(t.Context(), admin(), "far")
	if err != nil || reports[0].Error == nil || reports[0].Error.Reason != "invalid_credentials" ||
		b.state("far") != capability.StateUnauthorized {
		t.Errorf(`%+v %v; want no error, reports[0].Error not nil, reports[0].Error.Reason = "invalid_credentials", `+
			`b.state("far") = capability.StateUnauthorized`, reports, err)
	}
	if err := b.vault.Set(name, []byte(token)); err != nil {
		t.Fatal(err)
	}
	if reports, err = b.Sync(t.Context(), admin(), "far"); err != nil || reports[0].Error != nil {
		t.Errorf("%+v %v; want no error, reports[0].Error = nil", reports[0].Error, err)
	}
	b.ready("far")
	// Gone everywhere, its token too.
	if err := a.Disconnect(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	if b.refresh(); b.vault.len() != 0 || a.vault.len() != 0 {
		t.Error("a token stays; want b.vault.len() = 0, a.vault.len() = 0")
	}
}
