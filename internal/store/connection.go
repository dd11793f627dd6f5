package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/junctor-run/junctor/capability"
)

// Reasons of the shared store's errors.
const (
	ReasonUnavailable = "store_unavailable" // the server does not answer; a change under way may have been stored
	ReasonBusy        = "store_busy"        // the data was locked by others for too long
	ReasonUnkeepable  = "text_unkeepable"   // a text that Postgres cannot store
)

// connection is one connection to Postgres. It accepts SQLite's statements, so that one set
// of texts serves both.
//
// Every query ends after limit, even if the server is reachable and never answers, because
// locks must not be held for as long as that.
type connection struct {
	*stdlib.Conn
	limit time.Duration
}

// explain returns the error of a statement that began outside of a transaction or, with
// idle false, inside of one. If the server closed an idle connection, as it does when it
// stops, the next statement fails without having been executed. Outside of a transaction,
// database/sql then uses another connection.
func (c connection) explain(ctx context.Context, err error, idle bool) error {
	said, ok := errors.AsType[*pgconn.PgError](err)
	if idle && ok && strings.HasPrefix(said.Code, stateEnded) && ctx.Err() == nil {
		return driver.ErrBadConn
	}
	return explain(ctx, err, c.Conn.Conn().IsClosed())
}

// ResetSession checks that the connection is alive before it is used again.
func (c connection) ResetSession(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, min(c.limit, pingTimeout))
	defer cancel()
	return c.Conn.ResetSession(asked)
}

// Close closes the connection and waits for the server only for a bounded time.
func (c connection) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Conn.Conn().Close(ctx)
}

func (c connection) Ping(ctx context.Context) error {
	asked, cancel := context.WithTimeout(ctx, min(c.limit, pingTimeout))
	defer cancel()
	return c.Conn.Ping(asked)
}

func (c connection) idle() bool { return c.Conn.Conn().PgConn().TxStatus() == 'I' }

func (c connection) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c connection) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	idle := c.idle()
	asked, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	s, err := c.Conn.PrepareContext(asked, numbered(query))
	if err != nil {
		return nil, c.explain(ctx, err, idle)
	}
	return statement{s.(*stdlib.Stmt), c}, nil
}

func (c connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	idle := c.idle()
	asked, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	res, err := c.Conn.ExecContext(asked, numbered(query), args)
	return res, c.explain(ctx, err, idle)
}

func (c connection) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	idle := c.idle()
	asked, cancel := context.WithTimeout(ctx, c.limit)
	rows, err := c.Conn.QueryContext(asked, numbered(query), args)
	if err != nil {
		cancel()
		return nil, c.explain(ctx, err, idle)
	}
	return answer{rows.(*stdlib.Rows), cancel}, nil
}

func (c connection) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	asked, cancel := context.WithTimeout(ctx, c.limit) // of the whole transaction: the commit uses it
	tx, err := c.Conn.BeginTx(asked, opts)
	if err != nil {
		cancel()
		return nil, c.explain(ctx, err, true)
	}
	return transaction{tx, ctx, cancel, c}, nil
}

// CheckNamedValue rejects texts that Postgres would reject, with a readable error.
func (c connection) CheckNamedValue(v *driver.NamedValue) error {
	if s := reflect.ValueOf(v.Value); s.Kind() == reflect.String && (strings.ContainsRune(s.String(), 0) || !utf8.ValidString(s.String())) {
		return capability.Errorf(capability.CodeInvalidInput, "store",
			"a text holds a zero byte or is not UTF-8, which the shared store cannot keep").
			With(ReasonUnkeepable, "leave such characters out")
	}
	return c.Conn.CheckNamedValue(v)
}

type statement struct {
	*stdlib.Stmt
	c connection
}

func (s statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	asked, cancel := context.WithTimeout(ctx, s.c.limit)
	defer cancel()
	res, err := s.Stmt.ExecContext(asked, args)
	return res, s.c.explain(ctx, err, false)
}

func (s statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	asked, cancel := context.WithTimeout(ctx, s.c.limit)
	rows, err := s.Stmt.QueryContext(asked, args)
	if err != nil {
		cancel()
		return nil, s.c.explain(ctx, err, false)
	}
	return answer{rows.(*stdlib.Rows), cancel}, nil
}

// answer holds rows that are being read, and releases the query's context when they are closed.
type answer struct {
	*stdlib.Rows
	cancel context.CancelFunc
}

func (a answer) Close() error {
	defer a.cancel()
	return a.Rows.Close()
}

type transaction struct {
	driver.Tx
	ctx    context.Context //nolint:containedctx // of BeginTx: database/sql ends a transaction without one
	cancel context.CancelFunc
	c      connection
}

func (t transaction) Commit() error {
	defer t.cancel()
	return t.c.explain(t.ctx, t.Tx.Commit(), false)
}

func (t transaction) Rollback() error {
	defer t.cancel()
	return t.Tx.Rollback()
}

// numbered converts the placeholders of a statement to those of Postgres: ?3 becomes
// $3, each ? the next number. Quoted parts and comments are not changed.
func numbered(query string) string {
	if !strings.Contains(query, "?") {
		return query
	}
	var b strings.Builder
	next := 0
	for i := 0; i < len(query); i++ {
		end := ""
		switch {
		case query[i] == '\'' || query[i] == '"':
			end = query[i : i+1]
		case strings.HasPrefix(query[i:], "--"):
			end = "\n"
		case strings.HasPrefix(query[i:], "/*"):
			end = "*/"
		}
		if end != "" {
			stop := len(query)
			if n := strings.Index(query[i+1:], end); n >= 0 {
				stop = i + 1 + n + len(end)
			}
			b.WriteString(query[i:stop])
			i = stop - 1
			continue
		}
		if query[i] != '?' {
			b.WriteByte(query[i])
			continue
		}
		b.WriteByte('$')
		if i+1 == len(query) || query[i+1] < '0' || query[i+1] > '9' {
			next++
			b.WriteString(strconv.Itoa(next))
		}
	}
	return b.String()
}

// SQLSTATEs that are distinguished.
const (
	stateSerialization = "40001"
	stateDeadlock      = "40P01"
	stateLock          = "55P03"
	stateCanceled      = "57014" // by statement_timeout, because a cancel by this process ends the context
	stateTooMany       = "53300"
	stateEnded         = "57P" // prefix: the server stops or starts
)

// explain returns an error of the server or of the connection as a *capability.Error without the
// server's address. lost states that the connection was lost. An error about the statement itself is
// unchanged.
func explain(ctx context.Context, err error, lost bool) error {
	if err == nil || errors.Is(err, driver.ErrBadConn) {
		return err
	}
	if _, own := errors.AsType[*capability.Error](err); own {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	unavailable := func(why, hint string) error {
		return capability.Wrap(capability.CodeUnavailable, "store", "the shared store "+why+", so what must be kept cannot be changed now",
			err).With(ReasonUnavailable, hint)
	}
	if said, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case strings.HasPrefix(said.Code, "28"):
			return unavailable("does not let this gateway in", "look at the user in store.url and at the secret that store.password_secret names")
		case said.Code == "3D000":
			return unavailable("has no such database", "make it: createdb -O USER DATABASE")
		case strings.HasPrefix(said.Code, "08"), strings.HasPrefix(said.Code, stateEnded), said.Code == stateTooMany:
			return unavailable("takes no connection now", "see that it runs, and its max_connections; this gateway tries again by itself")
		case said.Code == stateLock, said.Code == stateCanceled:
			return capability.Wrap(capability.CodeUnavailable, "store", "others held what was to be changed in the shared store for too long", err).
				With(ReasonBusy, "try again in a moment")
		case strings.HasPrefix(said.Code, "25006"), strings.HasPrefix(said.Code, "53"):
			return unavailable("takes no writes now", "look at its disk, and whether it is a standby")
		}
		return err
	}
	_, network := errors.AsType[net.Error](err)
	if _, connect := errors.AsType[*pgconn.ConnectError](err); lost || network || connect || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return unavailable("does not answer", "see that it runs and can be reached; this gateway goes on with what it knows and tries again by itself")
	}
	return err
}

// again reports whether a failed transaction may succeed if it is repeated, because it conflicted with
// another one and was rolled back.
func again(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (said.Code == stateSerialization || said.Code == stateDeadlock)
}
