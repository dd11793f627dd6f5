package endpoint_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// The steps of a connect, a sync and a restart at which this test lets them fail.
const (
	atAvailability = "availability"
	atList         = "list"
	atDecode       = "decode"
	atTrust        = "trust"
	atCollision    = "collision"
	atInit         = "init"
	atInitNotOK    = "init not ok"
	atSecret       = "secret write"
	atStore        = "store write"
	atCatalog      = "catalog apply"
)

// stage is a rig with an endpoint "stay" that nothing may disturb, and one whose
// answers fail where the test says.
type stage struct {
	*rig
	host  *host
	say   *answers
	hooks *hooks
	store *failingStore
	fault atomic.Value // where, a string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{store: new(failingStore)}
	s.fault.Store("")
	s.rig = newRig(t, func(c *endpoint.Config) {
		s.store.Store = c.Store
		c.Store = s.store
	})
	stay, _ := scripted(t, manifest("stay", oneAction+`,"routes":[{"method":"GET","path":"/taken"}]`))
	// Saved, so that after a restart its names are its own before any caller answers.
	if _, _, err := s.Connect(t.Context(), endpoint.Request{ID: "stay", BaseURL: stay.url(), Persist: true}); err != nil {
		t.Fatal(err)
	}
	s.host, s.say, s.hooks = living(t)
	s.offerVersion("1")
	inner := s.host.handler
	s.host.stop()
	s.host.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.fault.Load() == atAvailability && req.Method == http.MethodGet {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if s.fault.Load() == atList && req.Method == http.MethodPost {
			body, _ := readAll(req)
			if bytes.Contains(body, []byte("plugin.modules.list")) {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			req.Body = readCloser{bytes.NewReader(body)}
		}
		inner.ServeHTTP(w, req)
	})
	s.host.start()
	return s
}

// offerVersion offers three modules, two of them with hooks.
func (s *stage) offerVersion(v string, more ...string) {
	p := `"priority":` + v
	s.say.offer(append([]string{
		withHooks("first", p, "init", "dispose"), manifest("middle", oneAction+","+p), withHooks("last", p, "init", "dispose"),
	}, more...)...)
}

// arm makes the next attempt fail there; version is what it would bring.
func (s *stage) arm(at, version string) {
	s.offerVersion(version)
	switch at {
	case atDecode:
		s.offerVersion(version, manifest("broken", `"actions":"none"`))
	case atCollision:
		s.offerVersion(version, manifest("robber", `"routes":[{"method":"GET","path":"/taken"}]`))
	case atInit:
		s.hooks.set("init last", "error")
	case atInitNotOK:
		s.hooks.set("init last", "not ok")
	case atSecret:
		s.vault.full.Store(true)
	case atStore:
		s.store.broken.Store(true)
	case atCatalog:
		s.broken.Store(true)
	}
	s.fault.Store(at)
}

func (s *stage) disarm(version string) {
	s.fault.Store("")
	s.hooks.set("init last", "")
	s.vault.full.Store(false)
	s.store.broken.Store(false)
	s.broken.Store(false)
	s.offerVersion(version)
}

func (s *stage) try(id string) error {
	req := endpoint.Request{ID: id, BaseURL: s.host.url(), Token: secret.New("new token"), Persist: true, By: admin()}
	if s.fault.Load() == atTrust {
		req.TrustPolicy = &router.TrustPolicy{RequireSignedProvenance: true}
	}
	_, _, err := s.Connect(s.Context(), req)
	return err
}

// world is everything that a failure must leave alone.
type world struct {
	Entries, Endpoints []string
	Etag               string // "" where the state of an endpoint may differ
	Saved              string
	Secrets            map[string]string
	Watchers           int
	Started            map[string]bool
}

func (s *stage) world(states bool) world {
	s.Helper()
	s.eventually("each endpoint has its watcher, and no other is left", func() bool { return watchers() == len(s.List()) })
	snap := s.catalog.Snapshot()
	w := world{Secrets: make(map[string]string), Watchers: watchers(), Started: s.hooks.started()}
	if states {
		w.Etag = snap.Etag
	}
	for e := range snap.Entries() {
		w.Entries = append(w.Entries, string(e.ID)+" "+e.Module.Digest)
	}
	for _, st := range s.List() {
		w.Endpoints = append(w.Endpoints, st.ID+" "+st.BaseURL)
	}
	saved, err := endpoint.NewSQLStore(s.db.SQL()).Endpoints(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	doc, err := json.Marshal(saved)
	if err != nil {
		s.Fatal(err)
	}
	w.Saved = string(doc)
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	maps.Copy(w.Secrets, s.vault.m)
	return w
}

// started is what the endpoint's own modules believe.
func (h *hooks) started() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.up)
}

// watchers counts the goroutines that watch endpoints. The tests that use it are
// not parallel, so they see their own only.
func watchers() int {
	buf := make([]byte, 4<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte("(*Registry).watching("))
}

// Whatever fails on the way of a connect leaves everything as it was: catalog,
// store, secrets, watchers, and the modules on the other side.
func TestAConnectThatFailsAnywhereLeavesNothing(t *testing.T) { //nolint:paralleltest // counts goroutines
	faults := []struct {
		at   string
		code capability.Code
	}{
		{atAvailability, capability.CodeFailed},
		{atList, capability.CodeFailed},
		{atDecode, capability.CodeFailed},
		{atTrust, capability.CodeDenied},
		{atCollision, capability.CodeConflict},
		{atInit, capability.CodeFailed},
		{atInitNotOK, capability.CodeFailed},
		{atSecret, capability.CodeInternal},
		{atStore, capability.CodeInternal},
		{atCatalog, capability.CodeInternal},
	}
	for _, way := range []struct {
		name string
		set  func(s *stage) error
		id   string
	}{
		{"new", func(*stage) error { return nil }, "e"},
		{"again", func(s *stage) error { return s.try("e") }, "e"},
		{"under another id", func(s *stage) error { return s.try("e") }, "f"},
		{"in place of another server", func(s *stage) error {
			other, _ := scripted(s.TB, manifest("elsewhere", oneAction))
			_, _, err := s.Connect(s.Context(), endpoint.Request{ID: "e", BaseURL: other.url(), Token: secret.New("old token"), Persist: true})
			return err
		}, "e"},
	} {
		for _, f := range faults {
			t.Run(way.name+"/"+f.at, func(t *testing.T) { //nolint:paralleltest // counts goroutines
				s := newStage(t)
				if err := way.set(s); err != nil {
					t.Fatal(err)
				}
				before := s.world(true)
				s.arm(f.at, "2")
				if how := map[string]string{atInit: "error, once", atInitNotOK: "not ok, once"}[f.at]; how != "" {
					s.hooks.set("init last", how) // the old one starts again
				}
				err := s.try(way.id)
				if capability.CodeOf(err) != f.code {
					t.Errorf("%v; want capability.CodeOf(err) = %v", err, f.code)
				}
				if f.at == atCatalog { // the state meanwhile could not be published either
					s.broken.Store(false)
				}
				if d := cmp.Diff(before, s.world(true)); d != "" {
					t.Errorf("diff (-want +got):\n%s", d)
				}
				s.must("stay:action:GO", `{}`)
				s.disarm("2")
				if err := s.try(way.id); err != nil {
					t.Fatalf("it does not mend: %v", err)
				}
				s.must("last:action:GO", `{}`)
			})
		}
	}
}

// A sync that fails before anything is started leaves what was; one that cannot
// start a module leaves out that module and no other.
func TestASyncThatFailsAnywhereLeavesNothingHalf(t *testing.T) { //nolint:paralleltest // counts goroutines
	for _, at := range []string{atAvailability, atList, atDecode, atCollision, atInit, atInitNotOK, atStore, atCatalog} {
		t.Run(at, func(t *testing.T) { //nolint:paralleltest // counts goroutines
			s := newStage(t)
			if err := s.try("e"); err != nil {
				t.Fatal(err)
			}
			before := s.world(false)
			s.arm(at, "2")
			reports, err := s.Sync(t.Context(), admin(), "e")
			if err != nil {
				t.Fatal(err)
			}
			after := s.world(false)
			switch at {
			case atInit, atInitNotOK:
				if len(reports[0].Sync.Failed) != 1 || s.hooks.started()["last"] {
					t.Errorf("%+v", reports[0])
				}
				_, err := s.call("last:action:GO", `{}`)
				fails(t, err, capability.CodeUnknownCapability, "")
				s.must("first:action:GO", `{}`)
				s.must("middle:action:GO", `{}`)
			case atStore: // what is shown while it is down is older; the next sync saves it
				if reports[0].Error != nil || after.Saved != before.Saved {
					t.Errorf("%+v; want reports[0].Error = nil, after.Saved = %v", reports[0], before.Saved)
				}
				s.disarm("2")
				if _, err := s.Sync(t.Context(), admin(), "e"); err != nil || s.world(false).Saved == before.Saved {
					t.Errorf("it is not saved later; want no error, s.world(false).Saved other than %v", before.Saved)
				}
			default:
				if reports[0].Error == nil {
					t.Errorf("%+v; want reports[0].Error not nil", reports[0])
				}
				if d := cmp.Diff(before, after); d != "" {
					t.Errorf("diff (-want +got):\n%s", d)
				}
			}
			s.must("stay:action:GO", `{}`)
			s.disarm("2")
			s.eventually("it mends", func() bool {
				_, err := s.Sync(t.Context(), admin(), "e")
				return err == nil && s.state("e") == capability.StateReady
			})
			if w := s.world(false); w.Watchers != before.Watchers || len(w.Entries) != len(before.Entries) || !w.Started["last"] {
				t.Errorf("%+v", w)
			}
			s.must("last:action:GO", `{}`)
		})
	}
}

// A restart that fails anywhere shows an endpoint as it was or not at all, keeps
// what is saved, and repairs by itself.
func TestARestartThatFailsAnywhereLeavesNothingHalf(t *testing.T) { //nolint:paralleltest // counts goroutines
	for _, at := range []string{
		atAvailability, atList, atDecode, atCollision, atInit, atInitNotOK, atStore, atCatalog, "store read",
		"secret read",
	} {
		t.Run(at, func(t *testing.T) { //nolint:paralleltest // counts goroutines
			s := newStage(t)
			if err := s.try("e"); err != nil {
				t.Fatal(err)
			}
			before := s.world(false)
			s.halt()
			version := "1"
			if at == atStore || at == atCollision {
				version = "2" // or there is nothing to save, and nothing new to collide
			}
			s.arm(at, version)
			s.vault.refuse.Store(at == atCatalog)
			if at == "secret read" {
				clear(s.vault.m)
				before.Secrets = map[string]string{}
			}
			store := &unreadable{failingStore: s.store}
			store.broken = at == "store read"
			s.rig = newRigOn(t, s.db, s.vault, func(c *endpoint.Config) {
				c.Store = store
			})
			asked := func() bool {
				return !slices.ContainsFunc(s.List(), func(st endpoint.Status) bool { return st.State == capability.StateStarting })
			}
			if at != atCatalog && at != "store read" {
				s.eventually("all were asked", asked)
				s.eventually("the other is not touched", func() bool { _, err := s.call("stay:action:GO", `{}`); return err == nil })
			}
			after := s.world(false)
			for _, module := range []string{"first", "middle", "last"} {
				// Each has an action; two have hooks besides. All of it, or nothing.
				n := 0
				for e := range s.catalog.Snapshot().Entries() {
					if e.Module.ID == module {
						n++
					}
				}
				if want := map[string]int{"first": 3, "middle": 1, "last": 3}[module]; n != 0 && n != want {
					t.Errorf("%d of %d entries of %s; want not (n != 0 && n != want)", n, want, module)
				}
			}
			saved := before.Saved == after.Saved
			if at == atInit || at == atInitNotOK { // what is saved is what it offers now
				saved = true
				_, err := s.call("last:action:GO", `{}`)
				fails(t, err, capability.CodeUnknownCapability, "")
			}
			if !saved || !cmp.Equal(before.Secrets, after.Secrets) {
				t.Errorf("what is saved changed: %s; want saved = true, cmp.Equal(before.Secrets, after.Secrets)",
					cmp.Diff(before, after))
			}
			if at == "store read" || at == "secret read" {
				return // an operator has to repair it
			}
			s.disarm(version)
			s.eventually("it mends", func() bool {
				_, _ = s.Sync(t.Context(), admin(), "")
				_, err := s.call("last:action:GO", `{}`)
				return err == nil && s.state("e") == capability.StateReady
			})
			if !s.hooks.started()["last"] {
				t.Error("it is not started")
			}
		})
	}
}

type unreadable struct {
	*failingStore
	broken bool
}

func (s *unreadable) Endpoints(ctx context.Context) ([]endpoint.Saved, error) {
	if s.broken {
		return nil, errors.New("the disk is gone")
	}
	return s.failingStore.Endpoints(ctx)
}
