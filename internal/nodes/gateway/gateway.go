// Package gateway is the side of the node protocol that calls: it lets nodes in,
// keeps the fleet up to date by what they and the bus say, and carries calls to them
// with their deadline, their cancellation and the flow control of streams. Which node takes a call is package
// fleet's to say, whether it may happen at all the engine's.
//
// Several gateways are one: they share a bucket with an entry for each node, written
// by whichever of them receives the change and watched by all. An entry is changed only
// by who knows its revision, so two gateways that let the same node in agree on which
// of its sessions is the newer. Heartbeats and the bus's word on sessions reach every
// gateway: what is alive is seen where calls are routed. The bucket holds nothing
// that could not be written again, from the tables of the gateways and by the nodes
// that join once more.
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

	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Config is what a Gateway needs; Broker and Granted are required.
type Config struct {
	Broker messaging.Broker
	// Granted are the labels that a node's credential gives it. It fails with
	// unauthenticated or denied for a node that is not admitted any more; after any
	// other error, which only means that the answer is unknown, the node may try again.
	Granted func(node string) (labels []string, err error)
	// Told receives every change of the fleet, in order, from one goroutine at a
	// time; it must not block, and not call the Gateway's Watch. Every gateway is told;
	// Event.Ours is true in one of them: that one writes the record.
	Told func(fleet.Event)
	// PutAsset keeps arguments that are too large for one message where the node can
	// fetch them: {"args":…,"kwargs":…} as JSON. nil: such a call is
	// payload_too_large.
	PutAsset func(ctx context.Context, node string, arguments []byte) (cmp.Asset, error)

	Heartbeat    time.Duration // 5 s
	Fleet        fleet.Config  // its Lease must be three heartbeats at least
	TotalStreams int           // 512
	NodeStreams  int           // 32
	Window       int           // bytes of a stream on their way: 256 KiB
	Idle         time.Duration // of a stream without a frame, then timeout: 300 s
	Refresh      time.Duration // after which an unchanged entry is written again: 10 min
	Breaker      BreakerConfig
	Logger       *slog.Logger
}

// bucketName is where gateways share the table of nodes.
const bucketName = "nodes"

// group is the queue group of all gateways.
const group = "gateways"

// lanes is how many nodes are let in, changed or taken out at the same time; what
// concerns one node happens in order.
const lanes = 16

// Gateway is one instance of it. Run serves; Call and Do may be used while
// it does.
type Gateway struct {
	cfg      Config
	instance string
	table    *fleet.Table
	conn     messaging.Conn
	shared   *shared
	breaker  *nodeBreaker
	lanes    [lanes]chan func(context.Context)
	feed     messaging.Feed[Sight]
	deaf     atomic.Bool   // our own session is broken: silence says nothing
	wake     chan struct{} // a node's deadline has changed
	older    chan older

	mu       sync.Mutex
	barriers sync.Map            // id → chan struct{}, of caughtUp
	sessions map[string][]string // open ones of an identity, the oldest first
	calls    map[string]*call    // under way, by id
	made     uint64              // calls
	streams  map[string]*streams // by node
	total    int
	// telling is held from a change of the table until it has been told.
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
		streams: make(map[string]*streams),
		feed:    messaging.Feed[Sight]{Lost: Sight{Kind: sightLost}},
	}
	g.shared = &shared{g: g, rows: make(map[string]*row)}
	for i := range g.lanes {
		g.lanes[i] = make(chan func(context.Context), 64)
	}
	return g
}

// Fleet is the table of nodes, to be read.
func (g *Gateway) Fleet() *fleet.Table { return g.table }

// Instance is this gateway's name among the others, new with every New.
func (g *Gateway) Instance() string { return g.instance }

// Run serves nodes until ctx ends; calls under way fail then. Nodes do not notice:
// the table is the other gateways' too, and the next start's.
func (g *Gateway) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts, ctx := errgroup.WithContext(ctx)
	// Who comes while the table is being opened is seen to come.
	sessions, events := g.cfg.Broker.Sessions(ctx), g.conn.Events(ctx)
	if err := g.shared.open(ctx); err != nil {
		return ended(ctx, err)
	}
	for _, s := range []struct {
		pattern, queue string
		take           func(context.Context, messaging.Message)
	}{
		// One of several gateways takes each; the state is the table's, which they share.
		{ofAll(wire.SubjectJoin), group, g.join},
		{ofAll(wire.SubjectUpdate), group, g.update},
		{ofAll(wire.SubjectLeave), group, g.leave},
		// All gateways receive heartbeats: load and life are needed where calls are routed. One of
		// them answers those that are wrong.
		{ofAll(wire.SubjectBeat), "", g.beat},
		{ofAll(wire.SubjectBeat), group, g.judge},
		{wire.SubjectReplies(g.instance), "", g.reply},
	} {
		sub, err := g.conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: s.pattern, Queue: s.queue})
		if err != nil {
			err = ended(ctx, err)
			cancel()
			_ = parts.Wait() // which is only the cancellation
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

// ended is nil for an error that is only the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return nil
	}
	return err
}

// ofAll is the pattern of a subject that every node has one of.
func ofAll(subject func(node string) string) string {
	return strings.Replace(subject("x"), ".x.", ".*.", 1)
}

// read hands messages on, one by one.
func (g *Gateway) read(ctx context.Context, sub messaging.Subscription, take func(context.Context, messaging.Message)) error {
	for {
		m, err := sub.Next(ctx)
		switch {
		case messaging.Is(err, messaging.ReasonLost):
			g.cfg.Logger.Warn("messages of nodes were lost", "err", err)
		case err != nil:
			return err
		default:
			take(ctx, m)
		}
	}
}

// inLane has a job done in order with the others of its node.
func (g *Gateway) inLane(ctx context.Context, node string, job func(context.Context)) {
	h := uint32(2166136261) // FNV-1a
	for i := range len(node) {
		h = (h ^ uint32(node[i])) * 16777619
	}
	select {
	case g.lanes[h%lanes] <- job:
	case <-ctx.Done():
	}
}

// change makes a change of the table, acts on it and passes it on, in order.
func (g *Gateway) change(ctx context.Context, make func() []fleet.Event) {
	g.telling.Lock()
	defer g.telling.Unlock()
	for _, e := range make() {
		switch e.Kind {
		case fleet.NodeSuperseded:
			// Before the node is notified and reports its calls as cancelled.
			g.failNode(e.Node, func(epoch int64) bool { return epoch <= e.Epoch })
			if e.Ours {
				g.control(ctx, e.Node, wire.Control{Epoch: e.Epoch, Type: wire.ControlSuperseded})
			}
		case fleet.NodeResumed: // of its earlier epochs nothing is received any more
			g.failNode(e.Node, func(epoch int64) bool { return epoch < e.Epoch })
		case fleet.NodeSuspect:
			g.failNode(e.Node, func(epoch int64) bool { return epoch <= e.Epoch })
		case fleet.NodeLeft:
			// A node that drains or says goodbye answers what it has; of one that
			// is gone its session or its silence has told already.
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

// look has expire look again, now.
func (g *Gateway) look() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// expire removes nodes when their time is over.
func (g *Gateway) expire(ctx context.Context) error {
	// A node that joins has a lease of its own, and none ends sooner than this
	// without look being called.
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
					g.inLane(ctx, d.Node, func(ctx context.Context) { _ = g.shared.remove(ctx, d) }) // it has said why, and comes again
				}
			}
			if len(due) > 0 { // until they are gone: the bucket may not be there
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

// control tells a node something; it need not arrive.
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
