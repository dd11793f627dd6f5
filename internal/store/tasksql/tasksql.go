// Package tasksql stores tasks in SQL: a SQLite file, or the Postgres server that
// several gateways share. It has its own tables. Fields that lists are filtered by have
// columns; the rest is one document, beside the history, the input and the result,
// which are large and are read only on request. A change is one statement that names the
// version it was made on, so that one of two concurrent changes fails and can detect it.
package tasksql

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "tasks", Files: migrations} }

// Store implements [tasks.Store].
type Store struct{ db store.Database }

var _ tasks.Store = (*Store)(nil)

// Open migrates the tables and returns a store.
func Open(ctx context.Context, db store.Database) (*Store, error) {
	if err := Tables().Migrate(ctx, db); err != nil {
		return nil, fmt.Errorf("open the tasks: %w", err)
	}
	return &Store{db: db}, nil
}

// doc holds the fields of a task that no query selects by.
type doc struct {
	Kind       tasks.Kind             `json:"kind"`
	Status     string                 `json:"status,omitzero"`
	Invocation string                 `json:"invocation,omitzero"`
	Thread     string                 `json:"thread,omitzero"`
	Provider   capability.ProviderKey `json:"provider,omitzero"`
	Requests   []tasks.Request        `json:"requests,omitzero"`
	Error      *capability.Error      `json:"error,omitzero"`
	Created    time.Time              `json:"created"`
	Call       tasks.Call             `json:"call"`
	Keep       time.Duration          `json:"keep"`
}

func encode(t *tasks.Task) (document, history []byte, err error) {
	document, err = json.Marshal(doc{
		Kind: t.Kind, Status: t.Status, Invocation: t.Invocation, Thread: t.Thread, Provider: t.Provider, Requests: t.Requests, Error: t.Error,
		Created: t.Created, Call: t.Call, Keep: t.Keep,
	})
	if err == nil {
		history, err = jsonx.Marshal(t.History)
	}
	return document, history, err
}

const columns = `id, owner, gateway, surface, context, state, updated, expires, version, doc`

func scan(row interface{ Scan(...any) error }, more ...any) (t tasks.Task, err error) {
	var document []byte
	var updated, expires int64
	into := append([]any{&t.ID, &t.Owner, &t.Gateway, &t.Surface, &t.Context, &t.State, &updated, &expires, &t.Version, &document}, more...)
	if err := row.Scan(into...); err != nil {
		return t, err
	}
	t.Updated, t.Expires = time.Unix(0, updated).UTC(), time.Unix(0, expires).UTC()
	var d doc
	if err := json.Unmarshal(document, &d); err != nil {
		return t, fmt.Errorf("the task %s is damaged: %w", t.ID, err)
	}
	t.Kind, t.Status, t.Invocation, t.Thread, t.Provider, t.Requests, t.Error = d.Kind, d.Status, d.Invocation, d.Thread, d.Provider,
		d.Requests, d.Error
	t.Created, t.Call, t.Keep = d.Created, d.Call, d.Keep
	return t, nil
}

// large decodes the history, input and result into t.
func large(t *tasks.Task, history, input, result []byte) error {
	if len(input) > 0 {
		t.Input = input
	}
	if len(result) > 0 {
		t.Result = result
	}
	if len(history) == 0 {
		return nil
	}
	if err := json.Unmarshal(history, &t.History); err != nil {
		return fmt.Errorf("the history of the task %s is damaged: %w", t.ID, err)
	}
	return nil
}

func ended(t *tasks.Task) int {
	if t.State.Terminal() {
		return 1
	}
	return 0
}

// bytesOf returns b, or an empty slice for nil, because the column must not be NULL.
func bytesOf(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// CreateTask adds t unless its owner has too many open tasks, and removes old ended ones beyond the
// bounds.
func (s *Store) CreateTask(ctx context.Context, t tasks.Task, b tasks.Bounds) (ok bool, err error) {
	document, history, err := encode(&t)
	if err != nil {
		return false, err
	}
	err = s.db.InTx(ctx, "tasks "+t.Owner, func(tx *sql.Tx) error {
		var open int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM tasks WHERE owner = ? AND ended = 0`, t.Owner).Scan(&open); err != nil {
			return err
		}
		if ok = open < b.Open; !ok {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM tasks WHERE id IN (SELECT id FROM (
			SELECT id, ROW_NUMBER() OVER newest AS n, SUM(LENGTH(result) + LENGTH(history)) OVER newest AS bytes
			FROM tasks WHERE owner = ? AND ended = 1 WINDOW newest AS (ORDER BY updated DESC, id DESC)) AS kept WHERE n > ? OR bytes > ?)`,
			t.Owner, b.Ended, b.Bytes); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO tasks (`+columns+
			`, ended, history, input, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.ID, t.Owner, t.Gateway, t.Surface, t.Context, string(t.State), t.Updated.UnixNano(), t.Expires.UnixNano(), t.Version, document,
			ended(&t), history, bytesOf(t.Input), bytesOf(t.Result))
		return err
	})
	return ok && err == nil, err
}

// Task returns a complete task by its id.
func (s *Store) Task(ctx context.Context, id string) (tasks.Task, bool, error) {
	var history, input, result []byte
	t, err := scan(s.db.SQL().QueryRowContext(ctx, `SELECT `+columns+`, history, input, result FROM tasks WHERE id = ?`, id), &history,
		&input, &result)
	if errors.Is(err, sql.ErrNoRows) {
		return tasks.Task{}, false, nil
	}
	if err == nil {
		err = large(&t, history, input, result)
	}
	return t, err == nil, err
}

// Tasks returns a page of tasks, the last changed first, and the total number of matches.
func (s *Store) Tasks(ctx context.Context, q tasks.Query, before time.Time, id string) (list []tasks.Task, total int, err error) {
	where, args := []string{"owner = ?"}, []any{q.Owner}
	also := func(what string, value any) { where, args = append(where, what), append(args, value) }
	if q.Surface != "" {
		also("surface = ?", q.Surface)
	}
	if q.Context != "" {
		also("context = ?", q.Context)
	}
	if q.State != "" {
		also("state = ?", string(q.State))
	}
	if !q.Since.IsZero() {
		also("updated >= ?", q.Since.UnixNano())
	}
	if err := s.db.SQL().QueryRowContext(ctx, `SELECT COUNT(*) FROM tasks WHERE `+strings.Join(where, " AND "),
		args...).Scan(&total); err != nil {
		return nil, 0, err
	}
	if id != "" {
		where, args = append(where, "(updated < ? OR updated = ? AND id < ?)"), append(args, before.UnixNano(), before.UnixNano(), id)
	}
	history, result := `history`, `result`
	if !q.History {
		history = `NULL`
	}
	if !q.Results {
		result = `NULL`
	}
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT `+columns+`, `+history+`, `+result+` FROM tasks WHERE `+strings.Join(where, " AND ")+
		` ORDER BY updated DESC, id DESC LIMIT ?`,
		append(args, q.Limit)...)
	if err != nil {
		return nil, 0, err
	}
	list, err = collect(rows)
	return list, total, err
}

func collect(rows *sql.Rows) (list []tasks.Task, err error) {
	defer rows.Close()
	for rows.Next() {
		var history, result []byte
		t, err := scan(rows, &history, &result)
		if err == nil {
			err = large(&t, history, nil, result)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, rows.Err()
}

// SaveTask stores the next version of a task; ok is false if the stored version is another one.
func (s *Store) SaveTask(ctx context.Context, t tasks.Task) (ok bool, err error) {
	document, history, err := encode(&t)
	if err != nil {
		return false, err
	}
	set := `state = ?, ended = ?, updated = ?, expires = ?, version = ?, doc = ?, history = ?, result = ?`
	args := []any{string(t.State), ended(&t), t.Updated.UnixNano(), t.Expires.UnixNano(), t.Version, document, history, bytesOf(t.Result)}
	if t.State.Terminal() { // an ended task is not repeated, so its input is removed
		t.Input = []byte{}
	}
	if t.Input != nil {
		set, args = set+`, input = ?`, append(args, []byte(t.Input))
	}
	err = s.db.InTx(ctx, "task "+t.ID, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE tasks SET `+set+` WHERE id = ? AND version = ?`,
			append(args[:len(args):len(args)], t.ID, t.Version-1)...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		ok = n > 0
		return err
	})
	return ok && err == nil, err
}

// OpenTasks returns the open tasks of a gateway, without their input.
func (s *Store) OpenTasks(ctx context.Context, gateway string) ([]tasks.Task, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT `+columns+
		`, history, result FROM tasks WHERE ended = 0 AND gateway = ? ORDER BY updated`, gateway)
	if err != nil {
		return nil, err
	}
	return collect(rows)
}

// TakeTasks gives open tasks to a gateway, as their next version, and returns them without their input.
func (s *Store) TakeTasks(ctx context.Context, gateway string, ids []string) (list []tasks.Task, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := []any{gateway}
	for _, id := range ids {
		args = append(args, id)
	}
	err = s.db.InTx(ctx, "tasks", func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `UPDATE tasks SET gateway = ?, version = version + 1 WHERE ended = 0 AND id IN (?`+
			strings.Repeat(`, ?`, len(ids)-1)+`) RETURNING `+columns+`, history, result`, args...)
		if err != nil {
			return err
		}
		list, err = collect(rows)
		return err
	})
	return list, err
}

// SweepTasks removes expired ended tasks.
func (s *Store) SweepTasks(ctx context.Context, now time.Time) error {
	return s.db.InTx(ctx, "tasks", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM tasks WHERE ended = 1 AND expires <= ?`, now.UnixNano())
		return err
	})
}
