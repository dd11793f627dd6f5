package threadsql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// change implements [threads.Tx].
type change struct {
	tx     *sql.Tx
	thread string
}

func (c *change) Graph(ctx context.Context) (g threads.Graph, ok bool, err error) {
	g.Thread.ID = c.thread
	if ok, err = get(ctx, c.tx, &g.Thread); err != nil || !ok {
		return g, false, err
	}
	if g.Sessions, err = list[row.Session](ctx, c.tx, ofThread, c.thread); err != nil {
		return g, false, err
	}
	if g.Nodes, err = list[row.Node](ctx, c.tx, ofThread, c.thread); err != nil {
		return g, false, err
	}
	if g.Dependencies, err = list[row.Dependency](ctx, c.tx, ofThread, c.thread); err != nil {
		return g, false, err
	}
	if g.Claims, err = list[row.Claim](ctx, c.tx, ofThread, c.thread); err != nil {
		return g, false, err
	}
	g.Jobs, err = list[row.VerifierJob](ctx, c.tx, `WHERE thread_id = ? AND status IN (?, ?) ORDER BY seq`, c.thread, string(row.JobPending),
		string(row.JobRunning))
	return g, err == nil, err
}

func (c *change) Get(ctx context.Context, r row.Row) (bool, error) { return get(ctx, c.tx, r) }

func (c *change) Insert(ctx context.Context, r row.Row) error {
	var args []any
	for _, col := range row.Columns(r) {
		args = append(args, col.Value())
	}
	columns := names(r, "")
	item, isTranscript := r.(*row.TranscriptItem)
	if isTranscript {
		columns, args = columns+`, bytes`, append(args, len(item.Content)+threads.RowOverhead)
	}
	_, err := c.tx.ExecContext(ctx, `INSERT INTO `+r.Table()+` (`+columns+`) VALUES (?`+strings.Repeat(`, ?`, len(args)-1)+`)`, args...)
	if err == nil && isTranscript {
		_, err = c.tx.ExecContext(ctx, `UPDATE task_sessions SET transcript_bytes = transcript_bytes + ? WHERE session_id = ?`,
			len(item.Content)+threads.RowOverhead, item.SessionID)
	}
	return err
}

func (c *change) Update(ctx context.Context, r row.Row) error {
	var set []string
	var args []any
	key := row.Key(r)
	for _, col := range row.Columns(r) {
		if col.Name() != key.Name() {
			set, args = append(set, col.Name()+` = ?`), append(args, col.Value())
		}
	}
	return one(c.tx.ExecContext(ctx, `UPDATE `+r.Table()+` SET `+strings.Join(set, ", ")+` WHERE `+key.Name()+` = ?`,
		append(args, key.Value())...))
}

func (c *change) Remove(ctx context.Context, r row.Row) error {
	key := row.Key(r)
	return one(c.tx.ExecContext(ctx, `DELETE FROM `+r.Table()+` WHERE `+key.Name()+` = ?`, key.Value()))
}

// one returns an error unless a statement changed exactly one row.
func one(res sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		return fmt.Errorf("%d rows were changed, not one (%w)", n, err)
	}
	return nil
}

func (c *change) Count(ctx context.Context, r row.Row) (n int, err error) {
	err = c.tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+r.Table()+` WHERE thread_id = ?`, c.thread).Scan(&n)
	return n, err
}

func (c *change) TrimEvents(ctx context.Context, keep int) error {
	_, err := c.tx.ExecContext(ctx, `DELETE FROM task_events WHERE thread_id = ? AND seq <= (SELECT seq FROM task_events WHERE thread_id = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)`,
		c.thread, c.thread, keep)
	return err
}

func (c *change) TrimTranscript(ctx context.Context, session string, limit int,
	marker func(row.TranscriptItem, threads.Gone) row.TranscriptItem,
) error {
	var has int64
	if err := c.tx.QueryRowContext(ctx, `SELECT transcript_bytes FROM task_sessions WHERE session_id = ?`, session).Scan(&has); err != nil ||
		has <= int64(limit) {
		return err
	}
	last, gone, err := c.oldest(ctx, session, has-int64(limit)*3/4)
	if err != nil {
		return err
	}
	item := row.TranscriptItem{ID: last.id}
	if _, err := get(ctx, c.tx, &item); err != nil {
		return err
	}
	item = marker(item, gone)
	if err := row.Clean(&item); err != nil {
		return err
	}
	if _, err := c.tx.ExecContext(ctx, `DELETE FROM task_transcripts WHERE session_id = ? AND seq < ?`, session, last.seq); err != nil {
		return err
	}
	if err := c.Update(ctx, &item); err != nil {
		return err
	}
	size := len(item.Content) + threads.RowOverhead
	if _, err := c.tx.ExecContext(ctx, `UPDATE task_transcripts SET bytes = ? WHERE id = ?`, size, item.ID); err != nil {
		return err
	}
	_, err = c.tx.ExecContext(ctx, `UPDATE task_sessions SET transcript_bytes = transcript_bytes - ? + ? WHERE session_id = ?`, last.freed,
		size, session)
	return err
}

// place is a row of a transcript, and the number of bytes that are freed by removing it and all
// rows before it.
type place struct {
	id         string
	seq, freed int64
}

// oldest returns the first row up to which removing rows frees enough bytes, and the numbers of
// removed rows and bytes.
func (c *change) oldest(ctx context.Context, session string, enough int64) (at place, gone threads.Gone, err error) {
	rows, err := c.tx.QueryContext(ctx, `SELECT id, seq, bytes, direction, metadata_json FROM task_transcripts WHERE session_id = ? ORDER BY seq`, session)
	if err != nil {
		return at, gone, err
	}
	defer rows.Close()
	for at.freed < enough && rows.Next() {
		var bytes int64
		var direction string
		var metadata []byte
		if err := rows.Scan(&at.id, &at.seq, &bytes, &direction, &metadata); err != nil {
			return at, gone, err
		}
		at.freed += bytes
		if before, ok := stoodFor(direction, metadata); ok {
			gone.Rows, gone.Bytes = gone.Rows+before.Rows, gone.Bytes+before.Bytes
			continue
		}
		gone.Rows, gone.Bytes = gone.Rows+1, gone.Bytes+bytes-threads.RowOverhead
	}
	return at, gone, rows.Err()
}

// stoodFor returns the numbers that a row represents if it is a marker.
func stoodFor(direction string, metadata json.RawMessage) (gone threads.Gone, ok bool) {
	ok = direction == string(row.System) && jsonx.Unmarshal(metadata, &gone) == nil && gone.Rows > 0
	return gone, ok
}
