package memory_test

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/local/memory"
	"github.com/junctor-run/junctor/internal/store"
)

func TestMemoriesBelongToTheirPrincipalUnlessShared(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		r.workspace = "team"
		own := r.do("a", "memory.store", in{"text": "the red key of a"}).ID
		shared := r.do("a", "memory.store", in{"text": "the green key of all", "shared": true}).ID
		for who, want := range map[string][]string{
			"a": {"the green key of all", "the red key of a"}, "b": {"the green key of all"}, "ops": {"the green key of all"},
		} {
			got := r.search(who, "key")
			if slices.Sort(got); !cmp.Equal(got, want) {
				t.Errorf("search(key) of %s = %q, want %q", who, got, want)
			}
		}
		for _, who := range []string{"b", "ops"} {
			if _, err := r.try(who, "memory.get", in{"id": own}); capability.AsError(err).Reason != "memory_not_found" {
				t.Errorf("get of %s of what a stored: %v, want memory_not_found", who, err)
			}
			if r.do(who, "memory.forget", in{"id": own}).OK {
				t.Errorf("forget of %s of what a stored: ok, want not", who)
			}
		}
		if got := r.do("b", "memory.get", in{"id": shared}).Item; !got.Shared || got.Text != "the green key of all" {
			t.Errorf("get(shared) = %+v, want it with shared", got)
		}
		if _, err := r.try("b", "memory.forget", in{"id": shared}); capability.AsError(err).Reason != "memory_of_another" {
			t.Errorf("forget of b of what a shared: %v, want memory_of_another", err)
		}
		if got := r.search("a", "green"); len(got) != 1 {
			t.Errorf("search(green) = %q, want the shared one", got)
		}
		if !r.do("ops", "memory.forget", in{"id": shared}).OK {
			t.Error("an operator cannot forget what a shared")
		}
		if !r.do("a", "memory.forget", in{"id": own}).OK {
			t.Error("a cannot forget its own")
		}
		if got := r.search("a", "key"); len(got) != 0 {
			t.Errorf("search after forgetting = %q, want none", got)
		}
		r.workspace = "other"
		if got := r.search("b", "key"); len(got) != 0 {
			t.Errorf("search in another workspace = %q, want none", got)
		}
	})
}

// TestTheLimitOfOneIsNotTheLimitOfAnother holds that a principal that fills its memory
// neither stops others nor learns how much they store.
func TestTheLimitOfOneIsNotTheLimitOfAnother(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 2)
		r.workspace = "team"
		for i := range 2 {
			r.do("a", "memory.store", in{"text": fmt.Sprint("note ", i), "shared": i == 0})
		}
		if _, err := r.try("a", "memory.store", in{"text": "one more"}); capability.AsError(err).Reason != "memory_full" {
			t.Errorf("third of a: %v, want memory_full", err)
		}
		id := r.do("b", "memory.store", in{"text": "note of b"}).ID
		r.do("b", "memory.store", in{"text": "another of b"})
		r.do("b", "memory.forget", in{"id": id})
		r.do("b", "memory.store", in{"text": "one in its stead"})
	})
}

// TestOthersDoNotChangeWhichMemoriesAreFound stores more items than a search ranks, so that
// the choice of candidates is seen: it may not follow what others store.
func TestOthersDoNotChangeWhichMemoriesAreFound(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		r.workspace = "team"
		for i := range 60 {
			r.do("a", "memory.store", in{"text": fmt.Sprint("alpha ", i)})
		}
		for i := range 70 {
			r.do("a", "memory.store", in{"text": fmt.Sprint("beta ", i)})
		}
		ask := in{"query": "alpha beta", "limit": 20}
		before := r.do("a", "memory.search", ask).Items
		for i := range 150 {
			r.do("b", "memory.store", in{"text": fmt.Sprint("alpha alpha ", i)})
		}
		if diff := cmp.Diff(before, r.do("a", "memory.search", ask).Items); diff != "" {
			t.Errorf("what b stores is seen in a's results (-before +after):\n%s\nwant diff = \"\"", diff)
		}
		if !strings.HasPrefix(before[0].Text, "alpha") {
			t.Errorf("best = %q, want one with alpha, the rarer word", before[0].Text)
		}
	})
}

// TestARareWordIsFoundAmongManyMatches holds that an item with the rare word of a query is
// found although more items than a search ranks have its common words.
func TestARareWordIsFoundAmongManyMatches(t *testing.T) {
	each(t, func(t *testing.T, open opener) {
		r := open(t, 0)
		r.do("a", "memory.store", in{"text": "the key of the cellar"})
		for i := range 120 {
			r.do("a", "memory.store", in{"text": fmt.Sprint("the key of the room ", i)})
		}
		if got := r.search("a", "where is the key of the cellar"); len(got) != 10 || got[0] != "the key of the cellar" {
			t.Errorf("search = %q, want the cellar first of 10", got)
		}
	})
}

// TestMemoriesFromBeforeBelongToOperators opens a database of the first version of the
// tables, with rows as that version wrote them.
func TestMemoriesFromBeforeBelongToOperators(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	tables := memory.Tables()
	first, err := fs.ReadFile(tables.Files, "migrations/00001_memory.sql")
	if err == nil {
		err = db.Migrate(t.Context(), tables.Owner, fstest.MapFS{"00001_memory.sql": {Data: first}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`INSERT INTO memory_items (rowid, id, workspace, text, tags, created) VALUES (1, 'mem_1', 'team', 'the old key', '[]', 1)`,
		`INSERT INTO memory_workspaces (workspace, items) VALUES ('team', 1)`,
		`INSERT INTO memory_index (rowid, workspace, tags, words) VALUES (1, '` + memory.LegacyMark("team") + `', '', 'the old key')`,
	} {
		if _, err := db.SQL().ExecContext(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	r := on(t, db, 0)
	r.workspace = "team"
	for who, want := range map[string]int{"ops": 1, "adm": 1, "a": 0, "task:x": 0} {
		if got := r.search(who, "old key"); len(got) != want {
			t.Errorf("search of %s = %q, want %d items", who, got, want)
		}
	}
	if _, err := r.try("a", "memory.get", in{"id": "mem_1"}); capability.AsError(err).Reason != "memory_not_found" {
		t.Errorf("get of a: %v, want memory_not_found", err)
	}
	if r.do("a", "memory.forget", in{"id": "mem_1"}).OK || !r.do("ops", "memory.forget", in{"id": "mem_1"}).OK {
		t.Error("an agent forgot it, or an operator could not; want only the operator to")
	}
}
