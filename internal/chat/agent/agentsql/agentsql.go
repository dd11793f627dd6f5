// Package agentsql stores the runs of the agent and their journals in SQL: a SQLite file, or the
// Postgres server that several gateways share. It has its own tables.
package agentsql

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "agent", Files: migrations} }

// Store implements [agent.Journal].
type Store struct{ db store.Database }

var (
	_ agent.Journal = (*Store)(nil)
	_ agent.Leases  = (*Store)(nil)
)

// Open migrates the tables and returns a store.
func Open(ctx context.Context, db store.Database) (*Store, error) {
	if err := Tables().Migrate(ctx, db); err != nil {
		return nil, fmt.Errorf("open the runs of the agent: %w", err)
	}
	return &Store{db: db}, nil
}

// doc holds the fields of a run that no query selects by.
type doc struct {
	Approvals  []string          `json:"approvals,omitzero"`
	Error      *capability.Error `json:"error,omitzero"`
	ModelCalls int               `json:"model_calls"`
	ToolCalls  int               `json:"tool_calls"`
	Tokens     int               `json:"tokens,omitzero"`
	Cost       int64             `json:"cost,omitzero"`
	Worked     time.Duration     `json:"worked"`
	Seq        int64             `json:"seq"`
	Route      *capability.Route `json:"route,omitzero"`
}

const columns = `id, person, session, gateway, term, state, created, updated, doc`

func encode(r agent.Run) (document []byte, ended int, err error) {
	document, err = json.Marshal(doc{r.Approvals, r.Error, r.ModelCalls, r.ToolCalls, r.Tokens, r.Cost, r.Worked, r.Seq, r.Route})
	if r.State.Ended() {
		ended = 1
	}
	return document, ended, err
}

// Begin implements [agent.Journal]. The lock of the conversation makes the second of two concurrent runs
// see the first.
func (s *Store) Begin(ctx context.Context, r agent.Run, records ...agent.Record) (other agent.Run, ok bool, err error) {
	document, ended, err := encode(r)
	if err != nil {
		return other, false, err
	}
	err = s.db.InTx(ctx, "agent conversation "+r.Person+" "+r.Session, func(tx *sql.Tx) error {
		ok = false
		other, err = scan(tx.QueryRowContext(ctx, `SELECT `+columns+` FROM agent_runs WHERE person = ? AND session = ? AND ended = 0
			ORDER BY created DESC LIMIT 1`, r.Person, r.Session))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		ok = true
		if _, err := tx.ExecContext(ctx, `INSERT INTO agent_runs (`+columns+`, ended) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			r.ID, r.Person, r.Session, r.Gateway, r.Term, string(r.State), r.Created.UnixNano(), r.Updated.UnixNano(), document, ended,
		); err != nil {
			return err
		}
		return add(ctx, tx, r.ID, records)
	})
	return other, ok && err == nil, err
}

// add appends records, and removes the notes that they answer.
func add(ctx context.Context, tx *sql.Tx, run string, records []agent.Record) error {
	for _, rec := range records {
		if _, err := tx.ExecContext(ctx, `INSERT INTO agent_journal (run, seq, kind, time, doc) VALUES (?, ?, ?, ?, ?)`,
			run, rec.Seq, string(rec.Kind), rec.Time.UnixNano(), []byte(rec.Doc)); err != nil {
			return err
		}
		if rec.Note == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM agent_notes WHERE id = ?`, rec.Note); err != nil {
			return err
		}
	}
	return nil
}

// Save implements [agent.Journal].
func (s *Store) Save(ctx context.Context, r agent.Run, used agent.Used, records ...agent.Record) error {
	document, ended, err := encode(r)
	if err != nil {
		return err
	}
	return s.db.InTx(ctx, "agent run "+r.ID, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE agent_runs SET state = ?, updated = ?, doc = ?, ended = ? WHERE id = ? AND gateway = ? AND term = ?`,
			string(r.State), r.Updated.UnixNano(), document, ended, r.ID, r.Gateway, r.Term)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, agent.ErrTaken)
		}
		if err := add(ctx, tx, r.ID, records); err != nil || used == (agent.Used{}) {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO agent_usage (person, day, model_calls, tool_calls, tokens, cost) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (person, day) DO UPDATE SET model_calls = agent_usage.model_calls + excluded.model_calls,
			tool_calls = agent_usage.tool_calls + excluded.tool_calls, tokens = agent_usage.tokens + excluded.tokens,
			cost = agent_usage.cost + excluded.cost`,
			r.Person, agent.DayOf(r.Updated), used.ModelCalls, used.ToolCalls, used.Tokens, used.Cost)
		return err
	})
}

// Usage implements [agent.Journal].
func (s *Store) Usage(ctx context.Context, person, from, to string) (list []agent.Day, err error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT person, day, model_calls, tool_calls, tokens, cost FROM agent_usage
		WHERE day >= ? AND day <= ? AND (person = ? OR ? = '') ORDER BY day DESC, cost DESC, tokens DESC, person`, from, to, person, person)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d agent.Day
		if err := rows.Scan(&d.Person, &d.Day, &d.ModelCalls, &d.ToolCalls, &d.Tokens, &d.Cost); err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return list, rows.Err()
}

func scan(row interface{ Scan(...any) error }) (r agent.Run, err error) {
	var document []byte
	var created, updated int64
	if err := row.Scan(&r.ID, &r.Person, &r.Session, &r.Gateway, &r.Term, &r.State, &created, &updated, &document); err != nil {
		return r, err
	}
	var d doc
	if err := json.Unmarshal(document, &d); err != nil {
		return r, fmt.Errorf("the run %s is damaged: %w", r.ID, err)
	}
	r.Created, r.Updated = time.Unix(0, created).UTC(), time.Unix(0, updated).UTC()
	r.Approvals, r.Error, r.ModelCalls, r.ToolCalls, r.Worked, r.Seq = d.Approvals, d.Error, d.ModelCalls, d.ToolCalls, d.Worked, d.Seq
	r.Route, r.Tokens, r.Cost = d.Route, d.Tokens, d.Cost
	return r, nil
}

func collect(rows *sql.Rows, err error) (list []agent.Run, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// Run implements [agent.Journal].
func (s *Store) Run(ctx context.Context, id string) (agent.Run, error) {
	r, err := scan(s.db.SQL().QueryRowContext(ctx, `SELECT `+columns+` FROM agent_runs WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return r, agent.NotFound(id)
	}
	return r, err
}

// Runs implements [agent.Journal]. A cursor is the time and the id of the last run before it.
func (s *Store) Runs(ctx context.Context, q agent.Query) ([]agent.Run, string, error) {
	where, args := []string{"1 = 1"}, []any{}
	also := func(what string, values ...any) { where, args = append(where, what), append(args, values...) }
	if q.Person != "" {
		also("person = ?", q.Person)
	}
	if q.Session != "" {
		also("session = ?", q.Session)
	}
	if q.State != "" {
		also("state = ?", string(q.State))
	}
	if q.Open {
		also("ended = 0")
	}
	if q.Cursor != "" {
		at, id, ok := strings.Cut(q.Cursor, "-")
		n, err := strconv.ParseInt(at, 36, 64)
		if !ok || err != nil {
			return nil, "", capability.Errorf(capability.CodeInvalidInput, "agent", "%q is not a cursor of this list", q.Cursor)
		}
		also("(created < ? OR created = ? AND id < ?)", n, n, id)
	}
	list, err := collect(s.db.SQL().QueryContext(ctx, `SELECT `+columns+` FROM agent_runs WHERE `+strings.Join(where, " AND ")+
		` ORDER BY created DESC, id DESC LIMIT ?`, append(args, q.Limit+1)...))
	if err != nil || len(list) <= q.Limit {
		return list, "", err
	}
	list = list[:q.Limit]
	last := list[len(list)-1]
	return list, strconv.FormatInt(last.Created.UnixNano(), 36) + "-" + last.ID, nil
}

// Open implements [agent.Journal].
func (s *Store) Open(ctx context.Context, gateway string) ([]agent.Run, error) {
	if !s.db.Shared() { // the name of the gateway is that of the host, which may have changed
		if _, err := s.db.SQL().ExecContext(ctx, `UPDATE agent_runs SET gateway = ? WHERE ended = 0 AND gateway <> ?`, gateway, gateway); err != nil {
			return nil, err
		}
	}
	return collect(s.db.SQL().QueryContext(ctx, `SELECT `+columns+` FROM agent_runs WHERE ended = 0 AND gateway = ? ORDER BY created`, gateway))
}

// Records implements [agent.Journal].
func (s *Store) Records(ctx context.Context, run string) (list []agent.Record, err error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT seq, kind, time, doc FROM agent_journal WHERE run = ? ORDER BY seq`, run)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var rec agent.Record
		var at int64
		var document []byte
		if err := rows.Scan(&rec.Seq, &rec.Kind, &at, &document); err != nil {
			return nil, err
		}
		rec.Time, rec.Doc = time.Unix(0, at).UTC(), document
		list = append(list, rec)
	}
	return list, rows.Err()
}

// Forget implements [agent.Journal].
func (s *Store) Forget(ctx context.Context, person, session string) error {
	return s.remove(ctx, `person = ? AND session = ? AND ended = 1`, person, session)
}

// Sweep implements [agent.Journal]. It also removes old notes that were not answered.
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	if s.db.Shared() {
		if _, err := s.exec(ctx, "agent notes", `DELETE FROM agent_notes WHERE created < `+s.now()+` - ?`, noteTTL.Nanoseconds()); err != nil {
			return err
		}
	}
	return s.remove(ctx, `ended = 1 AND updated < ?`, before.UnixNano())
}

// remove removes the runs that a condition selects, with their records.
func (s *Store) remove(ctx context.Context, where string, args ...any) error {
	return s.db.InTx(ctx, "agent runs", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM agent_journal WHERE run IN (SELECT id FROM agent_runs WHERE `+where+`)`, args...); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM agent_runs WHERE `+where, args...)
		return err
	})
}
