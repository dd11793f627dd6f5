//go:build soak

package search_test

import "testing"

// TestSoakRequestsFindTheirTools is TestRequestsFindTheirTools among 100,000 tools. About 260 of them
// have the object of each published tool in their names.
func TestSoakRequestsFindTheirTools(t *testing.T) { requestsFind(t, 100_000, 0.9) }
