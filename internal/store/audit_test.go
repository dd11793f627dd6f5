package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

func openAudit(t *testing.T, dir string) (*audit.Log, *store.DB) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(dir, "state", "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	segs, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), audit.Config{Segments: segs, Index: db.Audit(""), SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return l, db
}

func closeAudit(t *testing.T, l *audit.Log, db *store.DB) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestTheIndexIsRebuiltFromSegmentsAndTheDatabaseProvesACutTail(t *testing.T) {
	dir := t.TempDir()
	l, db := openAudit(t, dir)
	for i := range 300 {
		_, err := l.Append(t.Context(), audit.Record{
			Event: audit.CapabilityExecuted, Session: "s",
			Metadata: audit.Metadata{RunID: fmt.Sprintf("run_%03d", i)},
		}, audit.Written)
		if err != nil {
			t.Fatal(err)
		}
	}
	newest := func(want string) {
		t.Helper()
		got, err := l.Query(t.Context(), audit.Query{Session: "s", Limit: 2})
		if err != nil || len(got) != 2 || !strings.Contains(string(got[0]), want) {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	newest("run_299")
	closeAudit(t, l, db)

	for _, side := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(filepath.Join(dir, "state", "junctor.db"+side))
	}
	l, db = openAudit(t, dir)
	newest("run_299")
	if _, err := l.Append(t.Context(), audit.Record{Event: audit.CapabilityFailed, Session: "s", Metadata: audit.Metadata{RunID: "run_last"}},
		audit.Synced); err != nil {
		t.Fatal(err)
	}
	newest("run_last")
	closeAudit(t, l, db)

	names, err := filepath.Glob(filepath.Join(dir, "audit", "audit-*"))
	if err != nil || len(names) < 3 {
		t.Fatalf("names = %v, err = %v, want err == nil && len(names) >= 3", names, err)
	}
	for _, name := range []string{names[len(names)-1], filepath.Join(dir, "audit", "head")} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	l, db = openAudit(t, dir)
	defer closeAudit(t, l, db)
	rep, err := l.Verify(context.Background())
	if err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != audit.BadTail {
		t.Fatalf("a cut tail is not noticed: %+v %v; want no error, rep.FirstBad not nil, rep.FirstBad.Reason = audit.BadTail",
			rep, err)
	}
}
