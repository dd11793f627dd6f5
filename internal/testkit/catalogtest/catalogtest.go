// Package catalogtest makes catalogs for the tests of other packages.
package catalogtest

import (
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// New returns an empty catalog without settings.
func New(t testing.TB) *catalog.Catalog {
	t.Helper()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Entries are all entries of the current snapshot, in order.
func Entries(c *catalog.Catalog) []*catalog.Entry { return slices.Collect(c.Snapshot().Entries()) }

// Modules are all modules of the current snapshot, in order.
func Modules(c *catalog.Catalog) []*capability.Module { return slices.Collect(c.Snapshot().Modules()) }
