package httpapi

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsWaitUntilTheServerHasStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var missing atomic.Int64
		missing.Store(1)
		s := NewStartup(3*time.Second, func() int { return int(missing.Load()) })
		h := s.Hold(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), "/mcp")
		get := func(path string) (time.Duration, string) {
			began, out := time.Now(), httptest.NewRecorder()
			h.ServeHTTP(out, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
			return time.Since(began), out.Header().Get(HeaderMissing)
		}
		if wait, _ := get("/healthz"); wait != 0 {
			t.Errorf("a request for another path waited %s, want 0", wait)
		}
		if wait, n := get("/mcp/all"); wait != 3*time.Second || n != "1" {
			t.Errorf("a request at the start waited %s with %q missing, want 3s and 1", wait, n)
		}
		go func() { // ends below
			time.Sleep(time.Second)
			missing.Store(0)
			s.Begin()
		}()
		if wait, n := get("/mcp"); wait != time.Second || n != "" {
			t.Errorf("a request before Begin waited %s with %q missing, want 1s and none", wait, n)
		}
		missing.Store(1) // lost later, which is not about the start
		if wait, n := get("/mcp"); wait != 0 || n != "" || !s.Ready() {
			t.Errorf("a request after Begin waited %s with %q missing, ready %v; want 0, none and ready", wait, n, s.Ready())
		}
		if s.End(); s.Ready() {
			t.Error("Ready() = true after End, want false")
		}
	})
}
