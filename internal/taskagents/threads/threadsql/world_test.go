package threadsql_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) {
	writeUntilKilled() // does nothing unless this is that process
	goleak.VerifyTestMain(m)
}

// clock goes on by a second each time it is read.
type clock struct {
	mu sync.Mutex
	n  int
}

func at(n int) time.Time { return time.Date(2026, 3, 1, 10, 0, n, 123e6, time.UTC) }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return at(c.n)
}

// world is a registry over a database.
type world struct {
	*threads.Registry
	db    store.Database
	store *threadsql.Store
	clock *clock
}

func over(t testing.TB, db store.Database) *world {
	t.Helper()
	s, err := threadsql.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{db: db, store: s, clock: &clock{}}
	if w.Registry, err = threads.New(threads.Config{Store: s, Gateway: "g1", Now: w.clock.now}); err != nil {
		t.Fatal(err)
	}
	return w
}

func file(t testing.TB, path string) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func sqlite(t testing.TB) *world {
	t.Helper()
	return over(t, file(t, filepath.Join(t.TempDir(), "junctor.db")))
}

func postgres(t testing.TB, url string) *store.DB {
	t.Helper()
	db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: url, Password: secret.New(pgtest.Password)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestTheRegistryInSQLite(t *testing.T) {
	contract(t, func(t *testing.T) *world { return sqlite(t) })
}

func TestTheRegistryInPostgres(t *testing.T) {
	server := pgtest.Start(t)
	contract(t, func(t *testing.T) *world { return over(t, postgres(t, server.Database(t))) })
}

// must returns v, or ends the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// thread makes one with so many parts.
func (w *world) thread(t testing.TB, title string, parts int) threads.Created {
	t.Helper()
	p := threads.Plan{Thread: row.Thread{Title: title, OriginalRequest: "please " + title}, Brief: "be kind"}
	for i := range parts {
		p.Parts = append(p.Parts, threads.Part{Title: fmt.Sprint("part ", i), Label: fmt.Sprint("agent-", i), AgentType: "claude"})
	}
	return must(w.Create(t.Context(), p))(t)
}

// begin registers a session.
func (w *world) begin(t testing.TB, thread, id, node string, replaces ...string) threads.Moved {
	t.Helper()
	return must(w.Register(t.Context(), threads.Registration{
		ThreadID: thread, Node: node, Replaces: replaces,
		Session: row.Session{
			SessionID: id, Framework: "claude", Label: "l " + id, OriginalTask: "do it", Workdir: "/w",
			Metadata: raw(`{"resumeToken":"r-` + id + `"}`),
		},
	}))(t)
}

func (w *world) to(t testing.TB, id string, status row.SessionStatus) threads.Moved {
	t.Helper()
	return must(w.UpdateSession(t.Context(), id, func(s *row.Session) { s.Status = status }))(t)
}

func (w *world) detail(t testing.TB, thread string) threads.Detail {
	t.Helper()
	return must(w.Detail(t.Context(), thread, threads.Selection{}))(t)
}
