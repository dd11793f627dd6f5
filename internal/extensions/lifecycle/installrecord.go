package lifecycle

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/internal/store"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// newInstallID returns "inst_" and 12 hex digits.
func newInstallID() string { return ids.Hex("inst_", 6) }

const recordColumns = `install_id, extension_id, operation, status, progress, current_step, started_at, ended_at, error,
error_code, hint, failed_step, completed, was_enabled, keep_work`

func scanRecord(s store.Scanner) (rec Record, err error) {
	var began, ended int64
	var steps string
	err = s.Scan(&rec.ID, &rec.Extension, &rec.Operation, &rec.Status, &rec.Progress, &rec.Step, &began, &ended, &rec.Error, &rec.Code,
		&rec.Hint, &rec.FailedStep, &steps, &rec.WasEnabled, &rec.KeepWork)
	if err != nil {
		return rec, err
	}
	rec.Started, rec.Ended = instant(began), instant(ended)
	return rec, jsonx.Unmarshal([]byte(steps), &rec.Steps)
}

func putRecord(ctx context.Context, db execer, rec *Record) error {
	_, err := db.ExecContext(ctx, `INSERT INTO extension_installs (`+recordColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (install_id) DO UPDATE SET extension_id = excluded.extension_id, operation = excluded.operation,
		status = excluded.status, progress = excluded.progress,
		current_step = excluded.current_step, ended_at = excluded.ended_at, error = excluded.error,
		error_code = excluded.error_code, hint = excluded.hint,
		failed_step = excluded.failed_step, completed = excluded.completed, was_enabled = excluded.was_enabled, keep_work = excluded.keep_work`,
		rec.ID, rec.Extension, string(rec.Operation), string(rec.Status), rec.Progress, rec.Step, store.Nanos(rec.Started),
		store.Nanos(rec.Ended),
		rec.Error, rec.Code, rec.Hint, rec.FailedStep,
		jsonText(append([]string{}, rec.Steps...)), rec.WasEnabled, rec.KeepWork)
	if err != nil {
		return fmt.Errorf("save install %s: %w", rec.ID, err)
	}
	return nil
}

// SaveRecord adds or replaces a record. It deletes the oldest ended records beyond maxRecords.
func (r *Registry) SaveRecord(ctx context.Context, rec Record) error {
	if err := putRecord(ctx, r.db, &rec); err != nil {
		return err
	}
	_, err := r.db.ExecContext(ctx, `DELETE FROM extension_installs WHERE ended_at != 0 AND install_id NOT IN (SELECT install_id
	FROM extension_installs ORDER BY started_at DESC LIMIT ?)`, maxRecords)
	return err
}

// Record returns the record of an id, or not_found, reason install_not_found.
func (r *Registry) Record(ctx context.Context, id string) (Record, error) {
	rec, err := scanRecord(r.db.QueryRowContext(ctx, `SELECT `+recordColumns+` FROM extension_installs WHERE install_id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return rec, capability.Errorf(capability.CodeNotFound, "extensions", "there is no install %.40q", id).With("install_not_found", "")
	}
	return rec, err
}

// Records returns the newest records of one extension ("" = all), at most limit.
func (r *Registry) Records(ctx context.Context, extension string, limit int) ([]Record, error) {
	return r.records(ctx, `SELECT `+recordColumns+` FROM extension_installs WHERE ? = '' OR lower(extension_id) = ? ORDER BY
	started_at DESC, install_id LIMIT ?`, extension, fold(extension), limit)
}

// Open returns the records of changes that have not ended, newest first, which is the
// order in which they must be undone.
func (r *Registry) Open(ctx context.Context) ([]Record, error) {
	return r.records(ctx, `SELECT `+recordColumns+` FROM extension_installs WHERE status IN (?, ?) ORDER BY started_at DESC`, string(Running),
		string(Uninstalling))
}

func (r *Registry) records(ctx context.Context, query string, args ...any) (list []Record, err error) {
	rows, err := r.db.QueryContext(ctx, query, args...)
	if list, err = store.Collect(rows, err, scanRecord); err != nil {
		return nil, fmt.Errorf("read installs: %w", err)
	}
	return slices.Clip(list), nil
}
