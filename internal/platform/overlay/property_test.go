package overlay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/platform/overlay"
)

func contextThatEnds(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// edit is what a person or a program does to a document: delete, or set.
type edit struct {
	keys   []string
	value  any
	remove bool
}

func (e edit) do(doc map[string]any) {
	for _, k := range e.keys[:len(e.keys)-1] {
		next, ok := doc[k].(map[string]any)
		if !ok {
			if e.remove || doc[k] != nil {
				return
			}
			next = make(map[string]any)
			doc[k] = next
		}
		doc = next
	}
	if last := e.keys[len(e.keys)-1]; e.remove {
		delete(doc, last)
	} else {
		doc[last] = e.value
	}
}

func randomKeys(r *rand.Rand) (keys []string) {
	for range 1 + r.IntN(3) {
		keys = append(keys, string(rune('a'+r.IntN(4))))
	}
	return keys
}

// withoutEmpty takes empty objects away: whose an empty object is cannot be said.
func withoutEmpty(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for k, one := range m {
		if one = withoutEmpty(one); one == nil {
			delete(m, k)
		}
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// TestUndoLosesNothingOfTheUsers: what a user changes between Apply and Undo is there
// afterwards, and everything else is as if we had never been there.
func TestUndoLosesNothingOfTheUsers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 8))
		g := newGround(t)
		path := filepath.Join(g.home, "settings.json")
		start := make(map[string]any)
		for range r.IntN(8) {
			edit{keys: randomKeys(r), value: float64(r.IntN(100))}.do(start)
		}
		text, _ := json.MarshalIndent(start, "", strings.Repeat(" ", r.IntN(3)))
		g.write(path, string(text), 0o600)

		// Two sessions, of which either may end first.
		var all []overlay.Edit
		for i, journal := range []string{g.journal, g.journal + "2"} {
			var ours []overlay.Edit
			for range 1 + r.IntN(4) {
				ours = append(ours, set(fmt.Sprintf(`"ours%d"`, i), randomKeys(r)...))
			}
			all = append(all, ours...)
			c := overlay.Change{Kind: overlay.Merge, Root: g.home, Path: path, Edits: ours}
			if err := overlay.Apply(t.Context(), journal, "s", []overlay.Change{c}); err != nil {
				continue // it met a number where an object must be
			}
			var now map[string]any
			g.must(json.Unmarshal([]byte(g.read(path)), &now))
			for n := range r.IntN(4) {
				e := edit{randomKeys(r), fmt.Sprintf("theirs%d", n), r.IntN(3) == 0}
				if clashes(e, all) {
					continue
				}
				e.do(now)
				e.do(start)
			}
			text, _ = json.MarshalIndent(now, "", "  ")
			g.write(path, string(text), 0o600)
			if i == 1 || r.IntN(2) == 0 {
				g.must(overlay.Undo(t.Context(), journal))
			}
		}
		g.undo()
		var got map[string]any
		g.must(json.Unmarshal([]byte(g.read(path)), &got))
		if diff := cmp.Diff(withoutEmpty(start), withoutEmpty(got)); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
	}
}

// clashes reports whether a user's edit goes through a value of ours: what that means without
// us cannot be said.
func clashes(e edit, ours []overlay.Edit) bool {
	return slices.ContainsFunc(ours, func(o overlay.Edit) bool {
		n := min(len(o.Keys), len(e.keys))
		return slices.Equal(o.Keys[:n], e.keys[:n])
	})
}

// TestWhatSomebodyChangedSinceStays: a value of ours that has another one now is theirs.
func TestWhatSomebodyChangedSinceStays(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, now, want string }{
		"another value":            {`{"a": {"b": 1}}`, `{"a": {"b": 3}, "l": ["x", "y"]}`, `{"a": {"b": 3}, "l": ["x"]}`},
		"our value, written again": {`{"a": {"b": 1}}`, `{"a":{"b":2.0},"l":["y"]}`, `{"a":{"b":1}}`},
		"removed":                  {`{"a": {"b": 1}}`, `{"a": {}}`, `{"a": {}}`},
		"an object no longer":      {`{"a": {"b": 1}}`, `{"a": 5, "l": {"y": 1}}`, `{"a": 5, "l": {"y": 1}}`},
		"what was made is used":    {`{}`, `{"a": {"b": 2, "c": 1}, "l": ["y"]}`, `{"a": {"c": 1}}`},
		"nobody else was here":     {`{ }`, `{"a": {"b": 2}, "l": ["y"] }`, `{ }`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			path := filepath.Join(g.home, "settings.json")
			g.write(path, tt.before, 0o600)
			g.apply(overlay.Change{Kind: overlay.Merge, Root: g.home, Path: path, Edits: []overlay.Edit{set("2", "a", "b"), add(`"y"`, "l")}})
			g.write(path, tt.now, 0o600)
			g.undo()
			if got := g.read(path); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// TestABlockLeavesEveryLineOfTheUsers inserts lines anywhere, inside the block too.
func TestABlockLeavesEveryLineOfTheUsers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		g := newGround(t)
		path := filepath.Join(g.work, "CLAUDE.md")
		text := strings.Repeat("line of the project\n", r.IntN(3))
		if r.IntN(2) == 0 {
			text += "no newline at the end"
		}
		g.write(path, text, 0o600)
		g.apply(overlay.Change{Kind: overlay.Block, Root: g.work, Path: path, Text: "one\n\ntwo\nthree"})
		lines := strings.SplitAfter(g.read(path), "\n")
		want := strings.Count(text, "line of the project")
		var added []string
		for n := range 1 + r.IntN(4) {
			at := r.IntN(len(lines))
			added = append(added, fmt.Sprintf("the user's %d\n", n))
			lines = slices.Insert(lines, at, added[n])
		}
		g.write(path, strings.Join(lines, ""), 0o600)
		g.undo()
		got := g.read(path)
		for _, line := range added {
			if strings.Count(got, line) != 1 {
				t.Fatalf("seed %d: %q is not in %q; want strings.Count(got, line) = 1", seed, line, got)
			}
		}
		if strings.Count(got, "line of the project\n") != want || strings.Contains(got, "junctor") || strings.Contains(got, "two") ||
			strings.Count(got, "\n") > want+len(added)+1 {
			t.Fatalf(`seed %d: %q; want strings.Count(got, "line of the project\n") = %v, got without "junctor", got without `+
				`"two", strings.Count(got, "\n") at most want + len(added) + 1`, seed, got, want)
		}
	}
}

// FuzzMerge: whatever a settings file holds, it is changed and becomes what it was, or it
// is an error and stays.
func FuzzMerge(f *testing.F) {
	for _, doc := range []string{
		settings, "", "{}", "{ }\n", `{"a":{}}`, `{"a":{"b":[]}}`, `{"a":{"b":[1, 2]}}`, `{"a":{"b":{"c":1}}}`,
		"{\r\n\t\"\\u0061\" : { } }", `[]`, `{"a":1}x`, `{"a":"\\\"{"}`, "\ufeff{}",
	} {
		f.Add(doc, "a", "b", `{"c":[1]}`, false)
		f.Add(doc, "a", "b", `"v"`, true)
	}
	f.Fuzz(func(t *testing.T, doc, one, two, value string, appended bool) {
		g := newGround(t)
		path := filepath.Join(g.home, "settings.json")
		g.write(path, doc, 0o600)
		before := g.tree()
		e := overlay.Edit{Keys: []string{one, two}, Value: json.RawMessage(value), Append: appended}
		if err := overlay.Apply(t.Context(), g.journal, "s", []overlay.Change{{
			Kind: overlay.Merge, Root: g.home, Path: path,
			Edits: []overlay.Edit{e},
		}}); err != nil {
			g.same(before)
			return
		}
		after := g.read(path)
		if !json.Valid([]byte(after)) {
			t.Fatalf("%q became %q; want json.Valid([]byte(after))", doc, after)
		}
		// A blank at the end is a foreign change, so the session's own part is searched for.
		g.write(path, after+" ", 0o600)
		g.undo()
		if got := g.read(path); got != doc+" " && doc != "" {
			t.Fatalf(`%q became %q and then %q; want not (got != doc+" " && doc != "")`, doc, after, got)
		}
	})
}
