package store

import (
	"context"
	"database/sql"
	"io/fs"
)

// Migrator brings the tables of an owner up to date; [DB] is one.
type Migrator interface {
	Migrate(ctx context.Context, owner string, files fs.FS) error
}

// Database is what packages with tables of their own need of a [DB]. Statements have the
// placeholder ?.
type Database interface {
	Migrator
	SQL() *sql.DB
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// MigrateOwner brings the tables of owner up to date with the files that migrations
// returns.
func MigrateOwner(ctx context.Context, db Migrator, owner string, migrations func() (fs.FS, error)) error {
	files, err := migrations()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, owner, files)
}
