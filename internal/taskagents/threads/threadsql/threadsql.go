// Package threadsql keeps the task registry in SQL: a SQLite file, or the Postgres
// server that several gateways share. It brings its own tables, which have the columns
// of package row and, beside them, a number that gives their order and how many bytes a
// transcript has. Every statement is put together from names that are constants of the
// program; what a caller says is always a parameter.
//
// References are foreign keys, so nothing dangles; a reference to nothing is NULL. A
// thread's changes come one after the other, since each transaction holds the thread.
package threadsql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Owner names the package's tables for [store.DB.Migrate].
const Owner = "threads"

// Migrations are the package's tables.
func Migrations() (fs.FS, error) { return fs.Sub(migrations, "migrations") }

// Store implements [threads.Store].
type Store struct{ db store.Database }

var _ threads.Store = (*Store)(nil)

// Open brings the tables up to date. The database stays the caller's.
func Open(ctx context.Context, db store.Database) (*Store, error) {
	if err := store.MigrateOwner(ctx, db, Owner, Migrations); err != nil {
		return nil, fmt.Errorf("open the task registry: %w", err)
	}
	return &Store{db: db}, nil
}

// querier is the database, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// explain gives an error of the database a code; its text stays inside.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	if _, said := errors.AsType[*capability.Error](err); said { // a rule's, a row's, or the shared database's
		return err
	}
	return capability.Wrap(capability.CodeFailed, "threads", "the task registry cannot be read or written", err)
}

// Change implements [threads.Store].
func (s *Store) Change(ctx context.Context, thread string, f func(threads.Tx) error) error {
	return explain(ctx, s.db.InTx(ctx, "thread "+thread, func(tx *sql.Tx) error { return f(&change{tx: tx, thread: thread}) }))
}

// Get implements [threads.Store].
func (s *Store) Get(ctx context.Context, r row.Row) (bool, error) {
	ok, err := get(ctx, s.db.SQL(), r)
	return ok, explain(ctx, err)
}

// names are the columns of a row's table, each after prefix.
func names(r row.Row, prefix string) string {
	var b strings.Builder
	for i, c := range r.Columns() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix)
		b.WriteString(c.Name())
	}
	return b.String()
}

// into are the places that a row's columns are read into.
func into(r row.Row) (places []any) {
	for _, c := range r.Columns() {
		places = append(places, c)
	}
	return places
}

func get(ctx context.Context, q querier, r row.Row) (bool, error) {
	key := row.Key(r)
	err := q.QueryRowContext(ctx, `SELECT `+names(r, "")+` FROM `+r.Table()+` WHERE `+key.Name()+` = ?`, key.Value()).Scan(into(r)...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// pointer is *T, which is a row.
type pointer[T any] interface {
	*T
	row.Row
}

// list reads the rows that the end of a statement selects; it is empty, not nil.
func list[T any, P pointer[T]](ctx context.Context, q querier, rest string, args ...any) ([]T, error) {
	one := P(new(T))
	rows, err := q.QueryContext(ctx, `SELECT `+names(one, "")+` FROM `+one.Table()+` `+rest, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []T{}
	for rows.Next() {
		var r T
		if err := rows.Scan(into(P(&r))...); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

const ofThread = `WHERE thread_id = ? ORDER BY seq`

// Live implements [threads.Store].
func (s *Store) Live(ctx context.Context) ([]row.Session, error) {
	out, err := list[row.Session](ctx, s.db.SQL(), `WHERE status IN (?, ?, ?) ORDER BY seq`,
		string(row.SessionActive), string(row.SessionBlocked), string(row.SessionToolRunning))
	return out, explain(ctx, err)
}

// Pending implements [threads.Store].
func (s *Store) Pending(ctx context.Context) ([]row.PendingDecision, error) {
	out, err := list[row.PendingDecision](ctx, s.db.SQL(), `ORDER BY seq LIMIT ?`, threads.MaxPending)
	return out, explain(ctx, err)
}

// Mail implements [threads.Store].
func (s *Store) Mail(ctx context.Context, q threads.MailQuery) ([]row.MailboxItem, error) {
	where, args := `thread_id = ?`, []any{q.ThreadID}
	for _, also := range []struct{ column, value string }{
		{"node_id", q.NodeID},
		{"recipient", q.Recipient},
		{"delivery_state", string(q.State)},
	} {
		if also.value != "" {
			where, args = where+` AND `+also.column+` = ?`, append(args, also.value)
		}
	}
	out, err := list[row.MailboxItem](ctx, s.db.SQL(), `WHERE `+where+` ORDER BY seq`, args...)
	return out, explain(ctx, err)
}
