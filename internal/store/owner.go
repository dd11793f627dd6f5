package store

import (
	"context"
	"database/sql"
	"embed"
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
	Shared() bool
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// Tables are the tables of one package.
type Tables struct {
	Owner string   // names the tables for [DB.Migrate]
	Files embed.FS // with the folder migrations, as [DB.Migrate] reads it
}

// Migrate migrates the tables in db.
func (t Tables) Migrate(ctx context.Context, db Migrator) error {
	files, err := fs.Sub(t.Files, "migrations")
	if err != nil {
		return err
	}
	return db.Migrate(ctx, t.Owner, files)
}

// Latest returns the version of the last migration.
func (t Tables) Latest() (int64, error) {
	files, err := fs.Sub(t.Files, "migrations")
	if err != nil {
		return 0, err
	}
	return latest(files)
}
