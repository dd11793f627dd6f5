//go:build !linux

package pgtest

import "testing"

// Server is never there on this system.
type Server struct{ Port string }

// Start skips the test.
func Start(t testing.TB) *Server {
	without(t, "tests start Postgres servers on Linux only")
	return nil
}

// Database is never reached.
func (*Server) Database(testing.TB) string { return "" }

// Stop is never reached.
func (*Server) Stop(testing.TB) {}

// Run is never reached.
func (*Server) Run(testing.TB) {}

// Query is never reached.
func (*Server) Query(testing.TB, string, string) string { return "" }
