// Package store stores in one SQL database the data that must outlive the process: tokens,
// approvals, grants and idempotency outcomes, which are authoritative, and the audit
// index, which is a copy. The database is a SQLite file of one gateway or a
// Postgres server that several share. It implements the store interfaces that the
// core packages declare; the suite in storetest verifies their contracts,
// and both pass it.
//
// One set of statements serves both, with SQLite's placeholders; tables are
// declared once for each, in migrations and migrations/postgres under the same
// numbers. A new table is one file in each.
//
// Two rules make it safe with many callers. A decision about a stored value is
// made in the statement that changes it (a grant is checked and counted by
// one UPDATE), never by reading first. And a transaction acquires its lock when it
// begins, so that it can wait for it instead of failing later: the write lock of
// a file, on a server the lock of the key that [DB.InTx] is given.
//
// An L3 package with its own tables keeps its SQL in its own folder, migrates
// its tables with [DB.Migrate] and queries through [DB.SQL] and
// [DB.InTx].
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// CoreTables returns the core tables.
func CoreTables() Tables { return Tables{Owner: "core", Files: migrations} }

// DB is an open database. It is safe for concurrent use and implements
// [policy.Store] and [invoke.OutcomeStore]; the audit index is [DB.Audit].
type DB struct {
	sql  *sql.DB
	pg   *postgres // nil for a file
	path string    // of a file
	kept bool      // a copy of the file from before the current upgrade exists
}

var (
	_ policy.Store        = (*DB)(nil)
	_ invoke.OutcomeStore = (*DB)(nil)
	_ audit.Index         = (*AuditIndex)(nil)
)

// Open opens the file, creates it (0600, its directory 0700) if it is missing, and
// migrates the core tables. A committed transaction is on the disk.
func Open(ctx context.Context, path string) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	// SQLite would create the file with the umask's mode; its side files copy the mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db, err := sql.Open("sqlite", file(path, "_txlock=immediate"+
		"&_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	d := &DB{sql: db, path: path}
	if err := CoreTables().Migrate(ctx, d); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return d, nil
}

// SQL returns the handle for the packages that have their own tables. Statements use the
// placeholders ? or ?1, ?2, … with both databases.
func (d *DB) SQL() *sql.DB { return d.sql }

// Shared reports whether the database is a server that several gateways may use.
func (d *DB) Shared() bool { return d.pg != nil }

// Where returns a display name of the shared database, without user and password; "" for a
// file.
func (d *DB) Where() string {
	if d.pg == nil {
		return ""
	}
	return d.pg.at.String()
}

// Close closes the file, or the connections.
func (d *DB) Close() error { return d.sql.Close() }

// Migrate migrates the tables of one owner with its numbered .sql files (goose form), those
// for Postgres in the folder postgres. The owner's name, lower_snake, is part of the name of
// its version table, so owners count independently. Call it from one goroutine at a time,
// before others use the database.
//
// Tables that are newer than files are an error, conflict with [ReasonNewer]. If a migration
// fails, a SQLite file is restored to its state before the first one that changed it. That
// state is stored beside it with the suffix .before-upgrade.unfinished, and with
// .before-upgrade after [DB.Upgraded] was called for all owners.
func (d *DB) Migrate(ctx context.Context, owner string, files fs.FS) error {
	dialect := goose.DialectSQLite3
	opts := []goose.ProviderOption{goose.WithTableName("schema_" + owner), goose.WithDisableGlobalRegistry(true)}
	if d.pg != nil {
		dialect = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrateWait), lock.WithUnlockTimeout(1, migrateWait))
		if err == nil {
			files, err = fs.Sub(files, "postgres")
		}
		if err != nil {
			return fmt.Errorf("read the migrations of %s: %w", owner, err)
		}
		opts = append(opts, goose.WithSessionLocker(locker))
	}
	p, err := goose.NewProvider(dialect, d.sql, files, opts...)
	if err != nil {
		return fmt.Errorf("read the migrations of %s: %w", owner, err)
	}
	if d.pg == nil {
		err = d.upgrade(ctx, owner, p)
	} else if _, err = p.Up(ctx); err == nil { // holds the lock of all gateways; newer tables are not changed
		var have, know int64
		if have, know, err = p.GetVersions(ctx); err == nil && have > know {
			err = newer(owner, have, know)
		}
	}
	if err != nil {
		return fmt.Errorf("migrate the tables of %s: %w", owner, err)
	}
	return nil
}

// migrateWait is how many seconds a gateway waits while another one migrates.
const migrateWait = 60

// InTx runs f in a transaction that holds its lock from its beginning: the write lock of a
// file, or on a server the lock of key, which names what must not change during f
// ("token ann"). Transactions with other keys run at the same time. f may run more than
// once, because the server may abort a transaction that conflicts with another; after 10
// times InTx fails with unavailable.
func (d *DB) InTx(ctx context.Context, key string, f func(*sql.Tx) error) error {
	return d.repeat(ctx, func() error {
		tx, err := d.sql.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after Commit
		if d.pg != nil {
			if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended(?, 0))`, key); err != nil {
				return err
			}
		}
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// exec runs one statement that changes rows, again if it conflicts with another transaction, and
// returns the number of changed rows.
func (d *DB) exec(ctx context.Context, query string, args ...any) (n int64, err error) {
	err = d.repeat(ctx, func() error {
		res, err := d.sql.ExecContext(ctx, query, args...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	return n, err
}

// repeat runs f, up to maxAttempts times while the server aborts it because of other transactions.
func (d *DB) repeat(ctx context.Context, f func() error) error {
	pause := time.Millisecond
	for attempt := 1; ; attempt++ {
		err := f()
		if d.pg == nil || !again(err) {
			return err
		}
		if attempt == maxAttempts {
			return capability.Wrap(capability.CodeUnavailable, "store",
				fmt.Sprintf("the shared store ended a change %d times because others changed the same", maxAttempts), err).
				With(ReasonBusy, "try again in a moment")
		}
		timer := time.NewTimer(time.Duration(float64(pause) * (0.5 + rand.Float64())))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause *= 2
	}
}

// Nanos returns the stored form of a time, in nanoseconds since 1970, or 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// instant scans a time stored by Nanos.
type instant struct{ t *time.Time }

func (i instant) Scan(v any) error {
	n, ok := v.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", v)
	}
	if n != 0 {
		*i.t = time.Unix(0, n).UTC()
	}
	return nil
}

// words returns the stored form of a list of strings.
func words(list []string) string {
	if len(list) == 0 {
		return "[]"
	}
	data, err := jsonx.Marshal(list)
	if err != nil { // only if it is not UTF-8
		return "[]"
	}
	return string(data)
}

type wordList struct{ list *[]string }

func (w wordList) Scan(v any) error {
	s, ok := v.(string)
	if !ok {
		return fmt.Errorf("a list is stored as %T", v)
	}
	if s == "[]" {
		return nil
	}
	return jsonx.Unmarshal([]byte(s), w.list)
}

// notFound returns a not_found error. It names the command that lists existing items, unless
// list is "".
func notFound(noun, id, list string) error {
	err := capability.Errorf(capability.CodeNotFound, "store", "there is no %s %q", noun, id)
	if list == "" {
		return err
	}
	return err.With(strings.ReplaceAll(noun, " ", "_")+"_not_found", "list them with: junctor "+list)
}

func conflict(format string, args ...any) error {
	return capability.Errorf(capability.CodeConflict, "store", format, args...)
}

// Scanner is a row, or the current one of several.
type Scanner interface{ Scan(dest ...any) error }

// Collect scans all rows and closes them.
func Collect[T any](rows *sql.Rows, err error, scan func(Scanner) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// changed reports whether a statement changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
