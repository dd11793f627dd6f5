package taskagents

import (
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
)

// noTasks ignores the threads of a service.
type noTasks struct{ Tasks }

func (noTasks) Carry(tasks.Kind, tasks.Carrier) {}

func TestAServiceThatCannotBeOpenedLeavesNothingRunning(t *testing.T) {
	home := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(home, "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	// The registry of tasks is opened after the sessions, and its database is closed.
	shared, err := store.Open(t.Context(), filepath.Join(home, "shared.db"))
	if err == nil {
		err = shared.Close()
	}
	if err != nil {
		t.Fatalf("shared database: got %v, want no error", err)
	}
	before := goleak.IgnoreCurrent()
	s, err := New(t.Context(), Config{
		Home: home, DB: db, Shared: shared, Tasks: noTasks{}, Logger: slog.New(slog.DiscardHandler),
		Reread: func() (config.Config, error) { return config.Config{}, nil }, Address: func() string { return "" },
	})
	if err == nil {
		t.Fatalf("New = %v, want an error", s)
	}
	if err := goleak.Find(before); err != nil {
		t.Errorf("after New failed: %v, want no goroutine", err)
	}
}
