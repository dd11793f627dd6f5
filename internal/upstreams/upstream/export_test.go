package upstream

import (
	"net/http"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// AuthorizationClient is what asks authorization servers for an upstream at a public
// address.
func AuthorizationClient(address string) (*http.Client, error) {
	transport, err := guarded(&record.Record{Name: "far", URL: address}, "")
	return &http.Client{Transport: transport}, err
}

// Listeners returns the number of subscribers of a resource.
func (r *Registry) Listeners(name, uri string) int {
	u, err := r.get(name)
	if err != nil {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if s := u.subs[subject{"", uri}]; s != nil {
		return len(s.listeners)
	}
	return 0
}
