package mcpserve

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
)

func TestAResultIsKeptOnceAndForItsOwnerOnly(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := blob.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	own := OwnStore{Limit: 1 << 20}
	now := time.Now()
	if own.Blobs, err = blob.Open(t.TempDir(), db.SQL(), func() time.Time { return now }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Blobs.Close() })
	var until time.Time
	for i := range 3 {
		if err := own.KeepResult(t.Context(), "agent:one", "run_1", []byte(`{"n":1}`)); err != nil {
			t.Fatal(err)
		}
		refs, err := own.Blobs.List(t.Context(), "run_1")
		if err != nil || len(refs) != 1 {
			t.Fatalf("refs = %v, err = %v, want err == nil && len(refs) == 1", refs, err)
		}
		if i > 0 && !refs[0].Expires.Equal(until) {
			t.Errorf("asked for again, it is kept until %s instead of %s", refs[0].Expires, until)
		}
		until = refs[0].Expires
	}
	if got, err := own.Result(t.Context(), "agent:one", "run_1"); err != nil || string(got) != `{"n":1}` {
		t.Errorf(`%s %v; want no error, string(got) = "{\"n\":1}"`, got, err)
	}
	for _, who := range []string{"agent:two", ""} {
		if got, err := own.Result(t.Context(), who, "run_1"); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("%q reads %s %v; want capability.CodeOf(err) = capability.CodeNotFound", who, got, err)
		}
	}
	now = now.Add(resultTTL + time.Minute)
	if got, err := own.Result(t.Context(), "agent:one", "run_1"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("afterwards: %s %v; want capability.CodeOf(err) = capability.CodeNotFound", got, err)
	}
}
