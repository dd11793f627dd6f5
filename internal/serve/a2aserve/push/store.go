package push

import (
	"context"
	"database/sql"
	"errors"

	"github.com/junctor-run/junctor/capability"
)

func scan(row interface{ Scan(...any) error }) (c Config, err error) {
	var legacy int64
	err = row.Scan(&c.Task, &c.ID, &c.Owner, &c.URL, &c.Token, &c.Scheme, &c.Credentials, &legacy, &c.delivered)
	c.Legacy = legacy != 0
	return c, err
}

// List returns the addresses of a task of the owner, by id.
func (s *Sender) List(ctx context.Context, owner, task string) (list []Config, err error) {
	rows, err := s.opts.Database.SQL().QueryContext(ctx, `SELECT `+columns+` FROM a2a_push WHERE task = ? AND owner = ? ORDER BY id`, task,
		owner)
	return collect(rows, err)
}

func collect(rows *sql.Rows, err error) (list []Config, _ error) {
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "push", "the addresses cannot be read", err)
	}
	defer rows.Close()
	for rows.Next() {
		c, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, rows.Err()
}

// Get returns one address; ok is false if it does not exist.
func (s *Sender) Get(ctx context.Context, owner, task, id string) (c Config, ok bool, err error) {
	c, err = scan(s.opts.Database.SQL().QueryRowContext(ctx, `SELECT `+columns+` FROM a2a_push WHERE task = ? AND owner = ? AND id = ?`, task,
		owner, id))
	if errors.Is(err, sql.ErrNoRows) {
		return c, false, nil
	}
	return c, err == nil, err
}

// Delete deletes one address. A missing address is ignored.
func (s *Sender) Delete(ctx context.Context, owner, task, id string) error {
	return s.exec(ctx, task, `DELETE FROM a2a_push WHERE task = ? AND owner = ? AND id = ?`, task, owner, id)
}

func (s *Sender) exec(ctx context.Context, task, query string, args ...any) error {
	err := s.opts.Database.InTx(ctx, "a2a_push "+task, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "push", "the address could not be changed", err)
	}
	return nil
}
