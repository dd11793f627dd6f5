package store

import (
	"testing"

	"github.com/junctor-run/junctor/internal/store/pgtest"
	"github.com/junctor-run/junctor/internal/store/storetest"
	"github.com/junctor-run/junctor/secret"
)

func openPostgres(t testing.TB, url string) *DB {
	t.Helper()
	db, err := OpenPostgres(t.Context(), Postgres{URL: url, Password: secret.New(pgtest.Password)})
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

func TestPostgresIsAStore(t *testing.T) {
	server := pgtest.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Stores {
		db := openPostgres(t, server.Database(t))
		return storetest.Stores{Policy: db, Outcomes: db, Index: db.Audit("a")}
	})
}
