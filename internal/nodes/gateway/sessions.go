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

// follow follows the sessions of the bus: a node whose last one ends is suspect.
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
				if !ok { // it has said goodbye, and calls may be under way there all the same
					g.failNode(node, func(int64) bool { return true })
					return nil
				}
				return g.table.Gone(n.Session)
			})
		case messaging.SessionsLost: // who has a session is asked of the bus
			g.mu.Lock()
			clear(g.sessions)
			g.mu.Unlock()
			g.probeAll(ctx)
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

// older are sessions of a node that are to end: those it had before it joined, or all
// when another gateway has taken it out.
type older struct {
	node string
	at   time.Time
	all  bool
}

// supersedeGrace is the time that the older of two processes has to receive the message that it is
// superseded: cut off before that, it would come back and supersede the newer.
const supersedeGrace = 100 * time.Millisecond

// supersede has the sessions of a node ended in a moment, but for the newest.
func (g *Gateway) supersede(node string) {
	g.mu.Lock()
	several := len(g.sessions[node]) > 1
	g.mu.Unlock()
	if !several {
		return
	}
	g.later(older{node: node, at: time.Now().Add(supersedeGrace)})
}

// dismiss has the sessions ended that a node still has after another gateway took it
// out: that one may not have seen them come. One that is let in again keeps them.
func (g *Gateway) dismiss(node string) {
	g.later(older{node: node, at: time.Now().Add(g.cfg.Heartbeat), all: true})
}

func (g *Gateway) later(o older) {
	select {
	case g.older <- o:
	default: // the bus finds those that are dead by itself
	}
}

// maxOlder bounds those that wait for their end.
const maxOlder = 4096

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

// sessionOf names the session of a node in the table: one process, whichever of its
// connections it speaks through. A second process of the same name supersedes it.
func sessionOf(node, instance string) string { return node + "/" + instance }

// listen follows our own session: while it is broken we receive nothing, and that is no
// node's fault.
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

// probePrefix begins the call id of a question that only the bus answers: whether
// any process receives what is sent to a node.
const probePrefix = "probe-"

// probe asks whether a node has a session. What is sent means nothing to a node; the
// bus says at once when it has no subscriber.
func (g *Gateway) probe(ctx context.Context, node string, epoch int64) {
	id := probePrefix + strconv.FormatInt(epoch, 10)
	g.send(ctx, node, wire.SubjectReply(node, g.instance, id), wire.Control{Epoch: epoch, Type: wire.ControlCredit, CallID: id, Bytes: 1})
}

func (g *Gateway) probeAll(ctx context.Context) {
	for _, n := range g.table.List(fleet.Filter{}) {
		g.probe(ctx, n.ID, n.Epoch)
	}
}

// absent is the bus's answer to a probe. A node that was there before has its whole lease
// to come back: its server may have gone, or ours has just started.
func (g *Gateway) absent(ctx context.Context, node, id string) {
	epoch, err := strconv.ParseInt(strings.TrimPrefix(id, probePrefix), 10, 64)
	if err == nil {
		g.change(ctx, func() []fleet.Event { return g.table.Absent(node, epoch, g.cfg.Fleet.Lease) })
	}
}
