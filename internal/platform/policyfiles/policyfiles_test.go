package policyfiles_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
)

// loaded holds what was loaded last.
type loaded struct {
	mu      sync.Mutex
	docs    []policy.Document
	by      []string
	about   []string // the last record: what changed, and in which files
	refuses error
}

func (l *loaded) SetRules(docs []policy.Document) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := policy.Check(docs); err != nil {
		return err
	}
	l.docs = docs
	return l.refuses
}

func (l *loaded) RecordRules(_ context.Context, by capability.Principal, attrs ...audit.Attr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.by, l.about = append(l.by, by.ID), nil
	for _, a := range attrs {
		if a.Key == "change" || a.Key == "file" {
			l.about = append(l.about, a.Value)
		}
	}
}

func (l *loaded) state() (files, changes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.docs), len(l.by)
}

func open(t *testing.T, dir string) *policyfiles.Files {
	t.Helper()
	f, docs, err := policyfiles.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) == 0 {
		t.Fatal("Open returned no document, want at least the default rules")
	}
	return f
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const (
	good = `permit (principal in Role::"admin", action, resource);`
	bad  = `permit (principal in Role::"nobody-has-it", action, resource);`
)

func TestChangedFilesAreLoadedAndWrongOnesKeepTheOldRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f, l := open(t, dir), &loaded{}
		go f.Run(t.Context(), l, func() {})
		expect := func(step string, files, changes int, fault string) {
			t.Helper()
			time.Sleep(2 * time.Second) // of the bubble's clock
			synctest.Wait()
			if n, c := l.state(); n != files || c != changes {
				t.Errorf("%s: %d files and %d changes, want %d and %d", step, n, c, files, changes)
			}
			switch err := f.Fault(); {
			case fault == "" && err != nil:
				t.Errorf("%s: Fault = %v, want nil", step, err)
			case fault != "" && (err == nil || !strings.Contains(err.Error(), fault)):
				t.Errorf("%s: Fault = %v, want an error with %q", step, err, fault)
			}
		}
		expect("unchanged", 0, 0, "")
		write(t, dir, "mine.cedar", good)
		expect("added", 2, 1, "")
		write(t, dir, "mine.cedar", bad)
		expect("wrong", 2, 1, "mine.cedar")
		write(t, dir, "mine.cedar", good+"\n")
		expect("corrected", 2, 2, "")
		if err := errors.Join(os.Remove(filepath.Join(dir, "mine.cedar")), os.Remove(filepath.Join(dir, "default.cedar"))); err != nil {
			t.Fatal(err)
		}
		expect("all removed", 2, 2, "has no policy file")
	})
}

func TestAChangeIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, l := open(t, dir), &loaded{}
	f.Use(l, func() {})
	by := capability.Principal{ID: "admin:x", Role: capability.RoleAdmin}
	deny := policy.Change{Setting: policy.SettingDeny, Target: "files/write_file"}
	managed := filepath.Join(dir, policy.ManagedFile)

	dry, err := f.Change(t.Context(), by, deny, true)
	if _, statErr := os.Stat(managed); err != nil || !errors.Is(statErr, os.ErrNotExist) {
		t.Fatalf("Change(dry) = %v and the file: %v; want nil and no file", err, statErr)
	}
	done, err := f.Change(t.Context(), by, deny, false)
	if err != nil || done != dry {
		t.Fatalf("Change = %+v, %v; want what the dry run returned, %+v", done, err, dry)
	}
	text, err := os.ReadFile(managed)
	if err != nil || string(text) != done.After {
		t.Errorf("the file has %q (%v), want %q", text, err, done.After)
	}
	if info, err := os.Stat(managed); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if len(l.by) != 1 || l.by[0] != "admin:x" {
		t.Errorf("recorded authors %v, want admin:x once", l.by)
	}
	if want := []string{"deny tool files/write_file", "tools.cedar"}; !slices.Equal(l.about, want) {
		t.Errorf("recorded of the change %q, want %q", l.about, want)
	}

	// Another file is wrong: nothing is written, because the whole set would not load.
	write(t, dir, "mine.cedar", bad)
	if _, err := f.Change(t.Context(), by, policy.Change{Setting: policy.SettingReset, Target: "files/write_file"}, false); err == nil ||
		!strings.Contains(err.Error(), "mine.cedar") {
		t.Errorf("Change with a wrong file = %v, want an error that names mine.cedar", err)
	}
	if again, err := os.ReadFile(managed); err != nil || string(again) != string(text) {
		t.Errorf("the file has %q (%v), want it unchanged", again, err)
	}
}

func TestARecordNamesTheFilesThatChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, l := open(t, dir), &loaded{}
	f.Use(l, func() {})
	by := capability.Principal{ID: "server", Role: capability.RoleAdmin}
	reload := func(want string) {
		t.Helper()
		f.Reload(t.Context(), by)
		if want := []string{"files", want}; !slices.Equal(l.about, want) {
			t.Errorf("recorded %q, want %q", l.about, want)
		}
	}
	write(t, dir, "mine.cedar", good)
	write(t, dir, "team.cedar", good)
	reload("mine.cedar, team.cedar")
	write(t, dir, "team.cedar", good+"\n")
	reload("team.cedar")
	if err := os.Remove(filepath.Join(dir, "mine.cedar")); err != nil {
		t.Fatalf("removing a file: %v", err)
	}
	reload("mine.cedar")
	for i := range 7 {
		write(t, dir, fmt.Sprintf("z%d.cedar", i), good)
	}
	reload("z0.cedar, z1.cedar, z2.cedar, z3.cedar, z4.cedar, and 2 more")
}

func TestRestoredFilesEndAFault(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := open(t, dir)
	f.Use(&loaded{}, func() {})
	name := filepath.Join(dir, "default.cedar")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("the default rules: got %v, want no error", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatalf("remove: got %v, want no error", err)
	}
	by := capability.Principal{ID: "server", Role: capability.RoleAdmin}
	if f.Reload(t.Context(), by); f.Fault() == nil {
		t.Error("the fault of an empty folder: got nil, want an error")
	}
	write(t, dir, "default.cedar", string(text))
	if f.Reload(t.Context(), by); f.Fault() != nil {
		t.Errorf("the fault after the same file was restored: got %v, want nil", f.Fault())
	}
}
