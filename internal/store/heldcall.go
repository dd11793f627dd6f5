package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

const heldColumns = `id, node, function, arguments, principal, timeout, state, created, expires, claimed, ended, invocation, result, error`

func scanHeld(s Scanner) (c tasks.HeldCall, err error) {
	var arguments, result, failure string
	err = s.Scan(&c.ID, &c.Node, &c.Function, &arguments, &c.Principal, &c.Timeout, &c.State, instant{&c.Created}, instant{&c.Expires},
		instant{&c.Claimed}, instant{&c.Ended}, &c.Invocation, &result, &failure)
	if arguments != "" {
		c.Arguments = json.RawMessage(arguments)
	}
	if result != "" {
		c.Result = json.RawMessage(result)
	}
	if err == nil && failure != "" {
		c.Error = new(capability.Error)
		err = json.Unmarshal([]byte(failure), c.Error)
	}
	return c, err
}

// HoldCall adds c unless too many calls wait.
func (d *DB) HoldCall(ctx context.Context, c tasks.HeldCall, mostOf, mostFor int) (ok bool, err error) {
	err = d.InTx(ctx, "held_calls "+c.Principal, func(tx *sql.Tx) error {
		var of, to int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(CASE WHEN principal = ? THEN 1 END), COUNT(CASE WHEN node = ? THEN 1 END)
			FROM held_calls WHERE (principal = ? OR node = ?) AND state IN ('held', 'running')`,
			c.Principal, c.Node, c.Principal, c.Node).Scan(&of, &to); err != nil {
			return err
		}
		if ok = of < mostOf && to < mostFor; !ok {
			return nil
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO held_calls (id, node, function, arguments, principal, timeout, state, created, expires)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			c.ID, c.Node, c.Function, string(c.Arguments), c.Principal, int64(c.Timeout), c.State, Nanos(c.Created), Nanos(c.Expires))
		return err
	})
	return ok, err
}

// HeldCall returns a call by its id.
func (d *DB) HeldCall(ctx context.Context, id string) (tasks.HeldCall, bool, error) {
	return one(scanHeld(d.sql.QueryRowContext(ctx, `SELECT `+heldColumns+` FROM held_calls WHERE id = ?`, id)))
}

// HeldCalls returns the newest calls, without their results.
func (d *DB) HeldCalls(ctx context.Context, principal, node string, limit int) ([]tasks.HeldCall, error) {
	rows, err := d.sql.QueryContext(ctx, `
		SELECT id, node, function, '', principal, timeout, state, created, expires, claimed, ended, invocation, '', error FROM held_calls
		WHERE (? = '' OR principal = ?) AND (? = '' OR node = ?) ORDER BY created DESC, id LIMIT ?`, principal, principal, node, node, limit)
	return Collect(rows, err, scanHeld)
}

// ClaimCall claims the oldest call that waits for a node.
func (d *DB) ClaimCall(ctx context.Context, node string, now, giveUp time.Time) (c tasks.HeldCall, ok bool, err error) {
	err = d.InTx(ctx, "held_calls for "+node, func(tx *sql.Tx) error {
		var err error
		c, err = scanHeld(tx.QueryRowContext(ctx, `SELECT `+heldColumns+` FROM held_calls
			WHERE node = ? AND (state = 'held' AND expires > ? OR state = 'running' AND claimed < ?)
			ORDER BY created, id LIMIT 1`, node, Nanos(now), Nanos(giveUp)))
		if errors.Is(err, sql.ErrNoRows) {
			ok = false
			return nil
		}
		if err != nil {
			return err
		}
		ok, err = changed(tx.ExecContext(ctx, `UPDATE held_calls SET state = 'running', claimed = ? WHERE id = ? AND state = ? AND claimed = ?`,
			Nanos(now), c.ID, c.State, Nanos(c.Claimed)))
		c.State, c.Claimed = tasks.HeldRunning, now
		return err
	})
	return c, ok && err == nil, err
}

// EndCall stores the outcome of a call.
func (d *DB) EndCall(ctx context.Context, c tasks.HeldCall, was string) (bool, error) {
	failure := ""
	if c.Error != nil {
		doc, err := json.Marshal(c.Error)
		if err != nil {
			return false, err
		}
		failure = string(doc)
	}
	n, err := d.exec(ctx, `UPDATE held_calls SET state = ?, ended = ?, invocation = ?, result = ?, error = ? WHERE id = ? AND state = ?`,
		c.State, Nanos(c.Ended), c.Invocation, string(c.Result), failure, c.ID, was)
	return n > 0, err
}

// SweepCalls expires calls that waited too long and removes calls that ended before forget.
func (d *DB) SweepCalls(ctx context.Context, now, forget time.Time) error {
	_, err := d.exec(ctx, `UPDATE held_calls SET state = 'expired', ended = ? WHERE state = 'held' AND expires <= ?`, Nanos(now), Nanos(now))
	if err == nil {
		_, err = d.exec(ctx, `DELETE FROM held_calls WHERE state NOT IN ('held', 'running') AND ended < ?`, Nanos(forget))
	}
	return err
}

// WaitingNodes returns the nodes that calls wait for.
func (d *DB) WaitingNodes(ctx context.Context) ([]string, error) {
	rows, err := d.sql.QueryContext(ctx, `SELECT DISTINCT node FROM held_calls WHERE state IN ('held', 'running') ORDER BY node`)
	return Collect(rows, err, func(s Scanner) (node string, err error) {
		err = s.Scan(&node)
		return node, err
	})
}

// one returns false instead of an error if the query found no row.
func one[T any](v T, err error) (T, bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}
