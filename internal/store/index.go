package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/audit"
)

// AuditIndex finds audit records of one gateway; see [audit.Index]. On a server it shares one
// table with those of the others, distinguished by the column gateway, so that a run or a
// session can be found in the database wherever it was.
type AuditIndex struct {
	db  *DB
	own string // the condition that a row is this gateway's; its one argument is the gateway
	key string // the column of the gateway that a position belongs to
	who any    // value of key
	old bool   // the checkpoints have no codes
}

// Audit returns the audit index in this database. gateway names the gateway of the segments.
// It must be unique on a server, and is ignored in a file.
func (d *DB) Audit(gateway string) *AuditIndex {
	if d.pg == nil {
		return &AuditIndex{db: d, own: "1 = ?", key: "id", who: 1}
	}
	return &AuditIndex{db: d, own: "gateway = ?", key: "gateway", who: gateway}
}

// AuditIn returns the audit index in a database that [Look] has opened, which earlier versions may have
// written.
func AuditIn(ctx context.Context, db *sql.DB) (*AuditIndex, error) {
	x := (&DB{sql: db}).Audit("")
	err := db.QueryRowContext(ctx, `SELECT NOT EXISTS (SELECT 1 FROM pragma_table_info('audit_checkpoints') WHERE name = 'mac')`).Scan(&x.old)
	return x, err
}

func (x *AuditIndex) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	return x.db.InTx(ctx, fmt.Sprint("audit ", x.who), f)
}

// Position returns the end of the indexed part of the log.
func (x *AuditIndex) Position(ctx context.Context) (p audit.Position, err error) {
	err = x.db.sql.QueryRowContext(ctx, `SELECT seq, hash, segment, start FROM audit_position WHERE `+x.key+` = ?`, x.who).
		Scan(&p.Seq, &p.Hash, &p.Segment, &p.Offset)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return p, err
}

const indexColumns = `seq, segment, start, length, at, level, event, extension, action, capability, session, principal, run,
	provider, parent, approval, success`

// addRows is the number of rows that one statement adds.
const addRows = 100

// Add stores a batch and the new position together.
func (x *AuditIndex) Add(ctx context.Context, entries []audit.Entry, at audit.Position) error {
	columns, row := indexColumns, `(`+strings.Repeat(`?, `, 16)+`?)`
	if x.db.pg != nil {
		columns, row = `gateway, `+columns, `(`+strings.Repeat(`?, `, 17)+`?)`
	}
	return x.inTx(ctx, func(tx *sql.Tx) error {
		for part := range slices.Chunk(entries, addRows) {
			var args []any
			for _, e := range part {
				if x.db.pg != nil {
					args = append(args, x.who)
				}
				args = append(args, e.Seq, e.Segment, e.Offset, e.Length, Nanos(e.Time), e.Level.Rank(), x.text(string(e.Event)),
					x.text(e.Extension), x.text(e.Action), x.text(e.Capability), x.text(e.Session), x.text(e.User), x.text(e.Run),
					x.text(e.Provider), x.text(e.Parent), x.text(e.Approval), e.Success)
			}
			// A record that was indexed before a crash or by another reader is the same.
			_, err := tx.ExecContext(ctx, `INSERT INTO audit_index (`+columns+`) VALUES `+row+strings.Repeat(`, `+row, len(part)-1)+
				` ON CONFLICT DO NOTHING`, args...)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO audit_position (`+x.key+`, seq, hash, segment, start) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (`+x.key+`) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, segment = excluded.segment, start = excluded.start`,
			x.who, at.Seq, at.Hash, at.Segment, at.Offset)
		return err
	})
}

// text returns an untrusted string in a form that the database accepts, because a zero byte
// in one record must not keep the others out of the index.
func (x *AuditIndex) text(s string) string {
	if x.db.pg == nil {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Reset removes all entries and keeps the checkpoints.
func (x *AuditIndex) Reset(ctx context.Context) error {
	return x.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM audit_index WHERE `+x.own, x.who)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM audit_position WHERE `+x.own, x.who)
		}
		return err
	})
}

// Forget removes the entries before seq, except the checkpoint right before it.
func (x *AuditIndex) Forget(ctx context.Context, seq uint64) error {
	return x.inTx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM audit_index WHERE `+x.own+` AND seq < ?`, x.who, seq)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM audit_checkpoints WHERE `+x.own+` AND seq + 1 < ?`, x.who, seq)
		}
		return err
	})
}

// Find returns the newest matches.
func (x *AuditIndex) Find(ctx context.Context, q audit.Query) ([]audit.Entry, error) {
	where, args := []string{x.own}, []any{x.who}
	and := func(set bool, clause string, values ...any) {
		if set {
			where = append(where, clause)
			args = append(args, values...)
		}
	}
	and(q.Extension != "", `extension = ?`, x.text(q.Extension))
	and(q.Event != "", `event = ?`, x.text(string(q.Event)))
	and(q.Session != "", `session = ?`, x.text(q.Session))
	and(q.User != "", `principal = ?`, x.text(q.User))
	and(q.Run != "", `run = ?`, x.text(q.Run))
	and(q.Provider != "", `provider = ?`, x.text(q.Provider))
	and(q.Parent != "", `parent = ?`, x.text(q.Parent))
	and(q.Approval != "", `approval = ?`, x.text(q.Approval))
	and(q.Capability != "", `(capability = ? OR action = ?)`, x.text(q.Capability), x.text(q.Capability))
	and(q.Level != "", `level >= ?`, q.Level.Rank())
	and(!q.Since.IsZero(), `at >= ?`, Nanos(q.Since))
	and(!q.Until.IsZero(), `at < ?`, Nanos(q.Until))
	and(q.Success != nil, `success = ?`, q.Success)
	and(q.Before > 0, `seq < ?`, q.Before)
	rows, err := x.db.sql.QueryContext(ctx, `SELECT `+indexColumns+` FROM audit_index WHERE `+strings.Join(where, ` AND `)+
		` ORDER BY seq DESC LIMIT ?`,
		append(args, q.Limit)...)
	return Collect(rows, err, func(s Scanner) (e audit.Entry, err error) {
		var rank int
		err = s.Scan(&e.Seq, &e.Segment, &e.Offset, &e.Length, instant{&e.Time}, &rank, &e.Event, &e.Extension, &e.Action,
			&e.Capability, &e.Session, &e.User, &e.Run, &e.Provider, &e.Parent, &e.Approval, &e.Success)
		e.Level = [...]audit.Level{audit.Debug, audit.Info, audit.Warning, audit.Error}[rank&3]
		return e, err
	})
}

// Usage implements [audit.Index].
func (x *AuditIndex) Usage(ctx context.Context, q audit.UsageQuery) ([]audit.Usage, error) {
	var args []any
	among := func(list []audit.Event) string {
		for _, e := range list {
			args = append(args, x.text(string(e)))
		}
		return `event IN (?` + strings.Repeat(`, ?`, len(list)-1) + `)`
	}
	made, failed, refused := audit.Ends()
	day := `strftime('%Y-%m-%d', at / 1000000000, 'unixepoch')`
	if x.db.pg != nil {
		day = `to_char(to_timestamp(at / 1000000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')`
	}
	keys := map[audit.UsageKey]string{
		audit.ByUser: `principal`, audit.ByCapability: `capability`, audit.ByProvider: `provider`, audit.ByDay: day,
	}
	var columns, groups []string
	for i, key := range []audit.UsageKey{audit.ByUser, audit.ByCapability, audit.ByProvider, audit.ByDay} {
		if slices.Contains(q.By, key) {
			columns = append(columns, keys[key])
			groups = append(groups, fmt.Sprint(i+1))
		} else {
			columns = append(columns, `''`)
		}
	}
	sums := []string{}
	for _, list := range [][]audit.Event{made, failed, refused} {
		sums = append(sums, `SUM(CASE WHEN `+among(list)+` THEN 1 ELSE 0 END)`)
	}
	where := x.own + ` AND run <> '' AND ` + among(slices.Concat(made, refused))
	args = slices.Insert(args, len(made)+len(failed)+len(refused), x.who)
	and := func(set bool, clause string, value any) {
		if set {
			where += ` AND ` + clause
			args = append(args, value)
		}
	}
	and(q.User != "", `principal = ?`, x.text(q.User))
	and(!q.Since.IsZero(), `at >= ?`, Nanos(q.Since))
	and(!q.Until.IsZero(), `at < ?`, Nanos(q.Until))
	by := ``
	if len(groups) > 0 {
		by = ` GROUP BY ` + strings.Join(groups, `, `)
	}
	selected := strings.Join(slices.Concat(columns, sums), `, `)
	rows, err := x.db.sql.QueryContext(ctx, `SELECT `+selected+`, MAX(at) FROM audit_index WHERE `+where+by+
		` HAVING COUNT(*) > 0 ORDER BY 5 DESC, 7 DESC, 1, 2, 3, 4 LIMIT ?`, append(args, q.Limit)...)
	return Collect(rows, err, func(s Scanner) (u audit.Usage, err error) {
		err = s.Scan(&u.User, &u.Capability, &u.Provider, &u.Day, &u.Calls, &u.Failed, &u.Refused, instant{&u.Last})
		return u, err
	})
}

// AddCheckpoint stores the first checkpoint with a number, because a later one with another
// hash would belong to a forged history.
func (x *AuditIndex) AddCheckpoint(ctx context.Context, c audit.Checkpoint) error {
	columns, marks, args := `seq, hash, at, coded, mac`, `?, ?, ?, ?, ?`, []any{c.Seq, c.Hash, Nanos(c.At), c.Coded, c.MAC}
	if x.db.pg != nil {
		columns, marks, args = columns+`, gateway`, marks+`, ?`, append(args, x.who)
	}
	_, err := x.db.exec(ctx, `INSERT INTO audit_checkpoints (`+columns+`) VALUES (`+marks+`) ON CONFLICT DO NOTHING`, args...)
	return err
}

// Checkpoints returns a page of checkpoints.
func (x *AuditIndex) Checkpoints(ctx context.Context, after uint64, limit int) ([]audit.Checkpoint, error) {
	codes := `, coded, mac`
	if x.old {
		codes = `, 0, ''`
	}
	rows, err := x.db.sql.QueryContext(ctx, `SELECT seq, hash, at`+codes+` FROM audit_checkpoints WHERE `+x.own+
		` AND seq > ? ORDER BY seq LIMIT ?`, x.who, after, limit)
	return Collect(rows, err, func(s Scanner) (c audit.Checkpoint, err error) {
		err = s.Scan(&c.Seq, &c.Hash, instant{&c.At}, &c.Coded, &c.MAC)
		return c, err
	})
}
