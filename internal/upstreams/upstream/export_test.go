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
