// Package gateway is the side of the node protocol that calls: it lets nodes in,
// keeps the fleet up to date by what they and the bus say, and carries calls to them
// with their deadline, their cancellation and the flow control of streams
// (nodes-and-cmp, sections 15, 16, 20 and 27). Which node takes a call is package
// fleet's to say, whether it may happen at all the engine's.
package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/fleet"
	"github.com/junctor-run/junctor/internal/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Config is what a Gateway needs; Broker and Granted are required.
type Config struct {
	Broker messaging.Broker
	// Granted are the labels that a node's credential gives it; ok is false for a
	// node that is not admitted any more.
	Granted func(node string) (labels []string, ok bool)
	// Told hears of every change of the fleet, in order, from one goroutine at a
	// time; it must not block.
	Told func(fleet.Event)

	Heartbeat    time.Duration // 5 s
	Fleet        fleet.Config  // its Lease must be three heartbeats at least
	TotalStreams int           // 512
	NodeStreams  int           // 32
	Window       int           // bytes of a stream on their way: 256 KiB
	Logger       *slog.Logger
}

// Gateway is one instance of it. Run serves; Call may be used while it does.
type Gateway struct {
	cfg      Config
	instance string
	table    *fleet.Table
	conn     messaging.Conn

	wake chan struct{} // somebody's time has changed

	mu       sync.Mutex
	sessions map[string][]string // open ones of an identity, the oldest first
	calls    map[string]*call    // under way, by id
	streams  map[string]int      // by node
	total    int
	telling  sync.Mutex
}

// New returns a Gateway that serves nobody yet.
func New(cfg Config) *Gateway {
	for d, def := range map[*time.Duration]time.Duration{&cfg.Heartbeat: 5 * time.Second, &cfg.Fleet.Lease: 30 * time.Second} {
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
	return &Gateway{
		cfg: cfg, instance: strings.ToLower(rand.Text()[:16]), table: fleet.New(cfg.Fleet), conn: cfg.Broker.Conn(),
		wake: make(chan struct{}, 1), sessions: make(map[string][]string), calls: make(map[string]*call), streams: make(map[string]int),
	}
}

// Fleet is the table of nodes, to be read.
func (g *Gateway) Fleet() *fleet.Table { return g.table }

// Run serves nodes until ctx ends; calls under way fail then.
func (g *Gateway) Run(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	for _, s := range []struct {
		pattern, queue string
		take           func(context.Context, messaging.Message)
	}{
		// One of several gateways takes each; the state is the table's, which they share.
		{ofAll(wire.SubjectJoin), "gateways", g.join},
		{ofAll(wire.SubjectUpdate), "gateways", g.update},
		{ofAll(wire.SubjectBeat), "gateways", g.beat},
		{ofAll(wire.SubjectLeave), "gateways", g.leave},
		{wire.SubjectReplies(g.instance), "", g.reply},
	} {
		sub, err := g.conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: s.pattern, Queue: s.queue})
		if err != nil {
			return err
		}
		parts.Go(func() error {
			defer sub.Close()
			return g.read(ctx, sub, s.take)
		})
	}
	parts.Go(func() error { return g.watch(ctx) })
	parts.Go(func() error { return g.expire(ctx) })
	err := parts.Wait()
	g.failAll(cmp.Errorf(cmp.ReasonNodeLost, "the gateway stops"))
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || err == nil) {
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

// watch follows the sessions of the bus: a node whose last one ends is suspect.
func (g *Gateway) watch(ctx context.Context) error {
	for e, err := range g.cfg.Broker.Sessions(ctx) {
		if err != nil {
			return err
		}
		switch e.Kind {
		case messaging.SessionOpened:
			g.mu.Lock()
			g.sessions[e.Session.Identity] = append(g.sessions[e.Session.Identity], e.Session.ID)
			g.mu.Unlock()
		case messaging.SessionClosed:
			if n, ok := g.table.Get(e.Session.Identity); g.closed(e.Session) && ok {
				g.tell(ctx, g.table.Gone(n.Session))
			}
		case messaging.SessionsLost: // the leases will tell
		}
	}
	return nil
}

// closed forgets a session and reports whether it was its identity's last.
func (g *Gateway) closed(s messaging.Session) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.sessions[s.Identity]
	for i, id := range list {
		if id == s.ID {
			list = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	if len(list) > 0 {
		g.sessions[s.Identity] = list
		return false
	}
	delete(g.sessions, s.Identity)
	return true
}

// sessionOf names the session of a node in the table: one process, whichever of its
// connections it speaks through. A second process of the same name supersedes it.
func sessionOf(node, instance string) string { return node + "/" + instance }

// tell acts on changes of the fleet and passes them on, in order.
func (g *Gateway) tell(ctx context.Context, events []fleet.Event) {
	if len(events) == 0 {
		return
	}
	g.look()
	g.telling.Lock()
	defer g.telling.Unlock()
	for _, e := range events {
		switch e.Kind {
		case fleet.NodeSuperseded:
			g.control(ctx, e.Node, wire.Control{Epoch: e.Epoch, Type: wire.ControlSuperseded})
		case fleet.NodeResumed: // of its earlier epochs nothing is heard any more (N11)
			g.failNode(e.Node, func(epoch int64) bool { return epoch < e.Epoch })
		case fleet.NodeSuspect, fleet.NodeLeft:
			g.failNode(e.Node, func(epoch int64) bool { return epoch == e.Epoch })
			if e.Reason == fleet.ReasonRemoved { // others end theirs, or have
				g.disconnect(ctx, e.Node, 0)
			}
		}
		g.cfg.Told(e)
	}
}

// disconnect ends the sessions of a node, but for the newest so many.
func (g *Gateway) disconnect(ctx context.Context, node string, keep int) {
	g.mu.Lock()
	list := append([]string(nil), g.sessions[node]...)
	g.mu.Unlock()
	for _, id := range list[:max(len(list)-keep, 0)] {
		if err := g.cfg.Broker.Disconnect(ctx, id); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
			g.cfg.Logger.Warn("a node's session could not be ended", "node", node, "err", err)
		}
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
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		events, next := g.table.Expire()
		g.tell(ctx, events)
		wait := time.Hour
		if !next.IsZero() {
			wait = max(next.Sub(g.cfg.Fleet.Now()), time.Millisecond)
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
	data, err := wire.Encode(&c)
	if err == nil {
		err = g.conn.Publish(context.WithoutCancel(ctx), messaging.Message{Subject: wire.SubjectControl(node), Data: data})
	}
	if err != nil {
		g.cfg.Logger.Debug("control message not sent", "node", node, "type", c.Type, "err", err)
	}
}
