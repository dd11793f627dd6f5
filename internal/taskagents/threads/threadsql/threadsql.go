// Package threadsql stores the task registry in SQL: in SQLite, or in the Postgres server that
// several gateways share. Its tables have the columns of package row, a number for the order of
// rows, and the number of bytes of each transcript. Statements are built from constant names;
// values of callers are always parameters.
//
// References are foreign keys; an empty reference is NULL. Each transaction locks its thread, so
// that a thread's changes are serialised.
package threadsql

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "threads", Files: migrations} }

// Store implements [threads.Store].
type Store struct{ db store.Database }

var _ threads.Store = (*Store)(nil)

// Open migrates the tables and returns the store. The caller keeps ownership of the database.
func Open(ctx context.Context, db store.Database) (*Store, error) {
	if err := Tables().Migrate(ctx, db); err != nil {
		return nil, fmt.Errorf("open the task registry: %w", err)
	}
	return &Store{db: db}, nil
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// explain converts an error of the database to a capability error, which does not show its text.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	if _, said := errors.AsType[*capability.Error](err); said { // has a code already
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

// names returns the columns of a row's table, each after prefix, separated by commas.
func names(r row.Row, prefix string) string {
	var b strings.Builder
	for i, c := range row.Columns(r) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(prefix)
		b.WriteString(c.Name())
	}
	return b.String()
}

// into returns the scan destinations of a row's columns.
func into(r row.Row) (places []any) {
	for _, c := range row.Columns(r) {
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

// pointer constrains *T to implement row.Row.
type pointer[T any] interface {
	*T
	row.Row
}

// list returns the rows of a table that rest, the end of the statement, selects. The result is not
// nil.
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

// Recent implements [threads.Store].
func (s *Store) Recent(ctx context.Context, agent string, since time.Time, limit int) ([]row.Session, []row.Event, error) {
	from, args := `thread_id IN (SELECT id FROM task_threads WHERE updated_at >= ?`, []any{since.UnixMilli()}
	if agent != "" {
		from, args = from+` AND agent_id = ?`, append(args, agent)
	}
	from += `) ORDER BY seq DESC LIMIT ?`
	sessions, err := list[row.Session](ctx, s.db.SQL(), `WHERE completion_summary <> '' AND `+from, append(args, limit)...)
	if err != nil {
		return nil, nil, explain(ctx, err)
	}
	decisions, err := list[row.Event](ctx, s.db.SQL(), `WHERE event_type = '`+row.DecisionShared+`' AND `+from, append(args, limit)...)
	return sessions, decisions, explain(ctx, err)
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
