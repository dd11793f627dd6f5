// Package sessiontest is what every session.Store must pass: an implementation
// calls Run from its tests. The suite goes through the rules of package session,
// so that rules and store are held together.
package sessiontest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/session"
)

// Run tests the stores that open makes; each test gets its own.
func Run(t *testing.T, open func(t *testing.T) session.Store) {
	for name, test := range map[string]func(*testing.T, *rig){
		"messages come back in order":              messagesComeBack,
		"messages and sessions are bounded":        messagesAreBounded,
		"sessions end":                             sessionsEnd,
		"what is not a message is refused":         refused,
		"results come back to whom they belong":    resultsComeBack,
		"an extension's own result comes first":    ownFirst,
		"results are cut, redacted and forgotten":  resultsAreBounded,
		"the result unused for longest goes first": leastRecentlyUsed,
		"many at once":                             manyAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			r := &rig{T: t, store: s, now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
			r.messages = session.NewMessages(session.MessagesConfig{Store: s, Now: r.clock, Bounds: session.Bounds{Messages: 5, Sessions: 3}})
			r.results = session.NewResults(session.ResultsConfig{
				Store: s, Now: r.clock, Max: 2000, Bounds: session.ResultBounds{Bytes: 5000, Entries: 10},
				Redact: func(text string) string { return strings.ReplaceAll(text, "hunter2", "[redacted]") },
			})
			test(t, r)
		})
	}
}

type rig struct {
	*testing.T
	store    session.Store
	messages *session.Messages
	results  *session.Results
	mu       sync.Mutex
	now      time.Time
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func (r *rig) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) append(o session.Owner, text string) session.Message {
	r.Helper()
	m, err := r.messages.Append(r.Context(), o, session.RoleUser, text, nil)
	r.ok(err)
	return m
}

func (r *rig) save(o session.Owner, extension, text string) {
	r.Helper()
	r.ok(r.results.Save(r.Context(), o, session.Result{Extension: extension, Text: text, Run: "run_1"}))
}

func (r *rig) last(o session.Owner, by session.Reader) string {
	r.Helper()
	got, err := r.results.Last(r.Context(), o, by)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return "none: " + capability.AsError(err).Message
	}
	r.ok(err)
	return got.Text
}

func same[T any](t testing.TB, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("diff (-want +got):\n%s", d)
	}
}

func alice(id string) session.Owner { return session.Owner{Principal: "operator:alice", Session: id} }

func bob(id string) session.Owner { return session.Owner{Principal: "operator:bob", Session: id} }

func texts(list []session.Message) string {
	var out []string
	for _, m := range list {
		out = append(out, m.Text)
	}
	return strings.Join(out, " ")
}

func messagesComeBack(t *testing.T, r *rig) {
	meta := json.RawMessage(`{"is_extension_output":true, "n":1}`)
	first, err := r.messages.Append(t.Context(), alice("s"), session.RoleAssistant, "hello é", meta)
	r.ok(err)
	r.pass(time.Second)
	r.append(bob("s"), "of another")
	second := r.append(alice("s"), "two")
	third := r.append(alice("s"), "three")
	list, err := r.messages.List(t.Context(), alice("s"), 0, 10)
	r.ok(err)
	same(t, list, []session.Message{first, second, third})
	if first.Seq >= second.Seq || second.Seq >= third.Seq || !second.Time.Equal(r.now) {
		t.Fatalf("first.Seq = %v, want less than %v; second.Seq = %v, want less than %v; second.Time.Equal(r.now) = %v, want true; list = %+v",
			first.Seq, second.Seq, second.Seq, third.Seq, second.Time.Equal(r.now), list)
	}
	list, err = r.messages.List(t.Context(), alice("s"), first.Seq, 1)
	r.ok(err)
	same(t, texts(list), "two")
	list, err = r.messages.Recent(t.Context(), alice("s"), 2)
	r.ok(err)
	same(t, texts(list), "two three")
	list, err = r.messages.List(t.Context(), bob("s"), 0, 10)
	r.ok(err)
	same(t, texts(list), "of another")
	infos, err := r.messages.Sessions(t.Context(), "operator:alice", 10)
	r.ok(err)
	same(t, infos, []session.Info{{Session: "s", Messages: 3, Created: first.Time, Active: third.Time}})
	for _, o := range []session.Owner{alice("t"), {Principal: "operator:eve", Session: "s"}} {
		if list, err := r.messages.List(t.Context(), o, 0, 10); err != nil || len(list) > 0 {
			t.Fatalf("r.messages.List(t.Context(), o, 0, 10): err = %v, want nil; len(list) = %v, want at most 0; list = %+v", err, len(list), list)
		}
	}
}

func messagesAreBounded(t *testing.T, r *rig) {
	for i := range 8 {
		r.append(alice("s"), fmt.Sprint(i))
	}
	list, err := r.messages.List(t.Context(), alice("s"), 0, 100)
	r.ok(err)
	same(t, texts(list), "3 4 5 6 7")
	r.save(alice("s"), "a.a", "text")
	r.append(bob("s"), "b")
	for _, id := range []string{"t", "u", "v"} {
		r.append(alice(id), id)
	}
	infos, err := r.messages.Sessions(t.Context(), "operator:alice", 10)
	r.ok(err)
	var ids []string
	for _, i := range infos {
		ids = append(ids, i.Session)
	}
	same(t, ids, []string{"v", "u", "t"})
	if got := r.last(alice("s"), session.Reader{Any: true}); !strings.HasPrefix(got, "none: ") {
		t.Fatal("the result outlived its session:", got)
	}
	if list, _ := r.messages.List(t.Context(), bob("s"), 0, 10); len(list) != 1 {
		t.Fatal("another's session went")
	}
	long, err := r.messages.Append(t.Context(), alice("v"), session.RoleAssistant, strings.Repeat("é", session.MaxMessageText), nil)
	r.ok(err)
	if len(long.Text) > session.MaxMessageText || !strings.HasSuffix(long.Text, "longer)") {
		t.Fatalf(`len(long.Text) = %v, want at most session.MaxMessageText; long.Text = %q, want it to end with "longer)"`,
			len(long.Text), long.Text)
	}
}

func sessionsEnd(t *testing.T, r *rig) {
	r.append(alice("old"), "x")
	r.save(alice("old"), "a.a", "text")
	r.append(bob("old"), "x")
	r.pass(20 * 24 * time.Hour)
	r.append(alice("new"), "x")
	r.save(alice("new"), "a.a", "text")
	r.save(alice("silent"), "a.a", "text")
	r.pass(11 * 24 * time.Hour)
	n, err := r.messages.Sweep(t.Context())
	r.ok(err)
	same(t, n, 2)
	r.ok(r.messages.Delete(t.Context(), alice("new")))
	for _, o := range []session.Owner{alice("new"), alice("old"), bob("new")} {
		if err := r.messages.Delete(t.Context(), o); capability.CodeOf(err) != capability.CodeNotFound {
			t.Fatalf("capability.CodeOf(err) = %q, want capability.CodeNotFound; o = %+v", capability.CodeOf(err), o)
		}
	}
	r.ok(r.messages.Delete(t.Context(), alice("silent"))) // has a result, and no message
	stats, err := r.results.Stats(t.Context())
	r.ok(err)
	same(t, stats, session.Stats{TTL: 24, Max: 2000})
}

func refused(t *testing.T, r *rig) {
	for _, o := range []session.Owner{
		{},
		{Principal: "p"},
		{Session: "s"},
		alice("a b"), alice("é"), alice(strings.Repeat("a", 129)),
		{Principal: strings.Repeat("p", 257), Session: "s"},
	} {
		if _, err := r.messages.Append(t.Context(), o, session.RoleUser, "x", nil); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("r.messages.Append: capability.CodeOf(err) = %q, want capability.CodeInvalidInput; o = %+v", capability.CodeOf(err), o)
		}
		if err := r.results.Save(t.Context(), o, session.Result{
			Extension: "a.a",
			Text:      "x",
		}); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("capability.CodeOf(err) = %q, want capability.CodeInvalidInput; o = %+v", capability.CodeOf(err), o)
		}
	}
	for _, c := range []struct {
		role, text, meta string
		code             capability.Code
	}{
		{"robot", "x", "", capability.CodeInvalidInput},
		{session.RoleUser, strings.Repeat("x", session.MaxMessageText+1), "", capability.CodeTooLarge},
		{session.RoleUser, "\xff", "", capability.CodeTooLarge},
		{session.RoleUser, "x", "[]", capability.CodeInvalidInput},
		{session.RoleUser, "x", "{", capability.CodeInvalidInput},
		{session.RoleUser, "x", `{"a":"` + strings.Repeat("x", session.MaxMessageMetadata) + `"}`, capability.CodeTooLarge},
	} {
		if _, err := r.messages.Append(t.Context(), alice("s"), c.role, c.text, json.RawMessage(c.meta)); capability.CodeOf(err) != c.code {
			t.Errorf("%s %.20s: %v", c.role, c.meta, err)
		}
	}
	if infos, err := r.messages.Sessions(t.Context(), "operator:alice", 10); err != nil || len(infos) > 0 {
		t.Errorf("r.messages.Sessions: err = %v, want nil; len(infos) = %v, want at most 0; infos = %+v", err, len(infos), infos)
	}
}

func resultsComeBack(t *testing.T, r *rig) {
	want := session.Result{Text: "one\n", Extension: "a.a", Command: "/a", Action: "get", Tool: "curl", Run: "run_1", Type: "text/plain"}
	r.ok(r.results.Save(t.Context(), alice("s"), want))
	got, err := r.results.Last(t.Context(), alice("s"), session.Reader{Extension: "a.a"})
	r.ok(err)
	if !got.Saved.Equal(r.now) {
		t.Errorf("got.Saved.Equal(r.now) = false, want true; got.Saved = %+v", got.Saved)
	}
	got.Saved = time.Time{}
	same(t, got, want)
	got, err = r.results.Metadata(t.Context(), alice("s"), session.Reader{Extension: "a.a"})
	r.ok(err)
	same(t, got.Text, "")
	nothing := "none: nothing has run in this session yet, or it was too long ago"
	for _, o := range []session.Owner{alice("t"), bob("s")} {
		same(t, r.last(o, session.Reader{Extension: "a.a", Any: true}), nothing)
	}
	r.save(alice("s"), "a.a", "") // nothing was printed: the last one stays
	same(t, r.last(alice("s"), session.Reader{Extension: "a.a"}), "one\n")
	r.ok(r.results.Clear(t.Context(), bob("s")))
	same(t, r.last(alice("s"), session.Reader{Extension: "a.a"}), "one\n")
	r.ok(r.results.Clear(t.Context(), alice("s")))
	same(t, r.last(alice("s"), session.Reader{Extension: "a.a"}), nothing)
}

func ownFirst(t *testing.T, r *rig) {
	r.save(alice("s"), "a.a", "of a")
	r.save(alice("s"), "b.b", "of b")
	same(t, r.last(alice("s"), session.Reader{Extension: "a.a"}), "of a")
	same(t, r.last(alice("s"), session.Reader{Extension: "a.a", Any: true}), "of a")
	same(t, r.last(alice("s"), session.Reader{Extension: "c.c", Any: true}), "of b")
	same(t, r.last(alice("s"), session.Reader{Any: true}), "of b")
	same(t, r.last(alice("s"), session.Reader{Extension: "c.c"}),
		"none: the last result belongs to another extension, and reading it needs the permission session.read")
	r.save(alice("s"), "a.a", "of a again")
	same(t, r.last(alice("s"), session.Reader{Any: true}), "of a again")
}

func resultsAreBounded(t *testing.T, r *rig) {
	r.save(alice("s"), "a.a", "my password is hunter2"+strings.Repeat("é", 1500)+"\xff")
	got, err := r.results.Last(t.Context(), alice("s"), session.Reader{Any: true})
	r.ok(err)
	if len(got.Text) > 2000 || !got.Truncated || strings.Contains(got.Text, "hunter2") || strings.ToValidUTF8(got.Text, "") != got.Text ||
		!strings.Contains(got.Text, "[redacted]") {
		t.Fatalf("len(got.Text) = %d, truncated = %v, text begins %q; want at most 2000 bytes of valid text, truncated and redacted",
			len(got.Text), got.Truncated, got.Text[:min(40, len(got.Text))])
	}
	r.pass(24*time.Hour - time.Second)
	r.save(bob("s"), "a.a", "x")
	r.last(alice("s"), session.Reader{Any: true})
	r.pass(2 * time.Second) // a use does not make it younger
	if text := r.last(alice("s"), session.Reader{Any: true}); !strings.HasPrefix(text, "none") {
		t.Fatalf(`r.last(alice("s"), session.Reader{Any: true}) = %q, want it to begin with "none"`, text)
	}
	n, err := r.results.Sweep(t.Context())
	r.ok(err)
	same(t, n, 1)
	r.ok(r.results.Clear(t.Context(), bob("s")))
	stats, err := r.results.Stats(t.Context())
	r.ok(err)
	same(t, stats.Entries, 0)
	if err := r.results.Save(t.Context(), alice("s"), session.Result{
		Text:      "x",
		Extension: "no id",
	}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Fatal(err)
	}
}

func leastRecentlyUsed(t *testing.T, r *rig) {
	text := func(c string) string { return strings.Repeat(c, 1500) }
	for _, id := range []string{"a", "b", "c"} {
		r.save(alice(id), "a.a", text(id))
	}
	r.last(alice("a"), session.Reader{Any: true})
	r.save(alice("d"), "a.a", text("d"))
	there := ""
	for _, id := range []string{"a", "b", "c", "d"} {
		if r.last(alice(id), session.Reader{Any: true}) == text(id) {
			there += id
		}
	}
	same(t, there, "acd")
	stats, err := r.results.Stats(t.Context())
	r.ok(err)
	same(t, stats, session.Stats{Entries: 3, Bytes: 4500, TTL: 24, Max: 2000})
	r.ok(r.store.PutResult(t.Context(), alice("e"), session.Result{Extension: "a.a", Text: "alone", Saved: r.now},
		session.ResultBounds{Bytes: 2, Entries: 2}))
	stats, err = r.results.Stats(t.Context())
	r.ok(err)
	same(t, stats.Entries, 1)
	for i := range 12 {
		r.save(alice(fmt.Sprint(i)), "a.a", "x")
	}
	stats, err = r.results.Stats(t.Context())
	r.ok(err)
	same(t, stats.Entries, 10)
	if text := r.last(alice("2"), session.Reader{Any: true}); text != "x" {
		t.Fatalf(`r.last(alice("2"), session.Reader{Any: true}) = %q, want "x"`, text)
	}
}

func manyAtOnce(t *testing.T, r *rig) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			o := alice(fmt.Sprint("s", i%2))
			for range 5 {
				if _, err := r.messages.Append(t.Context(), o, session.RoleUser, "x", nil); err != nil {
					t.Error(err)
				}
				if err := r.results.Save(t.Context(), o, session.Result{Extension: fmt.Sprint("a.", i), Text: "x"}); err != nil {
					t.Error(err)
				}
				if _, err := r.results.Last(t.Context(), o, session.Reader{Any: true}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	infos, err := r.messages.Sessions(t.Context(), "operator:alice", 10)
	r.ok(err)
	if len(infos) != 2 || infos[0].Messages != 5 || infos[1].Messages != 5 {
		t.Fatalf("len(infos) = %v, want 2; infos = %+v, want infos[0].Messages = 5 and infos[1].Messages = 5", len(infos), infos)
	}
}
