package agentsql_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/agent/agentsql"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

func at(n int) time.Time { return time.Date(2026, 3, 1, 10, 0, n, 123456789, time.UTC) }

func run(id, person string, n int) agent.Run {
	return agent.Run{
		ID: id, Person: person, Session: "s", Gateway: "g", State: agent.Working, ModelCalls: 1, ToolCalls: 2, Worked: time.Second,
		Created: at(n), Updated: at(n), Seq: 1,
	}
}

func records(n int64) []agent.Record {
	return []agent.Record{{Seq: n, Kind: "answered", Time: at(int(n)), Doc: json.RawMessage(`{"n":1.50,"s":"é"}`)}}
}

func contract(t *testing.T, open func(t *testing.T) *agentsql.Store) {
	t.Helper()
	save := func(t *testing.T, s *agentsql.Store, r agent.Run, list ...agent.Record) {
		t.Helper()
		if err := s.Save(t.Context(), r, agent.Used{}, list...); err != nil {
			t.Fatalf("save %s: got %v, want no error", r.ID, err)
		}
	}
	t.Run("a run and its records come back as they were", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := run("tsk_1", "agent:a", 1)
		save(t, s, r, records(1)...)
		r.State, r.Approvals, r.Seq, r.Updated = agent.Waiting, []string{"apr_1", "apr_2"}, 2, at(2)
		save(t, s, r, records(2)...)
		got, err := s.Run(t.Context(), r.ID)
		if d := cmp.Diff(r, got); d != "" || err != nil {
			t.Errorf("the run (%v) differs from want (-want +got):\n%s", err, d)
		}
		list, err := s.Records(t.Context(), r.ID)
		if d := cmp.Diff(append(records(1), records(2)...), list); d != "" || err != nil {
			t.Errorf("the records (%v) differ from want (-want +got):\n%s", err, d)
		}
		if err := s.Save(t.Context(), r, agent.Used{}, records(2)...); err == nil {
			t.Errorf("a second record with the same number: got no error, want one")
		}
		if _, err := s.Run(t.Context(), "tsk_9"); capability.CodeOf(err) != capability.CodeNotFound {
			t.Errorf("a run that does not exist: got %v, want not_found", err)
		}
	})
	t.Run("lists are paged, the newest first", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for i := range 7 {
			r := run(fmt.Sprintf("tsk_%d", i), "agent:a", i/2) // pairs of the same time
			if i == 3 {
				r.Person = "agent:b"
			}
			save(t, s, r)
		}
		var got []string
		q := agent.Query{Person: "agent:a", Session: "s", State: agent.Working, Limit: 2}
		for {
			list, next, err := s.Runs(t.Context(), q)
			if err != nil {
				t.Fatalf("runs: got %v, want no error", err)
			}
			for _, r := range list {
				got = append(got, r.ID)
			}
			if q.Cursor = next; next == "" {
				break
			}
		}
		if d := cmp.Diff([]string{"tsk_6", "tsk_5", "tsk_4", "tsk_2", "tsk_1", "tsk_0"}, got); d != "" {
			t.Errorf("the runs differ from want (-want +got):\n%s", d)
		}
		for _, cursor := range []string{"x", "!-tsk_1", "-"} {
			if _, _, err := s.Runs(t.Context(), agent.Query{Limit: 1, Cursor: cursor}); capability.CodeOf(err) != capability.CodeInvalidInput {
				t.Errorf("the cursor %q: got %v, want invalid_input", cursor, err)
			}
		}
	})
	t.Run("usage is added up by person and day", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		day := func(r agent.Run, days int) agent.Run {
			r.Updated = r.Updated.AddDate(0, 0, days)
			return r
		}
		used := agent.Used{ModelCalls: 1, ToolCalls: 2, Tokens: 1 << 40, Cost: 1 << 50}
		for _, r := range []agent.Run{
			run("tsk_1", "agent:a", 1), run("tsk_2", "agent:a", 2), run("tsk_3", "agent:b", 3), day(run("tsk_4", "agent:a", 4), 1),
		} {
			if err := s.Save(t.Context(), r, used); err != nil {
				t.Fatalf("save: got %v, want no error", err)
			}
		}
		save(t, s, run("tsk_5", "agent:c", 1)) // used nothing
		of := func(person string, day int, used agent.Used) agent.Day {
			return agent.Day{Person: "agent:" + person, Day: fmt.Sprintf("2026-03-%02d", day), Used: used}
		}
		twice := agent.Used{ModelCalls: 2, ToolCalls: 4, Tokens: 2 << 40, Cost: 2 << 50}
		for person, want := range map[string][]agent.Day{
			"":        {of("a", 2, used), of("a", 1, twice), of("b", 1, used)},
			"agent:a": {of("a", 2, used), of("a", 1, twice)},
			"agent:c": nil,
		} {
			got, err := s.Usage(t.Context(), person, "2026-03-01", "2026-03-02")
			if d := cmp.Diff(want, got); d != "" || err != nil {
				t.Errorf("the usage of %q (%v) differs from want (-want +got):\n%s", person, err, d)
			}
		}
		if got, err := s.Usage(t.Context(), "", "2026-02-01", "2026-02-28"); err != nil || len(got) != 0 {
			t.Errorf("the usage of another month: got %+v and %v, want none", got, err)
		}
	})
	t.Run("only ended runs are removed", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for i, state := range []agent.State{agent.Completed, agent.Working, agent.Failed} {
			r := run(fmt.Sprintf("tsk_%d", i), "agent:a", i)
			r.State = state
			save(t, s, r, records(1)...)
		}
		left := func() (out []string) {
			list, _, err := s.Runs(t.Context(), agent.Query{Limit: 10})
			if err != nil {
				t.Fatalf("runs: got %v, want no error", err)
			}
			for _, r := range list {
				recs, err := s.Records(t.Context(), r.ID)
				out = append(out, fmt.Sprint(r.ID, len(recs), err))
			}
			return out
		}
		if err := s.Sweep(t.Context(), at(1)); err != nil {
			t.Fatalf("sweep: got %v, want no error", err)
		}
		if d := cmp.Diff([]string{"tsk_21 <nil>", "tsk_11 <nil>"}, left()); d != "" {
			t.Errorf("after the sweep (-want +got):\n%s", d)
		}
		if err := s.Forget(t.Context(), "agent:a", "s"); err != nil {
			t.Fatalf("forget: got %v, want no error", err)
		}
		if d := cmp.Diff([]string{"tsk_11 <nil>"}, left()); d != "" {
			t.Errorf("after forget (-want +got):\n%s", d)
		}
		if recs, err := s.Records(t.Context(), "tsk_2"); len(recs) != 0 || err != nil {
			t.Errorf("records of a removed run: got %d and %v, want none", len(recs), err)
		}
		open, err := s.Open(t.Context(), "g")
		if err != nil || len(open) != 1 || open[0].ID != "tsk_1" {
			t.Errorf("open runs: got %+v and %v, want tsk_1", open, err)
		}
		if other, err := s.Open(t.Context(), "h"); err != nil || len(other) != 0 {
			t.Errorf("open runs of another gateway: got %+v and %v, want none", other, err)
		}
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T) *agentsql.Store {
		t.Helper()
		db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
		if err != nil {
			t.Fatalf("open: got %v, want no error", err)
		}
		t.Cleanup(func() { _ = db.Close() })
		s, err := agentsql.Open(t.Context(), db)
		if err != nil {
			t.Fatalf("open: got %v, want no error", err)
		}
		return s
	})
}

func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	contract(t, func(t *testing.T) *agentsql.Store {
		t.Helper()
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: server.Database(t), Password: secret.New(pgtest.Password)})
		if err != nil {
			t.Fatalf("open: got %v, want no error", err)
		}
		t.Cleanup(func() { _ = db.Close() })
		s, err := agentsql.Open(t.Context(), db)
		if err != nil {
			t.Fatalf("open: got %v, want no error", err)
		}
		return s
	})
}
