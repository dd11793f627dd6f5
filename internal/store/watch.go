package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/junctor-run/junctor/capability"
)

// channel is the Postgres channel on which the triggers of the tables send the table's name.
const channel = "junctor_changed"

// Health is the state of the shared store, as seen by [DB.Watch].
type Health struct {
	Down  bool
	Since time.Time // when the current state began
	Cause string    // why the database is down, as a sentence without credentials and addresses
	Err   error     // the same for the log, with the address
}

type health struct {
	mu  sync.Mutex
	now Health
}

// set stores the state and reports whether it changed.
func (h *health) set(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	down := err != nil
	h.now.Cause, h.now.Err = "", err
	if down {
		h.now.Cause = capability.AsError(err).Message
	}
	if h.now.Down == down {
		return false
	}
	h.now.Down, h.now.Since = down, time.Now()
	return true
}

// Health returns the state last seen by Watch. A SQLite file is never down.
func (d *DB) Health() Health {
	if d.pg == nil {
		return Health{}
	}
	d.pg.health.mu.Lock()
	defer d.pg.health.mu.Unlock()
	return d.pg.health.now
}

// Watch reports changes of the shared tables by any gateway until ctx ends. It calls changed
// with the name of the table, or with "" if any table may have changed, which it does first
// and after each outage. Calls are sequential; a change is reported within milliseconds after
// its commit, and never before. If changed fails, Watch starts again, so that no change is
// missed. After an outage it reconnects, with pauses of at most 2 s. It calls state, which
// may be nil, when [DB.Health] changes. A SQLite file has one process, so there Watch only
// waits for ctx.
func (d *DB) Watch(ctx context.Context, changed func(ctx context.Context, table string) error, state func(Health)) error {
	if d.pg == nil {
		<-ctx.Done()
		return nil
	}
	pause := firstRetryDelay
	for ctx.Err() == nil {
		err := d.listen(ctx, func(table string) error {
			if err := changed(ctx, table); err != nil {
				return err
			}
			pause = firstRetryDelay
			if d.pg.health.set(nil) && state != nil {
				state(d.Health())
			}
			return nil
		})
		if ctx.Err() != nil {
			break
		}
		if d.pg.health.set(explain(ctx, err, true)) && state != nil {
			state(d.Health())
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, maxRetryDelay)
	}
	return nil
}

// listen returns the error that ended the connection, or the listener's.
func (d *DB) listen(ctx context.Context, heard func(table string) error) error {
	conn, err := pgx.ConnectConfig(ctx, d.pg.cfg.Copy())
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	if err := heard(""); err != nil { // after LISTEN, so that no change is missed
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, aliveInterval)
		note, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			if err := heard(note.Payload); err != nil {
				return err
			}
		case !pgconn.Timeout(err) || conn.IsClosed():
			return err
		default:
			alive, cancel := context.WithTimeout(ctx, aliveInterval)
			err := conn.Ping(alive)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}
