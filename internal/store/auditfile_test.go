package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

// The file of the log is deleted while the server runs: no record is acknowledged that nothing could
// read any more, the state is reported, and verify names the gap.
func TestALogWhoseFileIsDeletedRefuses(t *testing.T) {
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "state", "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	segs, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := audit.Open(t.Context(), audit.Config{
		Segments: segs, Index: db.Audit(""), SyncEvery: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
		if err := l.Close(); err == nil {
			t.Error("Close() = nil, want that a record could not be written")
		}
	}()
	record := audit.Record{Event: audit.CapabilityExecuted, Session: "s", Metadata: audit.Metadata{RunID: "run"}}
	if _, err := l.Append(t.Context(), record, audit.Synced); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "audit", "audit-00000001.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), record, audit.Synced); err == nil {
		t.Error("Append after the file was deleted = nil, want an error")
	}
	if h := l.Health(); !h.Broken || !strings.Contains(h.Cause, "deleted, moved or replaced") {
		t.Errorf("Health() = %+v, want broken with the cause", h)
	}
	rep, err := l.Verify(t.Context())
	if err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != audit.BadGap {
		t.Errorf("Verify() = %+v, %v, want %s", rep, err, audit.BadGap)
	}
}
