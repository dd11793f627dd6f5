package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"modernc.org/sqlite"

	"github.com/junctor-run/junctor/capability"
)

// backuper is the part of the driver's connection that copies whole databases.
type backuper interface {
	NewBackup(to string) (*sqlite.Backup, error)
	NewRestore(from string) (*sqlite.Backup, error)
}

// copyPages is the number of pages copied between two checks of the context.
const copyPages = 1000

// file returns the driver's address of a database. The path is escaped.
func file(path, query string) string {
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) + "?" + query
}

// Copy writes the SQLite database at from, as it is at one moment, to the new file to, mode
// 0600. Other users of the database, in other processes too, can read and write meanwhile.
//
// Copy calls held at that moment, while a lock prevents commits, so that the state of other
// files seen by held belongs to the copy, as if the process that writes them had been killed
// then. It must be short. If held fails, Copy fails, and removes an unfinished file.
func Copy(ctx context.Context, from, to string, held func() error) (err error) {
	db, err := existing(from, "mode=rw&_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // SQLite would use the umask's mode
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("copy the database: %w", err), os.Remove(to))
		}
	}()
	if err := out.Close(); err != nil {
		return err
	}
	writer, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer writer.Close()
	reader, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer reader.Close()
	if _, err := writer.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	var tables int
	if _, err = reader.ExecContext(ctx, "BEGIN"); err == nil {
		err = reader.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables) // fixes the state to copy
	}
	if err == nil {
		err = held()
	}
	_, gone := writer.ExecContext(ctx, "ROLLBACK")
	if err := errors.Join(err, gone); err != nil {
		return err
	}
	return reader.Raw(func(c any) error {
		b, err := c.(backuper).NewBackup(file(to, ""))
		if err != nil {
			return err
		}
		return steps(ctx, b)
	})
}

// steps copies all pages, checking ctx in between, and ends the copy.
func steps(ctx context.Context, b *sqlite.Backup) error {
	more, err := true, error(nil)
	for more && err == nil {
		if more, err = b.Step(copyPages); err == nil {
			err = ctx.Err()
		}
	}
	return errors.Join(err, b.Finish())
}

// Look opens the SQLite database at path read-only, calls f and closes it. It does not create or
// migrate the database. The error for a missing file is [fs.ErrNotExist].
func Look(path string, f func(*sql.DB) error) error {
	db, err := existing(path, "mode=rw&_pragma=busy_timeout(10000)&_pragma=query_only(1)")
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

func existing(path, query string) (*sql.DB, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrInvalid}
	}
	return sql.Open("sqlite", file(path, query))
}

// Intact returns an error if SQLite finds that the database is damaged, or if it has triggers or views.
// This program makes none, and one of another writer could approve each request that is stored,
// or keep a reader busy without end.
func Intact(ctx context.Context, db *sql.DB) error {
	return intact(ctx, db, "PRAGMA integrity_check(1)")
}

// IntactSoon is Intact without the comparison of indexes with their tables, which takes long.
func IntactSoon(ctx context.Context, db *sql.DB) error {
	return intact(ctx, db, "PRAGMA quick_check(1)")
}

func intact(ctx context.Context, db *sql.DB, check string) error {
	var said string
	err := db.QueryRowContext(ctx, `SELECT type || ' ' || name FROM sqlite_schema WHERE type IN ('trigger', 'view') LIMIT 1`).Scan(&said)
	if err == nil {
		return fmt.Errorf("it has the %.80q, which another program made", said)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := db.QueryRowContext(ctx, check).Scan(&said); err != nil {
		return err
	}
	if said != "ok" {
		return errors.New(said)
	}
	return nil
}

// Versions returns the schema version of each owner's tables; see [DB.Migrate].
func Versions(ctx context.Context, db *sql.DB) (map[string]int64, error) {
	rows, err := db.QueryContext(ctx, `SELECT substr(name, 8) FROM sqlite_master WHERE type = 'table' AND substr(name, 1, 7) = 'schema_'`)
	owners, err := Collect(rows, err, func(s Scanner) (owner string, err error) { return owner, s.Scan(&owner) })
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(owners))
	for _, owner := range owners {
		var n int64
		if err := db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM "schema_`+strings.ReplaceAll(owner, `"`, `""`)+
			`"`).Scan(&n); err != nil {
			return nil, err
		}
		out[owner] = n
	}
	return out, nil
}

// latest returns the number of the last of an owner's migrations, which is the version of a
// database that this program has migrated.
func latest(files fs.FS) (last int64, err error) {
	names, err := fs.Glob(files, "*.sql")
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, nerr := strconv.ParseInt(number, 10, 64)
		last, err = max(last, n), errors.Join(err, nerr)
	}
	return last, err
}

// ReasonNewer is the reason of the error for a database written by a newer program.
const ReasonNewer = "database_newer"

// newer returns the error for a database written by a newer program, because writes of this
// program could be wrong in it.
func newer(owner string, have, know int64) error {
	return capability.Errorf(capability.CodeConflict, "store", "the database is newer than this program: its tables of %s have version %d, this program knows %d", owner, have, know).
		With(ReasonNewer, "use the junctor that wrote it or a later one; or restore a backup from before into another home: junctor restore FILE --home DIR")
}
