package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
)

// world is a bus, gateways on it, and how nodes reach it.
type world struct {
	t         testing.TB
	ctx       context.Context
	heartbeat time.Duration
	dial      messaging.Dialer
	brokers   []messaging.Broker // of the gateways, in turn
	gateways  []*instance
	servers   []*natsServer // of an external cluster
	virtual   bool          // time is that of a bubble, so that a test may judge it
}

// instance is one gateway and what it said.
type instance struct {
	*gateway.Gateway
	stop  context.CancelFunc
	ended chan error

	mu     sync.Mutex
	events []fleet.Event
}

func (w *world) config(b messaging.Broker) gateway.Config {
	return gateway.Config{
		Broker: b, Heartbeat: w.heartbeat, NodeStreams: 4,
		Fleet:   fleet.Config{Lease: 6 * w.heartbeat, Grace: 2 * w.heartbeat, Drain: 10 * w.heartbeat},
		Granted: func(node string) ([]string, error) { return []string{"user:" + node}, nil },
	}
}

// gateway starts one more.
func (w *world) gateway(change ...func(*gateway.Config)) *instance {
	w.t.Helper()
	b := w.brokers[len(w.gateways)%len(w.brokers)]
	i := &instance{ended: make(chan error, 1)}
	cfg := w.config(b)
	cfg.Logger = slog.New(slog.NewTextHandler(logs{w.t}, nil))
	cfg.Told = func(e fleet.Event) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.events = append(i.events, e)
	}
	for _, c := range change {
		c(&cfg)
	}
	i.Gateway = gateway.New(cfg)
	ctx, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	i.stop = stop
	go func() { i.ended <- i.Run(ctx) }()
	w.t.Cleanup(func() { w.end(i) })
	w.gateways = append(w.gateways, i)
	return i
}

func (w *world) end(i *instance) {
	i.stop()
	if err, ok := <-i.ended; ok {
		close(i.ended)
		if err != nil && !messaging.Is(err, messaging.ReasonClosed) {
			w.t.Errorf("%v; want not (err != nil && !messaging.Is(err, messaging.ReasonClosed))", err)
		}
	}
}

// said are the kinds of the events about a node; ours says only those that this
// gateway decided.
func (i *instance) said(node string, ours bool) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []string
	for _, e := range i.events {
		if e.Node == node && (e.Ours || !ours) {
			out = append(out, strings.TrimPrefix(e.Kind, "node."))
		}
	}
	return strings.Join(out, " ")
}

// eventually waits for what must come, and fails when it does not in time.
func (w *world) eventually(what string, within time.Duration, so func() bool) {
	w.t.Helper()
	until := time.Now().Add(within)
	for !so() {
		if time.Now().After(until) {
			w.t.Fatalf("not within %s: %s; want not time.Now().After(until)", within, what)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-w.ctx.Done():
			w.t.Fatalf("the test ended while it waited: %s", what)
		}
	}
}

// listed waits until every gateway lists a node in a status; "" for not at all.
func (w *world) listed(id string, status fleet.Status) {
	w.t.Helper()
	for _, g := range w.gateways {
		w.eventually(id+" is "+string(status), w.patience(), func() bool {
			n, ok := g.Fleet().Get(id)
			return ok && n.Status == status || !ok && status == ""
		})
	}
}

// hangTimeout is after how long a call counts as one that hangs, on a busy machine.
const hangTimeout = time.Minute

// patience is how long a test waits for what must happen: servers of a cluster that share
// a busy machine elect for long.
func (w *world) patience() time.Duration { return max(time.Minute, 20*w.heartbeat) }

// calling is how long a call may take.
func (w *world) calling() time.Duration { return max(15*time.Second, 20*w.heartbeat) }

func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
	}
}

// inMemory is a world on the bus in memory; it is for bubbles of synctest.
func inMemory(t *testing.T) *world {
	b := inproc.New(anybody)
	t.Cleanup(b.Close)
	return &world{t: t, ctx: t.Context(), heartbeat: 5 * time.Second, dial: b.Dial, brokers: []messaging.Broker{b}, virtual: true}
}

// took holds that no more than most have passed since began, where time is virtual.
func (w *world) took(what string, began time.Time, most time.Duration) {
	w.t.Helper()
	if took := time.Since(began); w.virtual && took > most {
		w.t.Errorf("%s took %s, want at most %s", what, took, most)
	}
}

// onEveryBus runs a scenario with two gateways on the bus in memory, in the server
// inside this process by WebSocket, and in a cluster of three servers.
func onEveryBus(t *testing.T, scenario func(w *world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := inMemory(t)
			w.gateway()
			w.gateway()
			synctest.Wait()
			scenario(w)
		})
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		b, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{Authorize: anybody})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		w := &world{t: t, ctx: limited(t), heartbeat: busHeartbeatInterval, dial: webDialer(t, b), brokers: []messaging.Broker{b}}
		w.gateway()
		w.gateway()
		scenario(w)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		w := cluster(t)
		w.gateway()
		w.gateway()
		scenario(w)
	})
}

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// clusterTurn lets two tests at a time have a cluster: with more, the servers of a cluster
// wait for a processor so long that they do not agree on a leader.
var clusterTurn = make(chan struct{}, 2)

// busHeartbeatInterval is the heartbeat of nodes on a real bus. A node is lost after six without a sign of
// life, which a busy machine must not miss.
const busHeartbeatInterval = 400 * time.Millisecond

// cluster is three servers, and a broker of each gateway with one of them.
func cluster(t testing.TB) *world {
	t.Helper()
	clusterTurn <- struct{}{}
	t.Cleanup(func() { <-clusterTurn })
	w := &world{t: t, ctx: limited(t), heartbeat: busHeartbeatInterval, servers: startServers(t, 3)}
	for i := range 2 {
		w.brokers = append(w.brokers, w.open(i))
	}
	// Nodes come in through the third server, where no gateway is.
	dial, err := natsdial.Dialer("nats://"+w.servers[2].address, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.dial = dial
	return w
}

func (w *world) open(i int) *natsbus.Broker {
	w.t.Helper()
	var urls []string
	for k := range w.servers {
		urls = append(urls, "nats://"+w.servers[(i+k)%len(w.servers)].address)
	}
	for {
		b, err := natsbus.Open(w.ctx, natsbus.Cluster{URL: strings.Join(urls, ","), Secret: clusterSecret(), Replicas: 3},
			natsbus.Config{Authorize: anybody})
		if err == nil {
			w.t.Cleanup(b.Close)
			return b
		}
		if w.ctx.Err() != nil {
			w.t.Fatalf("%v; want w.ctx.Err() = nil", err)
		}
	}
}

// proxy is a wire that can be cut without any caller being told.
type proxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	black bool
	conns []net.Conn
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, near, far)
			p.mu.Unlock()
			all.Go(func() { p.carry(far, near) })
			all.Go(func() { p.carry(near, far) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

func (p *proxy) swallow(black bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.black = black
	if !black { // what was cut stays cut; new connections work
		for _, c := range p.conns {
			c.Close()
		}
		p.conns = nil
	}
}

func (p *proxy) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		black := p.black
		p.mu.Unlock()
		if n > 0 && !black {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if !black {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// logs is where gateways say what is wrong.
type logs struct{ t testing.TB }

func (l logs) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}
