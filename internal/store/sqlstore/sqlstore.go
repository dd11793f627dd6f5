// Package sqlstore implements session.Store in the server's database, so that messages and
// last results survive the process and are shared by all gateways with the same database. It
// passes the suite in sessiontest.
package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables, which must be migrated before [New].
func Tables() store.Tables { return store.Tables{Owner: "session", Files: migrations} }

// Database is the part of [store.DB] that the store uses.
type Database interface {
	SQL() *sql.DB
	// InTx runs f in a transaction that holds the lock of key from its beginning. f may run
	// more than once.
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// Store is a session.Store over a database.
type Store struct {
	db *sql.DB
	tx func(ctx context.Context, key string, f func(*sql.Tx) error) error
}

var _ session.Store = (*Store)(nil)

// New returns a store. The caller keeps the ownership of the database.
func New(db Database) *Store { return &Store{db.SQL(), db.InTx} }

// explain returns a database error as a *capability.Error without its text.
func explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return capability.AsError(ctx.Err())
	}
	if _, said := errors.AsType[*capability.Error](err); said { // from the shared database, which does not respond
		return err
	}
	return capability.Wrap(capability.CodeFailed, "session", "the session cannot be read or written", err)
}

func (s *Store) inTx(ctx context.Context, key string, f func(*sql.Tx) error) error {
	return explain(ctx, s.tx(ctx, key, f))
}

// Keys of transactions. Results are bounded over all owners, sessions per principal.
const allResults = "session results"

func sessionsOf(principal string) string { return "sessions " + principal }

// AppendMessage implements session.Store.
func (s *Store) AppendMessage(ctx context.Context, o session.Owner, m session.Message, b session.Bounds) (seq int64, err error) {
	err = s.inTx(ctx, sessionsOf(o.Principal), func(tx *sql.Tx) error {
		var id int64
		err := tx.QueryRowContext(ctx, `INSERT INTO session_sessions (principal, session, created, active, last,
		messages) VALUES (?1, ?2, ?3, ?3, 0, 0)
			ON CONFLICT (principal, session) DO UPDATE SET active = excluded.active RETURNING id`, o.Principal, o.Session,
			m.Time.UnixNano()).Scan(&id)
		if err != nil {
			return err
		}
		err = tx.QueryRowContext(ctx, `INSERT INTO session_messages (owner, role, text, metadata, time) VALUES (?, ?, ?, ?, ?) RETURNING seq`,
			id, m.Role, m.Text, []byte(m.Metadata), m.Time.UnixNano()).Scan(&seq)
		if err != nil {
			return err
		}
		var count int
		err = tx.QueryRowContext(ctx, `UPDATE session_sessions SET last = ?2, messages = messages + 1 WHERE id = ?1 RETURNING messages`, id,
			seq).Scan(&count)
		if err != nil {
			return err
		}
		if over := count - b.Messages; over > 0 {
			if _, err := tx.ExecContext(ctx, `DELETE FROM session_messages WHERE seq IN (SELECT seq FROM session_messages WHERE owner
			= ? ORDER BY seq LIMIT ?)`, id, over); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `UPDATE session_sessions SET messages = messages - ?2 WHERE id = ?1`, id, over); err != nil {
				return err
			}
		}
		if count > 1 {
			return nil // no new session, so the bound cannot be exceeded
		}
		return drop(ctx, tx, `id IN (SELECT id FROM session_sessions WHERE principal = ? ORDER BY last DESC LIMIT 9223372036854775807 OFFSET ?)`,
			o.Principal, b.Sessions)
	})
	return seq, err
}

// drop deletes the sessions that match a condition, with their messages and results.
func drop(ctx context.Context, tx *sql.Tx, where string, args ...any) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM session_results WHERE (principal, session) IN (SELECT principal,
	session FROM session_sessions WHERE `+where+`)`, args...)
	if err == nil {
		_, err = tx.ExecContext(ctx, `DELETE FROM session_sessions WHERE `+where, args...)
	}
	return err
}

// Messages implements session.Store.
func (s *Store) Messages(ctx context.Context, o session.Owner, after int64, limit int) ([]session.Message, error) {
	return s.messages(ctx, `m.seq > ? ORDER BY m.seq LIMIT ?`, o, after, limit)
}

// RecentMessages implements session.Store.
func (s *Store) RecentMessages(ctx context.Context, o session.Owner, limit int) ([]session.Message, error) {
	out, err := s.messages(ctx, `m.seq > ? ORDER BY m.seq DESC LIMIT ?`, o, 0, limit)
	slices.Reverse(out)
	return out, err
}

func (s *Store) messages(ctx context.Context, which string, o session.Owner, after int64, limit int) ([]session.Message, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT m.seq, m.role, m.text, m.metadata, m.time FROM session_messages m
		JOIN session_sessions s ON s.id = m.owner WHERE s.principal = ? AND s.session = ? AND `+which, o.Principal, o.Session, after, limit)
	if err != nil {
		return nil, explain(ctx, err)
	}
	defer rows.Close()
	var out []session.Message
	for rows.Next() {
		var m session.Message
		var metadata []byte
		var at int64
		if err := rows.Scan(&m.Seq, &m.Role, &m.Text, &metadata, &at); err != nil {
			return nil, explain(ctx, err)
		}
		if len(metadata) > 0 {
			m.Metadata = json.RawMessage(metadata)
		}
		m.Time = time.Unix(0, at).UTC()
		out = append(out, m)
	}
	return out, explain(ctx, rows.Err())
}

// Sessions implements session.Store.
func (s *Store) Sessions(ctx context.Context, principal string, limit int) ([]session.Info, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT session, messages, created,
	active FROM session_sessions WHERE principal = ? ORDER BY last DESC LIMIT ?`, principal, limit)
	if err != nil {
		return nil, explain(ctx, err)
	}
	defer rows.Close()
	var out []session.Info
	for rows.Next() {
		var i session.Info
		var created, active int64
		if err := rows.Scan(&i.Session, &i.Messages, &created, &active); err != nil {
			return nil, explain(ctx, err)
		}
		i.Created, i.Active = time.Unix(0, created).UTC(), time.Unix(0, active).UTC()
		out = append(out, i)
	}
	return out, explain(ctx, rows.Err())
}

// DeleteSession implements session.Store.
func (s *Store) DeleteSession(ctx context.Context, o session.Owner) (found bool, err error) {
	err = s.inTx(ctx, sessionsOf(o.Principal), func(tx *sql.Tx) error {
		found = false
		for _, table := range []string{"session_sessions", "session_results"} {
			n, err := affected(tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE principal = ? AND session = ?`, o.Principal, o.Session))
			if err != nil {
				return err
			}
			found = found || n > 0
		}
		return nil
	})
	return found, err
}

// SweepSessions implements session.Store.
func (s *Store) SweepSessions(ctx context.Context, before time.Time) (n int, err error) {
	err = s.inTx(ctx, allResults, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM session_sessions WHERE active < ?`, before.UnixNano()).Scan(&n); err != nil ||
			n == 0 {
			return err
		}
		return drop(ctx, tx, `active < ?`, before.UnixNano())
	})
	return n, err
}

// PutResult implements session.Store.
func (s *Store) PutResult(ctx context.Context, o session.Owner, r session.Result, most session.ResultBounds) error {
	about, err := jsonx.Marshal(r)
	if err != nil {
		return explain(ctx, err)
	}
	return s.inTx(ctx, allResults, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM session_results WHERE principal = ? AND session = ? AND extension = ?`, o.Principal,
			o.Session, r.Extension); err != nil {
			return err
		}
		var id int64
		err := tx.QueryRowContext(ctx, `INSERT INTO session_results (principal, session, extension, text, bytes, about, saved, used)
			VALUES (?, ?, ?, ?, ?, ?, ?, (SELECT coalesce(max(used), 0) + 1 FROM session_results)) RETURNING id`,
			o.Principal, o.Session, r.Extension, r.Text, len(r.Text), about, r.Saved.UnixNano()).Scan(&id)
		if err != nil {
			return err
		}
		var entries int
		var bytes int64
		if err := tx.QueryRowContext(ctx, `SELECT count(*), sum(bytes) FROM session_results`).Scan(&entries, &bytes); err != nil {
			return err
		}
		for ; entries > 1 && (entries > most.Entries || bytes > most.Bytes); entries-- {
			var gone int64
			err := tx.QueryRowContext(ctx, `DELETE FROM session_results WHERE id = (SELECT id FROM session_results WHERE id <> ? ORDER
			BY used LIMIT 1) RETURNING bytes`, id).Scan(&gone)
			if err != nil {
				return err
			}
			bytes -= gone
		}
		return nil
	})
}

// LastResult implements session.Store.
func (s *Store) LastResult(ctx context.Context, o session.Owner, extension string, before,
	_ time.Time,
) (r session.Result, ok bool, err error) {
	err = s.inTx(ctx, allResults, func(tx *sql.Tx) error {
		r, ok = session.Result{}, false
		var id, saved int64
		var about []byte
		err := tx.QueryRowContext(ctx, `SELECT id, text, about, saved FROM session_results WHERE principal = ?1 AND session = ?2
			AND (?3 = '' OR extension = ?3) AND saved >= ?4 ORDER BY id DESC LIMIT 1`, o.Principal, o.Session, extension, before.UnixNano()).
			Scan(&id, &r.Text, &about, &saved)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err == nil {
			err = jsonx.Unmarshal(about, &r)
		}
		if err != nil {
			return err
		}
		r.Saved, ok = time.Unix(0, saved), true
		_, err = tx.ExecContext(ctx, `UPDATE session_results SET used = (SELECT max(used) + 1 FROM session_results) WHERE id = ?`, id)
		return err
	})
	return r, ok && err == nil, err
}

// ClearResults implements session.Store.
func (s *Store) ClearResults(ctx context.Context, o session.Owner) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM session_results WHERE principal = ? AND session = ?`, o.Principal, o.Session)
	return explain(ctx, err)
}

// SweepResults implements session.Store.
func (s *Store) SweepResults(ctx context.Context, before time.Time) (int, error) {
	n, err := affected(s.db.ExecContext(ctx, `DELETE FROM session_results WHERE saved < ?`, before.UnixNano()))
	return int(n), explain(ctx, err)
}

// ResultStats implements session.Store.
func (s *Store) ResultStats(ctx context.Context) (entries int, bytes int64, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT count(*), coalesce(sum(bytes), 0) FROM session_results`).Scan(&entries, &bytes)
	return entries, bytes, explain(ctx, err)
}

func affected(res sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}
