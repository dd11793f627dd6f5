package server_test

import (
	"net/http"
	"testing"
)

// TestPublicURLAdmitsItsHostAlone: a proxy in front passes its own name on.
func TestPublicURLAdmitsItsHostAlone(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir(), "JUNCTOR_PUBLIC_URL=https://plane.example:8443")
	for host, want := range map[string]int{
		"plane.example:8443": http.StatusOK, "PLANE.example:8443": http.StatusOK, "127.0.0.1": http.StatusOK,
		"plane.example": http.StatusForbidden, "other.example:8443": http.StatusForbidden,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: %d, not %d; want resp.StatusCode = %v", host, resp.StatusCode, want, want)
		}
	}
}
