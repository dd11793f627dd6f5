package extensions

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/store"
)

// TestADatabaseAddressIsNotPlain holds that scripts and command lines do not get the setting that a dsn_ref names.
func TestADatabaseAddressIsNotPlain(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatalf("store.Open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := lifecycle.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	l := loaded(t, "tools.postman", false)
	l.Package.Commands[0].Actions[0].DSNRef = "warehouse"
	registry := lifecycle.NewRegistry(db.SQL())
	if err := registry.Apply(t.Context(), lifecycle.Change{Put: &l.Extension}); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	doc := json.RawMessage(`{"mode":"a","token":"t","warehouse":"postgres://u:pw@h/x"}`)
	if err := registry.SetConfig(t.Context(), l.ID, doc, time.Now()); err != nil {
		t.Fatalf("SetConfig: %v", err)
	}
	m, err := lifecycle.Open(t.Context(), lifecycle.Config{Dir: t.TempDir(), Registry: registry})
	if err != nil {
		t.Fatalf("lifecycle.Open: %v", err)
	}
	t.Cleanup(func() { _ = m.Close() })
	x := &Service{manager: m}
	for name, want := range map[string]capability.Code{"warehouse": "", "token": "", "mode": capability.CodeInvalidInput} {
		if _, err := x.secret(t.Context(), &l, name); capability.CodeOf(err) != want {
			t.Errorf("secret(%s), as --auth and --secret name it = %v, want code %q", name, err, want)
		}
	}
	s, err := x.settings(t.Context(), &l)
	if err != nil {
		t.Fatalf("settings: %v", err)
	}
	if got, ok := s.plain("warehouse"); ok || !s.secret("warehouse") {
		t.Errorf("plain(warehouse) = %q, %v; secret = %v; want a secret that is not plain", got, ok, s.secret("warehouse"))
	}
	if got, ok := s.plain("mode"); !ok || got != "a" {
		t.Errorf("plain(mode) = %q, %v; want a", got, ok)
	}
}
