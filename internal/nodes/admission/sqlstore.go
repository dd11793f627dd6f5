package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/junctor-run/junctor/internal/nodes/admission"
)

const nodeColumns = `id, public_key, token, created`

func scanNode(s scanner) (n admission.Node, err error) {
	err = s.Scan(&n.ID, &n.Key, &n.Token, instant{&n.Created})
	return n, err
}

// ClaimNode adds n unless its id or key is taken, and returns the row that has it.
func (d *DB) ClaimNode(ctx context.Context, n admission.Node) (got admission.Node, err error) {
	err = d.InTx(ctx, "nodes", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO nodes (`+nodeColumns+`) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			n.ID, n.Key, n.Token, nanos(n.Created)); err != nil {
			return err
		}
		got, err = scanNode(tx.QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes
			WHERE id = ? OR public_key = ? AND public_key <> '' ORDER BY CASE WHEN id = ? THEN 0 ELSE 1 END LIMIT 1`, n.ID, n.Key, n.ID))
		return err
	})
	return got, err
}

// MoveNode gives a row another token, if it has the one named still.
func (d *DB) MoveNode(ctx context.Context, id, from, to string) (bool, error) {
	return changed(d.sql.ExecContext(ctx, `UPDATE nodes SET token = ? WHERE id = ? AND token = ?`, to, id, from))
}

// Node returns a row by its id.
func (d *DB) Node(ctx context.Context, id string) (admission.Node, bool, error) {
	return one(scanNode(d.sql.QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes WHERE id = ?`, id)))
}

// NodeByKey returns a row by its key.
func (d *DB) NodeByKey(ctx context.Context, key string) (admission.Node, bool, error) {
	return one(scanNode(d.sql.QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes WHERE public_key = ? AND public_key <> ''`, key)))
}

// one makes the absence of a row no error.
func one[T any](v T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

// Nodes returns all rows, by id.
func (d *DB) Nodes(ctx context.Context) ([]admission.Node, error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT `+nodeColumns+` FROM nodes ORDER BY id`)
	return collect(rows, err, scanNode)
}

// RemoveNode removes a row and reports whether it was there.
func (d *DB) RemoveNode(ctx context.Context, id string) (bool, error) {
	return changed(d.sql.ExecContext(ctx, `DELETE FROM nodes WHERE id = ?`, id))
}
