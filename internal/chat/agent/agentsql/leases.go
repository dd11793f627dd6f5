package agentsql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/internal/chat/agent"
)

// now returns the expression for the time of the database, in nanoseconds. All gateways that share one
// have the same, whatever their own clocks are.
func (s *Store) now() string {
	if s.db.Shared() {
		return `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000 AS BIGINT)`
	}
	return `CAST(unixepoch('subsec') * 1000000000 AS INTEGER)`
}

// exec runs one statement and returns the number of changed rows.
func (s *Store) exec(ctx context.Context, key, query string, args ...any) (n int64, err error) {
	err = s.db.InTx(ctx, key, func(tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, query, args...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	return n, err
}

// Hold implements [agent.Leases].
func (s *Store) Hold(ctx context.Context, gateway string, lease time.Duration) (lapsed bool, err error) {
	n, err := s.exec(ctx, "agent gateway "+gateway, `UPDATE agent_gateways SET lease_until = `+s.now()+` + ?
		WHERE gateway = ? AND lease_until >= `+s.now(), lease.Nanoseconds(), gateway)
	if err != nil || n > 0 {
		return false, err
	}
	_, err = s.exec(ctx, "agent gateway "+gateway, `INSERT INTO agent_gateways (gateway, lease_until) VALUES (?, `+s.now()+` + ?)
		ON CONFLICT (gateway) DO UPDATE SET lease_until = excluded.lease_until`, gateway, lease.Nanoseconds())
	return true, err
}

// Take implements [agent.Leases]. The runs of a gateway that never had a lease stay with it: it is of a
// version that keeps none.
func (s *Store) Take(ctx context.Context, gateway string) (list []agent.Run, err error) {
	expired := `SELECT gateway FROM agent_gateways WHERE gateway <> ? AND lease_until < ` + s.now()
	var some bool
	if err := s.db.SQL().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM agent_runs WHERE ended = 0 AND gateway IN (`+expired+`))`,
		gateway).Scan(&some); err != nil || !some {
		return nil, err
	}
	err = s.db.InTx(ctx, "agent runs", func(tx *sql.Tx) error {
		list, err = collect(tx.QueryContext(ctx, `UPDATE agent_runs SET gateway = ?, term = term + 1 WHERE ended = 0 AND gateway IN (`+expired+`)
			RETURNING `+columns, gateway, gateway))
		return err
	})
	return list, err
}

// Post implements [agent.Leases].
func (s *Store) Post(ctx context.Context, n agent.Note) (id int64, err error) {
	document, err := json.Marshal(n)
	if err != nil {
		return 0, err
	}
	err = s.db.InTx(ctx, "agent notes", func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, `INSERT INTO agent_notes (run, created, doc) VALUES (?, `+s.now()+`, ?) RETURNING id`, n.Run, document).
			Scan(&id)
	})
	return id, err
}

// Notes implements [agent.Leases].
func (s *Store) Notes(ctx context.Context, gateway string) (list []agent.Note, err error) {
	rows, err := s.db.SQL().QueryContext(ctx, `SELECT n.id, n.run, n.doc FROM agent_notes n JOIN agent_runs r ON r.id = n.run
		WHERE r.gateway = ? AND r.ended = 0 ORDER BY n.id`, gateway)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n agent.Note
		var document []byte
		if err := rows.Scan(&n.ID, &n.Run, &document); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(document, &n); err != nil {
			return nil, fmt.Errorf("the note %d is damaged: %w", n.ID, err)
		}
		list = append(list, n)
	}
	return list, rows.Err()
}

// Posted implements [agent.Leases].
func (s *Store) Posted(ctx context.Context, id int64) (posted bool, err error) {
	err = s.db.SQL().QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM agent_notes WHERE id = ?)`, id).Scan(&posted)
	return posted, err
}

// Withdraw implements [agent.Leases].
func (s *Store) Withdraw(ctx context.Context, id int64) (bool, error) {
	n, err := s.exec(ctx, "agent notes", `DELETE FROM agent_notes WHERE id = ?`, id)
	return n > 0, err
}
