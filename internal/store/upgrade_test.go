package store

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// owners are the steps of two owners: the first makes a table with one row, later ones
// change it.
type owners struct{ one, two fstest.MapFS }

func ofOwner(steps map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range steps {
		out[name+".sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text + "\n")}
	}
	return out
}

func first(owner string) string {
	return "CREATE TABLE " + owner + " (id TEXT);\nINSERT INTO " + owner + " VALUES ('old');"
}

func wanted() owners {
	return owners{
		ofOwner(map[string]string{"00001_a": first("one"), "00002_b": "UPDATE one SET id = 'new';"}),
		ofOwner(map[string]string{"00001_a": first("two"), "00002_b": "UPDATE two SET id = 'new';"}),
	}
}

// wrong is wanted with a last step of the second owner that cannot be done.
func wrong() owners {
	w := wanted()
	w.two["00003_c.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nDELETE FROM two;\nNONSENSE;\n")}
	return w
}

// anOld creates a closed database with the first step of both.
func anOld(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "junctor.db")
	db := open(t, path)
	err := errors.Join(
		db.Migrate(t.Context(), "one", ofOwner(map[string]string{"00001_a": first("one")})),
		db.Migrate(t.Context(), "two", ofOwner(map[string]string{"00001_a": first("two")})),
		db.Upgraded(), db.Close())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// rows is what the two tables of a database say: "old old" before an upgrade.
func rows(t *testing.T, path string) (said string) {
	t.Helper()
	err := Look(path, func(db *sql.DB) error {
		return db.QueryRowContext(t.Context(), "SELECT one.id || ' ' || two.id FROM one, two").Scan(&said)
	})
	if err != nil {
		return err.Error()
	}
	return said
}

func (w owners) migrate(t *testing.T, db *DB) error {
	t.Helper()
	if err := db.Migrate(t.Context(), "one", w.one); err != nil {
		return err
	}
	return db.Migrate(t.Context(), "two", w.two)
}

func missing(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v; want err is fs.ErrNotExist", filepath.Base(path), err)
	}
}

// An upgrade ends after any step of it; the next start has what was before the first.
func TestTheCopyIsOfBeforeTheFirstStepWhereverAnUpgradeEnded(t *testing.T) {
	t.Run("between two owners", func(t *testing.T) {
		path := anOld(t)
		if err := open(t, path).Migrate(t.Context(), "one", wanted().one); err != nil {
			t.Fatal(err)
		}
		missing(t, path+beforeUpgrade)
		db := open(t, path)
		if err := wanted().migrate(t, db); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, path+unfinished); got != "old old" {
			t.Errorf(`the copy has %q; want got = "old old"`, got)
		}
		if err := db.Upgraded(); err != nil {
			t.Fatal(err)
		}
		if now, before := rows(t, path), rows(t, path+beforeUpgrade); now != "new new" || before != "old old" {
			t.Errorf(`the file has %q, the copy %q; want now = "new new", before = "old old"`, now, before)
		}
		missing(t, path+unfinished)
	})
	t.Run("between two owners, and the second cannot be done", func(t *testing.T) {
		path := anOld(t)
		if err := open(t, path).Migrate(t.Context(), "one", wrong().one); err != nil {
			t.Fatal(err)
		}
		if err := wrong().migrate(t, open(t, path)); err == nil {
			t.Fatal("nonsense was migrated; want an error")
		}
		if got := rows(t, path); got != "old old" {
			t.Errorf(`the file has %q; want got = "old old"`, got)
		}
		missing(t, path+unfinished)
	})
	t.Run("before the copy had its name", func(t *testing.T) {
		path := anOld(t)
		if err := wanted().migrate(t, open(t, path)); err != nil {
			t.Fatal(err)
		}
		db := open(t, path) // has nothing to change
		if err := errors.Join(wanted().migrate(t, db), db.Upgraded(), db.Upgraded()); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, path+beforeUpgrade); got != "old old" {
			t.Errorf(`the copy has %q; want got = "old old"`, got)
		}
	})
	t.Run("in the copying", func(t *testing.T) {
		path := anOld(t)
		for _, end := range []string{"", "-journal", "-wal", "-shm"} {
			if err := os.WriteFile(path+beforeUpgrade+".tmp"+end, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		db := open(t, path)
		if err := errors.Join(wanted().migrate(t, db), db.Upgraded()); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, path+beforeUpgrade); got != "old old" {
			t.Errorf(`the copy has %q; want got = "old old"`, got)
		}
		if left, _ := filepath.Glob(path + beforeUpgrade + ".tmp*"); len(left) != 0 {
			t.Errorf("left: %v; want len(left) = 0", left)
		}
	})
	t.Run("in the putting back", func(t *testing.T) {
		path := anOld(t)
		db := open(t, path)
		if err := db.Migrate(t.Context(), "one", wrong().one); err != nil {
			t.Fatal(err)
		}
		away := path + ".away" // so that it cannot be put back
		if err := os.Rename(path+unfinished, away); err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(t.Context(), "two", wrong().two); err == nil {
			t.Fatal("nonsense was migrated; want an error")
		}
		if err := os.Rename(away, path+unfinished); err != nil {
			t.Fatal(err)
		}
		if got := rows(t, path); got != "new new" {
			t.Fatalf(`it was put back all the same: %q; want got = "new new"`, got)
		}
		if err := wrong().migrate(t, open(t, path)); err == nil {
			t.Fatal("nonsense was migrated; want an error")
		}
		if got := rows(t, path); got != "old old" {
			t.Errorf(`the file has %q; want got = "old old"`, got)
		}
	})
}

// An upgrade was undone, its copy stayed, and the older program went on for a while: what
// it wrote is what the next upgrade goes back to.
func TestACopyOfAnUpgradeThatWasUndoneIsNotGoneBackTo(t *testing.T) {
	path := anOld(t)
	if err := Copy(t.Context(), path, path+unfinished, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	if _, err := db.SQL().ExecContext(t.Context(), "UPDATE one SET id = 'later'"); err != nil {
		t.Fatal(err)
	}
	if err := wrong().migrate(t, db); err == nil {
		t.Fatal("nonsense was migrated; want an error")
	}
	if got := rows(t, path); got != "later old" {
		t.Errorf(`the file has %q; want got = "later old"`, got)
	}
}

// What is there of an unfinished upgrade and cannot be read is not replaced either.
func TestACopyThatCannotBeReadStopsAnUpgrade(t *testing.T) {
	path := anOld(t)
	const text = "no database, and long enough that nobody could take it for an empty one"
	if err := os.WriteFile(path+unfinished, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := wanted().migrate(t, open(t, path)); err == nil {
		t.Error("it was upgraded; want an error")
	}
	if got, err := os.ReadFile(path + unfinished); err != nil || string(got) != text {
		t.Errorf("it is another one now, %d bytes (%v); want no error, string(got) = %v", len(got), err, text)
	}
	if got := rows(t, path); got != "old old" {
		t.Errorf(`the file has %q; want got = "old old"`, got)
	}
}
