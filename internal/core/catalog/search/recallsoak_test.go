//go:build soak

package search_test

import "testing"

// TestSoakRequestsFindTheirTools is TestRequestsFindTheirTools among 100,000 tools.
func TestSoakRequestsFindTheirTools(t *testing.T) { requestsFind(t, 100_000) }
