// Package channelsql stores the accounts of chat services, their people, and what arrives and
// leaves, in SQL: a SQLite file, or the Postgres server that several gateways share.
package channelsql

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/store"
)

//go:embed migrations/*.sql migrations/postgres/*.sql
var migrations embed.FS

// Tables returns the package's tables.
func Tables() store.Tables { return store.Tables{Owner: "channels", Files: migrations} }

// Store implements [channels.Store].
type Store struct{ db store.Database }

var _ channels.Store = (*Store)(nil)

// Open migrates the tables and returns a store.
func Open(ctx context.Context, db store.Database) (*Store, error) {
	if err := Tables().Migrate(ctx, db); err != nil {
		return nil, fmt.Errorf("open the channels: %w", err)
	}
	return &Store{db: db}, nil
}

func (s *Store) exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := s.db.SQL().ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// collect reads the rows of a query, whose first column is a JSON document. more returns where the
// other columns go, which are not in the document.
func collect[T any](rows *sql.Rows, err error, more func(*T) []any) (list []T, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v T
		var doc []byte
		var rest []any
		if more != nil {
			rest = more(&v)
		}
		if err := rows.Scan(append([]any{&doc}, rest...)...); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(doc, &v); err != nil {
			return nil, fmt.Errorf("a record of a channel is damaged: %w", err)
		}
		list = append(list, v)
	}
	return list, rows.Err()
}

func missing(what string, v any) error {
	return capability.Errorf(capability.CodeNotFound, "channels", "%s does not exist: %v", what, v)
}

// CreateAccount implements [channels.Store].
func (s *Store) CreateAccount(ctx context.Context, a channels.Account) error {
	doc, err := json.Marshal(a)
	if err != nil {
		return err
	}
	n, err := s.exec(ctx, `INSERT INTO channel_accounts (kind, account, doc, cursor, tries, locked) VALUES (?, ?, ?, '', 0, 0)
		ON CONFLICT (kind, account) DO NOTHING`, a.Kind, a.Account, doc)
	if err == nil && n == 0 {
		err = capability.Errorf(capability.CodeConflict, "channels.add", "the account %s exists already", a.Ref).
			With("", "remove it first with: junctor channels remove "+a.String())
	}
	return err
}

// DeleteAccount implements [channels.Store].
func (s *Store) DeleteAccount(ctx context.Context, r channels.Ref) error {
	return s.db.InTx(ctx, "channel "+r.String(), func(tx *sql.Tx) error {
		for _, table := range []string{"channel_sends", "channel_updates", "channel_codes", "channel_people", "channel_accounts"} {
			res, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE kind = ? AND account = ?`, r.Kind, r.Account)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); table == "channel_accounts" && err == nil && n == 0 {
				return missing("the account", r)
			}
		}
		return nil
	})
}

// Accounts implements [channels.Store].
func (s *Store) Accounts(ctx context.Context) ([]channels.Account, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT doc, cursor FROM channel_accounts ORDER BY kind, account`)
	return collect(rows, err, func(a *channels.Account) []any { return []any{&a.Cursor} })
}

// SavePerson implements [channels.Store].
func (s *Store) SavePerson(ctx context.Context, p channels.Person) error {
	doc, err := json.Marshal(p)
	if err == nil {
		_, err = s.exec(ctx, `INSERT INTO channel_people (kind, account, person, doc) VALUES (?, ?, ?, ?)
			ON CONFLICT (kind, account, person) DO UPDATE SET doc = excluded.doc`, p.Kind, p.Account, p.User, doc)
	}
	return err
}

// DeletePerson implements [channels.Store].
func (s *Store) DeletePerson(ctx context.Context, r channels.Ref, user string) error {
	n, err := s.exec(ctx, `DELETE FROM channel_people WHERE kind = ? AND account = ? AND person = ?`, r.Kind, r.Account, user)
	if err == nil && n == 0 {
		err = missing("the person", user)
	}
	return err
}

// Person implements [channels.Store].
func (s *Store) Person(ctx context.Context, r channels.Ref, user string) (channels.Person, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT doc FROM channel_people WHERE kind = ? AND account = ? AND person = ?`,
		r.Kind, r.Account, user)
	list, err := collect[channels.Person](rows, err, nil)
	if err == nil && len(list) == 0 {
		return channels.Person{}, missing("the person", user)
	}
	if err != nil {
		return channels.Person{}, err
	}
	return list[0], nil
}

// People implements [channels.Store].
func (s *Store) People(ctx context.Context, r channels.Ref) ([]channels.Person, error) {
	query, args := `SELECT doc FROM channel_people ORDER BY kind, account, person`, []any{}
	if r != (channels.Ref{}) {
		query, args = `SELECT doc FROM channel_people WHERE kind = ? AND account = ? ORDER BY person`, []any{r.Kind, r.Account}
	}
	rows, err := s.db.SQL().QueryContext(ctx, query, args...)
	return collect[channels.Person](rows, err, nil)
}

// CreateCode implements [channels.Store].
func (s *Store) CreateCode(ctx context.Context, c channels.Code, now time.Time) error {
	doc, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err = s.exec(ctx, `DELETE FROM channel_codes WHERE expires <= ?`, now.UnixNano()); err != nil {
		return err
	}
	_, err = s.exec(ctx, `INSERT INTO channel_codes (kind, account, hash, doc, expires) VALUES (?, ?, ?, ?, ?)`,
		c.Kind, c.Account, c.Hash, doc, c.Expires.UnixNano())
	return err
}

// UseCode implements [channels.Store].
func (s *Store) UseCode(ctx context.Context, r channels.Ref, hash string, now time.Time) (c channels.Code, err error) {
	var refused error
	err = s.db.InTx(ctx, "channel "+r.String(), func(tx *sql.Tx) error {
		refused = nil
		var tries, locked int64
		if err := tx.QueryRowContext(ctx, `SELECT tries, locked FROM channel_accounts WHERE kind = ? AND account = ?`, r.Kind, r.Account).
			Scan(&tries, &locked); err != nil {
			return err
		}
		if locked > now.UnixNano() {
			refused = capability.Errorf(capability.CodeDenied, "channels.pair", "pairing is locked after %d wrong codes; try again in %s",
				channels.MaxTries, time.Duration(locked-now.UnixNano()).Round(time.Minute)).With("pairing_locked", "")
			return nil
		}
		var doc []byte
		err := tx.QueryRowContext(ctx, `DELETE FROM channel_codes WHERE kind = ? AND account = ? AND hash = ? AND expires > ? RETURNING doc`,
			r.Kind, r.Account, hash, now.UnixNano()).Scan(&doc)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			refused = capability.Errorf(capability.CodeDenied, "channels.pair", "this code is not valid").
				With("pairing_code_wrong", "an operator makes one with: junctor channels pair "+r.String())
			if tries++; tries >= channels.MaxTries {
				tries, locked = 0, now.Add(channels.LockTTL).UnixNano()
			}
		case err != nil:
			return err
		default:
			tries = 0
			if err := json.Unmarshal(doc, &c); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `UPDATE channel_accounts SET tries = ?, locked = ? WHERE kind = ? AND account = ?`,
			tries, locked, r.Kind, r.Account)
		return err
	})
	return c, errors.Join(err, refused)
}

// Receive implements [channels.Store].
func (s *Store) Receive(ctx context.Context, r channels.Ref, cursor string, list []channels.Update, now time.Time,
) (fresh []channels.Received, err error) {
	err = s.db.InTx(ctx, "channel "+r.String(), func(tx *sql.Tx) error {
		fresh = nil
		for _, u := range list {
			doc, err := json.Marshal(u)
			if err != nil {
				return err
			}
			one := channels.Received{Ref: r, Update: u}
			err = tx.QueryRowContext(ctx, `INSERT INTO channel_updates (kind, account, id, doc, handled, received) VALUES (?, ?, ?, ?, 0, ?)
				ON CONFLICT (kind, account, id) DO NOTHING RETURNING seq`, r.Kind, r.Account, u.ID, doc, now.UnixNano()).Scan(&one.Seq)
			if errors.Is(err, sql.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			fresh = append(fresh, one)
		}
		if cursor == "" {
			return nil
		}
		_, err := tx.ExecContext(ctx, `UPDATE channel_accounts SET cursor = ? WHERE kind = ? AND account = ?`, cursor, r.Kind, r.Account)
		return err
	})
	return fresh, err
}

// Unhandled implements [channels.Store].
func (s *Store) Unhandled(ctx context.Context, r channels.Ref, after int64, limit int) ([]channels.Received, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT doc, seq, handled FROM channel_updates WHERE kind = ? AND account = ? AND handled <> 1
		AND seq > ? ORDER BY seq LIMIT ?`, r.Kind, r.Account, after, limit)
	type row struct {
		channels.Update
		seq, state int64
	}
	list, err := collect(rows, err, func(v *row) []any { return []any{&v.seq, &v.state} })
	out := make([]channels.Received, len(list))
	for i, v := range list {
		out[i] = channels.Received{Ref: r, Seq: v.seq, Update: v.Update, Again: true, Begun: v.state == 2}
	}
	return out, err
}

// Begun implements [channels.Store].
func (s *Store) Begun(ctx context.Context, seq int64) error {
	_, err := s.exec(ctx, `UPDATE channel_updates SET handled = 2 WHERE seq = ?`, seq)
	return err
}

// Handled implements [channels.Store].
func (s *Store) Handled(ctx context.Context, seq int64) error {
	_, err := s.exec(ctx, `UPDATE channel_updates SET handled = 1, doc = ? WHERE seq = ?`, []byte("{}"), seq)
	return err
}

const sendColumns = `doc, sendkey, conversation, id, kind, account, about, state, message, created, fault`

// sends reads sends. The document of a send is its operation.
func sends(rows *sql.Rows, err error) (list []channels.Send, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var v channels.Send
		var doc, fault []byte
		var created int64
		var key, conversation string
		err := rows.Scan(&doc, &key, &conversation, &v.ID, &v.Kind, &v.Account, &v.About, &v.State, &v.ServiceID, &created, &fault)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(doc, &v.Op); err != nil {
			return nil, fmt.Errorf("the send %d is damaged: %w", v.ID, err)
		}
		v.Op.Key, v.Op.Conversation = key, conversation // the document of one that ended is empty
		if len(fault) > 0 {
			v.Error = &capability.Error{}
			if err := json.Unmarshal(fault, v.Error); err != nil {
				return nil, fmt.Errorf("the send %d is damaged: %w", v.ID, err)
			}
		}
		v.Created = time.Unix(0, created).UTC()
		list = append(list, v)
	}
	return list, rows.Err()
}

func one(list []channels.Send, err error, what any) (channels.Send, error) {
	if err == nil && len(list) == 0 {
		err = missing("the message", what)
	}
	if err != nil {
		return channels.Send{}, err
	}
	return list[0], nil
}

// CreateSend implements [channels.Store].
func (s *Store) CreateSend(ctx context.Context, v channels.Send) (channels.Send, bool, error) {
	doc, err := json.Marshal(v.Op)
	if err != nil {
		return v, false, err
	}
	err = s.db.SQL().QueryRowContext(ctx, `INSERT INTO channel_sends
		(kind, account, sendkey, conversation, message, about, state, doc, fault, created, changed) VALUES (?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?)
		ON CONFLICT (kind, account, sendkey) DO NOTHING RETURNING id`, v.Kind, v.Account, v.Op.Key, v.Op.Conversation, v.About, v.State, doc,
		[]byte{}, v.Created.UnixNano(), v.Created.UnixNano()).Scan(&v.ID)
	if !errors.Is(err, sql.ErrNoRows) {
		return v, err == nil, err
	}
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT `+sendColumns+` FROM channel_sends WHERE kind = ? AND account = ? AND sendkey = ?`,
		v.Kind, v.Account, v.Op.Key)
	list, err := sends(rows, err)
	v, err = one(list, err, v.Op.Key)
	return v, false, err
}

// SaveSend implements [channels.Store].
func (s *Store) SaveSend(ctx context.Context, v channels.Send, now time.Time) error {
	fault := []byte{}
	if v.Error != nil {
		var err error
		if fault, err = json.Marshal(v.Error); err != nil {
			return err
		}
	}
	query := `UPDATE channel_sends SET state = ?, message = ?, fault = ?, changed = ? WHERE id = ?`
	if v.State != channels.SendPending && v.State != channels.SendBegun && v.About == "" {
		query = `UPDATE channel_sends SET state = ?, message = ?, fault = ?, changed = ?, doc = '{}' WHERE id = ?`
	}
	_, err := s.exec(ctx, query, v.State, v.ServiceID, fault, now.UnixNano(), v.ID)
	return err
}

// DropSend implements [channels.Store].
func (s *Store) DropSend(ctx context.Context, id int64) error {
	_, err := s.exec(ctx, `DELETE FROM channel_sends WHERE id = ?`, id)
	return err
}

// Unsent implements [channels.Store].
func (s *Store) Unsent(ctx context.Context, r channels.Ref, after int64, limit int) ([]channels.Send, error) {
	return sends(s.db.SQL().QueryContext(ctx, `SELECT `+sendColumns+` FROM channel_sends WHERE kind = ? AND account = ?
		AND state IN ('pending', 'begun') AND id > ? ORDER BY id LIMIT ?`, r.Kind, r.Account, after, limit))
}

// Shown implements [channels.Store].
func (s *Store) Shown(ctx context.Context, approval string) ([]channels.Send, error) {
	return sends(s.db.SQL().QueryContext(ctx, `SELECT `+sendColumns+` FROM channel_sends WHERE about = ? AND about <> '' ORDER BY id`, approval))
}

// ShownAs implements [channels.Store].
func (s *Store) ShownAs(ctx context.Context, r channels.Ref, conversation, message string) (channels.Send, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT `+sendColumns+` FROM channel_sends WHERE kind = ? AND account = ? AND conversation = ?
		AND message = ? AND about <> ''`, r.Kind, r.Account, conversation, message)
	list, err := sends(rows, err)
	return one(list, err, message)
}

// Settled implements [channels.Store].
func (s *Store) Settled(ctx context.Context, approval string) error {
	_, err := s.exec(ctx, `UPDATE channel_sends SET doc = '{}' WHERE about = ? AND about <> '' AND state NOT IN ('pending', 'begun')`, approval)
	return err
}

// Sweep implements [channels.Store].
func (s *Store) Sweep(ctx context.Context, before time.Time) error {
	_, err := s.exec(ctx, `DELETE FROM channel_updates WHERE handled = 1 AND received < ?`, before.UnixNano())
	if err == nil {
		_, err = s.exec(ctx, `DELETE FROM channel_sends WHERE state NOT IN ('pending', 'begun') AND changed < ?`, before.UnixNano())
	}
	return err
}
