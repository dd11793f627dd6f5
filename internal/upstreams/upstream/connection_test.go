package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/upstreams/upstream"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

func TestAFailedAddLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, func(c *upstream.Config) { c.Dir = dir })
	r.far.offer(ingest.Tool, def("t", ""))
	tests := []struct {
		name         string
		change       func(*record.Record)
		code         capability.Code
		reason       string
		before, then func()
	}{
		{"no name", func(rec *record.Record) { rec.Name = "" }, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{
			"a name that leads elsewhere", func(rec *record.Record) { rec.Name = "../x" }, capability.CodeInvalidInput, "invalid_upstream", nil,
			nil,
		},
		{"neither command nor URL", func(rec *record.Record) { rec.Command = nil }, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{"both", func(rec *record.Record) { rec.URL = "https://example.org" }, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{
			"plain http", func(rec *record.Record) { rec.Command, rec.URL = nil, "http://example.org" }, capability.CodeInvalidInput,
			"invalid_upstream", nil, nil,
		},
		{
			"a password in the URL", func(rec *record.Record) { rec.Command, rec.URL = nil, "https://u:p@example.org" },
			capability.CodeInvalidInput, "invalid_upstream", nil, nil,
		},
		{"a credential in the open", func(rec *record.Record) {
			rec.Command, rec.URL, rec.Headers = nil, "https://example.org", map[string]string{"Authorization": "x"}
		}, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{"a header of the protocol", func(rec *record.Record) {
			rec.Command, rec.URL, rec.Headers = nil, "https://example.org", map[string]string{"Mcp-Session-Id": "x"}
		}, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{"an unknown word", func(rec *record.Record) { rec.Isolation = "none" }, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{
			"a secret that is not there", func(rec *record.Record) { rec.EnvSecrets = map[string]string{"TOKEN": "nothing"} },
			capability.CodeInvalidInput, "secret_missing", nil, nil,
		},
		{"an A2A agent", func(rec *record.Record) { rec.Kind = record.KindA2A }, capability.CodeInvalidInput, "invalid_upstream", nil, nil},
		{
			"no connection", nil, capability.CodeUnavailable, "connection_failed", func() { r.far.refuse = errors.New("it ends at once") },
			func() { r.far.refuse = nil },
		},
		{"no list", nil, capability.CodeUnavailable, "", func() {
			r.far.listing[ingest.Tool] = capability.Errorf(capability.CodeFailed, "",
				"broken")
		}, func() { delete(r.far.listing, ingest.Tool) }},
	}
	for _, tt := range tests {
		if tt.before != nil {
			r.far.set(tt.before)
		}
		rec := record.Record{Name: "far", Command: []string{"server"}, Confinement: record.Unconfined}
		if tt.change != nil {
			tt.change(&rec)
		}
		_, err := r.Add(t.Context(), admin(), rec)
		if e := fails(t, err, tt.code, tt.reason); tt.before != nil && e.Details["stderr"] != "a line of errors" {
			t.Errorf(`%s: the errors of the program are not shown: %v; want not (tt.before != nil && e.Details["stderr"] != "a `+
				`line of errors")`, tt.name, e.Details)
		}
		if tt.then != nil {
			r.far.set(tt.then)
		}
		if _, live, _ := r.far.counts(); live != 0 || len(r.List()) != 0 {
			t.Errorf("%s: something is left; want live = 0, len(r.List()) = 0", tt.name)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%s: a folder is left; want len(left) = 0", tt.name)
		}
	}
	r.add("far", nil)
	_, err := r.Add(t.Context(), admin(), record.Record{Name: "far", Command: []string{"server"}, Confinement: record.Unconfined})
	fails(t, err, capability.CodeConflict, "upstream_exists")
	if err := r.Remove(t.Context(), admin(), "far"); err != nil {
		t.Fatal(err)
	}
	if _, live, _ := r.far.counts(); live != 0 {
		t.Errorf("a connection outlives its upstream; got live = %v; want live = 0", live)
	}
	r.listed()
	fails(t, r.Remove(t.Context(), admin(), "far"), capability.CodeNotFound, "upstream_not_found")
	r.add("far", nil)
}

func TestProgramsGetAnEnvironmentThatWasBuilt(t *testing.T) {
	t.Parallel()
	var got upstream.ClientConfig
	f := newFar()
	dir := t.TempDir()
	r := newRig(t, func(c *upstream.Config) {
		c.Environment = []string{"PATH=/bin"}
		c.Dir = dir
		c.Dial = func(cfg upstream.ClientConfig) (upstream.Client, error) {
			got = cfg
			return f.dial(cfg)
		}
	})
	r.add("far", func(rec *record.Record) {
		rec.Env, rec.EnvSecrets = map[string]string{"B": "2", "A": "1"}, map[string]string{"TOKEN": "key"}
	})
	if want := []string{"PATH=/bin", "A=1", "B=2", "TOKEN=s3cret"}; join(got.Env) != join(want) {
		t.Errorf("the environment is %q; want join(got.Env) = join(want)", got.Env)
	}
	if info, err := os.Stat(filepath.Join(dir, "far")); got.Dir != filepath.Join(dir, "far") || err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf(`the folder is %s: %v; want got.Dir = filepath.Join(dir, "far"), no error, info.Mode().Perm() = 0o700`, got.Dir, err)
	}
	shown, err := r.Show("far")
	if data, _ := json.Marshal(shown); err != nil || len(data) == 0 || contains(string(data), "s3cret") {
		t.Errorf(`a secret is shown: %s; want no error, len(data) other than 0, not contains(string(data), "s3cret")`, data)
	}
}

// TestPrincipalsShowCredentialsOfTheirOwn: over HTTP and in the environment of a
// program, and no other values in place of those that are missing.
func TestPrincipalsShowCredentialsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		record func(*record.Record)
		shown  func(upstream.ClientConfig) string
	}{
		{"a program", func(rec *record.Record) {
			rec.EnvSecrets = map[string]string{"TOKEN": "key"}
		}, func(c upstream.ClientConfig) string { return strings.TrimPrefix(c.Env[0], "TOKEN=") }},
		{"a URL", func(rec *record.Record) {
			rec.Command, rec.URL, rec.BearerSecret = nil, "https://far.example/mcp", "key"
		}, func(c upstream.ClientConfig) string {
			h, err := c.Header(t.Context())
			if err != nil {
				t.Error(err)
			}
			return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var shown []string
			f := newFar()
			f.offer(ingest.Tool, def("t", ""))
			r := newRigOn(t, database(t), f, func(c *upstream.Config) {
				c.Environment = nil
				c.Secrets = vault{
					"key": "s3cret", record.OwnSecret("key", "agent:ann"): "of-ann", record.OwnSecret("key", "https://as.example|ann"): "of-another-ann",
				}
				c.Dial = func(cfg upstream.ClientConfig) (upstream.Client, error) {
					mu.Lock()
					defer mu.Unlock()
					shown = append(shown, tt.shown(cfg))
					return f.dial(cfg)
				}
			})
			r.add("far", func(rec *record.Record) {
				tt.record(rec)
				rec.Isolation, rec.OwnCredentials = record.PerPrincipal, true
			})
			for _, who := range []string{"agent:ann", "https://as.example|ann"} {
				if _, _, err := r.call(who, "", "tool", "t", `{}`); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if join(shown) != join([]string{"s3cret", "of-ann", "of-another-ann"}) {
				t.Errorf(`shown: %q; want join(shown) = join([]string{"s3cret", "of-ann", "of-another-ann"})`, shown)
			}
		})
	}
}

func TestWhoHasNoCredentialsOfTheirOwnActsAsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", func(rec *record.Record) {
		rec.EnvSecrets, rec.Isolation, rec.OwnCredentials = map[string]string{"TOKEN": "key"}, record.PerPrincipal, true
	})
	_, _, err := r.call("agent:ben", "", "tool", "t", `{}`)
	if e := fails(t, err, capability.CodeUnavailable, "secret_missing"); !strings.Contains(e.Hint, "junctor secrets set own.key.agent.ben") {
		t.Errorf(`it does not say which secret: %s; want e.Hint with "junctor secrets set own.key.agent.ben"`, e.Hint)
	}
	for name, change := range map[string]func(*record.Record){
		"on a shared connection": func(rec *record.Record) {},
		"without any secret":     func(rec *record.Record) { rec.Isolation, rec.EnvSecrets = record.PerPrincipal, nil },
		"with a login": func(rec *record.Record) {
			rec.Command, rec.EnvSecrets, rec.URL, rec.Isolation, rec.OAuth = nil, nil, "https://far.example", record.PerPrincipal, &record.OAuth{}
		},
	} {
		rec := recordOf("other")
		rec.OwnCredentials, rec.EnvSecrets = true, map[string]string{"TOKEN": "key"}
		change(&rec)
		if _, err := r.Add(t.Context(), admin(), rec); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

func TestNoPrincipalIsNamedLikeAnother(t *testing.T) {
	t.Parallel()
	names := make(map[string]string)
	for _, name := range []string{"a", "a.agent", "a.agent.b", "own.a"} {
		for _, id := range []string{
			"agent:b", "agent:b.c", "agent.b", "b", "agent:_b", "agent:", ":b", "agent:b:c", "Agent:b", "",
			"agent:" + strings.Repeat("x", 120),
		} {
			own := record.OwnSecret(name, id)
			if was := names[own]; was != "" || len(own) > 120 || strings.ContainsAny(own, ":/ ") {
				t.Errorf(`%s of %q is called %s, as %s; want was = "", len(own) at most 120, own without any of ":/ "`,
					name, id, own, was)
			}
			names[own] = name + " of " + id
		}
	}
}

func contains(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

func TestALostUpstreamComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	r.far.crash(nil)
	if _, err := r.tool("t", `{}`); err != nil { // waits for the connection that is being made
		t.Fatal(err)
	}
	r.eventually("both are recorded", func() bool { return r.events(audit.UpstreamFailed) == 1 && r.events(audit.UpstreamRecovered) == 1 })
}

func TestCallsInFlightOfALostUpstreamGetOneClearError(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	under := make(chan struct{})
	r.far.set(func() {
		r.far.answer = func(ctx context.Context, _ upstream.Request) (json.RawMessage, error) {
			close(under)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	ended := make(chan error, 1)
	go func() { _, err := r.tool("t", `{}`); ended <- err }()
	<-under
	r.far.crash(nil)
	fails(t, <-ended, capability.CodeFailed, "connection_failed")
}

func TestAProgramThatEndsAgainAndAgainIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	r.far.crash(errors.New("it ends at once"))
	r.eventually("it is given up", func() bool { s, _ := r.Show("far"); return s.Failed && s.State == capability.StateUnavailable })
	made, _, _ := r.far.counts()
	if made != 5 { // the first one, and four after the crash
		t.Errorf("it was started %d times; want made = 5", made)
	}
	r.listed()
	_, err := r.tool("t", `{}`)
	fails(t, err, capability.CodeUnavailable, "provider_unavailable")
	r.far.set(func() { r.far.refuse = nil })
	s, err := r.Restart(t.Context(), admin(), "far")
	if err != nil || s.State != capability.StateReady || s.Failed {
		t.Fatalf("%v: %+v; want no error, s.State = capability.StateReady, s.Failed = false", err, s)
	}
	if _, err := r.tool("t", `{}`); err != nil {
		t.Error(err)
	}
	r.listed("tool t")
}

func TestADownUpstreamStaysListedForAWhile(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *upstream.Config) { c.Degraded = 50 * time.Millisecond })
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", func(rec *record.Record) { rec.Command, rec.URL = nil, "https://example.org/mcp" })
	before := r.catalog.Snapshot().Generation
	r.far.crash(errors.New("no route"))
	r.eventually("it is degraded", func() bool {
		e := r.entry("tool", "t")
		return e.Contribution.Availability.State != capability.StateReady
	})
	r.eventually("it is unavailable", func() bool {
		return r.entry("tool", "t").Contribution.Availability.State == capability.StateUnavailable
	})
	if n := r.catalog.Snapshot().Generation - before; n != 2 {
		t.Errorf("%d changes of the catalog; want n = 2", n)
	}
	r.far.set(func() { r.far.refuse = nil })
	if _, err := r.tool("t", `{}`); err != nil { // the engine asks before it refuses
		t.Error(err)
	}
	r.listed("tool t")
}

func TestASilentUpstreamDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", nil)
	r.add("silent", nil)
	r.halt()
	db, f := r.db, r.far
	again := newRigOn(t, db, f, func(c *upstream.Config) {
		c.Dial = func(cfg upstream.ClientConfig) (upstream.Client, error) {
			if cfg.Name != "silent" {
				return f.dial(cfg)
			}
			mute := newFar()
			mute.silent = true
			return mute.dial(cfg)
		}
	})
	if _, err := again.tool("t", `{}`); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := again.engine.Invoke(ctx, capability.Invocation{
		Surface: "test", Principal: admin(), Audience: capability.AudienceInternal,
		Target: capability.Target{Member: capability.Member{Module: "mcp.silent", Kind: "tool", Name: "t"}},
	})
	if err == nil {
		t.Error("a silent upstream has answered; want an error")
	}
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	tests := []struct {
		isolation string
		want      int // connections after the calls, the main one included
	}{{record.Shared, 1}, {record.PerPrincipal, 3}, {record.ClientSession, 4}}
	for _, tt := range tests {
		t.Run(tt.isolation, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *upstream.Config) { c.Idle = 2 * time.Second })
			r.far.offer(ingest.Tool, def("t", ""))
			r.add("far", func(rec *record.Record) { rec.Isolation = tt.isolation })
			var group sync.WaitGroup
			for _, who := range [][2]string{{"admin:a", "1"}, {"admin:a", "2"}, {"admin:b", "1"}, {"admin:a", "1"}, {"admin:b", "1"}} {
				group.Go(func() {
					if _, _, err := r.call(who[0], who[1], "tool", "t", `{}`); err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			s, err := r.Show("far")
			if _, live, calls := r.far.counts(); err != nil || s.Connections != tt.want || live != tt.want || len(calls) != 5 {
				t.Errorf("%d connections, %d live, %d calls; want no error, s.Connections = %v, live = %v, len(calls) = 5",
					s.Connections, live, len(calls), tt.want, tt.want)
			}
			r.eventually("idle ones are closed", func() bool { _, live, _ := r.far.counts(); return live == 1 })
		})
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("t", ""))
	r.add("far", func(rec *record.Record) { rec.Isolation = record.PerPrincipal })
	hold := make(chan struct{})
	r.far.set(func() {
		r.far.answer = func(context.Context, upstream.Request) (json.RawMessage, error) {
			<-hold
			return json.RawMessage(`{"content":[]}`), nil
		}
	})
	var group sync.WaitGroup
	for i := range 63 {
		group.Go(func() {
			if _, _, err := r.call("admin:u"+string(rune('A'+i)), "", "tool", "t", `{}`); err != nil {
				t.Error(err)
			}
		})
	}
	r.eventually("all are busy", func() bool { _, _, calls := r.far.counts(); return len(calls) == 63 })
	_, _, err := r.call("admin:one-more", "", "tool", "t", `{}`)
	fails(t, err, capability.CodeOverloaded, "too_many_connections")
	close(hold)
	group.Wait()
	if _, _, err := r.call("admin:one-more", "", "tool", "t", `{}`); err != nil {
		t.Error(err)
	}
	if _, live, _ := r.far.counts(); live > 64 {
		t.Errorf("%d connections; want live at most 64", live)
	}
}

func TestANewToolIsVisibleSoon(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.offer(ingest.Tool, def("a", ""))
	r.add("far", nil)
	for range 3 {
		r.far.offer(ingest.Tool, def("a", ""), def("b", ""))
		r.listed("tool a", "tool b")
		r.far.offer(ingest.Tool, def("a", ""))
		r.listed("tool a")
	}
}

func TestDisabledUpstreamsAreKnownAndNotConnected(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.add("far", func(rec *record.Record) { rec.Disabled = true })
	if made, _, _ := r.far.counts(); made != 0 {
		t.Errorf("it was connected; got made = %v; want made = 0", made)
	}
	_, err := r.Restart(t.Context(), admin(), "far")
	fails(t, err, capability.CodeConflict, "upstream_disabled")
}

func TestSubscriptionsAreSharedAndMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.features = []string{"tools", "resources", "resources.subscribe"}
	r.far.offer(ingest.Resource, `{"uri":"file:///a","name":"a"}`)
	r.add("far", nil)
	heard := make(chan int, 100)
	var stops []func()
	for i := range 2 {
		stop, err := r.Subscribe(t.Context(), upstream.Caller{}, "far", "file:///a", func() { heard <- i })
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, stop)
	}
	methods := func(method string) (n int) {
		_, _, calls := r.far.counts()
		for _, c := range calls {
			if c.Method == method {
				n++
			}
		}
		return n
	}
	if n := methods("resources/subscribe"); n != 1 {
		t.Errorf("%d subscriptions at the upstream; want n = 1", n)
	}
	tell := func() {
		r.far.mu.Lock()
		clients := r.far.live()
		r.far.mu.Unlock()
		for _, c := range clients {
			c.cfg.Updated("file:///a")
		}
	}
	tell()
	if a, b := <-heard, <-heard; a == b {
		t.Errorf("one of them heard nothing; got a = %v; want a other than %v", a, b)
	}
	stops[0]()
	r.far.crash(nil)
	r.eventually("it is subscribed to again", func() bool { return methods("resources/subscribe") == 2 })
	if got := <-heard; got != 1 { // it may have changed in between
		t.Errorf("one that stopped is told; got got = %v; want got = 1", got)
	}
	stops[1]()
	r.eventually("it is unsubscribed", func() bool { return methods("resources/unsubscribe") == 1 })
	if _, err := r.Subscribe(t.Context(), upstream.Caller{}, "unknown", "x", func() {}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("subscribe at an unknown upstream: got %v, want not_found", err)
	}
}

func TestAListThatHangsKeepsNoToolBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.far.features = []string{"tools", "prompts"}
	r.far.offer(ingest.Tool, def("a", ""))
	r.add("far", nil)
	r.far.set(func() { r.far.hangs = ingest.Prompt })
	r.far.offer(ingest.Prompt, `{"name":"p"}`)
	for range 3 {
		r.far.offer(ingest.Tool, def("a", ""), def("b", ""))
		r.listed("tool a", "tool b")
		r.far.offer(ingest.Prompt, `{"name":"p"}`)
		r.far.offer(ingest.Tool, def("a", ""))
		r.listed("tool a")
	}
	r.far.set(func() { r.far.hangs = "" })
	r.far.crash(nil) // ends what hangs
	r.listed("prompt p", "tool a")
}

func TestWhatAProgramPrintsIsShownWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	rec := recordOf("far")
	rec.EnvSecrets = map[string]string{"PRINTED": "key"}
	r.far.set(func() { r.far.refuse = errors.New("it ends at once") })
	_, err := r.Add(t.Context(), admin(), rec)
	if e := capability.AsError(err); e.Details["stderr"] != "panic: PRINTED=[secret key]" {
		t.Errorf(`refused with %v; want e.Details["stderr"] = "panic: PRINTED=[secret key]"`, e.Details)
	}
	r.far.set(func() { r.far.refuse = nil })
	r.add("far", func(to *record.Record) { to.EnvSecrets = rec.EnvSecrets })
	shown, err := r.Show("far")
	if err != nil || shown.Stderr != "panic: PRINTED=[secret key]\n" {
		t.Errorf(`shown as %q, %v; want no error, shown.Stderr = "panic: PRINTED=[secret key]\n"`, shown.Stderr, err)
	}
	r.far.crash(errors.New("gone"))
	for end := time.Now().Add(10 * time.Second); ; {
		if shown, err = r.Show("far"); err != nil || shown.State != capability.StateReady {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nobody noticed the loss")
		}
	}
	if shown.Stderr != "panic: PRINTED=[secret key]\n" {
		t.Errorf(`afterwards as %q, %v; want shown.Stderr = "panic: PRINTED=[secret key]\n"`, shown.Stderr, err)
	}
}
