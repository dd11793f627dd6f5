package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

const outcomeColumns = `principal, key, digest, invocation, state, provider, capability, at, error, result`

func scanOutcome(s Scanner) (o invoke.Outcome, err error) {
	var failure, result []byte
	err = s.Scan(&o.Principal, &o.Key, &o.Digest, &o.Invocation, &o.State, &o.Provider, &o.Capability, instant{&o.At}, &failure, &result)
	if err != nil {
		return o, err
	}
	if result != nil {
		o.Result = json.RawMessage(result)
	}
	if failure != nil {
		o.Error = new(capability.Error)
		err = jsonx.Unmarshal(failure, o.Error)
	}
	return o, err
}

// BeginOutcome claims a key. Finished keys are removed to make room for new ones; unfinished
// ones are kept until they expire, because they are the only record of their call.
func (d *DB) BeginOutcome(ctx context.Context, o invoke.Outcome, keep time.Duration,
	limit int,
) (got invoke.Outcome, claimed bool, err error) {
	err = d.InTx(ctx, "outcomes "+o.Principal, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM outcomes WHERE at < ?`, Nanos(o.At.Add(-keep))); err != nil {
			return err
		}
		var err error
		claimed, err = changed(tx.ExecContext(ctx, `
			INSERT INTO outcomes (principal, key, digest, invocation, state, terminal, provider, capability, at)
			VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?) ON CONFLICT DO NOTHING`,
			o.Principal, o.Key, o.Digest, o.Invocation, o.State, o.Provider, o.Capability, Nanos(o.At)))
		if err != nil {
			return err
		}
		if !claimed {
			got, err = scanOutcome(tx.QueryRowContext(ctx,
				`SELECT `+outcomeColumns+` FROM outcomes WHERE principal = ? AND key = ?`, o.Principal, o.Key))
			return err
		}
		got = o
		_, err = tx.ExecContext(ctx, `
			DELETE FROM outcomes WHERE rowid IN (
				SELECT rowid FROM outcomes WHERE principal = ?1 AND terminal = 1 ORDER BY at
				LIMIT (SELECT CASE WHEN count(*) > ?2 THEN count(*) - ?2 ELSE 0 END FROM outcomes WHERE principal = ?1))`, o.Principal, limit)
		return err
	})
	if err != nil {
		return invoke.Outcome{}, false, err
	}
	return got, claimed, nil
}

// FinishOutcome stores the outcome of a claimed key that is unfinished.
func (d *DB) FinishOutcome(ctx context.Context, o invoke.Outcome) error {
	var failure []byte
	if o.Error != nil {
		var err error
		if failure, err = jsonx.Marshal(o.Error); err != nil {
			return err
		}
	}
	terminal := 0
	if o.State.Terminal() {
		terminal = 1
	}
	n, err := d.exec(ctx, `
		UPDATE outcomes SET state = ?3, terminal = ?4, provider = ?5, capability = ?6, error = ?7, result = ?8
		WHERE principal = ?1 AND key = ?2 AND terminal = 0`,
		o.Principal, o.Key, o.State, terminal, o.Provider, o.Capability, failure, []byte(o.Result))
	if err == nil && n == 0 {
		err = notFound("unfinished call with the idempotency key", o.Key, "")
	}
	return err
}

// DropOutcome releases an unfinished key. A missing key is ignored.
func (d *DB) DropOutcome(ctx context.Context, principal, key string) error {
	_, err := d.exec(ctx, `DELETE FROM outcomes WHERE principal = ? AND key = ? AND terminal = 0`, principal, key)
	return err
}
