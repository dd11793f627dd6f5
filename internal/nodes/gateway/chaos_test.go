package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// traffic calls f through every gateway all the time until stop: no call may take
// longer than its deadline, and each comes to one end.
func (w *world) traffic(deadline time.Duration) (stop func() (succeeded, failed int64)) {
	ctx, cancel := context.WithCancel(w.ctx)
	var good, bad atomic.Int64
	var all sync.WaitGroup
	for _, g := range w.gateways {
		for range 3 {
			all.Go(func() {
				for ctx.Err() == nil {
					began := time.Now()
					own, done := context.WithTimeout(context.WithoutCancel(ctx), deadline)
					_, err := g.Do(own, fleet.Request{Balance: true, Strategy: fleet.Random}, gateway.Request{Function: "f"})
					done()
					if took := time.Since(began); took > deadline+hangTimeout {
						w.t.Errorf("a call took %s; want took at most deadline + hangTimeout", took)
					}
					if err == nil {
						good.Add(1)
					} else {
						bad.Add(1)
						w.pause(5 * time.Millisecond)
					}
				}
			})
		}
	}
	return func() (int64, int64) { cancel(); all.Wait(); return good.Load(), bad.Load() }
}

// served waits until every gateway reaches every node by its name.
func (w *world) served(ids ...string) {
	w.t.Helper()
	for _, g := range w.gateways {
		for _, id := range ids {
			w.eventually(id+" is served", w.patience(), func() bool {
				ctx, cancel := context.WithTimeout(w.ctx, time.Second)
				defer cancel()
				r, err := g.Do(ctx, fleet.Request{}, gateway.Request{Node: id, Function: "f"})
				return err == nil && strings.HasPrefix(string(r.Value), `"`+id+"/")
			})
		}
	}
}

func names(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("n%d", i))
	}
	return out
}

// Scenario 35, with several: a gateway stops and another takes its place.
func TestGatewaysComeAndGoAndNodesStay(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		ids := names(5)
		var devices []*device
		for _, id := range ids {
			devices = append(devices, w.device(id, "i1"))
		}
		w.served(ids...)
		lost := make(chan error, 1)
		first := w.gateways[0]
		go func() { _, err := ask(w, first, gateway.Request{Node: "n0", Function: "never"}); lost <- err }()
		w.eventually("the call runs", w.patience(), func() bool { return devices[0].count(devices[0].ran, "never") == 1 })
		w.end(first)
		if err := <-lost; reason(err) != cmp.ReasonNodeLost {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonNodeLost", err)
		}
		w.gateways = w.gateways[1:]
		w.gateway()
		w.served(ids...)
		w.pause(8 * w.heartbeat) // longer than a lease
		w.served(ids...)
		for _, d := range devices {
			var joins int
			if d.set(func() { joins = d.joins }); joins != 1 {
				w.t.Errorf("%s joined %d times; want joins = 1", d.id, joins)
			}
			if s := w.gateways[0].said(d.id, false); s != "joined" && s != "joined resumed" { // the bus may show it late
				w.t.Errorf(`w.gateways[0].said(d.id, false) = %q, want "joined" or "joined resumed"`, s)
			}
		}
	})
}

// A node that a gateway has only read of may be gone, or about to join again: a call
// to it could not be told from one that ran.
func TestAGatewayThatStartsCallsNobodyItHasNotHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := inMemory(t)
		w.gateway()
		synctest.Wait()
		d := w.device("a", "i1")
		w.served("a")
		d.freeze(true)
		w.end(w.gateways[0])
		w.gateways = nil
		g := w.gateway()
		synctest.Wait()
		if n, ok := g.Fleet().Get("a"); !ok || n.Status != fleet.Disconnected {
			t.Errorf("%+v; want ok = true, n.Status = fleet.Disconnected", n)
		}
		if _, err := ask(w, g, gateway.Request{Node: "a", Function: "f"}); reason(err) != cmp.ReasonNoNodes {
			t.Errorf("%v; want reason(err) = cmp.ReasonNoNodes", err)
		}
		d.freeze(false)
		w.listed("a", fleet.Connected) // by its next heartbeat
		w.served("a")
		synctest.Wait()
		if s := g.said("a", false); s != "joined resumed" || d.joins != 1 {
			t.Errorf(`g.said("a", false) = %q, want "joined resumed"; d.joins = %v, want 1`, s, d.joins)
		}
		d.freeze(true)
		w.end(g)
		w.gateways = nil
		w.gateway()
		w.listed("a", "") // by the end of its lease
	})
}

func TestAnEmptiedBucketIsFilledAgain(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		ids := names(4)
		for _, id := range ids {
			w.device(id, "i1")
		}
		w.served(ids...)
		bucket, err := w.brokers[0].Bucket(w.ctx, messaging.BucketOptions{Name: "nodes"})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, id := range ids {
			if err := bucket.Delete(w.ctx, id, 0); err != nil {
				w.t.Fatal(err)
			}
		}
		if _, err := bucket.Put(w.ctx, "nonsense", []byte("what is this")); err != nil {
			w.t.Fatal(err)
		}
		w.served(ids...)
		for _, id := range ids {
			w.eventually(id+" is in the bucket again", w.patience(), func() bool {
				e, err := bucket.Get(w.ctx, id)
				return err == nil && len(e.Value) > 0
			})
		}
	})
}

// TestABucketThatWasLostIsFilledFromTheTables: the bus comes back with nothing, the
// nodes never left, and none of them has to join again.
func TestABucketThatWasLostIsFilledFromTheTables(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &forgetful{Broker: inproc.New(anybody)}
		t.Cleanup(b.Close)
		w := &world{t: t, ctx: t.Context(), heartbeat: 5 * time.Second, dial: b.Broker.(*inproc.Broker).Dial, brokers: []messaging.Broker{b}}
		w.gateway()
		w.gateway()
		synctest.Wait()
		ids := names(3)
		var devices []*device
		for _, id := range ids {
			devices = append(devices, w.device(id, "i1"))
		}
		gone := w.device("gone", "i1")
		w.served(append(ids, "gone")...)
		gone.set(func() { gone.frozen = true })
		w.pause(4 * w.heartbeat)
		b.forget()
		bucket, _ := b.Bucket(w.ctx, messaging.BucketOptions{Name: "nodes"})
		for _, id := range ids {
			w.eventually(id+" is in the bucket again", w.patience(), func() bool {
				_, err := bucket.Get(w.ctx, id)
				return err == nil
			})
		}
		w.served(ids...)
		w.listed("gone", "")
		for _, d := range devices {
			if d.joins != 1 || w.gateways[1].said(d.id, false) != "joined" {
				t.Errorf(`d.joins = %v, want 1; w.gateways = %+v, want w.gateways[1].said(d.id, false) = "joined"`, d.joins, w.gateways)
			}
		}
	})
}

// Scenario 35: the one gateway restarts, and the bus within it.
func TestAnEmbeddedBusRestartsAndEveryNodeIsBackOnce(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]bool{"its directory is kept": true, "its directory is lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var now atomic.Pointer[natsbus.Broker]
			open := func(dir string) {
				b, err := natsbus.Embed(t.Context(), dir, natsbus.Config{Authorize: anybody})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(b.Close)
				now.Store(b)
			}
			open(dir)
			web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				now.Load().Handler(func(*http.Request) error { return nil }).ServeHTTP(rw, r)
			}))
			t.Cleanup(web.Close)
			dial, err := natsdial.Dialer(web.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{t: t, ctx: limited(t), heartbeat: 200 * time.Millisecond, dial: dial, brokers: []messaging.Broker{now.Load()}}
			w.gateway()
			ids := names(20)
			for _, id := range ids {
				w.device(id, "i1")
			}
			stale := w.device("stale", "i1")
			w.served(append(ids, "stale")...)
			w.end(w.gateways[0])
			now.Load().Close()
			stale.kill()
			if !keep {
				dir = t.TempDir()
			}
			open(dir)
			w.brokers, w.gateways = []messaging.Broker{now.Load()}, nil
			g := w.gateway()
			w.served(ids...)
			w.listed("stale", "")
			if n := len(g.Fleet().List(fleet.Filter{Suspect: true})); n != len(ids) {
				t.Errorf("there are %d nodes; want n = %v", n, len(ids))
			}
		})
	}
}

func TestAServerOfTheClusterIsKilled(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	w.gateway()
	w.gateway()
	ids := names(6)
	for _, id := range ids {
		w.device(id, "i1")
	}
	w.served(ids...)
	stop := w.traffic(3 * time.Second)
	w.pause(500 * time.Millisecond)
	w.servers[2].kill() // that of every node
	killed := time.Now()
	// On a busy machine the node may be with another server by now, so that the call may
	// end well; it must end.
	_, err := ask(w, w.gateways[0], gateway.Request{Node: "n0", Function: "f"})
	took := time.Since(killed)
	t.Logf("a call after the death of the nodes' server ended after %s: %v", took, err)
	if took > hangTimeout {
		t.Errorf("it hung; got took = %v; want took at most hangTimeout", took)
	}
	w.served(ids...) // they knew of the other servers
	t.Logf("every node is back after %s", time.Since(killed))
	good, bad := stop()
	t.Logf("%d calls succeeded and %d failed", good, bad)
	if good == 0 || bad == 0 {
		t.Errorf("good = %v, want other than 0; bad = %v, want other than 0", good, bad)
	}
	for _, g := range w.gateways {
		w.eventually("every node is listed", w.patience(), func() bool { return len(g.Fleet().List(fleet.Filter{Suspect: true})) == len(ids) })
	}
}

// TestAGatewaysServerIsKilled: the gateway moves to another, spares the nodes it could
// not receive, and both go on.
func TestAGatewaysServerIsKilled(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	w.gateway()
	w.gateway()
	ids := names(6)
	var devices []*device
	for _, id := range ids {
		devices = append(devices, w.device(id, "i1"))
	}
	w.served(ids...)
	stop := w.traffic(3 * time.Second)
	w.pause(500 * time.Millisecond)
	w.servers[0].kill()
	w.pause(2 * time.Second)
	w.served(ids...)
	late := w.device("late", "i1") // the bucket has a quorum, and takes it
	w.served("late")
	good, bad := stop()
	t.Logf("%d calls succeeded and %d failed", good, bad)
	if good < 100 {
		t.Errorf("good = %v, want at least 100; bad = %v", good, bad)
	}
	for _, d := range append(devices, late) {
		d.set(func() {
			if d.joins != 1 {
				t.Errorf("%s joined %d times; want d.joins = 1", d.id, d.joins)
			}
		})
	}
}

// TestAGatewayDiesWithoutAWord: its sessions with the bus break, and nothing else.
func TestAGatewayDiesWithoutAWord(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	w.gateway()
	w.gateway()
	ids := names(4)
	for _, id := range ids {
		w.device(id, "i1")
	}
	w.served(ids...)
	dead := w.gateways[0]
	w.brokers[0].Close()
	<-dead.ended
	close(dead.ended)
	w.gateways = w.gateways[1:]
	if _, err := ask(w, dead, gateway.Request{Node: "n0", Function: "f"}); err == nil {
		t.Error("a dead gateway made a call; want an error")
	}
	w.served(ids...)
	w.brokers[0] = w.open(0)
	w.brokers = w.brokers[:1]
	w.gateway()
	w.served(ids...)
	// The gateway that admitted a node is gone: another one still records that it leaves.
	gone := w.device("gone", "i1")
	w.served("gone")
	gone.kill()
	w.listed("gone", "")
	w.eventually("one gateway has written it down", w.patience(), func() bool {
		left := 0
		for _, g := range w.gateways {
			left += strings.Count(g.said("gone", true), "left")
		}
		return left == 1
	})
}

// Scenario 34.
func TestACutCableIsAFrozenNode(t *testing.T) {
	t.Parallel()
	b, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{Authorize: anybody})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, b.Handler(func(*http.Request) error { return nil }))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	wire := newProxy(t, strings.TrimPrefix(web.URL, "http://"))
	dial, err := natsdial.Dialer("http://"+wire.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		t: t, ctx: limited(t), heartbeat: 200 * time.Millisecond, brokers: []messaging.Broker{b},
		dial: func(ctx context.Context, o messaging.DialOptions) (messaging.Conn, error) {
			o.PingInterval = 200 * time.Millisecond
			return dial(ctx, o)
		},
	}
	g := w.gateway()
	d := w.device("a", "i1")
	w.served("a")
	wire.swallow(true)
	lost := make(chan error, 1)
	go func() { _, err := ask(w, g, gateway.Request{Node: "a", Function: "f"}); lost <- err }()
	if err := <-lost; reason(err) != cmp.ReasonNodeLost {
		t.Errorf("%v; want reason(err) = cmp.ReasonNodeLost", err)
	}
	w.listed("a", "")
	wire.swallow(false)
	w.served("a")
	if d.count(d.ran, "f") == 0 || len(g.Fleet().List(fleet.Filter{Suspect: true})) != 1 {
		t.Error(`there is not one node; want d.count(d.ran, "f") other than 0, len(g.Fleet().List(fleet.Filter{Suspect: true})) = 1`)
	}
}

// Scenario 34, with several servers: the node finds another way in by itself.
func TestACutCableToOneServerOfACluster(t *testing.T) {
	t.Parallel()
	w := cluster(t)
	wire := newProxy(t, w.servers[2].address)
	dial, err := natsdial.Dialer("nats://"+wire.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.dial = func(ctx context.Context, o messaging.DialOptions) (messaging.Conn, error) {
		o.PingInterval = 200 * time.Millisecond
		return dial(ctx, o)
	}
	for range 2 {
		w.gateway()
	}
	w.device("a", "i1")
	w.served("a")
	wire.swallow(true)
	began := time.Now()
	for _, g := range w.gateways { // until it is back a call fails, and does not hang
		_, err := ask(w, g, gateway.Request{Node: "a", Function: "f"})
		t.Logf("a call after the cut ended after %s: %v", time.Since(began), err)
	}
	w.served("a")
	for _, g := range w.gateways {
		if len(g.Fleet().List(fleet.Filter{Suspect: true})) != 1 {
			t.Error("there is not one node; want len(g.Fleet().List(fleet.Filter{Suspect: true})) = 1")
		}
	}
}

// forgetful is a bus whose buckets can be lost, as those of servers whose disks are.
type forgetful struct {
	messaging.Broker
	mu      sync.Mutex
	made    int
	buckets []*lostBucket
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made++
	for _, k := range f.buckets {
		k.mu.Lock()
		close(k.lost)
		k.lost = make(chan struct{})
		k.mu.Unlock()
	}
}

func (f *forgetful) Bucket(_ context.Context, o messaging.BucketOptions) (messaging.Bucket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := &lostBucket{f: f, o: o, lost: make(chan struct{})}
	f.buckets = append(f.buckets, k)
	return k, nil
}

type lostBucket struct {
	f    *forgetful
	o    messaging.BucketOptions
	mu   sync.Mutex
	lost chan struct{}
}

func (k *lostBucket) now(ctx context.Context) messaging.Bucket {
	k.f.mu.Lock()
	made := k.f.made
	k.f.mu.Unlock()
	b, err := k.f.Broker.Bucket(ctx, messaging.BucketOptions{Name: fmt.Sprintf("%s-%d", k.o.Name, made), TTL: k.o.TTL})
	if err != nil {
		return k // never: the bus in memory has it
	}
	return b
}

func (k *lostBucket) Get(ctx context.Context, key string) (messaging.Entry, error) {
	return k.now(ctx).Get(ctx, key)
}

func (k *lostBucket) Put(ctx context.Context, key string, v []byte) (uint64, error) {
	return k.now(ctx).Put(ctx, key, v)
}

func (k *lostBucket) Create(ctx context.Context, key string, v []byte) (uint64, error) {
	return k.now(ctx).Create(ctx, key, v)
}

func (k *lostBucket) Update(ctx context.Context, key string, v []byte, r uint64) (uint64, error) {
	return k.now(ctx).Update(ctx, key, v, r)
}

func (k *lostBucket) Delete(ctx context.Context, key string, r uint64) error {
	return k.now(ctx).Delete(ctx, key, r)
}

func (k *lostBucket) Watch(ctx context.Context) iter.Seq2[messaging.Change, error] {
	return func(yield func(messaging.Change, error) bool) {
		for ctx.Err() == nil {
			k.mu.Lock()
			lost := k.lost
			k.mu.Unlock()
			turn, cancel := context.WithCancel(ctx)
			stop := make(chan struct{})
			go func() {
				select {
				case <-lost:
				case <-stop:
				}
				cancel()
			}()
			for c, err := range k.now(ctx).Watch(turn) {
				if err != nil {
					break
				}
				if !yield(c, nil) {
					close(stop)
					return
				}
			}
			close(stop)
			cancel()
		}
		yield(messaging.Change{}, ctx.Err())
	}
}

func TestArgumentsTooLargeForAMessageAreAnAsset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kept []byte
		r := newRig(t, gateway.Config{PutAsset: func(_ context.Context, _ string, data []byte) (cmp.Asset, error) {
			kept = data
			return cmp.Asset{Digest: "sha256:" + strings.Repeat("0", 64), Size: int64(len(data))}, nil
		}})
		n := r.dial("a")
		n.join(nil)
		big := json.RawMessage(`"` + strings.Repeat("x", 600<<10) + `"`)
		done := r.call(t.Context(), gateway.Request{
			Node: "a", Function: "f",
			Arguments: cmp.Arguments{Kwargs: map[string]json.RawMessage{"big": big}},
		})
		c, answer := n.called()
		if c.Kwargs != nil || !strings.Contains(string(c.Arguments), `"$asset"`) {
			t.Errorf(`%.200s; want c.Kwargs = nil, string(c.Arguments) with "\"$asset\""`, c.Arguments)
		}
		if a, err := cmp.ParseArguments(kept); err != nil || string(a.Kwargs["big"]) != string(big) {
			t.Errorf(`%.100s %v; want no error, string(a.Kwargs["big"]) = %v`, kept, err, string(big))
		}
		asset := json.RawMessage(`{"$asset":{"digest":"sha256:` + strings.Repeat("1", 64) + `","size":10485760}}`)
		answerResult(answer, asset)
		if o := <-done; o.err != nil || string(o.result.Value) != string(asset) {
			t.Errorf("%+v; want o.err = nil, string(o.result.Value) = %v", o, string(asset))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r, _ := joined(t)
		big := json.RawMessage(`"` + strings.Repeat("x", 600<<10) + `"`)
		if _, err := r.Call(t.Context(), gateway.Request{
			Node: "a", Function: "f",
			Arguments: cmp.Arguments{Args: []json.RawMessage{big}},
		}); reason(err) != cmp.ReasonTooLarge {
			t.Errorf("%v; want reason(err) = cmp.ReasonTooLarge", err)
		}
	})
}
