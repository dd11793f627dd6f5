package db

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"os"
	"time"

	"modernc.org/sqlite"
	"modernc.org/sqlite/lib"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// workerName is the argument that makes this binary run as the worker of one statement.
const workerName = "db-worker"

// IsWorker reports whether this process was started as a worker. argv is os.Args.
func IsWorker(argv []string) bool { return len(argv) == 2 && argv[1] == workerName }

// WorkerMain runs this process as a worker: it reads a job from in, runs its statement
// on a file of the current directory, and writes the answer, or the error as a fault, to
// out. It returns the exit status: 1 if the answer cannot be written, else 0.
func WorkerMain(in io.Reader, out io.Writer) int {
	var j job
	data, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err == nil {
		err = jsonx.UnmarshalStrict(data, &j)
	}
	var a answer
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(j.Millis)*time.Millisecond)
		defer cancel()
		a, err = j.run(ctx)
		if ctx.Err() != nil {
			err = capability.Errorf(capability.CodeTimeout, op, "the statement took too long")
		}
	}
	if err != nil {
		e := capability.AsError(err)
		a = answer{Fault: &answerFault{e.Code, e.Reason, e.Message}}
	}
	if err := json.NewEncoder(out).Encode(a); err != nil {
		return 1
	}
	return 0
}

// run checks the file and runs the statement on it.
func (j *job) run(ctx context.Context) (answer, error) {
	if err := j.look(); err != nil {
		return answer{}, err
	}
	if j.Write {
		a, err := j.open(ctx, "rwc", "")
		return a, said(err)
	}
	a, err := j.open(ctx, "ro", "")
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_CANTOPEN {
		// SQLite cannot open a file in WAL mode in a read-only folder unless it is
		// immutable. Without a log beside it, the file is complete.
		if info, statErr := os.Lstat(j.File + "-wal"); statErr != nil || info.Size() == 0 {
			a, err = j.open(ctx, "ro", "&immutable=1")
		}
	}
	return a, said(err)
}

// look checks that the file and those that SQLite keeps beside it are plain files with
// one name: not_found without a file (unless the job writes), else denied. A process
// that replaces them later gains nothing: the sandbox contains no other files.
func (j *job) look() error {
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		info, err := os.Lstat(j.File + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist) && (suffix != "" || j.Write):
		case errors.Is(err, fs.ErrNotExist):
			return capability.Errorf(capability.CodeNotFound, op, "there is no database %s in the working folder", j.File).With("not_found",
				"db.exec makes one")
		case err != nil:
			return capability.Errorf(capability.CodeFailed, op, "the database %s cannot be looked at", j.File)
		case !info.Mode().IsRegular() || linked(info):
			return fault.SecurityViolation("the database " + j.File + suffix + " is not a plain file of the working folder")
		}
	}
	return nil
}

// open opens the file with a mode and more parameters of the DSN, runs the statement
// and closes the file.
func (j *job) open(ctx context.Context, mode, more string) (a answer, err error) {
	dsn := "file:./" + (&url.URL{Path: j.File}).EscapedPath() + "?mode=" + mode + more +
		"&_defensive=1&_pragma=busy_timeout(2000)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&_pragma=foreign_keys(1)"
	if !j.Write {
		dsn += "&_pragma=query_only(1)"
	}
	pool, err := sql.Open("sqlite", dsn)
	if err != nil {
		return a, err
	}
	defer pool.Close()
	conn, err := pool.Conn(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	for limit, value := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: 64 << 20,
		sqlite3.SQLITE_LIMIT_SQL_LENGTH: 2 * MaxStatement, sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
	} {
		if _, err := sqlite.Limit(conn, limit, value); err != nil {
			return a, err
		}
	}
	args := make([]any, 0, len(j.Params))
	for _, p := range j.Params {
		value, err := p.scalar()
		if err != nil {
			return a, err
		}
		args = append(args, sql.Named(p.Name, value))
	}
	before := changes(ctx, conn)
	rows, err := conn.QueryContext(ctx, j.SQL, args...)
	if err != nil {
		return a, err
	}
	defer rows.Close()
	if a, err = collect(rows, !j.Write); err != nil {
		return a, err
	}
	a.Affected = changes(ctx, conn) - before
	return a, nil
}

func changes(ctx context.Context, conn *sql.Conn) (n int64) {
	_ = conn.QueryRowContext(ctx, "SELECT total_changes()").Scan(&n) // if it fails, n is 0
	return n
}

// collect reads the rows up to the limits and sets Truncated beyond them. A statement
// that changes something is still run to its end.
func collect(rows *sql.Rows, reads bool) (answer, error) {
	columns, err := rows.Columns()
	if err != nil {
		return answer{}, err
	}
	a := answer{Columns: columns, Rows: [][]json.RawMessage{}}
	if len(columns) > maxColumns {
		return a, capability.Errorf(capability.CodeTooLarge, op, "the answer has %d columns; %d are the most", len(columns), maxColumns)
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	size, full := 0, false
	for rows.Next() {
		if full = full || len(a.Rows) == MaxRows; full {
			a.Truncated = true
			if reads {
				return a, nil
			}
			continue // so that all changes happen
		}
		if err := rows.Scan(into...); err != nil {
			return a, err
		}
		row := make([]json.RawMessage, len(values))
		for i, v := range values {
			cell, cut := cellOf(v)
			row[i], size = cell, size+len(cell)
			a.Truncated = a.Truncated || cut
		}
		if full = size > maxAnswer; full {
			a.Truncated = true
			continue
		}
		a.Rows = append(a.Rows, row)
	}
	return a, rows.Err()
}
