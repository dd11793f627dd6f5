package db

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

// address is a parsed DSN.
type address struct {
	host, database, user, password string
	port                           uint16
	tls                            string // disable, require, verify-full
}

// readDSN parses postgres://user:password@host:port/database?sslmode=…. Sockets, several
// hosts and other settings are invalid_input. The default sslmode is verify-full. Errors
// quote nothing from the DSN.
func readDSN(dsn secret.Value) (address, error) {
	bad := func(why string) (address, error) {
		return address{}, fault.InvalidArgs("", "the address of the database %s; it is written postgres://user:password@host:5432/database", why)
	}
	text := dsn.Reveal()
	u, err := url.Parse(text)
	if err != nil || len(text) > maxDSN || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Opaque != "" || u.Fragment != "" {
		return bad("cannot be read")
	}
	a := address{host: u.Hostname(), port: 5432, database: strings.TrimPrefix(u.Path, "/"), user: u.User.Username(), tls: "verify-full"}
	a.password, _ = u.User.Password()
	switch {
	case a.host == "" || strings.ContainsAny(a.host, "/,"):
		return bad("names no host, or a socket or several")
	case a.user == "" || a.database == "" || strings.ContainsRune(a.user+a.password+a.database, 0):
		return bad("names no user or no database")
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return bad("has an invalid port")
		}
		a.port = uint16(n)
	}
	for name, values := range u.Query() {
		if name != "sslmode" || len(values) != 1 || !slices.Contains([]string{"disable", "require", "verify-full"}, values[0]) {
			return bad("has a setting that is not known here: there is sslmode alone, which is disable, require or verify-full")
		}
		a.tls = values[0]
	}
	return a, nil
}

// config returns the configuration of the connection. The server's environment (PG…)
// and home directory have no influence on it.
func (a address) config(dial pgconn.DialFunc) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig("host=127.0.0.1 port=1 user=x database=x password=x sslmode=disable")
	if err != nil {
		return nil, capability.Errorf(capability.CodeFailed, op, "the settings of the server's environment (PG…) cannot be read").
			With("execution_failed", "start the server without them")
	}
	cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password = a.host, a.port, a.database, a.user, a.password
	cfg.Fallbacks, cfg.ConnectTimeout, cfg.DialFunc, cfg.MaxProtocolMessageBodyLen = nil, connectTimeout, dial, maxMessage
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // egress.Dial resolves the name
	cfg.KerberosSpn, cfg.KerberosSrvName = "", ""
	cfg.RuntimeParams = map[string]string{"application_name": "junctor", "standard_conforming_strings": "on", "client_encoding": "UTF8"}
	switch a.tls {
	case "require": // encrypted, without verifying the server
		cfg.TLSConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the DSN requests it
	case "verify-full":
		cfg.TLSConfig = &tls.Config{ServerName: a.host, MinVersion: tls.VersionTLS12}
	default:
		cfg.TLSConfig = nil
	}
	return cfg, nil
}

// server runs a job on the Postgres server of req.DSN over a new connection, which it closes.
func (x *Executor) server(ctx context.Context, req Request, j job) (answer, error) {
	a, err := readDSN(req.DSN)
	if err != nil {
		return answer{}, err
	}
	if err := req.Policy.Check(); err != nil {
		return answer{}, capability.Wrap(capability.CodeInvalidInput, op, "the hosts that the extension declares cannot be read",
			err).With("invalid_args", "")
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout)
	defer cancel()
	denied := ""
	cfg, err := a.config(func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := egress.Dial(ctx, net.JoinHostPort(a.host, strconv.Itoa(int(a.port))), egress.Config{
			Policy: req.Policy, Resolver: x.cfg.Resolver, Dialer: x.cfg.Dialer, OnDecision: func(d egress.Decision) {
				if x.cfg.OnDecision != nil {
					x.cfg.OnDecision(req.Extension, d)
				}
			},
		})
		if why, no := egress.Denied(err); no {
			denied = why
		}
		return conn, err
	})
	if err != nil {
		return answer{}, err
	}
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	switch {
	case denied != "":
		return answer{}, fault.SecurityViolation("the database's host: " + denied)
	case ctx.Err() != nil:
		return answer{}, ctx.Err()
	case err != nil:
		return answer{}, a.refused(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	out, err := a.run(ctx, conn, j)
	if err != nil && ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	if err != nil {
		return answer{}, a.refused(err)
	}
	return out, nil
}

// run runs the statement in its own transaction: read-only and rolled back unless the
// job writes, else committed. It returns at most MaxRows rows and about maxAnswer bytes.
// For a statement that only reads, it closes the connection at that limit.
func (a address) run(ctx context.Context, conn *pgconn.PgConn, j job) (answer, error) {
	begin, end := "BEGIN READ ONLY", "ROLLBACK"
	if j.Write {
		begin, end = "BEGIN", "COMMIT"
	}
	limit := strconv.FormatInt(max(j.Millis, 1), 10)
	for _, words := range []string{begin, "SET LOCAL statement_timeout = " + limit, "SET LOCAL idle_in_transaction_session_timeout = " +
		limit} {
		if _, err := conn.Exec(ctx, words).ReadAll(); err != nil {
			return answer{}, err
		}
	}
	values := make([][]byte, len(j.Params))
	for i, p := range j.Params {
		v, ok := scalar(p.Value)
		switch x := v.(type) {
		case nil:
		case string:
			values[i] = []byte(x)
		default: // numbers, true and false have the same text in JSON and Postgres
			values[i] = []byte(p.Value)
		}
		if !ok {
			return answer{}, fault.InvalidArgs("", "the value of the parameter %s is not a JSON string, number, true, false or null", p.Name)
		}
	}
	rows := conn.ExecParams(ctx, j.statement.numbered(), values, nil, nil, nil)
	out := answer{Columns: []string{}, Rows: [][]json.RawMessage{}}
	fields := rows.FieldDescriptions()
	if len(fields) > maxColumns {
		return out, capability.Errorf(capability.CodeTooLarge, op, "the answer has %d columns; %d are the most", len(fields), maxColumns)
	}
	size, full := 0, false
	for rows.NextRow() {
		if full = full || len(out.Rows) == MaxRows || size > maxAnswer; full {
			out.Truncated = true
			if !j.Write {
				break // the connection is closed below, which ends the query
			}
			continue
		}
		row := make([]json.RawMessage, len(rows.Values()))
		for i, v := range rows.Values() {
			cell, cut := a.cell(v, rows.FieldDescriptions()[i].DataTypeOID)
			row[i], size = cell, size+len(cell)
			out.Truncated = out.Truncated || cut
		}
		out.Rows = append(out.Rows, row)
	}
	for _, f := range rows.FieldDescriptions() {
		out.Columns = append(out.Columns, f.Name)
	}
	if full && !j.Write {
		return out, conn.Conn().Close() // rolls back
	}
	tag, err := rows.Close()
	if err != nil {
		return out, err
	}
	out.Affected = tag.RowsAffected()
	_, err = conn.Exec(ctx, end).ReadAll()
	return out, err
}

// Postgres types whose text form is a JSON number, and bool.
const (
	oidBool = 16
	oidInt8 = 20
	oidInt2 = 21
	oidInt4 = 23
)

// cell encodes a value of Postgres as JSON, from its exact text form without the
// password, and reports whether it was cut.
func (a address) cell(v []byte, oid uint32) (json.RawMessage, bool) {
	if v == nil {
		return json.RawMessage("null"), false
	}
	switch oid {
	case oidInt2, oidInt4, oidInt8:
		if json.Valid(v) {
			return slices.Clone(v), false
		}
	case oidBool:
		if len(v) == 1 && (v[0] == 't' || v[0] == 'f') {
			return strconv.AppendBool(nil, v[0] == 't'), false
		}
	}
	text, truncated := cut(a.redact(string(v)))
	doc, _ := json.Marshal(text) // a string never fails
	return doc, truncated
}

func (a address) redact(s string) string {
	if len(a.password) < minSecret {
		return s
	}
	return strings.ReplaceAll(s, a.password, "[redacted]")
}

// refused converts an error of the server or connection: timeout, failed (refused
// statement or login), too_large or unavailable. The library's texts are dropped,
// because they quote user, host and database of the DSN.
func (a address) refused(err error) error {
	var own *capability.Error
	if errors.As(err, &own) {
		return own
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		switch {
		case said.Code == "57014": // query_canceled
			return capability.Errorf(capability.CodeTimeout, op, "the database ended the statement: it took too long").With("timeout",
				"raise the timeout, or ask for less")
		case strings.HasPrefix(said.Code, "28"):
			return capability.Errorf(capability.CodeFailed, op, "the database does not let us in").With("execution_failed",
				"look at user and password in the address of the database").Detail("sqlstate", said.Code)
		}
		return capability.Errorf(capability.CodeFailed, op, "the database says: %s",
			fault.OneLine(text.ValidBytes(a.redact(said.Message), 1000))).
			With("execution_failed", "").Detail("sqlstate", text.ValidBytes(said.Code, 5))
	}
	var large *pgproto3.ExceededMaxBodyLenErr
	if errors.As(err, &large) {
		return capability.Errorf(capability.CodeTooLarge, op, "the answer holds a row of more than %d bytes", maxMessage)
	}
	return capability.Errorf(capability.CodeUnavailable, op, "the database cannot be reached").With("",
		"look at its address, and whether it runs")
}
