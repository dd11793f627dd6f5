package lifecycle_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/store"
)

func TestEachExtensionHasAUserOfItsOwnForEver(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := lifecycle.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	r := lifecycle.NewRegistry(db.SQL())
	seen := make(map[int]string)
	for i := range 40 {
		id := fmt.Sprintf("tools.x%d", i)
		n, err := r.User(t.Context(), id)
		if err != nil || n < 0 || n >= lifecycle.Users || seen[n] != "" {
			t.Fatalf(`%s: %d (%s) %v; want no error, n at least 0, n less than lifecycle.Users, seen[n] = ""`, id, n, seen[n], err)
		}
		seen[n] = id
	}
	for n, id := range seen {
		if again, err := r.User(t.Context(), "TOOLS."+id[len("tools."):]); err != nil || again != n {
			t.Errorf("%s: %d, then %d (%v); want no error, again = %v", id, n, again, err, n)
		}
	}
}
