package db

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// file runs a job in a worker in req.Room, without network and, unless the job writes,
// with a read-only working folder.
func (x *Executor) file(ctx context.Context, req Request, j job) (answer, sandbox.Placement, error) {
	if err := checkName(req.File); err != nil {
		return answer{}, sandbox.Placement{}, err
	}
	room := req.Room
	room.WorkReadOnly, room.Network = !j.Write, sandbox.NetworkNone
	room.Limits.FileSize = cmp.Or(room.Limits.FileSize, room.Limits.Disk) // a database is one file
	input, err := jsonx.Marshal(j)
	if err != nil {
		return answer{}, sandbox.Placement{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, req.Timeout+workerGrace)
	defer cancel()
	ran, err := x.cfg.Walls.Run(ctx, sandbox.Spec{
		Path: x.cfg.Program, Args: []string{workerName}, Dir: room.Work,
		Env:   []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8", "GORACE=atexit_sleep_ms=0"},
		Stdin: input, StdoutLimit: 4 * maxAnswer,
	}, room)
	if err != nil {
		return answer{}, sandbox.Placement{}, err
	}
	var a answer
	if ran.ExitCode != 0 || ran.Stdout.Truncated() || jsonx.UnmarshalStrict(ran.Stdout.Bytes(), &a) != nil {
		return answer{}, ran.Placement, capability.Errorf(capability.CodeFailed, op,
			"the database could not be worked on: its engine ended without an answer").
			With("execution_failed", "the file may be damaged").Detail("exit_code", ran.ExitCode).Detail("signal", ran.Signal)
	}
	if f := a.Fault; f != nil {
		if f.Code == capability.CodeTimeout {
			return answer{}, ran.Placement, fault.TimedOut(req.Timeout)
		}
		return answer{}, ran.Placement, f.err()
	}
	return a, ran.Placement, a.check()
}

// err converts the worker's fault to an error. A code that a worker must not use
// becomes failed; message and reason are cut.
func (f *answerFault) err() error {
	code := f.Code
	switch code {
	case capability.CodeInvalidInput, capability.CodeNotFound, capability.CodeDenied, capability.CodeUnavailable, capability.CodeTooLarge:
	default:
		code = capability.CodeFailed
	}
	return capability.Errorf(code, op, "%s", fault.OneLine(text.ValidBytes(f.Message, 1000))).With(text.ValidBytes(f.Reason, 64), "")
}

// checkName requires the name of a database to be a plain relative path that differs from
// the files that SQLite keeps beside one.
func checkName(name string) error {
	bad := name == "" || len(name) > 255 || !filepath.IsLocal(name) || filepath.ToSlash(filepath.Clean(name)) != name ||
		strings.ContainsAny(name, "\x00\\?#%")
	for _, suffix := range []string{"-journal", "-wal", "-shm"} {
		bad = bad || strings.HasSuffix(name, suffix)
	}
	if bad {
		return fault.InvalidArgs("", "the database is named by a plain path below the working folder")
	}
	return nil
}

// said converts an error of SQLite: unavailable if the file is locked, timeout if the
// statement was interrupted, else failed. Other errors are returned unchanged.
func said(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	text := strings.TrimSuffix(e.Error(), " ")
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return capability.Errorf(capability.CodeUnavailable, op, "another process is writing to the database").With("", "try again in a moment")
	case sqlite3.SQLITE_INTERRUPT:
		return capability.Errorf(capability.CodeTimeout, op, "the statement took too long")
	case sqlite3.SQLITE_CANTOPEN:
		text = "the file cannot be opened"
	}
	return capability.Errorf(capability.CodeFailed, op, "the database says: %s", text).With("execution_failed", "")
}
