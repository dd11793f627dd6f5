package endpoint_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/secret"
)

func TestSavedEndpointsComeBackWithTheirTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, gone := device(t), device(t)
	for _, req := range []endpoint.Request{
		{ID: "home:1", BaseURL: h.url(), Persist: true, AllowedModules: []string{"field-notes"}, Timeout: 7 * time.Second},
		{ID: "home.1", BaseURL: gone.url(), Persist: true, AllowedModules: []string{"device-tools"}},
	} {
		req.Token, req.By = secret.New(token), admin()
		if _, _, err := r.Connect(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	unsaved, _ := scripted(t, manifest("u", oneAction))
	r.connect("unsaved", unsaved)
	if r.vault.len() != 2 {
		t.Errorf("two endpoints share a token: %v; want r.vault.len() = 2", r.vault.m)
	}
	r.halt()
	gone.stop()

	again := newRigOn(t, r.db, r.vault, nil)
	again.eventually("the notes are back", func() bool { return again.state("home:1") == capability.StateReady })
	again.must("field-notes:action:NOTE_ADD", `{"text":"still here"}`)
	s, err := again.Show("home:1")
	if err != nil || !s.Persisted || !s.HasToken || !slices.Equal(s.Modules, []string{"field-notes"}) {
		t.Errorf(`%+v %v; want no error, s.Persisted = true, s.HasToken = true, s.Modules = []string{"field-notes"}`, s, err)
	}
	if e, ok := again.catalog.Snapshot().Capability("remote.field-notes/action.NOTE_ADD#ext.remote.field-notes.action.NOTE_ADD@home%3A1"); !ok || e.Contribution.Timeout != 7*time.Second {
		t.Errorf("its timeout is lost: %v; want ok = true, e.Contribution.Timeout = 7 * time.Second", ok)
	}
	again.eventually("the other one is found missing", func() bool { return again.state("home.1") == capability.StateUnavailable })
	if s, _ := again.Show("home.1"); !strings.Contains(s.Reason, "reached") {
		t.Errorf(`the reason is %q; want s.Reason with "reached"`, s.Reason)
	}
	gone.start()
	again.eventually("it is back", func() bool { return again.state("home.1") == capability.StateReady })
	if _, err := again.Show("unsaved"); err == nil {
		t.Error("one that was not saved came back; want an error")
	}
	if err := again.Disconnect(t.Context(), admin(), "home:1"); err != nil {
		t.Fatal(err)
	}
	if again.vault.len() != 1 {
		t.Errorf("%v; want again.vault.len() = 1", again.vault.m)
	}
	for name := range again.vault.m {
		_ = again.vault.Remove(name)
	}
	if err := again.Disconnect(t.Context(), admin(), "home.1"); err != nil {
		t.Errorf("a token that is gone already keeps its endpoint: %v", err)
	}
}

func TestATokenThatIsNoLongerUsedIsNotKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("one", oneAction))
	for i, tok := range []string{"first", "", "second"} {
		if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "a", BaseURL: h.url(), Token: secret.New(tok), Persist: true}); err != nil {
			t.Fatal(err)
		}
		if want := (i + 1) % 2; r.vault.len() != want {
			t.Errorf("%d tokens after %q; want r.vault.len() = %v", r.vault.len(), tok, want)
		}
	}
}

// A store that fails leaves the endpoint that was there, and its token.
func TestAConnectThatCannotBeSavedChangesNothing(t *testing.T) {
	t.Parallel()
	var failing failingStore
	r := newRig(t, func(c *endpoint.Config) {
		failing.Store = c.Store
		c.Store = &failing
	})
	first, _ := scripted(t, manifest("one", oneAction))
	second, _ := scripted(t, manifest("two", oneAction))
	connect := func(h *host, tok string) error {
		_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "a", BaseURL: h.url(), Token: secret.New(tok), Persist: true})
		return err
	}
	if err := connect(first, "first"); err != nil {
		t.Fatal(err)
	}
	etag := r.catalog.Snapshot().Etag
	failing.broken.Store(true)
	if err := connect(second, "second"); err == nil {
		t.Fatal("it was connected; want an error")
	}
	saved, err := failing.Endpoints(t.Context())
	if err != nil || len(saved) != 1 || saved[0].BaseURL != first.url() || len(r.vault.m) != 1 || r.vault.m[saved[0].TokenName] != "first" {
		t.Errorf("%+v %v %v; want no error, len(saved) = 1, saved[0].BaseURL = first.url(), len(r.vault.m) = 1, "+
			`r.vault.m[saved[0].TokenName] = "first"`, saved, r.vault.m, err)
	}
	if r.catalog.Snapshot().Etag != etag {
		t.Errorf("the catalog changed; want r.catalog.Snapshot().Etag = %v", etag)
	}
	r.must("one:action:GO", `{}`)
}

type failingStore struct {
	endpoint.Store
	broken atomic.Bool
}

func (s *failingStore) SaveEndpoint(ctx context.Context, e endpoint.Saved) error {
	if s.broken.Load() {
		return errors.New("disk full")
	}
	return s.Store.SaveEndpoint(ctx, e)
}

func (s *failingStore) SaveOffer(ctx context.Context, e endpoint.Saved) error {
	if s.broken.Load() {
		return errors.New("disk full")
	}
	return s.Store.SaveOffer(ctx, e)
}

func TestTheStoreKeepsTheOrderOfConnection(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	for name, r := range map[string]*rig{"SQLite": newRig(t, nil), "Postgres": a} {
		t.Run(name, func(t *testing.T) { keepsTheOrder(t, endpoint.NewSQLStore(r.db.SQL())) })
	}
}

func keepsTheOrder(t *testing.T, s *endpoint.SQLStore) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []endpoint.Saved{
		{ID: "z", BaseURL: "http://z", Provider: "direct", Connected: at},
		{
			ID: "m", BaseURL: "http://m", Provider: "e2b", TokenName: "endpoint.m.token", AllowedModules: []string{"x"}, Timeout: time.Second,
			Connected: at.Add(1),
		},
		{ID: "a", BaseURL: "http://a", Provider: "direct", Connected: at.Add(100 * time.Millisecond)},
	}
	for _, i := range []int{2, 0, 1, 1} {
		if err := s.SaveEndpoint(t.Context(), want[i]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Endpoints(t.Context())
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf(`%v %s; want no error, d = ""`, err, d)
	}
	for range 2 {
		if err := s.DeleteEndpoint(t.Context(), "m"); err != nil {
			t.Error(err)
		}
	}
	if got, err = s.Endpoints(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("%+v %v; want no error, len(got) = 2", got, err)
	}
}
