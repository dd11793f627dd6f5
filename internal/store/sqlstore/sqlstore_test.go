package sqlstore_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/sqlstore"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/internal/testkit/sessiontest"
	"github.com/junctor-run/junctor/secret"
)

func open(t testing.TB, path string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return migrated(t, db)
}

func migrated(t testing.TB, db *store.DB) *store.DB {
	t.Helper()
	if err := sqlstore.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestSQLiteIsAStore(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) session.Store {
		return sqlstore.New(open(t, filepath.Join(t.TempDir(), "junctor.db")))
	})
}

func TestPostgresIsAStore(t *testing.T) {
	server := pgtest.Start(t)
	sessiontest.Run(t, func(t *testing.T) session.Store {
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: server.Database(t), Password: secret.New(pgtest.Password)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return sqlstore.New(migrated(t, db))
	})
}

func TestSessionsOutliveTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "junctor.db")
	db := open(t, path)
	o := session.Owner{Principal: "p", Session: "s"}
	s := sqlstore.New(db)
	if _, err := s.AppendMessage(t.Context(), o, session.Message{Role: "user", Text: "x", Time: time.Unix(5, 0)},
		session.Bounds{Messages: 9, Sessions: 9}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := s.Messages(t.Context(), o, 0, 1); capability.CodeOf(err) != capability.CodeFailed ||
		capability.AsError(err).Message != "the session cannot be read or written" {
		t.Errorf(`%v; want capability.CodeOf(err) = capability.CodeFailed, capability.AsError(err).Message = "the session `+
			`cannot be read or written"`, err)
	}
	got, err := sqlstore.New(open(t, path)).Messages(t.Context(), o, 0, 9)
	if err != nil || len(got) != 1 || got[0].Text != "x" || !got[0].Time.Equal(time.Unix(5, 0)) {
		t.Errorf(`got = %v, err = %v, want err == nil && len(got) == 1 && got[0].Text == "x" && got[0].Time.Equal(time.Unix(5, 0))`, got, err)
	}
}

func BenchmarkSaveAmong10000(b *testing.B) {
	file := open(b, filepath.Join(b.TempDir(), "junctor.db"))
	db, s := file.SQL(), sqlstore.New(file)
	r := session.NewResults(session.ResultsConfig{Store: s})
	for i := range session.MaxEntries {
		if _, err := db.ExecContext(b.Context(), `INSERT INTO session_results (principal, session, extension, text, bytes, about, saved, used) VALUES ('p', ?, 'a.a', 'text', 4, '{}', ?, ?)`,
			fmt.Sprint(i), time.Now().UnixNano(), i); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if err := r.Save(b.Context(), session.Owner{Principal: "p", Session: fmt.Sprint(i)},
			session.Result{Extension: "a.a", Text: "text"}); err != nil {
			b.Fatal(err)
		}
	}
}
