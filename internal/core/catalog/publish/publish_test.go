package publish_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/publish"
)

// world is a catalog whose changes are published.
type world struct {
	t      testing.TB
	c      *catalog.Catalog
	comp   *compile.Compiler
	pub    *publish.Publisher
	recent *publish.Recent
}

func newWorld(t testing.TB, s catalog.Settings) *world {
	t.Helper()
	c, err := catalog.New(s, 100)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, c: c, comp: compile.New(c), recent: &publish.Recent{}}
	w.pub = publish.New(c.Snapshot(), w.comp, publish.NewEmitter(time.Now, w.recent))
	return w
}

func (w *world) put(m capability.Module) (changed bool) {
	w.t.Helper()
	change, changed, err := w.c.Replace(capability.Batch{Source: m.Extension, Modules: []capability.Module{m}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.pub.Changed(change)
	return changed
}

func (w *world) withdraw(ext string) {
	w.t.Helper()
	change, _, err := w.c.Replace(capability.Batch{Source: ext})
	if err != nil {
		w.t.Fatal(err)
	}
	w.pub.Changed(change)
}

func chat(kind string, state capability.State, accounts ...string) capability.Module {
	m := capability.Module{Extension: kind, ID: kind, Origin: "bundled"}
	for _, account := range accounts {
		for _, action := range []capability.Action{"message.send", "message.reply"} {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: "adapter", Kind: "adapter.runtime", Action: action, Availability: capability.Availability{State: state, Since: time.Now()},
				Provider: capability.NewProviderKey("messaging", kind, account),
			})
		}
	}
	return m
}

func server(ext string, tools ...string) capability.Module {
	m := capability.Module{Extension: ext, ID: ext, Origin: "mcp"}
	for _, name := range tools {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: name, Kind: "capability.agent-tool", Tool: name,
			Description: "does " + name,
		})
	}
	return m
}

func TestFeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	start := w.c.Snapshot().Generation
	w.put(server("mcp.a", "x", "y"))
	changed := server("mcp.a", "x", "z")
	changed.Contributions[0].Description, changed.Contributions[0].Title = "other", "X"
	w.put(changed)
	w.put(chat("slack", "", "work"))
	w.put(chat("discord", "", "work"))
	w.withdraw("discord")
	var lines []string
	for _, e := range w.pub.Feed.Since(start) {
		for _, c := range e.Changes {
			lines = append(lines, fmt.Sprintf("%d %s %s %s %s", e.Generation-start, c.Op, c.CapabilityID, c.CanonicalAction,
				strings.Join(c.Fields, ",")))
		}
	}
	want := `1 added mcp.a/x#ext.mcp.a.x@default ext.mcp.a.x 
1 added mcp.a/y#ext.mcp.a.y@default ext.mcp.a.y 
2 changed mcp.a/x#ext.mcp.a.x@default ext.mcp.a.x displayName,description
2 removed mcp.a/y#ext.mcp.a.y@default ext.mcp.a.y 
2 added mcp.a/z#ext.mcp.a.z@default ext.mcp.a.z 
3 added slack/adapter#message.reply@work message.reply 
3 added slack/adapter#message.send@work message.send 
4 added discord/adapter#message.reply@work message.reply 
4 changed slack/adapter#message.reply@work message.reply requiresSelection
4 added discord/adapter#message.send@work message.send 
4 changed slack/adapter#message.send@work message.send requiresSelection
5 changed slack/adapter#message.reply@work message.reply requiresSelection
5 removed discord/adapter#message.reply@work message.reply 
5 changed slack/adapter#message.send@work message.send requiresSelection
5 removed discord/adapter#message.send@work message.send `
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("strings.Join(lines, \"\\n\") differs from want (-want +got):\n%s", diff)
	}
	if got := w.pub.Feed.Since(start + 5); len(got) != 0 {
		t.Errorf("w.pub.Feed.Since(start + 5) = %v, want len(got) == 0", got)
	}
	for _, strange := range []uint64{start + 6, start - 1, 0, 1<<64 - 1} {
		if got := w.pub.Feed.Since(strange); len(got) != 1 || !got[0].Reset {
			t.Errorf("%d: %+v; want len(got) = 1, got[0].Reset = true", strange, got)
		}
	}
}

func TestOldReadersStartAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Settings{})
	for i := range 2000 {
		w.put(server("mcp.a", fmt.Sprint("tool", i)))
	}
	s := w.c.Snapshot()
	doc, err := json.Marshal(w.pub.Feed.Since(s.Generation - 2000))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(`[{"generation":%d,"etag":%q,"reset":true}]`, s.Generation, s.Etag); string(doc) != want {
		t.Errorf("%s; want string(doc) = %v", doc, want)
	}
	if got := w.pub.Feed.Since(s.Generation - 1024); len(got) != 1024 || got[0].Reset || len(got[0].Changes) != 2 {
		t.Errorf("len(got) = %v, got[0] = %v, want len(got) == 1024 && !got[0].Reset && len(got[0].Changes) == 2", len(got), got[0])
	}
	change, _, err := w.c.Configure(catalog.Settings{CrossContext: "same-adapter"})
	if err != nil {
		t.Fatal(err)
	}
	w.pub.Changed(change)
	if got := w.pub.Feed.Since(s.Generation); len(got) != 1 || !got[0].Reset {
		t.Errorf("new settings are a reset %v; want len(got) = 1, got[0].Reset = true", got)
	}
}

// TestWaitingReaders ends with their context, and are woken by a change.
func TestWaitingReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, catalog.Settings{})
		start := w.c.Snapshot().Generation
		ctx, cancel := context.WithCancel(t.Context())
		var got []publish.Event
		var err error
		go func() { got, err = w.pub.Feed.Wait(ctx, start) }()
		synctest.Wait()
		w.put(server("mcp.a", "x"))
		synctest.Wait()
		if err != nil || len(got) != 1 || got[0].Generation != start+1 {
			t.Errorf("err = %v, got = %v, want err == nil && len(got) == 1 && got[0].Generation == start+1", err, got)
		}
		go func() { got, err = w.pub.Feed.Wait(ctx, start+1) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err == nil {
			t.Error("it waits beyond its context; want an error")
		}
	})
}

// pass lets time pass and everybody do what it brings.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// listener counts the notices of one subscriber.
type listener struct {
	first publish.Notice
	got   []publish.Notice
	at    []time.Time
}

func (w *world) listen(ctx context.Context, c capability.Context) *listener {
	w.t.Helper()
	first, out, err := w.pub.Contexts.Subscribe(ctx, &c)
	if err != nil {
		w.t.Fatal(err)
	}
	l := &listener{first: first}
	go func() {
		for n := range out {
			l.got, l.at = append(l.got, n), append(l.at, time.Now())
		}
	}()
	return l
}

func thread(kind string, i int) capability.Context {
	return capability.Context{Workspace: "w", Agent: "main", Session: fmt.Sprint(kind, i), Route: &capability.Route{
		Kind: kind, Account: "work", Conversation: fmt.Sprint("C", i), ConversationKind: "thread",
	}}
}

func TestOnlyThoseConcernedAreTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, catalog.Settings{CrossContext: "same-adapter"})
		go w.pub.Run(ctx)
		w.put(chat("slack", "", "work"))
		w.put(chat("telegram", "", "work"))
		pass(time.Second)
		var slack, telegram []*listener
		for i := range 50 {
			slack, telegram = append(slack, w.listen(ctx, thread("slack", i))), append(telegram, w.listen(ctx, thread("telegram", i)))
		}
		synctest.Wait()
		changed := time.Now()
		w.put(chat("slack", "", "home", "work"))
		pass(time.Second)
		for i := range 50 {
			if len(slack[i].got) != 1 || slack[i].got[0].Etag == slack[i].first.Etag || slack[i].at[0].Sub(changed) > 250*time.Millisecond {
				t.Fatalf("slack: %+v; want len(slack[i].got) = 1, slack[i].got[0].Etag other than slack[i].first.Etag, "+
					"slack[i].at[0].Sub(changed) at most 250 * time.Millisecond", slack[i])
			}
			if len(telegram[i].got) != 0 {
				t.Fatalf("telegram: %+v; want len(telegram[i].got) = 0", telegram[i])
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestEqualContentIsNoNews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, catalog.Settings{})
		go w.pub.Run(ctx)
		m := server("mcp.a", "x", "y", "z")
		w.put(m)
		pass(time.Second)
		l := w.listen(ctx, capability.Context{})
		before := w.c.Snapshot()
		m.Contributions = slices.Clone(m.Contributions)
		slices.Reverse(m.Contributions)
		if w.put(m) {
			t.Error("it counts as a change")
		}
		pass(time.Second)
		if now := w.c.Snapshot(); now.Etag != before.Etag || len(l.got) != 0 || len(w.pub.Feed.Since(before.Generation)) != 0 {
			t.Errorf("now.Generation = %v, l.got = %v, want now.Etag == before.Etag && len(l.got) == 0 && len(w.pub.Feed.Since(before.Generation)) == 0", now.Generation, l.got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestAFlapIsNoNews(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ down, up time.Duration }{{0, 0}, {0, 30}, {0, 60}, {10, 100}, {40, 100}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			w := newWorld(t, catalog.Settings{})
			go w.pub.Run(ctx)
			w.put(chat("slack", "", "work"))
			pass(time.Second)
			l := w.listen(ctx, thread("slack", 1))
			synctest.Wait()
			time.Sleep(tt.down * time.Millisecond)
			w.put(chat("slack", capability.StateUnavailable, "work"))
			time.Sleep((tt.up - tt.down) * time.Millisecond)
			w.put(chat("slack", capability.StateReady, "work"))
			pass(time.Second)
			final := w.comp.Compile(new(thread("slack", 1))).Etag()
			for _, n := range l.got {
				if n.Etag != final {
					t.Errorf("%v: %+v; want n.Etag = %v", tt, l.got, final)
				}
			}
			w.put(chat("slack", capability.StateUnavailable, "work"))
			down := time.Now()
			pass(time.Second)
			if len(l.got) == 0 || l.got[len(l.got)-1].Etag == final || l.at[len(l.at)-1].Sub(down) > 250*time.Millisecond {
				t.Errorf("%v: the end state was missed: %+v; want len(l.got) other than 0, l.got[len(l.got)-1].Etag other than "+
					"%v, l.at[len(l.at)-1].Sub(down) at most 250 * time.Millisecond", tt, l.got, final)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// TestNoticesAreFewAndTheLastIsTrue publishes changes of one source without a pause.
func TestNoticesAreFewAndTheLastIsTrue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld(t, catalog.Settings{})
		go w.pub.Run(ctx)
		l := w.listen(ctx, capability.Context{})
		lazy, out, err := w.pub.Contexts.Subscribe(ctx, &capability.Context{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		start := time.Now()
		for i := range 1000 { // ten seconds
			w.put(server("mcp.a", fmt.Sprint("tool", i)))
			time.Sleep(10 * time.Millisecond)
		}
		last := time.Now()
		pass(time.Second)
		if n := len(l.got); n < 35 || n > 41 {
			t.Errorf("%d notices in %s; want n at least 35, n at most 41", n, last.Sub(start))
		}
		for i := 1; i < len(l.at); i++ {
			if gap := l.at[i].Sub(l.at[i-1]); gap < 250*time.Millisecond || gap > 460*time.Millisecond {
				t.Errorf("notice %d after %s; want gap at least 250 * time.Millisecond, gap at most 460 * time.Millisecond", i, gap)
			}
		}
		final := w.comp.Compile(&capability.Context{}).Etag()
		if got := l.got[len(l.got)-1]; got.Etag != final || l.at[len(l.at)-1].Sub(last) > 250*time.Millisecond {
			t.Errorf("the last notice is not the last state, or late %v; want got.Etag = %v, l.at[len(l.at)-1].Sub(last) at "+
				"most 250 * time.Millisecond", l.at[len(l.at)-1].Sub(last), final)
		}
		if got := <-out; got.Etag != final || lazy.Etag == final { // took nothing so far
			t.Errorf("who is slow is not told the latest; got got.Etag = %v, lazy.Etag = %v; want got.Etag = %v, lazy.Etag other than %v",
				got.Etag, lazy.Etag, final, final)
		}
		cancel()
		synctest.Wait()
		if _, open := <-out; open {
			t.Error("the channel is open after its context ended")
		}
	})
}

// Benchmark200Subscribers is one source of 50 tools flapping under 200 subscribers
// of 100,000 entries, without the waiting: what a change and telling it cost.
func Benchmark200Subscribers(b *testing.B) {
	w := newWorld(b, catalog.Settings{})
	names := func(s, version int) []string {
		var out []string
		for i := range 50 {
			out = append(out, fmt.Sprintf("tool_%d_%04d_%02d", version, s, i))
		}
		return out
	}
	for s := range 2000 {
		w.put(server(fmt.Sprintf("mcp.s%04d", s), names(s, 0)...))
	}
	for k := range 20 {
		w.put(chat(fmt.Sprintf("chat%02d", k), "", "work"))
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var outs []<-chan publish.Notice
	for i := range 200 {
		c := thread(fmt.Sprintf("chat%02d", i%20), i)
		_, out, err := w.pub.Contexts.Subscribe(ctx, &c)
		if err != nil {
			b.Fatal(err)
		}
		outs = append(outs, out)
	}
	now := time.Now().Add(time.Minute)
	for i := 0; b.Loop(); i++ {
		w.put(server("mcp.s0001", names(1, i%2+1)...))
		now = now.Add(time.Second)
		w.pub.Contexts.Tell(now)
		for _, out := range outs {
			if len(out) != 1 {
				b.Fatalf("a subscriber was not told; got len(out) = %v; want len(out) = 1", len(out))
			}
			<-out
		}
	}
}
