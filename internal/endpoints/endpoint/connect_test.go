package endpoint_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func TestConnectIsAllOrNothing(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + closed.Addr().String()
	_ = closed.Close()
	text := func(status int, body string) string {
		return serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})).url()
	}
	var sent int64
	huge := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, endless{&sent}, 1<<30)
	}))
	var followed atomic.Bool
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	redirect := serve(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, elsewhere.url(), http.StatusTemporaryRedirect)
	}))
	silent := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }))
	badManifest, _ := scripted(t, manifest("m", `"actions":"none"`))
	twice, _ := scripted(t, manifest("m", oneAction), manifest("M", oneAction))
	good := device(t).url()
	tests := []struct {
		name   string
		req    endpoint.Request
		code   capability.Code
		reason string
		says   string
	}{
		{"nobody listens", endpoint.Request{BaseURL: dead}, capability.CodeUnavailable, "connection_failed", "could not be reached"},
		{"wrong token", endpoint.Request{BaseURL: good, Token: secret.New("wrong")}, capability.CodeFailed, "invalid_credentials", ""},
		{"no token", endpoint.Request{BaseURL: good}, capability.CodeFailed, "invalid_credentials", ""},
		{"not JSON", endpoint.Request{BaseURL: text(200, "<html>")}, capability.CodeFailed, "decode_failed", "not JSON"},
		{"another protocol", endpoint.Request{BaseURL: text(404, "no such page")}, capability.CodeFailed, "", "404"},
		{"a redirect", endpoint.Request{BaseURL: redirect.url()}, capability.CodeFailed, "redirect_refused", "redirect"},
		{"an answer without end", endpoint.Request{BaseURL: huge.url()}, capability.CodeTooLarge, "", "limit"},
		{"no answer at all", endpoint.Request{BaseURL: silent.url(), Timeout: 50 * time.Millisecond}, capability.CodeTimeout, "", "in time"},
		{"a broken manifest", endpoint.Request{BaseURL: badManifest.url()}, capability.CodeFailed, "decode_failed", "actions"},
		{"two modules of one id", endpoint.Request{BaseURL: twice.url()}, capability.CodeConflict, "registration_conflict", "twice"},
		{"no URL", endpoint.Request{BaseURL: "example.org"}, capability.CodeInvalidInput, "", "absolute"},
		{"credentials in the URL", endpoint.Request{BaseURL: "http://a:b@127.0.0.1:1"}, capability.CodeInvalidInput, "", "credentials"},
		{"unknown provider", endpoint.Request{BaseURL: good, Provider: "magic"}, capability.CodeInvalidInput, "", "direct"},
		{"nobody allowed", endpoint.Request{BaseURL: good, AllowedModules: []string{}}, capability.CodeInvalidInput, "", "empty"},
		{"bad id", endpoint.Request{BaseURL: good, ID: "a/b"}, capability.CodeInvalidInput, "", "a/b"},
		{"an id of nodes", endpoint.Request{BaseURL: good, ID: "node:x"}, capability.CodeInvalidInput, "", "node:"},
		{"negative timeout", endpoint.Request{BaseURL: good, Timeout: -1}, capability.CodeInvalidInput, "", "negative"},
	}
	r := newRig(t, nil)
	before := r.catalog.Snapshot()
	for _, tt := range tests {
		tt.req.By, tt.req.Persist = admin(), true
		_, _, err := r.Connect(t.Context(), tt.req)
		e := fails(t, err, tt.code, tt.reason)
		if !strings.Contains(e.Message, tt.says) || strings.Contains(e.Error(), "wrong") {
			t.Errorf(`%s: %v; want e.Message with %v, e.Error() without "wrong"`, tt.name, err, tt.says)
		}
		saved, err := endpoint.NewSQLStore(r.db.SQL()).Endpoints(t.Context())
		if err != nil || len(saved) != 0 || len(r.List()) != 0 || r.catalog.Snapshot() != before || r.vault.len() != 0 {
			t.Fatalf("%s left something behind: %v %v %v; want no error, len(saved) = 0, len(r.List()) = 0, "+
				"r.catalog.Snapshot() = %v, r.vault.len() = 0", tt.name, saved, r.List(), err, before)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
	if sent > 64<<20 {
		t.Errorf("%d bytes were read; want sent at most 64 << 20", sent)
	}
	if n := r.events(audit.EndpointConnected); n != 0 {
		t.Errorf("%d connections on record; want n = 0", n)
	}
}

func TestAModuleOfAnotherEndpointIsNotTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first, _ := scripted(t, manifest("tools", oneAction))
	second, _ := scripted(t, manifest("tools", oneAction), manifest("more", oneAction))
	r.connect("one", first)
	before := r.catalog.Snapshot()
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "two", BaseURL: second.url()})
	if e := fails(t, err, capability.CodeConflict, "registration_conflict"); !strings.Contains(e.Message, "endpoint/one") {
		t.Errorf(`e.Message = %q, want it to contain "endpoint/one"`, e.Message)
	}
	if got := r.catalog.Snapshot(); got.Etag != before.Etag || len(r.List()) != 1 {
		t.Errorf("something stayed behind; got got.Etag = %v; want got.Etag = %v, len(r.List()) = 1", got.Etag, before.Etag)
	}
	if out := r.must("tools:action:GO", `{}`); out == "" {
		t.Errorf(`the first one is disturbed; got out = %q; want out other than ""`, out)
	}
	// Without the module that collides it may come in.
	_, synced, err := r.Connect(t.Context(), endpoint.Request{ID: "two", BaseURL: second.url(), AllowedModules: []string{"more"}})
	if err != nil {
		t.Fatal(err)
	}
	want := endpoint.Synced{
		Registered: []string{"more"}, Reloaded: []string{}, Unloaded: []string{}, Skipped: []string{"tools"},
		TrustDecisions: []router.TrustDecision{
			{ModuleID: "more", PluginName: "more", EndpointID: "two", Trusted: true, Reason: "allowed"},
			{ModuleID: "tools", PluginName: "tools", EndpointID: "two", Reason: "module-not-allowed"},
		},
	}
	if d := cmp.Diff(want, synced); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if n := r.events(audit.TrustDecided); n != 3 {
		t.Errorf("%d trust decisions on record; want n = 3", n)
	}
}

func TestReconnectingReplacesByIDAndByURL(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, a := scripted(t, manifest("tools", oneAction), manifest("more", oneAction))
	connect := func(id string, allowed ...string) endpoint.Synced {
		_, synced, err := r.Connect(t.Context(), endpoint.Request{ID: id, BaseURL: h.url(), AllowedModules: allowed, Persist: true})
		if err != nil {
			t.Fatal(err)
		}
		return synced
	}
	if s := connect("a", "tools"); !slices.Equal(s.Registered, []string{"tools"}) {
		t.Errorf(`%+v; want s.Registered = []string{"tools"}`, s)
	}
	if s := connect("a"); !slices.Equal(s.Registered, []string{"more"}) || !slices.Equal(s.Skipped, []string{"tools"}) {
		t.Errorf(`a module that is let in later: %+v; want s.Registered = []string{"more"}, s.Skipped = []string{"tools"}`, s)
	}
	a.offer(manifest("tools", oneAction+`,"priority":3`))
	if s := connect("a"); !slices.Equal(s.Reloaded, []string{"tools"}) || !slices.Equal(s.Unloaded, []string{"more"}) {
		t.Errorf(`%+v; want s.Reloaded = []string{"tools"}, s.Unloaded = []string{"more"}`, s)
	}
	connect("b") // the same URL under another id
	if list := r.List(); len(list) != 1 || list[0].ID != "b" {
		t.Errorf(`%+v; want len(list) = 1, list[0].ID = "b"`, list)
	}
	r.must("tools:action:GO", `{}`)
	saved, err := endpoint.NewSQLStore(r.db.SQL()).Endpoints(t.Context())
	if err != nil || len(saved) != 1 || saved[0].ID != "b" {
		t.Errorf(`%+v %v; want no error, len(saved) = 1, saved[0].ID = "b"`, saved, err)
	}
	// Connected again without being saved, it must not come back as it was.
	if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "b", BaseURL: h.url()}); err != nil {
		t.Fatal(err)
	}
	if saved, err = endpoint.NewSQLStore(r.db.SQL()).Endpoints(t.Context()); err != nil || len(saved) != 0 {
		t.Errorf("%+v %v; want no error, len(saved) = 0", saved, err)
	}
}

func TestUnnamedEndpointsGetTheNextFreeID(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var wg sync.WaitGroup
	for i := range 4 {
		h, _ := scripted(t, manifest(string(rune('a'+i)), oneAction))
		wg.Go(func() {
			if _, _, err := r.Connect(t.Context(), endpoint.Request{BaseURL: h.url()}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e2b, _ := scripted(t, manifest("z", oneAction))
	for range 2 {
		if _, _, err := r.Connect(t.Context(), endpoint.Request{BaseURL: e2b.url() + "/", Provider: "e2b"}); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	for _, s := range r.List() {
		ids = append(ids, s.ID)
	}
	if d := cmp.Diff([]string{"default", "default-2", "default-3", "default-4", "e2b"}, ids); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
}

func TestASilentEndpointHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("tools", oneAction))
	asked := make(chan struct{}, 8)
	silent := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _, _ = r.Connect(ctx, endpoint.Request{ID: "silent", BaseURL: silent.url()}) })
	<-asked
	r.connect("tools", h)
	if _, err := r.Sync(t.Context(), admin(), "tools"); err != nil {
		t.Error(err)
	}
	if err := r.Disconnect(t.Context(), admin(), "tools"); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}

func TestDisconnectWithdrawsExactlyItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	first, _ := scripted(t, manifest("one", oneAction))
	second, _ := scripted(t, manifest("two", oneAction))
	r.connect("a", first)
	alone := r.catalog.Snapshot().Etag
	r.connect("b", second)
	if err := r.Disconnect(t.Context(), admin(), "b"); err != nil {
		t.Fatal(err)
	}
	if r.catalog.Snapshot().Etag != alone {
		t.Errorf("the catalog is not what it was; want r.catalog.Snapshot().Etag = %v", alone)
	}
	r.must("one:action:GO", `{}`)
	_, err := r.call("two:action:GO", `{}`)
	fails(t, err, capability.CodeUnknownCapability, "")
	fails(t, r.Disconnect(t.Context(), admin(), "b"), capability.CodeNotFound, "endpoint_not_found")
	_, err = r.Show("b")
	fails(t, err, capability.CodeNotFound, "endpoint_not_found")
}

func TestSyncReportsEachEndpointOnItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	well, a := scripted(t, manifest("one", oneAction))
	gone, _ := scripted(t, manifest("two", oneAction))
	greedy, g := scripted(t, manifest("three", oneAction))
	r.connect("a", well)
	r.connect("b", gone)
	r.connect("c", greedy)
	gone.stop()
	a.offer(manifest("one", oneAction), manifest("new", oneAction))
	g.offer(manifest("one", oneAction)) // belongs to a
	reports, err := r.Sync(t.Context(), admin(), "")
	if err != nil || len(reports) != 3 {
		t.Fatalf("%+v %v; want no error, len(reports) = 3", reports, err)
	}
	if s := reports[0]; s.ID != "a" || s.Error != nil || !slices.Equal(s.Sync.Registered, []string{"new"}) {
		t.Errorf(`%+v; want s.ID = "a", s.Error = nil, s.Sync.Registered = []string{"new"}`, s)
	}
	if s := reports[1]; s.ID != "b" || s.Error == nil || s.Error.Code != capability.CodeUnavailable {
		t.Errorf(`%+v; want s.ID = "b", s.Error not nil, s.Error.Code = capability.CodeUnavailable`, s)
	}
	if s := reports[2]; s.ID != "c" || s.Error == nil || s.Error.Code != capability.CodeConflict {
		t.Errorf(`%+v; want s.ID = "c", s.Error not nil, s.Error.Code = capability.CodeConflict`, s)
	}
	r.must("new:action:GO", `{}`)
	r.must("three:action:GO", `{}`) // what it had stays
	if r.state("a") != capability.StateReady || r.state("b") != capability.StateUnavailable || r.state("c") != capability.StateDegraded {
		t.Errorf(`%+v; want r.state("a") = capability.StateReady, r.state("b") = capability.StateUnavailable, r.state("c") = `+
			"capability.StateDegraded", r.List())
	}
	g.offer(manifest("three", oneAction))
	r.eventually("c is well again", func() bool { return r.state("c") == capability.StateReady })
	_, err = r.Sync(t.Context(), admin(), "nobody")
	fails(t, err, capability.CodeNotFound, "endpoint_not_found")
}

func TestACallerWhoGivesUpSaysNothingAboutTheEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("one", oneAction))
	r.connect("a", h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if reports, err := r.Sync(ctx, admin(), ""); err != nil || reports[0].Error == nil {
		t.Fatalf("%+v %v; want no error, reports[0].Error not nil", reports, err)
	}
	if r.state("a") != capability.StateReady || r.events(audit.EndpointDown) != 0 {
		t.Error(`it is marked down; want r.state("a") = capability.StateReady, r.events(audit.EndpointDown) = 0`)
	}
	r.halt() // nor does a stop of ours
	if r.events(audit.EndpointDown) != 0 {
		t.Error("it is marked down at the stop; want r.events(audit.EndpointDown) = 0")
	}
	_, _, err := r.Connect(t.Context(), endpoint.Request{BaseURL: h.url()})
	fails(t, err, capability.CodeUnavailable, "service_unavailable")
}
