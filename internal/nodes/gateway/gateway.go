// Package gateway is the gateway's side of the node protocol: it admits nodes, updates the
// fleet from their messages and the events of the bus, and sends calls to them with
// deadlines, cancellation and flow control of streams. Package fleet selects the node of a
// call; the engine decides whether a call is allowed.
//
// Several gateways share a bucket with an entry for each node, which the gateway that receives a
// change writes and all watch. An entry can be changed only with its current revision, so that two
// gateways which admit the same node agree on the newer session. Every gateway receives heartbeats
// and session events, because every gateway routes calls. The bucket is not the only copy of
// anything: it can be restored from the tables of the gateways and by nodes that join again.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Config configures a Gateway. Broker and Granted are required.
type Config struct {
	Broker messaging.Broker
	// Granted returns the labels that a node's credential grants. It fails with
	// unauthenticated or denied for a node that is no longer admitted. Any other error
	// means that the answer is unknown; then the node may try again.
	Granted func(node string) (labels []string, err error)
	// Told receives every change of the fleet, in order, one call at a time. It must not
	// block or call the Gateway's Watch. Event.Ours is true in only one of several
	// gateways, which writes the audit record.
	Told func(fleet.Event)
	// PutAsset stores arguments of a principal that are too large for one message, {"args":…,"kwargs":…}
	// as JSON, so that the node can fetch them. If nil, such a call is payload_too_large.
	PutAsset func(ctx context.Context, principal string, arguments []byte) (cmp.Asset, error)

	Heartbeat    time.Duration // 5 s
	Fleet        fleet.Config  // its Lease must be three heartbeats at least
	TotalStreams int           // 512
	NodeStreams  int           // 32
	Window       int           // bytes of a stream on their way: 256 KiB
	Idle         time.Duration // a stream without a frame for so long times out: 300 s
	Refresh      time.Duration // after which an unchanged entry is written again: 10 min
	Breaker      BreakerConfig
	Logger       *slog.Logger
}

// bucketName is the bucket in which gateways share the table of nodes.
const bucketName = "nodes"

// group is the queue group of all gateways.
const group = "gateways"

// lanes is the number of concurrent changes of nodes. Changes of one node happen in order.
const lanes = 16

// Gateway is one gateway of nodes. Call and Do may be used while Run runs.
type Gateway struct {
	cfg      Config
	instance string
	table    *fleet.Table
	conn     messaging.Conn
	shared   *shared
	breaker  *nodeBreaker
	lanes    [lanes]chan func(context.Context)
	feed     messaging.Feed[Sight]
	deaf     atomic.Bool   // the gateway's own session is broken, so missing heartbeats mean nothing
	wake     chan struct{} // a node's deadline has changed
	older    chan older

	mu       sync.Mutex
	barriers sync.Map            // id → chan struct{}, of caughtUp
	sessions map[string][]string // open sessions by identity, the oldest first
	calls    map[string]*call    // running calls by id
	made     uint64              // number of calls so far
	streams  map[string]*streams // by node
	total    int
	queued   map[string]int // messages in the lanes by node
	bytes    int            // of all messages in the lanes
	lost     int            // messages of nodes since the last warning
	warned   time.Time
	// telling is held from a change of the table until subscribers were notified.
	telling sync.Mutex
}

// New returns a Gateway that does not serve any node yet.
func New(cfg Config) *Gateway {
	for d, def := range map[*time.Duration]time.Duration{
		&cfg.Heartbeat: 5 * time.Second, &cfg.Fleet.Lease: 30 * time.Second, &cfg.Idle: 300 * time.Second, &cfg.Refresh: 10 * time.Minute,
	} {
		if *d <= 0 {
			*d = def
		}
	}
	for n, def := range map[*int]int{&cfg.TotalStreams: 512, &cfg.NodeStreams: 32, &cfg.Window: wire.DefaultWindow} {
		if *n <= 0 {
			*n = def
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Told == nil {
		cfg.Told = func(fleet.Event) {}
	}
	if cfg.Fleet.Now == nil {
		cfg.Fleet.Now = time.Now
	}
	cfg.Fleet.Gateway = ids.Text()[:16]
	g := &Gateway{
		cfg: cfg, instance: cfg.Fleet.Gateway, table: fleet.New(cfg.Fleet), conn: cfg.Broker.Conn(),
		breaker: newBreaker(cfg.Breaker, cfg.Fleet.Now),
		wake:    make(chan struct{}, 1), older: make(chan older, 1024), sessions: make(map[string][]string), calls: make(map[string]*call),
		streams: make(map[string]*streams), queued: make(map[string]int),
		feed: messaging.Feed[Sight]{Lost: Sight{Kind: sightLost}},
	}
	g.shared = &shared{g: g, rows: make(map[string]*row)}
	for i := range g.lanes {
		g.lanes[i] = make(chan func(context.Context), laneLength)
	}
	return g
}

// Fleet returns the table of nodes. Callers must not change it.
func (g *Gateway) Fleet() *fleet.Table { return g.table }

// Instance returns this gateway's unique name, which is new with every New.
func (g *Gateway) Instance() string { return g.instance }

// Run serves nodes until ctx ends; running calls fail then. Nodes stay joined, because the
// shared table outlives this gateway.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, ctx := errgroup.WithContext(ctx)
	// Before the table is opened, so that no session event is missed.
	sessions, events := g.cfg.Broker.Sessions(ctx), g.conn.Events(ctx)
	if err := g.shared.open(ctx); err != nil {
		return ended(ctx, err)
	}
	for _, s := range []struct {
		pattern, queue string
		take           func(context.Context, messaging.Message)
	}{
		// One of several gateways handles each message, because they share the table.
		{ofAll(wire.SubjectJoin), group, g.join},
		{ofAll(wire.SubjectUpdate), group, g.update},
		{ofAll(wire.SubjectLeave), group, g.leave},
		// All gateways receive heartbeats, because each routes calls by load. One of them
		// answers those that need an answer.
		{ofAll(wire.SubjectBeat), "", g.beat},
		{ofAll(wire.SubjectBeat), group, g.judge},
		{wire.SubjectReplies(g.instance), "", g.reply},
	} {
		sub, err := g.conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: s.pattern, Queue: s.queue})
		if err != nil {
			err = ended(ctx, err)
			cancel()
			_ = parts.Wait() // only the cancellation
			return err
		}
		parts.Go(func() error {
			defer sub.Close()
			return g.read(ctx, sub, s.take)
		})
	}
	for _, lane := range g.lanes {
		parts.Go(func() error {
			for {
				select {
				case job := <-lane:
					job(ctx)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	for _, part := range []func(context.Context) error{
		g.expire, g.shared.watch, g.shared.refresh, g.attend, g.evict,
		func(ctx context.Context) error { return g.follow(ctx, sessions) },
		func(ctx context.Context) error { return g.listen(ctx, events) },
	} {
		parts.Go(func() error { return part(ctx) })
	}
	err := parts.Wait()
	g.failThose(cmp.Errorf(cmp.ReasonNodeLost, "the gateway stops"), func(*call) bool { return true })
	return ended(ctx, err)
}

// ended returns nil if err is only the end of ctx, else err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}

// ofAll returns the pattern that matches a subject of every node.
func ofAll(subject func(node string) string) string {
	return strings.Replace(subject("x"), ".x.", ".*.", 1)
}

// read calls take for each message of a subscription.
func (g *Gateway) read(ctx context.Context, sub messaging.Subscription, take func(context.Context, messaging.Message)) error {
	for {
		m, err := sub.Next(ctx)
		switch {
		case messaging.Is(err, messaging.ReasonLost):
			n, _ := capability.AsError(err).Details["lost"].(int)
			g.lose(n)
		case err != nil:
			return err
		default:
			take(ctx, m)
		}
	}
}

// lose counts messages of nodes that were dropped, and warns of them now and then.
func (g *Gateway) lose(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost += n
	if now := g.cfg.Fleet.Now(); now.Sub(g.warned) >= lossInterval {
		g.cfg.Logger.Warn("messages of nodes were lost", "count", g.lost)
		g.lost, g.warned = 0, now
	}
}

// handle queues the handling of a node's message in the node's lane. It never waits, because its reader is
// shared by all nodes: a message too many is dropped, and the node repeats its request.
func (g *Gateway) handle(m messaging.Message, job func(context.Context)) {
	node, size := nodeOf(m), len(m.Data)
	g.mu.Lock()
	full := g.queued[node] >= maxQueued || g.bytes+size > maxQueuedBytes
	if !full {
		select {
		case g.laneOf(node) <- func(ctx context.Context) {
			g.mu.Lock()
			g.bytes -= size
			if g.queued[node]--; g.queued[node] == 0 {
				delete(g.queued, node)
			}
			g.mu.Unlock()
			job(ctx)
		}:
			g.queued[node]++
			g.bytes += size
		default:
			full = true
		}
	}
	g.mu.Unlock()
	if full {
		g.lose(1)
	}
}

// inLane queues a job that runs in order with the other jobs of its node.
func (g *Gateway) inLane(ctx context.Context, node string, job func(context.Context)) {
	select {
	case g.laneOf(node) <- job:
	case <-ctx.Done():
	}
}

func (g *Gateway) laneOf(node string) chan func(context.Context) {
	h := uint32(2166136261) // FNV-1a
	for i := range len(node) {
		h = (h ^ uint32(node[i])) * 16777619
	}
	return g.lanes[h%lanes]
}

// change makes a change of the table, handles its events (fails calls, ends sessions) and
// notifies subscribers, in order.
func (g *Gateway) change(ctx context.Context, make func() []fleet.Event) {
	g.telling.Lock()
	defer g.telling.Unlock()
	for _, e := range make() {
		switch e.Kind {
		case fleet.NodeSuperseded:
			// Before the node receives "superseded" and reports its calls as cancelled.
			g.failNode(e.Node, func(epoch int64) bool { return epoch <= e.Epoch })
			if e.Ours {
				g.control(ctx, e.Node, wire.Control{Epoch: e.Epoch, Type: wire.ControlSuperseded})
			}
		case fleet.NodeResumed: // no more frames of its earlier epochs arrive
			g.failNode(e.Node, func(epoch int64) bool { return epoch < e.Epoch })
		case fleet.NodeSuspect:
			g.failNode(e.Node, func(epoch int64) bool { return epoch <= e.Epoch })
		case fleet.NodeLeft:
			// A node that drains or leaves still answers its calls. Those of a lost node
			// have failed already.
			if e.Reason != fleet.ReasonDrained && e.Reason != fleet.ReasonLeft {
				g.failNode(e.Node, func(epoch int64) bool { return epoch <= e.Epoch })
			}
			g.breaker.forget(e.Node)
		}
		if e.Kind == fleet.NodeSuspect || e.Kind == fleet.NodeUpdated {
			g.look()
		}
		g.cfg.Told(e)
		g.show(e)
	}
}

// look wakes expire.
func (g *Gateway) look() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// expire removes nodes when their time is over.
func (g *Gateway) expire(ctx context.Context) error {
	// Every shorter deadline is announced by a call of look.
	most := g.cfg.Fleet.Lease / 4
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		wait := most
		if !g.deaf.Load() {
			var due []fleet.Due
			var next time.Time
			g.change(ctx, func() (events []fleet.Event) {
				due, events, next = g.table.Expire()
				return events
			})
			for _, d := range due {
				if g.shared.claim(d.Node) {
					g.inLane(ctx, d.Node, func(ctx context.Context) { _ = g.shared.remove(ctx, d) }) // remove has logged the error, and expire tries again
				}
			}
			if len(due) > 0 { // retry until they are removed, even if the bucket is unavailable
				wait = min(wait, time.Second)
			}
			if !next.IsZero() {
				wait = min(wait, max(next.Sub(g.cfg.Fleet.Now()), time.Millisecond))
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-g.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// control sends a control message to a node, without confirmation.
func (g *Gateway) control(ctx context.Context, node string, c wire.Control) {
	g.send(ctx, node, "", c)
}

func (g *Gateway) send(ctx context.Context, node, reply string, c wire.Control) {
	data, err := wire.Encode(&c)
	if err == nil {
		err = g.conn.Publish(context.WithoutCancel(ctx), messaging.Message{Subject: wire.SubjectControl(node), Reply: reply, Data: data})
	}
	if err != nil {
		g.cfg.Logger.Debug("control message not sent", "node", node, "type", c.Type, "err", err)
	}
}
