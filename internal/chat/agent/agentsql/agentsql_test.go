package agentsql_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
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

func contract(t *testing.T, shared bool, open func(t *testing.T) *agentsql.Store) {
	t.Helper()
	begin := func(t *testing.T, s *agentsql.Store, r agent.Run, list ...agent.Record) {
		t.Helper()
		if other, ok, err := s.Begin(t.Context(), r, list...); !ok || err != nil {
			t.Fatalf("begin %s: got %v, %+v and %v, want it stored", r.ID, ok, other, err)
		}
	}
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
		begin(t, s, r, records(1)...)
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
			r.State = agent.Completed
			if i == 3 {
				r.Person = "agent:b"
			}
			begin(t, s, r)
		}
		var got []string
		q := agent.Query{Person: "agent:a", Session: "s", State: agent.Completed, Limit: 2}
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
			r.Session = r.ID
			begin(t, s, r)
			if err := s.Save(t.Context(), r, used); err != nil {
				t.Fatalf("save: got %v, want no error", err)
			}
		}
		begin(t, s, run("tsk_5", "agent:c", 1)) // used nothing
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
		for _, i := range []int{0, 2, 1} {
			r := run(fmt.Sprintf("tsk_%d", i), "agent:a", i)
			r.State = []agent.State{agent.Completed, agent.Working, agent.Failed}[i]
			begin(t, s, r, records(1)...)
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
		want := 0
		if !shared { // a file has one gateway, whatever its name was before
			want = 1
		}
		if other, err := s.Open(t.Context(), "h"); err != nil || len(other) != want {
			t.Errorf("open runs of another gateway: got %+v and %v, want %d", other, err, want)
		}
	})
	t.Run("a conversation has one open run", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		const n = 8
		stored, first := make([]bool, n), make([]string, n)
		var work sync.WaitGroup
		for i := range n {
			work.Go(func() {
				r := run(fmt.Sprintf("tsk_%d", i), "agent:a", i)
				other, ok, err := s.Begin(t.Context(), r, records(1)...)
				if err != nil {
					t.Errorf("begin: got %v, want no error", err)
				}
				if stored[i], first[i] = ok, other.ID; ok {
					first[i] = r.ID
				}
			})
		}
		work.Wait()
		for i := range n {
			if first[i] == "" || first[i] != first[0] || stored[i] != (first[i] == fmt.Sprintf("tsk_%d", i)) {
				t.Errorf("concurrent runs: got stored %v and the open runs %v, want one of them in all places", stored, first)
				break
			}
		}
		list, _, err := s.Runs(t.Context(), agent.Query{Person: "agent:a", Session: "s", Open: true, Limit: 9})
		if err != nil || len(list) != 1 {
			t.Errorf("open runs: got %+v and %v, want one", list, err)
		}
		r := run(first[0], "agent:a", 1)
		r.State = agent.Completed
		save(t, s, r)
		if list, _, err := s.Runs(t.Context(), agent.Query{Person: "agent:a", Open: true, Limit: 9}); err != nil || len(list) != 0 {
			t.Errorf("open runs after its end: got %+v and %v, want none", list, err)
		}
		begin(t, s, run("tsk_9", "agent:a", 9))
	})
	t.Run("runs of a gateway without a lease are taken once, and only by their new gateway written", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		hold := func(gateway string, lease time.Duration, want bool) {
			t.Helper()
			if lapsed, err := s.Hold(t.Context(), gateway, lease); lapsed != want || err != nil {
				t.Errorf("hold of %s: got lapsed %v and %v, want %v", gateway, lapsed, err, want)
			}
		}
		take := func(gateway string) (ids []string) {
			t.Helper()
			list, err := s.Take(t.Context(), gateway)
			if err != nil {
				t.Errorf("take: got %v, want no error", err)
			}
			for _, r := range list {
				if r.Gateway != gateway || r.Term != 1 {
					t.Errorf("a run that was taken: got gateway %s and term %d, want %s and 1", r.Gateway, r.Term, gateway)
				}
				ids = append(ids, r.ID)
			}
			slices.Sort(ids)
			return ids
		}
		parked, works := run("tsk_1", "agent:a", 1), run("tsk_2", "agent:b", 2)
		ended, old := run("tsk_3", "agent:c", 3), run("tsk_4", "agent:d", 4)
		parked.State, ended.State, old.Gateway = agent.Waiting, agent.Completed, "old"
		for _, r := range []agent.Run{parked, works, ended, old} {
			begin(t, s, r, records(1)...)
		}
		hold("g", time.Hour, true)
		hold("g", time.Hour, false)
		hold("h", time.Hour, true)
		if got := take("h"); len(got) != 0 {
			t.Errorf("while the gateway holds its lease: got %v, want none", got)
		}
		hold("g", -time.Hour, false)
		var work sync.WaitGroup
		var mu sync.Mutex
		var got []string
		for range 4 {
			work.Go(func() {
				ids := take("h")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, ids...)
			})
		}
		work.Wait()
		slices.Sort(got)
		if d := cmp.Diff([]string{"tsk_1", "tsk_2"}, got); d != "" {
			t.Errorf("the runs that were taken differ from want (-want +got):\n%s", d)
		}
		hold("g", time.Hour, true) // it returns
		works.Seq = 2
		if err := s.Save(t.Context(), works, agent.Used{ModelCalls: 1}, records(2)...); !errors.Is(err, agent.ErrTaken) {
			t.Errorf("a record of the gateway that lost the run: got %v, want %v", err, agent.ErrTaken)
		}
		if list, err := s.Records(t.Context(), works.ID); err != nil || len(list) != 1 {
			t.Errorf("the records: got %+v and %v, want the first alone", list, err)
		}
		works.Gateway, works.Term = "h", 1
		save(t, s, works, records(2)...)
		if days, err := s.Usage(t.Context(), "agent:b", "2026-03-01", "2026-03-01"); err != nil || len(days) != 0 {
			t.Errorf("usage: got %+v and %v, want none of the refused record", days, err)
		}
	})
	t.Run("a note is there until its record is stored", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		r := run("tsk_1", "agent:a", 1)
		begin(t, s, r, records(1)...)
		var ids []int64
		for i, kind := range []agent.NoteKind{agent.NoteMessage, agent.NoteCancel} {
			id, err := s.Post(t.Context(), agent.Note{Run: r.ID, Kind: kind, Text: fmt.Sprint("é", i), Key: "k", Tainted: i == 0})
			if err != nil {
				t.Fatalf("post: got %v, want no error", err)
			}
			ids = append(ids, id)
		}
		if _, err := s.Post(t.Context(), agent.Note{Run: "tsk_9", Kind: agent.NoteCancel}); err != nil {
			t.Fatalf("post: got %v, want no error", err)
		}
		want := []agent.Note{
			{ID: ids[0], Run: r.ID, Kind: agent.NoteMessage, Text: "é0", Key: "k", Tainted: true},
			{ID: ids[1], Run: r.ID, Kind: agent.NoteCancel, Text: "é1", Key: "k"},
		}
		notes, err := s.Notes(t.Context(), "g")
		if d := cmp.Diff(want, notes); d != "" || err != nil {
			t.Errorf("the notes (%v) differ from want (-want +got):\n%s", err, d)
		}
		if notes, err := s.Notes(t.Context(), "h"); err != nil || len(notes) != 0 {
			t.Errorf("notes for another gateway: got %+v and %v, want none", notes, err)
		}
		rec := records(2)
		rec[0].Note = ids[0]
		r.Seq = 2
		save(t, s, r, rec...)
		if ok, err := s.Withdraw(t.Context(), ids[0]); ok || err != nil {
			t.Errorf("withdraw of an answered note: got %v and %v, want that it was gone", ok, err)
		}
		if posted, err := s.Posted(t.Context(), ids[1]); !posted || err != nil {
			t.Errorf("the other note: got %v and %v, want it there", posted, err)
		}
		if ok, err := s.Withdraw(t.Context(), ids[1]); !ok || err != nil {
			t.Errorf("withdraw: got %v and %v, want it removed", ok, err)
		}
		if posted, err := s.Posted(t.Context(), ids[1]); posted || err != nil {
			t.Errorf("after withdraw: got %v and %v, want it gone", posted, err)
		}
		if err := s.Sweep(t.Context(), at(1)); err != nil { // younger notes stay
			t.Errorf("sweep: got %v, want no error", err)
		}
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	contract(t, false, func(t *testing.T) *agentsql.Store {
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
	contract(t, true, func(t *testing.T) *agentsql.Store {
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
