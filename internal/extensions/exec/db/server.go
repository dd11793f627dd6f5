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

// Limits of a connection.
const (
	connectTimeout = 10 * time.Second
	maxMessage     = 16 << 20 // bytes of one message of a server: a row, at most
	maxDSN         = 2 << 10
)

// address is what a DSN says.
type address struct {
	host, database, user, password string
	port                           uint16
	tls                            string // disable, require, verify-full
}

// readDSN reads postgres://user:password@host:port/database?sslmode=…, and nothing
// else: no files, no services, no further hosts, no settings. The errors quote
// nothing of it.
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

// config is the connection's; nothing of our environment or home is in it.
func (a address) config(dial pgconn.DialFunc) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig("host=127.0.0.1 port=1 user=x database=x password=x sslmode=disable")
	if err != nil {
		return nil, capability.Errorf(capability.CodeFailed, op, "the settings of the server's environment (PG…) cannot be read").
			With("execution_failed", "start the server without them")
	}
	cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password = a.host, a.port, a.database, a.user, a.password
	cfg.Fallbacks, cfg.ConnectTimeout, cfg.DialFunc, cfg.MaxProtocolMessageBodyLen = nil, connectTimeout, dial, maxMessage
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // the dialler resolves, once
	cfg.KerberosSpn, cfg.KerberosSrvName = "", ""
	cfg.RuntimeParams = map[string]string{"application_name": "junctor", "standard_conforming_strings": "on", "client_encoding": "UTF8"}
	switch a.tls {
	case "require": // encrypted, without verifying the server
		cfg.TLSConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // the operator's word in the DSN
	case "verify-full":
		cfg.TLSConfig = &tls.Config{ServerName: a.host, MinVersion: tls.VersionTLS12}
	default:
		cfg.TLSConfig = nil
	}
	return cfg, nil
}

// server runs a job on a Postgres server.
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

// run runs the statement in a transaction of its own: what only reads is never
// committed, and cannot write.
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
		default: // numbers, true and false are written alike
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
				break // closing the connection ends the rest
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
		return out, conn.Conn().Close() // a rollback
	}
	tag, err := rows.Close()
	if err != nil {
		return out, err
	}
	out.Affected = tag.RowsAffected()
	_, err = conn.Exec(ctx, end).ReadAll()
	return out, err
}

// Types whose text is a JSON number as it is, and bool.
const (
	oidBool = 16
	oidInt8 = 20
	oidInt2 = 21
	oidInt4 = 23
)

// cell writes a value of Postgres as JSON: by its text, which is exact.
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
	doc, _ := json.Marshal(text) // of a string, which never fails
	return doc, truncated
}

// minSecret is the shortest password that is looked for in texts.
const minSecret = 4

func (a address) redact(s string) string {
	if len(a.password) < minSecret {
		return s
	}
	return strings.ReplaceAll(s, a.password, "[redacted]")
}

// refused is an error of a server or of the way to it, without the DSN: of the
// library's own texts, which quote user, host and database, nothing is kept.
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
