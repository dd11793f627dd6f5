package gateway

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// follow handles the session events of the bus. A node whose last session ends is suspect.
func (g *Gateway) follow(ctx context.Context, sessions iter.Seq2[messaging.SessionEvent, error]) error {
	for e, err := range sessions {
		if err != nil {
			return err
		}
		switch e.Kind {
		case messaging.SessionOpened:
			g.mu.Lock()
			g.sessions[e.Session.Identity] = append(g.sessions[e.Session.Identity], e.Session.ID)
			g.mu.Unlock()
		case messaging.SessionClosed:
			if !g.closed(e.Session) {
				break
			}
			node := e.Session.Identity
			g.caughtUp(ctx)
			g.change(ctx, func() []fleet.Event {
				n, ok := g.table.Get(node)
				if !ok { // it has left, but calls to it may still run
					g.failNode(node, func(int64) bool { return true })
					return nil
				}
				return g.table.Gone(n.Session)
			})
		case messaging.SessionsLost: // probes find out which nodes have a session
			g.mu.Lock()
			clear(g.sessions)
			g.mu.Unlock()
			g.probeAll(ctx)
		}
	}
	return nil
}

// closed removes a session and reports whether it was its identity's last.
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

// older describes sessions of a node that must end: all but the newest, or all if another
// gateway has removed the node.
type older struct {
	node string
	at   time.Time
	all  bool
}

// supersede ends all sessions of a node except the newest, after supersedeGrace.
func (g *Gateway) supersede(node string) {
	g.mu.Lock()
	several := len(g.sessions[node]) > 1
	g.mu.Unlock()
	if !several {
		return
	}
	g.later(older{node: node, at: time.Now().Add(supersedeGrace)})
}

// dismiss ends, a little later, the sessions that a node still has after another gateway
// removed it, because that one may not have seen them open. If the node has joined again by
// then, it keeps them.
func (g *Gateway) dismiss(node string) {
	g.later(older{node: node, at: time.Now().Add(g.cfg.Heartbeat), all: true})
}

func (g *Gateway) later(o older) {
	select {
	case g.older <- o:
	default: // the bus detects dead sessions by itself
	}
}

func (g *Gateway) evict(ctx context.Context) error {
	var waiting []older
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := time.Hour
		for _, o := range waiting {
			next = min(next, time.Until(o.at))
		}
		timer.Reset(next)
		select {
		case o := <-g.older:
			if len(waiting) < maxOlder {
				waiting = append(waiting, o)
			}
		case <-timer.C:
			waiting = slices.DeleteFunc(waiting, func(o older) bool {
				due := time.Until(o.at) <= 0
				if _, member := g.table.Record(o.node); due && !o.all {
					g.disconnect(ctx, o.node, 1)
				} else if due && !member {
					g.disconnect(ctx, o.node, 0)
				}
				return due
			})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// disconnect ends the sessions of a node except the newest keep ones.
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

// sessionOf returns the table's name of a node's session, which stands for one process with
// all its connections. A second process of the same node supersedes it.
func sessionOf(node, instance string) string { return node + "/" + instance }

// listen handles the events of the gateway's own session. While it is broken, no heartbeats
// arrive, so nodes must not expire.
func (g *Gateway) listen(ctx context.Context, events iter.Seq2[messaging.Event, error]) error {
	for e, err := range events {
		if err != nil {
			return err
		}
		switch e.Kind {
		case messaging.Disconnected:
			g.deaf.Store(true)
		case messaging.Connected, messaging.Reconnected:
			if g.deaf.Load() {
				g.table.Spare()
				g.deaf.Store(false)
				g.look()
				g.probeAll(ctx)
			}
		}
	}
	return nil
}

// probePrefix is the prefix of the call id of a probe, which only the bus answers if the
// node has no subscriber.
const probePrefix = "probe-"

// probe checks whether a node has a session. The node ignores the message; if it has no
// subscriber, the bus answers at once, which absent handles.
func (g *Gateway) probe(ctx context.Context, node string, epoch int64) {
	id := probePrefix + strconv.FormatInt(epoch, 10)
	g.send(ctx, node, wire.SubjectReply(node, g.instance, id), wire.Control{Epoch: epoch, Type: wire.ControlCredit, CallID: id, Bytes: 1})
}

func (g *Gateway) probeAll(ctx context.Context) {
	for _, n := range g.table.List(fleet.Filter{}) {
		g.probe(ctx, n.ID, n.Epoch)
	}
}

// absent handles the bus's answer to a probe. The node has a whole lease to come back,
// because its server may have stopped, or this gateway's may have just started.
func (g *Gateway) absent(ctx context.Context, node, id string) {
	epoch, err := strconv.ParseInt(strings.TrimPrefix(id, probePrefix), 10, 64)
	if err == nil {
		g.change(ctx, func() []fleet.Event { return g.table.Absent(node, epoch, g.cfg.Fleet.Lease) })
	}
}
