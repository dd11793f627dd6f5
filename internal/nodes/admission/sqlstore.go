package admission

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Database is the part of the server's database that a SQLStore uses. It has the table of nodes.
type Database interface {
	SQL() *sql.DB
	// InTx runs f in a transaction that holds the lock named key from its beginning; f may run
	// more than once.
	InTx(ctx context.Context, key string, f func(*sql.Tx) error) error
}

// SQLStore implements [Store] on the server's database.
type SQLStore struct{ db Database }

// NewSQLStore returns a store on db.
func NewSQLStore(db Database) *SQLStore { return &SQLStore{db} }

const nodeColumns = `id, public_key, token, created`

func scanNode(row interface{ Scan(dest ...any) error }) (n Node, err error) {
	var created int64
	if err = row.Scan(&n.ID, &n.Key, &n.Token, &created); err == nil && created != 0 {
		n.Created = time.Unix(0, created).UTC()
	}
	return n, err
}

// ClaimNode adds n unless its id or key is taken, and returns the row that has it.
func (s *SQLStore) ClaimNode(ctx context.Context, n Node) (got Node, err error) {
	err = s.db.InTx(ctx, "nodes", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO nodes (`+nodeColumns+`) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			n.ID, n.Key, n.Token, created(n)); err != nil {
			return err
		}
		got, err = scanNode(tx.QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes
			WHERE id = ? OR public_key = ? AND public_key <> '' ORDER BY CASE WHEN id = ? THEN 0 ELSE 1 END LIMIT 1`, n.ID, n.Key, n.ID))
		return err
	})
	return got, err
}

// MoveNode changes the token of a row, if it still has from.
func (s *SQLStore) MoveNode(ctx context.Context, id, from, to string) (bool, error) {
	return changed(s.db.SQL().ExecContext(ctx, `UPDATE nodes SET token = ? WHERE id = ? AND token = ?`, to, id, from))
}

// Node returns a row by its id.
func (s *SQLStore) Node(ctx context.Context, id string) (Node, bool, error) {
	return found(scanNode(s.db.SQL().QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes WHERE id = ?`, id)))
}

// NodeByKey returns a row by its key.
func (s *SQLStore) NodeByKey(ctx context.Context, key string) (Node, bool, error) {
	return found(scanNode(s.db.SQL().QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes WHERE public_key = ? AND public_key <> ''`, key)))
}

// found reports whether there was a row; its absence is not an error.
func found(n Node, err error) (Node, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return n, false, nil
	}
	return n, err == nil, err
}

// Nodes returns all rows, by id.
func (s *SQLStore) Nodes(ctx context.Context) ([]Node, error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT `+nodeColumns+` FROM nodes ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Node
	for rows.Next() {
		n, err := scanNode(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, rows.Err()
}

// RemoveNode removes a row and reports whether it was there.
func (s *SQLStore) RemoveNode(ctx context.Context, id string) (bool, error) {
	return changed(s.db.SQL().ExecContext(ctx, `DELETE FROM nodes WHERE id = ?`, id))
}

// created returns the stored form of the time at which n was admitted; zero for none.
func created(n Node) int64 {
	if n.Created.IsZero() {
		return 0
	}
	return n.Created.UnixNano()
}

// changed reports whether a statement changed a row.
func changed(res sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
