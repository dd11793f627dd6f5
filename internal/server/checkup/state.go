package checkup

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/backup"
)

// restoreLast is the remedy for damage that cannot be repaired.
const restoreLast = "keep a copy of the home, and restore the last backup: junctor restore FILE --home DIR"

// database finds a database that is damaged or was written by a later program.
func (c Config) database(ctx context.Context) httpapi.Check {
	if hostfs.Writable(c.path("state")) != nil { // SQLite writes beside the file even for reading
		return good("database", "not looked at, or not made yet")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var newer string
	err := store.Look(c.path("state", "junctor.db"), func(db *sql.DB) error {
		if err := store.Intact(ctx, db); err != nil {
			return err
		}
		have, err := store.Versions(ctx, db)
		for _, owner := range slices.Sorted(maps.Keys(have)) {
			if know, ok := c.Knows[owner]; ok && have[owner] > know {
				newer = fmt.Sprintf("it is newer than this program, so the server does not start: its tables of %s have version %d, this program knows %d", owner, have[owner], know)
			}
		}
		return err
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return good("database", "the first start makes it")
	case ctx.Err() != nil:
		return tooLarge(readTimeout)
	case err != nil:
		return bad("database", "it is damaged, so the server does not start or fails later: "+err.Error(), restoreLast)
	case newer != "":
		return bad("database", newer, "use the junctor that wrote it or a later one; or restore a backup from before: junctor restore FILE --home DIR")
	}
	return good("database", "whole, and of this program's time or before")
}

// tooLarge returns the good finding that the database was not checked completely in time; a backup
// checks it without time limit.
func tooLarge(limit time.Duration) httpapi.Check {
	return good("database", "too large to look through in %s; all of it, with the server stopped or not: junctor backup", limit)
}

// Database returns the finding about an open database, which look checks.
func Database(ctx context.Context, look func(context.Context) error) httpapi.Check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch err := look(ctx); {
	case err == nil:
		return good("database", "answers")
	case ctx.Err() != nil:
		return tooLarge(checkTimeout)
	default:
		return bad("database", "the consistency check failed: "+err.Error(), "stop the server; "+restoreLast)
	}
}

// chain verifies the whole audit log.
func (c Config) chain(ctx context.Context) httpapi.Check {
	if _, err := os.Stat(c.path("audit")); errors.Is(err, fs.ErrNotExist) {
		return good("audit chain", "the first start begins it")
	}
	if hostfs.Writable(c.path("state")) != nil { // SQLite writes beside the file even for reading
		return good("audit chain", "not looked at: the state of the home cannot be read by this user")
	}
	return Chain(ctx, c.Settings.Audit.Anchor, func(ctx context.Context) (audit.VerifyReport, error) {
		return backup.VerifyAudit(ctx, c.Home, c.Settings.Audit.Anchor)
	})
}

// Chain returns the finding about an audit chain, which verify checks. anchor is the configured one.
func Chain(ctx context.Context, anchor string, verify func(context.Context) (audit.VerifyReport, error)) httpapi.Check {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	report, err := verify(ctx)
	switch {
	case ctx.Err() != nil:
		return good("audit chain", "too long to verify in %s; all of it: junctor audit verify", readTimeout)
	case err != nil:
		return bad("audit chain", "it cannot be read: "+err.Error(), "junctor audit verify says more")
	case report.FirstBad != nil:
		return bad("audit chain", fmt.Sprintf("record %d in segment %d is not what was written (%s): the log was changed after it was written", report.FirstBad.Seq, report.FirstBad.Segment, report.FirstBad.Reason),
			"find out who can write there; "+restoreLast)
	case report.AnchorsSkipped > 0:
		return bad("audit chain",
			fmt.Sprintf("it holds, but %d lines of audit.anchor name this log and were not written by it", report.AnchorsSkipped),
			"find out who can write to "+anchor)
	case filepath.IsAbs(anchor) && report.Anchors == 0 && report.Records > 0:
		return bad("audit chain", "it holds, but audit.anchor has no checkpoint of it: the file was removed, or the server did not run since it was set",
			"put "+anchor+" back, or start the server, which begins another")
	}
	return good("audit chain", "holds: %d records", report.Records)
}

// auditKey finds a log whose key is missing. A start would create another key.
func (c Config) auditKey() httpapi.Check {
	written, _ := filepath.Glob(c.path("audit", "*.jsonl"))
	if info, err := os.Stat(c.path("state", "audit.key")); len(written) > 0 && (err != nil || info.Size() != 32) {
		return bad("audit key", "the key of the digests in the audit log is gone or damaged: the next start makes another, and the same arguments look different from then on",
			"put "+c.path("state", "audit.key")+" back from a backup before you start: tar -xzOf FILE junctor-backup-1/home/state/audit.key")
	}
	return good("audit key", "is there, or not needed yet")
}

// clock finds a clock that was set back since the last record.
func (c Config) clock() httpapi.Check {
	written, _ := filepath.Glob(c.path("audit", "*.jsonl"))
	slices.Sort(written)
	for _, path := range slices.Backward(written) { // the last segment may not contain a whole record yet
		at, err := lastTime(path)
		switch {
		case errors.Is(err, errNoRecord):
			continue
		case err != nil:
			return good("clock", "unknown: the last record cannot be read: %v", err)
		case at.After(c.Now.Add(clockGrace)):
			return bad("clock", fmt.Sprintf("the last record is of %s, which is %s from now: tokens and approvals would end at the wrong time",
				at.Format(time.RFC3339), at.Sub(c.Now).Round(time.Second)), "set the clock: timedatectl set-ntp true")
		}
		return good("clock", "it is later than the last record")
	}
	return good("clock", "nothing to compare it with yet")
}

var errNoRecord = errors.New("no whole record")

// lastTime returns the time of the last whole record of a segment, which an unfinished line may follow.
func lastTime(path string) (time.Time, error) {
	f, err := os.Open(path)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return time.Time{}, err
	}
	tail := make([]byte, min(info.Size(), 2*audit.MaxLine))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return time.Time{}, err
	}
	end := bytes.LastIndexByte(tail, '\n')
	if end < 0 {
		if len(tail) == 2*audit.MaxLine {
			return time.Time{}, errors.New("it is too long")
		}
		return time.Time{}, errNoRecord
	}
	tail = tail[:end]
	var record struct {
		Timestamp time.Time `json:"timestamp"`
	}
	err = json.Unmarshal(tail[bytes.LastIndexByte(tail, '\n')+1:], &record)
	if err == nil && record.Timestamp.IsZero() {
		err = errors.New("it has no time")
	}
	return record.Timestamp, err
}
