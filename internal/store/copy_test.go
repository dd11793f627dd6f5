package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/junctor-run/junctor/capability"
)

// number reads one number of the database at path, as it is.
func number(t *testing.T, path, query string) (n int) {
	t.Helper()
	err := Look(path, func(db *sql.DB) error {
		return errors.Join(Intact(t.Context(), db), db.QueryRowContext(t.Context(), query).Scan(&n))
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// What is in a copy, and what held saw beside it, belongs to one moment: nothing that
// was committed before is missing, and nothing is there that came later.
func TestACopyIsOfOneMoment(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "odd ?#% name.db")
	db := open(t, path)
	if err := db.Migrate(t.Context(), "things", fstest.MapFS{"00001_a.sql": {Data: []byte(
		"-- +goose Up\nCREATE TABLE things (n INTEGER, pad BLOB);\n")}}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	committed := 0
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock() // what is counted has been committed, and what has been committed is counted
				_, err := db.SQL().ExecContext(t.Context(), "INSERT INTO things VALUES (1, randomblob(3000))")
				if err == nil {
					committed++
				}
				mu.Unlock()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 5 {
		copied := filepath.Join(dir, "copy"+string(rune('0'+i)))
		var before, during int
		mu.Lock()
		before = committed
		mu.Unlock()
		err := Copy(t.Context(), path, copied, func() error {
			return db.SQL().QueryRowContext(t.Context(), "SELECT count(*) FROM things").Scan(&during)
		})
		if err != nil {
			t.Fatal(err)
		}
		if n := number(t, copied, "SELECT count(*) FROM things"); n != during || n < before {
			t.Errorf("the copy has %d rows, at its moment there were %d, before it %d; want n = %v, n at least %v",
				n, during, before, during, before)
		}
		if info, err := os.Stat(copied); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the copy: %v %v; want no error, info.Mode().Perm() = 0o600", info, err)
		}
	}
	stop()
	writers.Wait()

	wrong := errors.New("wrong")
	if err := Copy(t.Context(), path, filepath.Join(dir, "none"), func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v; want err is %v", err, wrong)
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy that failed is there: %v; want err is fs.ErrNotExist", err)
	}
	if err := Look(filepath.Join(dir, "none"), func(*sql.DB) error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v; want err is fs.ErrNotExist", err)
	}
	if err := Look(path, func(db *sql.DB) error {
		_, err := db.ExecContext(t.Context(), "DELETE FROM things")
		return err
	}); err == nil {
		t.Error("who only looks can delete; want an error")
	}
}

func TestADatabaseOfALaterProgramIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junctor.db")
	db := open(t, path)
	if _, err := db.SQL().ExecContext(t.Context(), "INSERT INTO schema_core (version_id, is_applied) VALUES (99, 1)"); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), path)
	e := capability.AsError(err)
	if e.Code != capability.CodeConflict || e.Reason != ReasonNewer || e.Hint == "" {
		t.Errorf(`it is opened: %v (%+v); want e.Code = capability.CodeConflict, e.Reason = %v, e.Hint other than ""`,
			err, e, ReasonNewer)
	}
	var have map[string]int64
	if err := Look(path, func(db *sql.DB) (err error) { have, err = Versions(t.Context(), db); return err }); err != nil ||
		have["core"] != 99 {
		t.Errorf(`versions %v, %v; want no error, have["core"] = 99`, have, err)
	}
}

// Two owners have something to change and the second cannot: the file holds what it
// held before the first.
func TestAFailedUpgradeLeavesTheDatabaseAsItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "junctor.db")
	first := func(table string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE " + table + " (id TEXT);\n")}
	}
	old := open(t, path)
	for _, owner := range []string{"one", "two"} {
		if err := old.Migrate(t.Context(), owner, fstest.MapFS{"00001_a.sql": first(owner)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := old.SQL().ExecContext(t.Context(), "INSERT INTO one VALUES ('kept'); INSERT INTO two VALUES ('kept')"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + beforeUpgrade); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy was made where nothing was changed: %v; want err is fs.ErrNotExist", err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	add := &fstest.MapFile{Data: []byte("-- +goose Up\nALTER TABLE one ADD COLUMN more INTEGER;\nUPDATE one SET id = 'changed';\n")}
	drop := &fstest.MapFile{Data: []byte("-- +goose Up\nDELETE FROM two;\n")}
	broken := &fstest.MapFile{Data: []byte("-- +goose Up\nDELETE FROM one;\nNONSENSE;\n")}

	db := open(t, path)
	if err := db.Migrate(t.Context(), "one", fstest.MapFS{"00001_a.sql": first("one"), "00002_b.sql": add}); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), "two", fstest.MapFS{
		"00001_a.sql": first("two"), "00002_b.sql": drop,
		"00003_c.sql": broken,
	}); err == nil {
		t.Fatal("nonsense was migrated; want an error")
	}
	if n := number(t, path, "SELECT count(*) FROM one JOIN two ON one.id = two.id WHERE one.id = 'kept'"); n != 1 {
		t.Errorf("the rows are not what they were; got n = %v; want n = 1", n)
	}
	for _, owner := range []string{"one", "two"} {
		if n := number(t, path, "SELECT max(version_id) FROM schema_"+owner); n != 1 {
			t.Errorf("%s has version %d; want n = 1", owner, n)
		}
	}
	// The program is repaired: now all of it is done, and what was before stays beside it.
	again := open(t, path)
	if err := again.Migrate(t.Context(), "one", fstest.MapFS{"00001_a.sql": first("one"), "00002_b.sql": add}); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path, "SELECT count(*) FROM one WHERE id = 'changed' AND more IS NULL"); n != 1 {
		t.Errorf("the upgrade was not done; got n = %v; want n = 1", n)
	}
	if err := again.Upgraded(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path+beforeUpgrade, "SELECT count(*) FROM one WHERE id = 'kept'"); n != 1 {
		t.Errorf("the copy is not what was before; got n = %v; want n = 1", n)
	}
}
