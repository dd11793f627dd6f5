package taskagents

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programcheck"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// document is a choice.Store.
type document struct {
	data  []byte
	saved int
}

func (d *document) Load(context.Context) ([]byte, error) { return d.data, nil }
func (d *document) Save(_ context.Context, data []byte) error {
	d.data = data
	d.saved++
	return nil
}

// Each version of a program is checked once, also after a restart; another version is checked again.
func TestAProgramIsCheckedOncePerVersion(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "claude")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho run >> "+filepath.Join(dir, "runs")+"\nexit 7\n"), 0o700); err != nil {
		t.Fatalf("writing the program = %v, want no error", err)
	}
	rules, err := detect.Load("")
	if err != nil {
		t.Fatalf("loading the rules = %v, want no error", err)
	}
	store := &document{}
	prove := func(version string) string {
		t.Helper()
		p := &proofs{store: store, turn: make(chan struct{}, 1), cfg: programcheck.Config{
			Dir: filepath.Join(dir, "checks"), Self: path, UID: 1000, Parent: map[string]string{"PATH": os.Getenv("PATH")}, Rules: rules,
		}}
		why, err := p.prove(t.Context(), preflight.Result{Adapter: programs.Claude, Installed: true, Path: path, Version: version})
		if err != nil || !strings.HasPrefix(why, "task: ") {
			t.Errorf("the check of version %s = %q, %v; want a finding about the task", version, why, err)
		}
		return why
	}
	runs := func() int {
		data, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil {
			t.Fatalf("reading the runs = %v, want no error", err)
		}
		return strings.Count(string(data), "run")
	}
	first := prove("9.0.0")
	if again := prove("9.0.0"); again != first || runs() != 1 || store.saved != 1 {
		t.Errorf("the second time: %q after %d runs and %d writes, want %q, 1 and 1", again, runs(), store.saved, first)
	}
	if prove("9.0.1"); runs() != 2 {
		t.Errorf("after another version: %d runs, want 2", runs())
	}
}
