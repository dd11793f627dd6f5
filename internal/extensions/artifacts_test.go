package extensions

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// What is in the shared folder belongs to a run only while no other principal runs the extension.
func TestArtifactsOfOtherPrincipalsAreNotARuns(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatalf("opening the store: got %v, want no error", err)
	}
	defer db.Close()
	if err = blob.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatalf("migrating: got %v, want no error", err)
	}
	x := &Service{dir: t.TempDir()}
	if x.blobs, err = blob.Open(t.TempDir(), db.SQL(), time.Now); err != nil {
		t.Fatalf("opening the blobs: got %v, want no error", err)
	}
	defer x.blobs.Close()
	folder := filepath.Join(x.dir, "notes", "work", runner.ArtifactDir)
	write := func(name string) {
		t.Helper()
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatalf("making the folder: got %v, want no error", err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600); err != nil {
			t.Fatalf("writing %s: got %v, want no error", name, err)
		}
	}
	run := func(id, principal string, shared bool) runner.Run {
		return runner.Run{ID: id, Extension: "notes", Owner: session.Owner{Principal: principal}, Shared: func() bool { return shared }}
	}
	names := func(collect runner.Collect, r runner.Run) (kept []string, omitted string) {
		t.Helper()
		list, left, err := collect(t.Context(), r)
		if err != nil {
			t.Fatalf("collecting for %s: got %v, want no error", r.Owner.Principal, err)
		}
		for _, a := range list {
			kept = append(kept, a.Name)
		}
		return kept, strings.Join(left, ", ")
	}

	bobs, alices := x.artifacts("notes"), x.artifacts("notes")
	write("of-alice.txt")
	write("page-run_alice.png")
	if kept, omitted := names(alices, run("run_alice", "agent:alice", true)); !slices.Equal(kept, []string{"page-run_alice.png"}) ||
		!strings.Contains(omitted, "1 files: another principal") {
		t.Errorf("alice's run: got %q, omitted %q, want the file with her run's id", kept, omitted)
	}
	if kept, omitted := names(bobs, run("run_bob", "agent:bob", true)); len(kept) > 0 || strings.Contains(omitted, "alice") {
		t.Errorf("bob's run, which alice's overlapped: got %q, omitted %q, want nothing of hers and no name", kept, omitted)
	}
	alone := x.artifacts("notes")
	write("of-bob.txt")
	if kept, omitted := names(alone, run("run_bob2", "agent:bob", false)); !slices.Equal(kept, []string{"of-bob.txt"}) || omitted != "" {
		t.Errorf("bob's run alone: got %q, omitted %q, want his file", kept, omitted)
	}
}
