package server_test

import (
	"net/http"
	"testing"
)

// TestGenerationsNeverRepeat: a client that waits for what comes after a
// generation must not be fooled by a restart, not even one after kill -9.
func TestGenerationsNeverRepeat(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	generation := func(n *node) uint64 {
		var out struct {
			Catalog struct{ Generation uint64 }
		}
		if err := n.admin.Do(t.Context(), http.MethodGet, "/api/v1/status", nil, &out); err != nil {
			t.Fatal(err)
		}
		return out.Catalog.Generation
	}
	last := uint64(0)
	for range 3 {
		n := serve(t, home)
		now := generation(n)
		if now <= last {
			t.Fatalf("generation %d after %d; want now more than %v", now, last, last)
		}
		last = now
		n.kill()
	}
}
