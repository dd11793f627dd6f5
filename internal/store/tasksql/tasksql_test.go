package tasksql_test

import (
	"encoding/json"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/tasksql"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

func at(n int) time.Time { return time.Date(2026, 3, 1, 10, 0, n, 123456789, time.UTC) }

func task(id, owner string, n int) tasks.Task {
	return tasks.Task{
		ID: id, Kind: tasks.KindCall, Owner: owner, State: tasks.Submitted, Surface: "a2a", Context: "c", Created: at(n), Updated: at(n),
		Expires: at(n + 100),
		Version: 1, Gateway: "g", Keep: time.Hour, Input: json.RawMessage(`{"n":9007199254740993,"s":"\ud800"}`),
		Call:    tasks.Call{Target: capability.Target{Action: "fs.list", Select: capability.Selector{"provider": "x"}}, Timeout: time.Minute},
		History: []json.RawMessage{json.RawMessage(`{"a":1.10}`)},
	}
}

func contract(t *testing.T, open func(t *testing.T) *tasksql.Store) {
	t.Run("a task comes back as it was", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		in := task("tsk_1", "agent:a", 1)
		if ok, err := s.CreateTask(t.Context(), in, tasks.Bounds{Open: 5, Ended: 9, Bytes: 1 << 20}); !ok || err != nil {
			t.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
		}
		got, ok, err := s.Task(t.Context(), in.ID)
		if !ok || err != nil {
			t.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
		}
		if d := cmp.Diff(in, got); d != "" {
			t.Errorf("result differs from want (-want +got):\n%s", d)
		}
		in.Version, in.State, in.Result, in.Input = 2, tasks.Failed, json.RawMessage("\"\xff\""), nil
		in.Error = capability.Errorf(capability.CodeDenied, "", "no").With("because", "")
		in.Requests = []tasks.Request{{Key: "q1", Method: "elicitation/create", Params: json.RawMessage(`{"message":"x"}`), Asked: at(2)}}
		if ok, err := s.SaveTask(t.Context(), in); !ok || err != nil {
			t.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
		}
		if ok, err := s.SaveTask(t.Context(), in); ok || err != nil {
			t.Errorf("the same version was written twice %v; want ok = false, no error", err)
		}
		got, _, err = s.Task(t.Context(), in.ID)
		if err != nil || string(got.Result) != "\"\xff\"" || len(got.Input) != 0 || got.Error.Reason != "because" ||
			string(got.Requests[0].Params) != `{"message":"x"}` {
			t.Errorf(`%+v %v; want no error, string(got.Result) = "\"\xff\"", len(got.Input) = 0, got.Error.Reason = "because", `+
				`string(got.Requests[0].Params) = "{\"message\":\"x\"}"`, got, err)
		}
		if _, ok, err := s.Task(t.Context(), "tsk_2"); ok || err != nil {
			t.Errorf("ok = %v, err = %v, want !ok && err == nil", ok, err)
		}
	})
	t.Run("an owner has so many open", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		var made atomic.Int32
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				ok, err := s.CreateTask(t.Context(), task("tsk_"+string(rune('a'+i)), "agent:a", i), tasks.Bounds{Open: 3, Ended: 9, Bytes: 1 << 20})
				if err != nil {
					t.Error(err)
				}
				if ok {
					made.Add(1)
				}
			})
		}
		all.Wait()
		if made.Load() != 3 {
			t.Errorf("made.Load() = %v, want %v", made.Load(), 3)
		}
		if ok, err := s.CreateTask(t.Context(), task("tsk_z", "agent:b", 1), tasks.Bounds{Open: 3, Ended: 9, Bytes: 1 << 20}); !ok || err != nil {
			t.Errorf("another owner's count %v %v; want ok = true, no error", ok, err)
		}
	})
	t.Run("the oldest ended make room", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		make := func(id string, n int, result string, b tasks.Bounds) {
			t.Helper()
			in := task(id, "agent:a", n)
			in.State, in.Result, in.History = tasks.Completed, json.RawMessage(result), nil
			if ok, err := s.CreateTask(t.Context(), in, b); !ok || err != nil {
				t.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
			}
		}
		left := func() (ids []string) {
			t.Helper()
			list, _, err := s.Tasks(t.Context(), tasks.Query{Owner: "agent:a", Limit: 9}, time.Time{}, "")
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				ids = append(ids, one.ID)
			}
			return ids
		}
		for i, id := range []string{"tsk_1", "tsk_2", "tsk_3", "tsk_4"} {
			make(id, i, `"xxxxxxxxxxxxxxxx"`, tasks.Bounds{Open: 1, Ended: 2, Bytes: 1000})
		}
		if d := cmp.Diff([]string{"tsk_4", "tsk_3", "tsk_2"}, left()); d != "" {
			t.Errorf("left() differs from want (-want +got):\n%s", d)
		}
		make("tsk_5", 5, `1`, tasks.Bounds{Open: 1, Ended: 9, Bytes: 30})
		if d := cmp.Diff([]string{"tsk_5", "tsk_4"}, left()); d != "" {
			t.Errorf("left() differs from want (-want +got):\n%s", d)
		}
	})
	t.Run("one of many changes a version", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		in := task("tsk_1", "agent:a", 1)
		if _, err := s.CreateTask(t.Context(), in, tasks.Bounds{Open: 5, Ended: 9, Bytes: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		in.Version = 2
		var won atomic.Int32
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				ok, err := s.SaveTask(t.Context(), in)
				if err != nil {
					t.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("won.Load() = %v, want %v", won.Load(), 1)
		}
	})
	t.Run("lists are the owner's, the last changed first", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		for i, id := range []string{"tsk_1", "tsk_2", "tsk_3", "tsk_4"} {
			in := task(id, "agent:a", i)
			if i == 3 {
				in.Owner = "agent:b"
			}
			if i == 2 {
				in.Context, in.State, in.Result = "d", tasks.Completed, json.RawMessage(`1`)
			}
			if ok, err := s.CreateTask(t.Context(), in, tasks.Bounds{Open: 9, Ended: 9, Bytes: 1 << 20}); !ok || err != nil {
				t.Fatalf("ok = %v, err = %v, want ok && err == nil", ok, err)
			}
		}
		list := func(q tasks.Query, before time.Time, id string) (ids []string, total int) {
			t.Helper()
			q.Owner = "agent:a"
			if q.Limit == 0 {
				q.Limit = 9
			}
			got, total, err := s.Tasks(t.Context(), q, before, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range got {
				ids = append(ids, one.ID)
				if (one.Result != nil) != (q.Results && one.ID == "tsk_3") || (one.History != nil) != q.History || one.Input != nil {
					t.Errorf(`%+v; want (one.Result != nil) = (q.Results && one.ID == "tsk_3"), (one.History != nil) = %v, one.Input = nil`,
						one, q.History)
				}
			}
			return ids, total
		}
		for _, tt := range []struct {
			q      tasks.Query
			before time.Time
			id     string
			want   []string
			total  int
		}{
			{tasks.Query{}, time.Time{}, "", []string{"tsk_3", "tsk_2", "tsk_1"}, 3},
			{tasks.Query{Limit: 1, Results: true}, time.Time{}, "", []string{"tsk_3"}, 3},
			{tasks.Query{History: true}, at(1), "tsk_2", []string{"tsk_1"}, 3},
			{tasks.Query{Context: "d"}, time.Time{}, "", []string{"tsk_3"}, 1},
			{tasks.Query{State: tasks.Submitted}, time.Time{}, "", []string{"tsk_2", "tsk_1"}, 2},
			{tasks.Query{Since: at(1)}, time.Time{}, "", []string{"tsk_3", "tsk_2"}, 2},
			{tasks.Query{Surface: "mcp"}, time.Time{}, "", nil, 0},
		} {
			if ids, total := list(tt.q, tt.before, tt.id); cmp.Diff(tt.want, ids) != "" || total != tt.total {
				t.Errorf(`%+v: %v %d; want cmp.Diff(tt.want, ids) = "", total = %v`, tt.q, ids, total, tt.total)
			}
		}
		open, err := s.OpenTasks(t.Context(), "g")
		if err != nil || len(open) != 3 {
			t.Errorf("open = %v, err = %v, want err == nil && len(open) == 3", open, err)
		}
		if open, err = s.OpenTasks(t.Context(), "other"); err != nil || len(open) != 0 {
			t.Errorf(`s.OpenTasks(t.Context(), "other") = %v, err = %v, want err == nil && len(open) == 0`, open, err)
		}
		taken, err := s.TakeTasks(t.Context(), "other", []string{"tsk_2", "tsk_9"})
		if err != nil || len(taken) != 1 || taken[0].ID != "tsk_2" || taken[0].Gateway != "other" || len(taken[0].History) != 1 {
			t.Errorf("tasks taken: got %+v and %v, want tsk_2 with its history, of the gateway other", taken, err)
		}
		late := task("tsk_2", "agent:a", 2)
		if late.Version++; len(taken) == 1 && taken[0].Version != late.Version {
			t.Errorf("the version: got %d, want %d", taken[0].Version, late.Version)
		}
		if ok, err := s.SaveTask(t.Context(), late); ok || err != nil {
			t.Errorf("a change by the gateway that lost the task: got %v and %v, want it refused", ok, err)
		}
		if open, err = s.OpenTasks(t.Context(), "other"); err != nil || len(open) != 1 {
			t.Errorf("open tasks of the other gateway: got %v and %v, want one", open, err)
		}
		if err := s.SweepTasks(t.Context(), at(200)); err != nil {
			t.Fatal(err)
		}
		if ids, _ := list(tasks.Query{}, time.Time{}, ""); cmp.Diff([]string{"tsk_2", "tsk_1"}, ids) != "" {
			t.Errorf(`only what has ended is removed: %v; want cmp.Diff([]string{"tsk_2", "tsk_1"}, ids) = ""`, ids)
		}
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	contract(t, func(t *testing.T) *tasksql.Store {
		db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return opened(t, db)
	})
}

func TestPostgres(t *testing.T) {
	server := pgtest.Start(t)
	contract(t, func(t *testing.T) *tasksql.Store {
		db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: server.Database(t), Password: secret.New(pgtest.Password)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return opened(t, db)
	})
}

func opened(t *testing.T, db *store.DB) *tasksql.Store {
	t.Helper()
	s, err := tasksql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
