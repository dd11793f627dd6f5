package server_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// TestStartIsNotHeldUp: a saved endpoint that has fallen silent delays a start
// by little, and is back by itself when it speaks again.
func TestStartIsNotHeldUp(t *testing.T) {
	var silent atomic.Bool
	var waiting atomic.Int32 // requests that the silent endpoint has not answered, and for which the server still waits
	good := router.Handler(router.RequireToken(secret.Value{}, trial{"trial"}), router.HandlerOptions{})
	ep := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			waiting.Add(1)
			<-r.Context().Done()
			waiting.Add(-1)
			return
		}
		good.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		ep.CloseClientConnections()
		ep.Close()
	})
	home := t.TempDir()
	n := serve(t, home)
	n.connect(t, "moody", ep.URL, true)
	n.terminate(t)

	silent.Store(true)
	n = serve(t, home)
	if waiting.Load() == 0 {
		t.Error("the server waited for the silent endpoint before it was ready, want it ready meanwhile")
	}
	var out client.Invoked
	if err := n.admin.Invoke(t.Context(), client.Invocation{Target: "fs.list"}, &out); err != nil {
		t.Errorf("local files: %v", err)
	}
	if a := n.request(t, "GET", "/readyz", "", ""); a.status != http.StatusOK {
		t.Errorf("/readyz: %d %s; want a.status = http.StatusOK", a.status, a.body)
	}
	silent.Store(false)
	ep.CloseClientConnections()
	eventually(t, "the endpoint is back", func() bool { return n.ping(t, "5s") == nil })
}
