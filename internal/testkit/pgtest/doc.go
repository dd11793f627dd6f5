// Package pgtest starts Postgres servers for tests: Debian's, each with a data
// directory of its own, on loopback, gone with the test. Where none is installed
// the test is skipped and says so, unless the variable JUNCTORTEST_POSTGRES is
// "required": then it fails.
package pgtest

import (
	"os"
	"testing"
)

// User and Password are those of every server; the user may do everything.
const (
	User     = "boss"
	Password = "opens-sesame"
)

// without ends a test that cannot have a server.
func without(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("JUNCTORTEST_POSTGRES") == "required" {
		t.Fatalf("Postgres is required: %s", why)
	}
	t.Skip(why)
}
