package memory_test

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/local/memory"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/secret"
)

type rig struct {
	t         testing.TB
	host      *host.Host
	workspace string // of all calls; if "", each principal has one of its own
}

func open(t testing.TB, limit int) rig {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	return on(t, db, limit)
}

// on is a memory in a database, which is closed with the test.
func on(t testing.TB, db *store.DB, limit int) rig {
	t.Helper()
	t.Cleanup(func() { db.Close() })
	if err := memory.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	h := host.New(host.Config{})
	if err := h.Register(memory.Functions(memory.Config{
		DB: db, Limit: limit,
		Now: func() time.Time { return time.Unix(1, 0) },
		Workspace: func(_ context.Context, c capability.Call) string {
			return stdcmp.Or(c.Context.Workspace, c.Principal.ID)
		},
	})...); err != nil {
		t.Fatal(err)
	}
	return rig{t: t, host: h}
}

type opener func(t testing.TB, limit int) rig

// each runs a test on every database that there is.
func each(t *testing.T, test func(*testing.T, opener)) {
	t.Run("SQLite", func(t *testing.T) { test(t, open) })
	t.Run("Postgres", func(t *testing.T) {
		server := pgtest.Start(t)
		test(t, func(t testing.TB, limit int) rig {
			t.Helper()
			db, err := store.OpenPostgres(t.Context(), store.Postgres{URL: server.Database(t), Password: secret.New(pgtest.Password)})
			if err != nil {
				t.Fatal(err)
			}
			return on(t, db, limit)
		})
	})
}

type found struct {
	ID     string   `json:"id"`
	Text   string   `json:"text"`
	Score  float64  `json:"score"`
	Tags   []string `json:"tags"`
	Shared bool     `json:"shared"`
}

type answer struct {
	ID    string  `json:"id"`
	OK    bool    `json:"ok"`
	Item  found   `json:"item"`
	Items []found `json:"items"`
}

func (r rig) try(who string, action capability.Action, input any) (answer, error) {
	r.t.Helper()
	doc, err := json.Marshal(input)
	if err != nil {
		r.t.Fatal(err)
	}
	role := map[string]capability.Role{"ops": capability.RoleOperator, "adm": capability.RoleAdmin}[who]
	if role == "" {
		role = capability.RoleAgent
	}
	res, err := r.host.Invoke(r.t.Context(), capability.Call{
		Action: action, Principal: capability.Principal{ID: who, Role: role}, Input: doc,
		Context: &capability.Context{Workspace: r.workspace},
	})
	var a answer
	if err == nil {
		if err := json.Unmarshal(res.Value, &a); err != nil {
			r.t.Fatal(err)
		}
	}
	return a, err
}

func (r rig) do(who string, action capability.Action, input any) answer {
	r.t.Helper()
	a, err := r.try(who, action, input)
	if err != nil {
		r.t.Fatalf("%s %v: %v", action, input, err)
	}
	return a
}

type in map[string]any

func (r rig) search(who, query string) (out []string) {
	r.t.Helper()
	for _, it := range r.do(who, "memory.search", in{"query": query}).Items {
		out = append(out, it.Text)
	}
	return out
}

func TestStoreSearchGetForget(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		id := r.do("a", "memory.store", in{"text": "The café opens at nine", "tags": []string{"place ", "hours", "place"}}).ID
		other := r.do("a", "memory.store", in{"text": "The office opens at eight", "tags": []string{"place"}}).ID
		if !strings.HasPrefix(id, "mem_") || len(id) != 36 || id == other {
			t.Errorf(`id = %q, want it to begin with "mem_" and other than %q; len(id) = %v, want 36`, id, other, len(id))
		}
		if diff := cmp.Diff(found{ID: id, Text: "The café opens at nine", Tags: []string{"hours", "place"}},
			r.do("a", "memory.get", in{"id": id}).Item); diff != "" {
			t.Errorf(`diff = %q, want ""`, diff)
		}
		hits := r.do("a", "memory.search", in{"query": "when does the CAFE open, opens?"}).Items
		if len(hits) != 2 || hits[0].ID != id || hits[0].Score <= hits[1].Score || hits[1].Score <= 0 {
			t.Errorf("%+v; want len(hits) = 2, hits[0].ID = %v, hits[0].Score more than hits[1].Score, hits[1].Score more than 0",
				hits, id)
		}
		if again := r.do("a", "memory.search", in{"query": "when does the CAFE open, opens?"}).Items; !cmp.Equal(hits, again) {
			t.Error("the ranking changed")
		}
		if hits := r.do("a", "memory.search", in{"query": "opens", "filter": in{"tags": []string{"hours", "place"}}}).Items; len(hits) != 1 ||
			hits[0].ID != id {
			t.Errorf("%+v; want len(hits) = 1, hits[0].ID = %v", hits, id)
		}
		if hits := r.do("a", "memory.search", in{"query": "opens", "limit": 1}).Items; len(hits) != 1 {
			t.Errorf("%+v; want len(hits) = 1", hits)
		}
		if r.do("a", "memory.forget", in{"id": id}); len(r.search("a", "café")) != 0 {
			t.Error(`forgotten, and found; want len(r.search("a", "café")) = 0`)
		}
		if r.do("a", "memory.forget", in{"id": id}).OK {
			t.Error("forgotten twice")
		}
		if _, err := r.try("a", "memory.get", in{"id": id}); capability.AsError(err).Code != capability.CodeNotFound {
			t.Errorf("%v; want capability.AsError(err).Code = capability.CodeNotFound", err)
		}
	})
}

func TestWorkspacesDoNotSeeEachOther(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		id := r.do("a", "memory.store", in{"text": "blue door", "tags": []string{"x"}}).ID
		alone := r.do("a", "memory.search", in{"query": "blue door"}).Items
		for i := range 50 {
			r.do("b", "memory.store", in{"text": fmt.Sprint("blue blue ", i)})
		}
		if after := r.do("a", "memory.search", in{"query": "blue door"}).Items; !cmp.Equal(alone, after) {
			t.Errorf("what another stores can be seen in the score %v; want cmp.Equal(alone, after)", cmp.Diff(alone, after))
		}
		if len(r.search("c", "blue")) != 0 || r.do("b", "memory.forget", in{"id": id}).OK {
			t.Error(`reached across; want len(r.search("c", "blue")) = 0, r.do("b", "memory.forget", in{"id": id}).OK = false`)
		}
		if _, err := r.try("b", "memory.get", in{"id": id}); capability.AsError(err).Code != capability.CodeNotFound {
			t.Errorf("%v; want capability.AsError(err).Code = capability.CodeNotFound", err)
		}
		if _, err := r.try("", "memory.search", in{"query": "x"}); capability.AsError(err).Code != capability.CodeInvalidInput {
			t.Errorf("%v; want capability.AsError(err).Code = capability.CodeInvalidInput", err)
		}
	})
}

func TestQueriesAreWordsOnly(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		for _, text := range []string{
			"alpha beta", "NEAR the river", "日本語のメモ", "Straße nach Łódź", "привет МИР",
			"e\u0301clair", strings.Repeat("long", 100), "under_score x:y", "tags workspace words",
		} {
			r.do("a", "memory.store", in{"text": text})
		}
		for query, want := range map[string]int{
			`alpha" OR "zeta`: 1, `NOT alpha`: 1, `alpha AND gamma`: 1, `NEAR(alpha beta, 1)`: 2, `alph*`: 0, `words : alpha`: 2, `^alpha`: 1,
			`-alpha`: 1, `"`: 0, `'; DROP TABLE memory_items; --`: 0,
			`()`: 0, `日本`: 1, `メモ`: 1, `strasse lodz`: 1, `ПРИВЕТ`: 1, `éclair`: 1, strings.Repeat("LONG", 100): 1, `score`: 1,
			"\x00alpha\x00": 1, `{workspace tags} : x`: 2, `   `: 0,
		} {
			if got := r.search("a", query); len(got) != want {
				t.Errorf("%q finds %q; want len(got) = %v", query, got, want)
			}
		}
	})
}

func TestBounds(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 3)
		for name, c := range map[string]struct {
			action capability.Action
			input  in
			code   capability.Code
		}{
			"text":        {"memory.store", in{"text": strings.Repeat("x", memory.MaxText+1)}, capability.CodeTooLarge},
			"blank":       {"memory.store", in{"text": " \n"}, capability.CodeInvalidInput},
			"blank tag":   {"memory.store", in{"text": "x", "tags": []string{" "}}, capability.CodeInvalidInput},
			"many tags":   {"memory.store", in{"text": "x", "tags": strings.Split("abcdefghijklmnopq", "")}, capability.CodeInvalidInput},
			"query":       {"memory.search", in{"query": strings.Repeat("x", 4097)}, capability.CodeInvalidInput},
			"limit":       {"memory.search", in{"query": "x", "limit": 0}, capability.CodeInvalidInput},
			"half":        {"memory.search", in{"query": "x", "limit": 1.5}, capability.CodeInvalidInput},
			"filter":      {"memory.search", in{"query": "x", "filter": in{"since": 1}}, capability.CodeInvalidInput},
			"filter type": {"memory.search", in{"query": "x", "filter": in{"tags": 1}}, capability.CodeInvalidInput},
			"no id":       {"memory.get", in{}, capability.CodeInvalidInput},
			"wrong type":  {"memory.forget", in{"id": 1}, capability.CodeInvalidInput},
		} {
			if _, err := r.try("a", c.action, c.input); err == nil || capability.AsError(err).Code != c.code {
				t.Errorf("%s: %v; want an error, capability.AsError(err).Code = %v", name, err, c.code)
			}
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		stored, full := []string{}, 0
		for i := range 8 {
			wg.Go(func() {
				a, err := r.try("a", "memory.store", in{"text": fmt.Sprint("item ", i)})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					stored = append(stored, a.ID)
				} else if e := capability.AsError(err); e.Reason == "memory_full" {
					full++
				}
			})
		}
		wg.Wait()
		if len(stored) != 3 || full != 5 {
			t.Fatalf("len(stored) = %v, want 3; full = %v, want 5; stored = %q", len(stored), full, stored)
		}
		r.do("a", "memory.forget", in{"id": stored[0]})
		r.do("a", "memory.store", in{"text": strings.Repeat("x", memory.MaxText)})
		r.do("b", "memory.store", in{"text": "another workspace has room"})
		many := open(t, 0)
		for range memory.MaxLimit + 5 {
			many.do("a", "memory.store", in{"text": "same words"})
		}
		if n := len(many.do("a", "memory.search", in{"query": "same", "limit": 1000}).Items); n != memory.MaxLimit {
			t.Errorf("len = %v, want memory.MaxLimit", n)
		}
	})
}

func TestUnavailableWithoutADatabase(t *testing.T) {
	t.Parallel()
	for _, f := range memory.Functions(memory.Config{}) {
		row, ok := actions.Lookup(f.Action)
		if f.Unavailable == "" || !ok || row.Effect != f.Effect || row.Slot != memory.Claim().Slot {
			t.Errorf(`%+v; want f.Unavailable other than "", ok = true, row.Effect = %v, row.Slot = memory.Claim().Slot`, f, f.Effect)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := open(t, 0).host.Invoke(ctx, capability.Call{
		Action: "memory.search", Principal: capability.Principal{ID: "a"},
		Input: []byte(`{"query":"x"}`),
	})
	if err == nil || errors.Is(err, context.Canceled) && capability.AsError(err).Code != capability.CodeCancelled {
		t.Error(err)
	}
}

func FuzzSearch(f *testing.F) {
	for _, q := range []string{`a" OR b`, "NEAR(", "日本", "*", "\x00", "words:", "a\u0301", "'"} {
		f.Add(q)
	}
	r := open(f, 0)
	f.Fuzz(func(t *testing.T, text string) {
		r := rig{t: t, host: r.host}
		a, err := r.try("a", "memory.store", in{"text": text})
		if err != nil {
			if e := capability.AsError(err); e.Code != capability.CodeInvalidInput && e.Code != capability.CodeTooLarge {
				t.Fatalf("%v; want not (e.Code != capability.CodeInvalidInput && e.Code != capability.CodeTooLarge)", err)
			}
			return
		}
		if _, err := r.try("a", "memory.search", in{"query": text}); err != nil && capability.AsError(err).Code != capability.CodeInvalidInput {
			t.Fatalf("%q: %v; want not (err != nil && capability.AsError(err).Code != capability.CodeInvalidInput)", text, err)
		}
		r.do("a", "memory.forget", in{"id": a.ID})
	})
}

func BenchmarkSearch(b *testing.B) {
	r := open(b, 0)
	for i := range 2000 {
		r.do("a", "memory.store", in{"text": fmt.Sprintf("note %d about topic%d and the common words of every item", i, i%97)})
	}
	for name, query := range map[string]string{"rare": "topic13", "common": "common words topic13"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r.do("a", "memory.search", in{"query": query})
			}
		})
	}
}

func BenchmarkStore(b *testing.B) {
	r := open(b, 0)
	for b.Loop() {
		r.do("a", "memory.store", in{"text": "a note of ordinary length about nothing in particular"})
	}
}
