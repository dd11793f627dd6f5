package server_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// TestStartIsNotHeldUp: a saved endpoint that has fallen silent delays a start
// by little, and is back by itself when it speaks again.
func TestStartIsNotHeldUp(t *testing.T) {
	var silent atomic.Bool
	good := router.Handler(router.RequireToken(secret.Value{}, trial{"trial"}), router.HandlerOptions{})
	ep := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done()
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
	n.terminate(t, killGrace)

	silent.Store(true)
	began := time.Now()
	n = serve(t, home)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("a silent endpoint held the start up for %s; want took at most 8 * time.Second", took)
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
