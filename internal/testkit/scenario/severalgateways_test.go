package scenario_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/client"
	sdk "github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/testkit/porttest"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/secret"
)

func TestTwoGatewaysAreOneWhole(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.gateway(0), c.gateway(1)

	// A token made on A lets a node in at B, and one that is at A is everywhere.
	made := a.newToken(t, "node")
	var sent atomic.Int64
	d := a.join(t, options{id: "at-a", token: made, before: func(d *device) {
		d.says("hello", "hi")
		d.does(counts(20, 16<<10, &sent))
	}})
	eventually(t, "the token of A is good at B", func() bool {
		return b.client(t, made).Do(t.Context(), http.MethodGet, "/api/v1/status", nil, nil) == nil
	})
	b.join(t, options{id: "at-b", token: made, before: func(d *device) { d.says("hello", "hi from b") }})
	for name, p := range map[string]*plane{"A": a, "B": b} {
		took := eventually(t, "both nodes are listed at "+name, func() bool {
			return p.status(t, "at-a") == "connected" && p.status(t, "at-b") == "connected"
		})
		t.Logf("both are listed at %s after %s", name, took.Round(time.Millisecond))
		eventually(t, "they are in the catalog of agents at "+name, func() bool {
			out, _, code := p.cli(t, "catalog", "agent", "--json")
			return code == 0 && strings.Contains(out, "fn.hello") && strings.Contains(out, "at-a") && strings.Contains(out, "at-b")
		})
		agent := p.file(t, "agent.token")
		eventually(t, "they are tools at "+name, func() bool {
			_, list := p.post(t, "/api/cmp/mcp", agent, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			return strings.Contains(list, `"nodes":["at-a","at-b"]`)
		})
		if body := p.tool(t, agent, "device.function.invoke", `{"function":"hello","selector":{"node":"at-a"}}`); !strings.Contains(body,
			`hi`) || strings.Contains(body, `"error"`) {
			t.Errorf(`the tool at %s: %s; want body with "hi", body without "\"error\""`, name, body)
		}
		for id, says := range map[string]string{"at-a": `"hi"`, "at-b": `"hi from b"`} {
			if out, err := p.call(t, id, "hello", nil); err != nil || string(out) != says {
				t.Errorf("%s at %s: %s %v; want no error, string(out) = %v", id, name, out, err, says)
			}
		}
		out, err := p.call(t, "at-a", "count", nil)
		var list []string
		if err != nil || json.Unmarshal(out, &list) != nil || len(list) != 20 || !strings.HasPrefix(list[19], "19 ") {
			t.Errorf("a stream at %s: %d %v; want no error, json.Unmarshal(out, &list) = nil, len(list) = 20, list[19] "+
				`beginning with "19 "`, name, len(list), err)
		}
	}

	// Each join is in one of the two logs, once.
	for _, id := range []string{"at-a", "at-b"} {
		joined := 0
		for _, p := range []*plane{a, b} {
			for _, r := range p.audit(t, "limit=500") {
				if r.Event == "node_joined" && r.Metadata.Node == id {
					joined++
				}
			}
		}
		if joined != 1 {
			t.Errorf("%d records say that %s joined; want joined = 1", joined, id)
		}
	}

	// Removed at B, its session at A ends; it comes back, since it may.
	if out, stderr, code := b.cli(t, "nodes", "remove", "at-a"); code != 0 {
		t.Errorf(`b.cli(t, "nodes", "remove", "at-a"): code = %v, want 0; out = %q; stderr = %q`, code, out, stderr)
	}
	eventually(t, "its session at A ended", func() bool { return d.Status().Joins > 1 || d.Status().State != node.Connected })

	eventually(t, "it is back", func() bool {
		return a.status(t, "at-a") == "connected" &&
			b.status(t, "at-a") == "connected"
	})

	// A token revoked at B ends what it let in at A and at B, and none of it comes back.
	var list struct {
		Tokens []struct{ ID, Name, Role string }
	}
	if err := b.admin.Do(t.Context(), http.MethodGet, "/api/v1/tokens", nil, &list); err != nil {
		t.Fatal(err)
	}
	for _, tok := range list.Tokens {
		if tok.Role == "node" {
			if err := b.admin.Do(t.Context(), http.MethodDelete, "/api/v1/tokens/"+tok.ID, nil, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for name, p := range map[string]*plane{"A": a, "B": b} {
		eventually(t, name+" lists no node", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
	}
	// Each gateway judges for itself, and a node leaves the lists before its record is written.
	eventually(t, "both revocations are recorded", func() bool {
		revoked := make(map[string]bool)
		for _, p := range []*plane{a, b} {
			for _, r := range p.audit(t, "limit=500") {
				if r.Event == "node_revoked" {
					revoked[r.Metadata.Node] = true
				}
			}
		}
		return revoked["at-a"] && revoked["at-b"]
	})
}

// TestLargeValuesReachTheOtherGateway: the node knows A alone, the caller B.
func TestLargeValuesReachTheOtherGateway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.gateway(0), c.gateway(1)
	value := strings.Repeat("x", 10<<20)
	reach(t, sdk.Config{
		Gateway: a.url, Token: secret.New(a.newToken(t, "node")), Dir: t.TempDir(), ID: "a",
		Functions: []sdk.Function{
			{Name: "large", Effect: cmp.EffectRead, Handle: func(context.Context, sdk.Args) (any, error) { return value, nil }},
			{Name: "length", Effect: cmp.EffectRead, Handle: func(_ context.Context, args sdk.Args) (any, error) {
				var in struct {
					Text string `json:"text"`
				}
				err := args.Decode(&in)
				return len(in.Text), err
			}},
		},
	})
	for name, p := range map[string]*plane{"B": b, "A": a} {
		p.known(t, "a")
		began := time.Now()
		out, err := p.call(t, "a", "large", nil)
		if err != nil || len(out) != len(value)+2 {
			t.Errorf("%d bytes, %v; want no error, len(out) = len(value) + 2", len(out), err)
		}
		t.Logf("10 MiB came to %s in %s", name, time.Since(began).Round(time.Millisecond))
		began = time.Now()
		if out, err := p.call(t, "a", "length", map[string]any{"text": strings.Repeat(name, 700<<10)}); err != nil ||
			string(out) != fmt.Sprint(700<<10) {
			t.Errorf("%s %v; want no error, string(out) = fmt.Sprint(700 << 10)", out, err)
		}
		t.Logf("700 KiB went from %s in %s", name, time.Since(began).Round(time.Millisecond))
	}
}

// TestADeviceWithADeadGatewayAmongItsOwn enrols, joins and puts its values at the one
// that lives, and needs no token for another list with an address it knows.
func TestADeviceWithADeadGatewayAmongItsOwn(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	large := strings.Repeat("x", 1<<20)
	cfg := sdk.Config{
		Gateway: "http://" + porttest.Address(t) + "," + p.url, Token: secret.New(p.newToken(t, "node")), Dir: t.TempDir(), ID: "a",
		Functions: []sdk.Function{{
			Name: "large", Effect: cmp.EffectRead,
			Handle: func(context.Context, sdk.Args) (any, error) { return large, nil },
		}},
	}
	d := reach(t, cfg)
	p.known(t, "a")
	if out, err := p.call(t, "a", "large", nil); err != nil || len(out) != len(large)+2 {
		t.Errorf("%d bytes, %v; want no error, len(out) = len(large) + 2", len(out), err)
	}
	if err := d.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has left", func() bool { return p.status(t, "a") == "" })
	d.Close()
	cfg.Token, cfg.Gateway = secret.Value{}, p.url
	again := reach(t, cfg)
	eventually(t, "it is back without a token", func() bool { return p.status(t, "a") == "connected" })
	if err := again.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.Close()
	cfg.Gateway = "http://" + porttest.Address(t)
	if other, err := sdk.New(t.Context(), cfg); reason(err) != "not_enrolled" {
		t.Errorf(`another gateway altogether: %v; want reason(err) = "not_enrolled"`, err)
		other.Close()
	}
}

// reach runs a device of the SDK and waits until it has joined.
func reach(t testing.TB, cfg sdk.Config) *sdk.Device {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	joined := make(chan struct{}, 1)
	cfg.Changed = func(s sdk.Status) {
		if s.State == sdk.Connected {
			select {
			case joined <- struct{}{}:
			default:
			}
		}
	}
	d, err := sdk.New(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done; d.Close() })
	select {
	case <-joined:
	case err := <-done:
		done <- err
		t.Fatalf("%s did not join: %v", cfg.ID, err)
	}
	return d
}

// ledger is what a device has done, by what it was asked for.
type ledger struct {
	mu   sync.Mutex
	done map[string]int
}

func (l *ledger) function() functions.Function {
	return functions.Function{
		Name: "note", Effect: cmp.EffectWrite,
		Handle: func(_ context.Context, c functions.Call) (json.RawMessage, error) {
			var what struct{ What string }
			raw, err := json.Marshal(c.Args.Kwargs)
			if err == nil {
				err = json.Unmarshal(raw, &what)
			}
			if err != nil {
				return nil, err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.done[what.What]++
			return json.Marshal(what.What)
		},
	}
}

// traffic writes through gateways all the time; every other call has an idempotency
// key and is repeated with it where it failed.
type traffic struct {
	mu       sync.Mutex
	answered map[string]bool
	keyed    map[string]bool
	failed   int
	why      map[string]int // failures by their reason
	longest  time.Duration  // of a call
	gap      time.Duration  // between two answers
	last     time.Time
}

const callTimeout = 5 * time.Second

// hangTimeout is after how long beyond its deadline a call counts as one that hangs. A call is answered
// when its record is on the disk, for which a busy machine may need ten seconds.
const hangTimeout = time.Minute

// run calls by who, which states who can be asked now, until ctx ends.
func (f *traffic) run(ctx context.Context, t testing.TB, worker int, who func() []*client.Client) {
	for i := 0; ctx.Err() == nil; i++ {
		what := fmt.Sprintf("w%d-%d", worker, i)
		key := ""
		if i%2 == 0 {
			key = what
		}
		for try := range 4 {
			all := who()
			if len(all) == 0 || ctx.Err() != nil {
				break
			}
			began := time.Now()
			input, _ := json.Marshal(map[string]any{"function": "note", "args": map[string]any{"what": what}})
			var out client.Invoked
			err := all[(worker+i+try)%len(all)].Invoke(context.WithoutCancel(ctx), client.Invocation{
				Target: "device.function.invoke", Input: input, Select: map[string]string{"node": "a"}, IdempotencyKey: key,
				Timeout: callTimeout.String(),
			}, &out)
			took := time.Since(began)
			f.count(t, what, key, err, took)
			if err == nil {
				break
			}
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
			if key == "" { // whether it was done is unknown
				break
			}
		}
	}
}

// count notes the end of one call.
func (f *traffic) count(t testing.TB, what, key string, err error, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.longest = max(f.longest, took)
	if took > callTimeout+hangTimeout {
		t.Errorf("a call took %s, its deadline was %s: %v; want took at most callTimeout + hangTimeout", took, callTimeout, err)
	}
	if err != nil {
		f.failed++
		f.why[reason(err)+": "+err.Error()]++
		return
	}
	f.answered[what], f.keyed[what] = true, key != ""
	if !f.last.IsZero() {
		f.gap = max(f.gap, time.Since(f.last))
	}
	f.last = time.Now()
}

// judge compares what was answered with what was done.
func (f *traffic) judge(t testing.TB, done map[string]int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for what := range f.answered {
		if done[what] != 1 {
			t.Errorf("%s was answered and done %d times (keyed: %v); want done[what] = 1", what, done[what], f.keyed[what])
		}
	}
	for what, n := range done {
		if n > 1 {
			t.Errorf("%s was done %d times; want n at most 1", what, n)
		}
	}
	for why, n := range f.why {
		t.Logf("%d × %s", n, why)
	}
	t.Logf("%d answered, %d failed, %d done; longest call %s, longest time without an answer %s",
		len(f.answered), f.failed, len(done), f.longest.Round(time.Millisecond), f.gap.Round(time.Millisecond))
}

func newTraffic() *traffic {
	return &traffic{answered: make(map[string]bool), keyed: make(map[string]bool), why: make(map[string]int)}
}

func TestGatewaysRestartInTurnUnderCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	gateways := []*plane{c.gateway(0), c.gateway(1)}
	l := &ledger{done: make(map[string]int)}
	d := whole(gateways[0], gateways[1]).join(t, options{id: "a", before: func(d *device) { d.does(l.function()) }})
	for _, p := range gateways {
		eventually(t, "it is served everywhere", func() bool { return p.status(t, "a") == "connected" })
	}
	var mu sync.Mutex
	token := gateways[0].newToken(t, "operator") // keys belong to who has made them
	eventually(t, "the token is good at B", func() bool {
		return gateways[1].client(t, token).Do(t.Context(), http.MethodGet, "/api/v1/status", nil, nil) == nil
	})
	up := map[int]*client.Client{0: gateways[0].client(t, token), 1: gateways[1].client(t, token)}
	who := func() (all []*client.Client) {
		mu.Lock()
		defer mu.Unlock()
		for i := range 2 {
			if up[i] != nil {
				all = append(all, up[i])
			}
		}
		return all
	}
	set := func(i int, c *client.Client) {
		mu.Lock()
		defer mu.Unlock()
		up[i] = c
	}
	f := newTraffic()
	ctx, cancel := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() { f.run(ctx, t, w, who) })
	}
	defer workers.Wait()
	defer cancel()
	progress := func(what string) {
		f.mu.Lock()
		before := len(f.answered)
		f.mu.Unlock()
		took := eventually(t, "calls are answered "+what, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.answered) > before+20
		})
		t.Logf("20 calls were answered %s within %s", what, took.Round(time.Millisecond))
	}
	progress("before")
	for _, how := range []string{"stops", "is killed"} {
		for i, name := range []string{"A", "B"} {
			if how == "stops" {
				set(i, nil) // what is in front takes it out first
				gateways[i].end(t)
			} else {
				gateways[i].kill()
				set(i, nil)
			}
			progress("after " + name + " " + how)
			gateways[i] = c.again(i, gateways[i])
			set(i, gateways[i].client(t, token))
			eventually(t, "the node is listed at "+name+" again", func() bool { return gateways[i].status(t, "a") == "connected" })
			progress("with " + name + " back")
		}
	}
	cancel()
	workers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	f.judge(t, l.done)
	t.Logf("the device joined %d times", d.Status().Joins)
}
