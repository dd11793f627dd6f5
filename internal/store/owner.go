package store

import (
	"context"
	"database/sql"
	"io/fs"
)

// Migrator migrates the tables of an owner; [DB] implements it.
type Migrator interface {
	Migrate(ctx context.Context, owner string, files fs.FS) error
}

// Database is the part of a [DB] used by packages with their own tables. Statements have the
// placeholder ?.
type Database interface {
	Migrator
	SQL() *sql.DB
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// MigrateOwner migrates the tables of owner with the files that migrations returns.
func MigrateOwner(ctx context.Context, db Migrator, owner string, migrations func() (fs.FS, error)) error {
	files, err := migrations()
	if err != nil {
		return err
	}
	return db.Migrate(ctx, owner, files)
}
