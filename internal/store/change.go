package store

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/junctor-run/junctor/capability"
)

// channel is what the triggers of the tables notify on, with the table's name.
const channel = "junctor_changed"

const (
	firstRetry  = 50 * time.Millisecond
	lastRetry   = 2 * time.Second
	alivePeriod = 5 * time.Second // how often a silent connection is asked whether it lives
)

// Health is whether the shared store answers, as [DB.Watch] sees it.
type Health struct {
	Down  bool
	Since time.Time // of the present state
	Cause string    // why it is down, as a sentence; never a credential or an address
	Err   error     // the same for the log, with the address
}

type health struct {
	mu  sync.Mutex
	now Health
}

// set notes the state and reports whether it is another one.
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

// Health returns what Watch has seen last. A SQLite file is never down.
func (d *DB) Health() Health {
	if d.pg == nil {
		return Health{}
	}
	d.pg.health.mu.Lock()
	defer d.pg.health.mu.Unlock()
	return d.pg.health.now
}

// Watch tells of changes of the shared tables, whoever made them, until ctx ends:
// changed gets the name of the table, or "" when any may have changed, which it
// says first and after each outage. One call at a time; a change is told within
// milliseconds of its commit, and never before it. When changed fails, Watch
// begins anew, so that nothing is missed. After an outage it comes back by
// itself, with pauses of at most 2 s; state is told when [DB.Health] changes and
// may be nil. A SQLite file has one process: there Watch waits for ctx alone.
func (d *DB) Watch(ctx context.Context, changed func(ctx context.Context, table string) error, state func(Health)) error {
	if d.pg == nil {
		<-ctx.Done()
		return nil
	}
	pause := firstRetry
	for ctx.Err() == nil {
		err := d.listen(ctx, func(table string) error {
			if err := changed(ctx, table); err != nil {
				return err
			}
			pause = firstRetry
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
		pause = min(2*pause, lastRetry)
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
	if err := heard(""); err != nil { // after LISTEN, so that no change falls in between
		return err
	}
	for {
		wait, cancel := context.WithTimeout(ctx, alivePeriod)
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
			alive, cancel := context.WithTimeout(ctx, alivePeriod)
			err := conn.Ping(alive)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}
