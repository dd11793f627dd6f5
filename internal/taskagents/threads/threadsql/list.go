package threadsql

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// latest is the SQL expression for a thread's last activity.
const latest = `COALESCE((SELECT MAX(s.last_activity_at) FROM task_sessions s WHERE s.thread_id = t.id), t.created_at)`

const live = `EXISTS (SELECT 1 FROM task_sessions s WHERE s.thread_id = t.id AND s.status IN ('active', 'blocked',
'waiting_on_user', 'tool_running'))`

// where returns the SQL condition of a filter over task_threads t.
func where(f threads.Filter) (condition string, args []any) {
	all := []string{`1 = 1`}
	also := func(what string, values ...any) { all, args = append(all, what), append(args, values...) }
	if !f.Archived && !slices.Contains(f.Statuses, row.ThreadArchived) {
		also(`t.archived_at = 0`)
	}
	if len(f.Statuses) > 0 {
		list := make([]any, len(f.Statuses))
		for i, s := range f.Statuses {
			list[i] = string(s)
		}
		also(`t.status IN (`+marks(len(list))+`)`, list...)
	}
	for _, one := range []struct{ column, value string }{
		{`t.kind = ?`, string(f.Kind)},
		{`t.room_id = ?`, f.RoomID},
		{`t.world_id = ?`, f.WorldID},
		{`t.owner_user_id = ?`, f.OwnerUserID},
		{`t.agent_id = ?`, f.AgentID},
		{`t.scenario_id = ?`, f.ScenarioID},
		{`t.batch_id = ?`, f.BatchID},
	} {
		if one.value != "" {
			also(one.column, one.value)
		}
	}
	for _, one := range []struct {
		what string
		at   time.Time
	}{
		{`t.created_at >= ?`, f.CreatedAfter},
		{`t.created_at <= ?`, f.CreatedBefore},
		{`t.updated_at >= ?`, f.UpdatedAfter},
		{`t.updated_at <= ?`, f.UpdatedBefore},
		{latest + ` >= ?`, f.ActivityAfter},
		{latest + ` <= ?`, f.ActivityBefore},
	} {
		if !one.at.IsZero() {
			also(one.what, one.at.UnixMilli())
		}
	}
	if f.Active != nil {
		if *f.Active {
			also(live)
		} else {
			also(`NOT ` + live)
		}
	}
	for _, word := range f.Words() {
		also(`t.search_text LIKE ? ESCAPE '!'`, "%"+strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(word)+"%")
	}
	return strings.Join(all, ` AND `), args
}

func marks(n int) string { return "?" + strings.Repeat(", ?", n-1) }

// Count implements [threads.Store].
func (s *Store) Count(ctx context.Context, f threads.Filter) (n int, err error) {
	condition, args := where(f)
	err = s.db.SQL().QueryRowContext(ctx, `SELECT COUNT(*) FROM task_threads t WHERE `+condition, args...).Scan(&n)
	return n, explain(ctx, err)
}

// Threads implements [threads.Store].
func (s *Store) Threads(ctx context.Context, f threads.Filter) (out []threads.Summary, err error) {
	condition, args := where(f)
	err = s.read(ctx, func(q querier) error {
		// The wide rows are read only for the selected ids.
		out, err = summaries(ctx, q, `t.id IN (SELECT id FROM (SELECT t.id, `+latest+` AS latest FROM task_threads t WHERE `+condition+
			` ORDER BY latest DESC, t.seq DESC LIMIT ?) AS newest) ORDER BY latest DESC, t.seq DESC`, true, append(args, f.Limit)...)
		return err
	})
	return out, explain(ctx, err)
}

// read runs f on a consistent snapshot of the database, without blocking writers.
func (s *Store) read(ctx context.Context, f func(querier) error) error {
	tx, err := s.db.SQL().BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // the transaction only reads
	return f(tx)
}

// summaries returns the threads that match a condition, with their counts.
func summaries(ctx context.Context, q querier, condition string, short bool, args ...any) ([]threads.Summary, error) {
	columns := names(&row.Thread{}, "t.")
	columns = strings.Replace(columns, `t.search_text`, `''`, 1)
	if short {
		for _, c := range []string{`t.original_request`, `t.summary`} {
			columns = strings.Replace(columns, c, fmt.Sprintf(`SUBSTR(%s, 1, %d)`, c, threads.MaxListed), 1)
		}
	}
	rows, err := q.QueryContext(ctx, `SELECT `+columns+`, `+latest+` AS latest FROM task_threads t WHERE `+condition, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := []threads.Summary{}
	for rows.Next() {
		var s threads.Summary
		if err := rows.Scan(append(into(&s.Thread), &s.LatestActivityAt)...); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	if err := rows.Err(); err != nil || len(out) == 0 {
		return out, err
	}
	return out, counted(ctx, q, out)
}

// counted sets the counts and latest values of each thread.
func counted(ctx context.Context, q querier, list []threads.Summary) error {
	of, ids := make(map[string]*threads.Summary, len(list)), make([]any, len(list))
	for i := range list {
		of[list[i].ID], ids[i] = &list[i], list[i].ID
	}
	in := ` WHERE thread_id IN (` + marks(len(ids)) + `) `
	each := func(query string, scan func(*sql.Rows) error) error {
		rows, err := q.QueryContext(ctx, query, ids...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	err := each(`SELECT thread_id, session_id, label, workdir, repo, status, decision_count, metadata_json FROM task_sessions`+in+`ORDER BY seq`,
		func(rows *sql.Rows) error {
			var thread string
			var s row.Session
			var meta []byte
			if err := rows.Scan(&thread, &s.SessionID, &s.Label, &s.Workdir, &s.Repo, &s.Status, &s.DecisionCount, &meta); err != nil {
				return err
			}
			t := of[thread]
			t.SessionCount++
			if s.Status.Live() {
				t.ActiveSessionCount++
			}
			t.DecisionCount += s.DecisionCount
			if u := threads.UsageOf(meta); u != nil {
				sum := u.Plus(*cmp.Or(t.Usage, &programs.Usage{}))
				t.Usage = &sum
			}
			t.LatestSessionID, t.LatestSessionLabel, t.LatestWorkdir, t.LatestRepo = s.SessionID, s.Label, s.Workdir, s.Repo
			return nil
		})
	if err != nil {
		return err
	}
	count := func(table, what string, add func(t *threads.Summary, what string, n int)) {
		if err != nil {
			return
		}
		err = each(`SELECT thread_id, `+what+` AS what, COUNT(*) FROM `+table+in+`GROUP BY thread_id, what`, func(rows *sql.Rows) error {
			var thread, what string
			var n int
			if err := rows.Scan(&thread, &what, &n); err != nil {
				return err
			}
			add(of[thread], what, n)
			return nil
		})
	}
	count(`task_nodes`, `status`, func(t *threads.Summary, status string, n int) {
		t.NodeCount += n
		switch row.NodeStatus(status) {
		case row.NodeReady:
			t.ReadyNodeCount += n
		case row.NodeCompleted:
			t.CompletedNodeCount += n
		}
	})
	count(`task_verifier_jobs`, `''`, func(t *threads.Summary, _ string, n int) { t.VerifierJobCount += n })
	count(`task_evidence`, `''`, func(t *threads.Summary, _ string, n int) { t.EvidenceCount += n })
	return err
}

// Detail implements [threads.Store].
func (s *Store) Detail(ctx context.Context, thread string, sel threads.Selection) (d threads.Detail, ok bool, err error) {
	err = s.read(ctx, func(q querier) error {
		found, err := summaries(ctx, q, `t.id = ?`, false, thread)
		if err != nil || len(found) == 0 {
			return err
		}
		d.Summary, ok = found[0], true
		for _, field := range sel.Fields {
			if err := fill(ctx, q, &d, field, sel.Transcripts); err != nil {
				return err
			}
		}
		return nil
	})
	return d, ok && err == nil, explain(ctx, err)
}

func fill(ctx context.Context, q querier, d *threads.Detail, field threads.Field, transcripts int) (err error) {
	switch id := d.ID; field {
	case threads.FieldSessions:
		d.Sessions, err = list[row.Session](ctx, q, ofThread, id)
	case threads.FieldDecisions:
		d.Decisions, err = list[row.Decision](ctx, q, ofThread, id)
	case threads.FieldEvents:
		d.Events, err = list[row.Event](ctx, q, ofThread, id)
	case threads.FieldArtifacts:
		d.Artifacts, err = list[row.Artifact](ctx, q, ofThread, id)
	case threads.FieldTranscripts:
		d.Transcripts, err = newest(ctx, q, id, transcripts)
	case threads.FieldPending:
		d.PendingDecisions, err = list[row.PendingDecision](ctx, q, ofThread, id)
	case threads.FieldNodes:
		d.Nodes, err = list[row.Node](ctx, q, ofThread, id)
	case threads.FieldDependencies:
		d.Dependencies, err = list[row.Dependency](ctx, q, ofThread, id)
	case threads.FieldClaims:
		d.Claims, err = list[row.Claim](ctx, q, ofThread, id)
	case threads.FieldMailbox:
		d.Mailbox, err = list[row.MailboxItem](ctx, q, ofThread, id)
	case threads.FieldJobs:
		d.VerifierJobs, err = list[row.VerifierJob](ctx, q, ofThread, id)
	case threads.FieldEvidence:
		d.Evidence, err = list[row.Evidence](ctx, q, ofThread, id)
	}
	return err
}

// newest returns the last rows of a thread's transcripts, ordered by their time, because two
// goroutines write input and output.
func newest(ctx context.Context, q querier, thread string, limit int) ([]row.TranscriptItem, error) {
	out, err := list[row.TranscriptItem](ctx, q, `WHERE thread_id = ? AND seq IN (SELECT seq FROM (
		SELECT seq, SUM(bytes) OVER (ORDER BY seq DESC) AS together FROM task_transcripts WHERE thread_id = ?) AS all_of_it WHERE
		together <= ?) ORDER BY seq DESC LIMIT ?`,
		thread, thread, threads.MaxTranscriptBytes, limit)
	slices.Reverse(out)
	slices.SortStableFunc(out, func(a, b row.TranscriptItem) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return out, err
}
