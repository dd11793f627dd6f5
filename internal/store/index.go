package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/junctor-run/junctor/internal/audit"
)

// AuditIndex finds audit records; see [audit.Index].
type AuditIndex struct{ db *DB }

// Audit returns the audit index in this database.
func (d *DB) Audit() *AuditIndex { return &AuditIndex{d} }

// Position returns how far the index has read.
func (x *AuditIndex) Position(ctx context.Context) (p audit.Position, err error) {
	err = x.db.sql.QueryRowContext(ctx, `SELECT seq, hash, segment, start FROM audit_position WHERE id = 1`).
		Scan(&p.Seq, &p.Hash, &p.Segment, &p.Offset)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return p, err
}

// Add stores a batch and the new position together.
func (x *AuditIndex) Add(ctx context.Context, entries []audit.Entry, at audit.Position) error {
	return x.db.inTx(ctx, func(tx *sql.Tx) error {
		// A record that was indexed before a crash or by another reader is the same.
		add, err := tx.PrepareContext(ctx, `
			INSERT INTO audit_index (seq, segment, start, length, at, level, event, extension, action, capability, session, principal, run, success)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		defer add.Close()
		for _, e := range entries {
			if _, err := add.ExecContext(ctx, e.Seq, e.Segment, e.Offset, e.Length, nanos(e.Time), e.Level.Rank(), e.Event,
				e.Extension, e.Action, e.Capability, e.Session, e.User, e.Run, e.Success); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO audit_position (id, seq, hash, segment, start) VALUES (1, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, segment = excluded.segment, start = excluded.start`,
			at.Seq, at.Hash, at.Segment, at.Offset)
		return err
	})
}

// Reset empties the copy and keeps the checkpoints.
func (x *AuditIndex) Reset(ctx context.Context) error {
	return x.db.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM audit_index`)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM audit_position`)
		}
		return err
	})
}

// Forget drops what lies before seq, but for the checkpoint right before it.
func (x *AuditIndex) Forget(ctx context.Context, seq uint64) error {
	return x.db.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM audit_index WHERE seq < ?`, seq)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM audit_checkpoints WHERE seq + 1 < ?`, seq)
		}
		return err
	})
}

// Find returns the newest matches.
func (x *AuditIndex) Find(ctx context.Context, q audit.Query) ([]audit.Entry, error) {
	var where []string
	var args []any
	and := func(set bool, clause string, values ...any) {
		if set {
			where = append(where, clause)
			args = append(args, values...)
		}
	}
	and(q.Extension != "", `extension = ?`, q.Extension)
	and(q.Event != "", `event = ?`, q.Event)
	and(q.Session != "", `session = ?`, q.Session)
	and(q.User != "", `principal = ?`, q.User)
	and(q.Run != "", `run = ?`, q.Run)
	and(q.Capability != "", `(capability = ? OR action = ?)`, q.Capability, q.Capability)
	and(q.Level != "", `level >= ?`, q.Level.Rank())
	and(!q.Since.IsZero(), `at >= ?`, nanos(q.Since))
	and(!q.Until.IsZero(), `at < ?`, nanos(q.Until))
	and(q.Success != nil, `success = ?`, q.Success)
	and(q.Before > 0, `seq < ?`, q.Before)
	stmt := `SELECT seq, segment, start, length, at, level, event, extension, action, capability, session, principal, run, success FROM audit_index`
	if len(where) > 0 {
		stmt += ` WHERE ` + strings.Join(where, ` AND `)
	}
	rows, err := x.db.sql.QueryContext(ctx, stmt+` ORDER BY seq DESC LIMIT ?`, append(args, q.Limit)...)
	return collect(rows, err, func(s scanner) (e audit.Entry, err error) {
		var rank int
		err = s.Scan(&e.Seq, &e.Segment, &e.Offset, &e.Length, instant{&e.Time}, &rank, &e.Event, &e.Extension, &e.Action,
			&e.Capability, &e.Session, &e.User, &e.Run, &e.Success)
		e.Level = [...]audit.Level{audit.Debug, audit.Info, audit.Warning, audit.Error}[rank&3]
		return e, err
	})
}

// AddCheckpoint keeps the first checkpoint of a number: a later one with another
// hash would be a forged history's.
func (x *AuditIndex) AddCheckpoint(ctx context.Context, c audit.Checkpoint) error {
	_, err := x.db.sql.ExecContext(ctx, `INSERT INTO audit_checkpoints (seq, hash, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		c.Seq, c.Hash, nanos(c.At))
	return err
}

// Checkpoints returns a page of checkpoints.
func (x *AuditIndex) Checkpoints(ctx context.Context, after uint64, limit int) ([]audit.Checkpoint, error) {
	rows, err := x.db.sql.QueryContext(ctx, `SELECT seq, hash, at FROM audit_checkpoints WHERE seq > ? ORDER BY seq LIMIT ?`, after, limit)
	return collect(rows, err, func(s scanner) (c audit.Checkpoint, err error) {
		err = s.Scan(&c.Seq, &c.Hash, instant{&c.At})
		return c, err
	})
}
