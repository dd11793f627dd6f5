package store

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/nodes/admission"
	"github.com/junctor-run/junctor/internal/testkit/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestSQLiteIsAStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Stores {
		db := open(t, filepath.Join(t.TempDir(), "junctor.db"))
		return storetest.Stores{Policy: db, Outcomes: db, Index: db.Audit(""), Nodes: admission.NewSQLStore(db), Held: db}
	})
}

func TestTheFileIsPrivateDurableAndUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "odd ?#% name.db")
	db := open(t, path)
	for name, mode := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700 | os.ModeDir} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != mode {
			t.Fatalf("%s: %v %v; want no error, info.Mode() = %v", name, info, err, mode)
		}
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000"} {
		var got string
		if err := db.SQL().QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", pragma, got, want, err)
		}
	}
	again := open(t, path) // finds its tables up to date, beside the first
	if _, err := again.Tokens(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOwnersOfTablesMigrateIndependently(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "junctor.db"))
	v1 := fstest.MapFS{"00001_first.sql": {Data: []byte("-- +goose Up\nCREATE TABLE things (id TEXT);\n")}}
	if err := db.Migrate(t.Context(), "things", v1); err != nil {
		t.Fatal(err)
	}
	v2 := fstest.MapFS{
		"00001_first.sql": v1["00001_first.sql"],
		"00002_more.sql":  {Data: []byte("-- +goose Up\nALTER TABLE things ADD COLUMN n INTEGER;\n")},
	}
	for range 2 {
		if err := db.Migrate(t.Context(), "things", v2); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.SQL().ExecContext(t.Context(), "INSERT INTO things (id, n) VALUES ('a', 1)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), "broken", fstest.MapFS{"00001_x.sql": {Data: []byte("-- +goose Up\nNONSENSE;\n")}}); err == nil {
		t.Fatal("nonsense was migrated; want an error")
	}
}
