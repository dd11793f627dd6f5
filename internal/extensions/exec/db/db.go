// Package db runs db.query, db.schema, db.explain and db.exec on a SQLite file in an
// extension's working folder or on a Postgres server whose address is a secret.
//
// A SQLite file is untrusted input. A worker (this binary started again) opens it in
// the sandbox of the extension's own programs, which contains the working folder and
// no file of the server, so that neither a link in the folder nor a file that exploits
// the SQLite engine reaches the server. For reading, the folder is mounted read-only.
//
// A Postgres server is reached through package egress. Each call opens and closes its
// own connection.
//
// A request has one statement, which is parsed before anything is opened; values are
// parameters and never part of its text. Rows, cells, bytes and time are limited.
package db

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

const op = "db"

// Action is the operation of a request.
type Action string

// The actions.
const (
	Query   Action = "query"
	Schema  Action = "schema"
	Explain Action = "explain"
	Exec    Action = "exec"
)

// Walls runs programs in a sandbox; sandbox.Box implements it.
type Walls interface {
	Run(ctx context.Context, spec sandbox.Spec, c sandbox.Confinement) (sandbox.Result, error)
}

// Config holds the settings that all calls share.
type Config struct {
	Walls Walls
	// Program is the path of this binary, which must call [WorkerMain] if [IsWorker].
	Program string
	// Resolver, Dialer and OnDecision are used for connections to Postgres. If nil,
	// the system's resolver and dialer, and no callback.
	Resolver   egress.Resolver
	Dialer     egress.Dialer
	OnDecision func(extension string, d egress.Decision)
}

// Executor runs calls. It is safe for concurrent use.
type Executor struct{ cfg Config }

// New returns an executor.
func New(cfg Config) *Executor { return &Executor{cfg} }

// Param is one :name parameter of a statement.
type Param struct {
	Name  string
	Value json.RawMessage // a JSON string, number, true, false or null
}

// Request is one call.
type Request struct {
	Action    Action
	Extension string
	SQL       string // the statement; for Schema, the name of a table or ""
	Params    []Param
	JSON      bool // the output is a JSON array of rows

	// File is a SQLite file in Room's work directory, by its clean relative name.
	File string
	Room sandbox.Confinement

	// DSN is the address of a Postgres server
	// (postgres://user:password@host:port/database). If set, it is used instead of
	// File; Policy must allow its host.
	DSN    secret.Value
	Policy egress.Policy

	Timeout time.Duration // 0 is DefaultTimeout
}

// Result is the result of a call.
type Result struct {
	Output   string
	Metadata map[string]any // rows, truncated, columns, statement_kind; for Exec, rows_affected
	// Placement is the sandbox in which the worker ran; zero for Postgres.
	Placement sandbox.Placement
}

// Check validates a request without opening anything, and returns the statement that
// would run and its kind. Its errors are those of [Executor.Do] that need no database.
func (req Request) Check(d Dialect) (sql, kind string, err error) {
	j, err := plan(req, d)
	return j.SQL, j.Kind, err
}

// Do runs one call. Only Exec can change data; it creates a missing SQLite file. Errors:
// invalid_input, reason invalid_args (the statement, a parameter, the DSN); denied, reason
// security_violation (the file is a link, the host is not allowed, a function accesses something
// outside the database); not_found (no such file or table); unavailable (the server is not
// reachable, the file is locked); failed, reason execution_failed (the database refuses the
// statement); timeout; too_large; and those of the sandbox. No error contains the DSN.
func (x *Executor) Do(ctx context.Context, req Request) (Result, error) {
	dialect := SQLite
	if !req.DSN.Empty() {
		dialect = Postgres
	}
	j, err := plan(req, dialect)
	if err != nil {
		return Result{}, err
	}
	if req.Timeout <= 0 {
		req.Timeout = DefaultTimeout
	}
	j.Millis = req.Timeout.Milliseconds()
	var a answer
	var place sandbox.Placement
	if dialect == Postgres {
		a, err = x.server(ctx, req, j)
	} else {
		a, place, err = x.file(ctx, req, j)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Result{}, fault.TimedOut(req.Timeout)
	case errors.Is(err, context.Canceled):
		return Result{}, fault.Cancelled()
	case err != nil:
		return Result{}, err
	case req.Action == Schema && req.SQL != "" && len(a.Rows) == 0:
		return Result{}, capability.Errorf(capability.CodeNotFound, op, "there is no table %.100q in the database", req.SQL).With("not_found",
			"db.schema without a table lists them")
	}
	meta := map[string]any{"rows": len(a.Rows), "truncated": a.Truncated, "columns": a.Columns, "statement_kind": j.Kind}
	if req.Action == Exec {
		meta["rows_affected"] = a.Affected
	}
	out, err := a.render(req.JSON, req.Action == Exec)
	return Result{out, meta, place}, err
}

// job is a validated request. The worker receives it as JSON.
type job struct {
	File   string  `json:"file,omitempty"`
	Write  bool    `json:"write,omitempty"`
	SQL    string  `json:"sql"`
	Kind   string  `json:"kind"`
	Params []Param `json:"params,omitempty"`
	Millis int64   `json:"ms"`

	statement Statement
}

// answer is the result of a statement. A cell is a JSON scalar.
type answer struct {
	Columns   []string            `json:"columns"`
	Rows      [][]json.RawMessage `json:"rows"`
	Truncated bool                `json:"truncated,omitempty"`
	Affected  int64               `json:"affected,omitempty"`
	Fault     *answerFault        `json:"fault,omitempty"`
}

// answerFault is the error of a worker.
type answerFault struct {
	Code    capability.Code `json:"code"`
	Reason  string          `json:"reason,omitempty"`
	Message string          `json:"message"`
}

// plan validates a request and returns the job with the statement that runs for it.
// Query accepts only statements that read; Explain only those that have a plan.
func plan(req Request, d Dialect) (job, error) {
	j := job{File: req.File, Kind: string(req.Action)}
	if req.Action == Schema {
		if len(req.SQL) > 200 {
			return j, fault.InvalidArgs("", "a table's name has 200 bytes at most")
		}
		return j, j.schema(req.SQL, d)
	}
	s, err := Parse(req.SQL, d)
	if err != nil {
		return j, err
	}
	j.SQL, j.Kind, j.statement = s.Text, s.Kind, s
	switch req.Action {
	case Query:
		if !s.Reads() {
			return j, fault.InvalidArgs("", "db.query only reads, and this is a statement of the kind %s: db.exec is for those", s.Kind)
		}
	case Exec:
		j.Write = true
	case Explain:
		words := "EXPLAIN QUERY PLAN "
		if d == Postgres {
			words = "EXPLAIN "
		}
		if !s.Reads() && s.Kind != "insert" && s.Kind != "update" && s.Kind != "delete" && s.Kind != "replace" && s.Kind != "merge" {
			return j, fault.InvalidArgs("", "a statement of the kind %s has no plan to explain", s.Kind)
		}
		j.statement = s.behind(words)
		j.SQL = j.statement.Text
	default:
		return j, fault.UnsupportedRunner("db."+string(req.Action), []string{"db.query", "db.schema", "db.explain", "db.exec"})
	}
	j.Params, err = bind(s.Params, req.Params)
	return j, err
}

// bind returns the parameters in the order of the statement. A missing, repeated or
// unknown parameter is invalid_input.
func bind(names []string, given []Param) ([]Param, error) {
	out := make([]Param, 0, len(names))
	for _, name := range names {
		n := 0
		for _, p := range given {
			if p.Name == name {
				out, n = append(out, p), n+1
			}
		}
		if n != 1 {
			return nil, fault.InvalidArgs("", "the parameter :%s is given %d times; give it once with --p %s=value", name, n, name)
		}
	}
	if len(out) != len(given) {
		return nil, fault.InvalidArgs("", "a parameter is given that the statement does not have; it has %d", len(names))
	}
	return out, nil
}

// schema sets the statement that lists the tables, or the columns of one table.
func (j *job) schema(table string, d Dialect) error {
	switch {
	case d == SQLite && table == "":
		j.SQL = "SELECT type, name, tbl_name AS of, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
	case d == SQLite:
		j.SQL = `SELECT name AS "column", type, "notnull", dflt_value AS "default", pk FROM pragma_table_xinfo(:name) ORDER BY cid`
	case table == "":
		j.SQL = "SELECT table_schema AS schema, table_name AS name, lower(table_type) AS type FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
	default:
		j.SQL = `SELECT table_schema AS schema, column_name AS "column", data_type AS type, is_nullable AS nullable, column_default AS "default" FROM information_schema.columns ` +
			"WHERE table_name = :name OR table_schema || '.' || table_name = :name ORDER BY table_schema, table_name, ordinal_position"
	}
	s, err := Parse(j.SQL, d)
	if err != nil {
		return err
	}
	j.statement = s
	if table != "" {
		value, err := json.Marshal(table)
		j.Params = []Param{{"name", value}}
		return err
	}
	return nil
}
