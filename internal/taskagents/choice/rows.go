package choice

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "task_state", Files: migrations} }

// Database is the part of the server's own SQLite database that Rows uses.
type Database interface {
	SQL() *sql.DB
	Migrate(ctx context.Context, owner string, files fs.FS) error
}

// Rows stores small named documents on this machine, because programs and their accounts
// are not shared with other gateways.
type Rows struct{ db *sql.DB }

// OpenRows migrates the table and returns its rows.
func OpenRows(ctx context.Context, db Database) (Rows, error) {
	if err := Tables().Migrate(ctx, db); err != nil {
		return Rows{}, fmt.Errorf("open the settings of task agents: %w", err)
	}
	return Rows{db.SQL()}, nil
}

// Row returns the store of one document.
func (r Rows) Row(name string) Store { return row{r.db, name} }

type row struct {
	db   *sql.DB
	name string
}

// Load implements Store.
func (r row) Load(ctx context.Context) (data []byte, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT doc FROM task_state WHERE name = ?`, r.name).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return data, err
}

// Save implements Store.
func (r row) Save(ctx context.Context, data []byte) error {
	_, err := r.db.ExecContext(ctx, `INSERT INTO task_state (name, doc) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET doc = excluded.doc`,
		r.name, data)
	return err
}
