package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// answer sends a reply to a request, but only to an inbox of the requesting node. Otherwise
// a node could make the gateway send messages to another node.
func (g *Gateway) answer(ctx context.Context, m messaging.Message, data []byte, err error) {
	if err != nil || m.Reply == "" {
		return
	}
	err = messaging.CheckReply(m, "_INBOX."+messaging.Escape(nodeOf(m)))
	if err == nil {
		err = g.conn.Publish(ctx, messaging.Message{Subject: m.Reply, Data: data})
	}
	if err != nil {
		g.cfg.Logger.Debug("a node was not answered", "err", err)
	}
}

// join handles a request to join. The subject names the node, which the permissions of its
// session guarantee; a different id in the message is refused.
func (g *Gateway) join(_ context.Context, m messaging.Message) {
	g.handle(m, func(ctx context.Context) {
		if err := g.admit(ctx, m); err != nil {
			data, err := wire.Encode(&wire.JoinReply{Error: cmp.FromError(err, "", "", false)})
			g.answer(ctx, m, data, err)
			return
		}
		g.supersede(nodeOf(m))
	})
}

func nodeOf(m messaging.Message) string {
	node, err := wire.NodeOf(m.Subject)
	if err != nil {
		return ""
	}
	return node
}

// admit admits a node and sends the reply, or returns why not. The reply is sent before
// subscribers are notified, so that the node is ready for its first call.
func (g *Gateway) admit(ctx context.Context, m messaging.Message) error {
	node := nodeOf(m)
	j, err := wire.Decode[wire.Join](m.Data)
	if err != nil {
		return err
	}
	if node == "" || j.NodeID != node {
		return cmp.Errorf(cmp.ReasonDenied, "this session may not join as %s", j.NodeID)
	}
	granted, err := g.granted(node)
	if err != nil {
		return err
	}
	rejected := fleet.RejectedLabels(j.Labels, granted)
	member := fleet.Member{
		ID: node, Instance: j.Instance, Software: j.Software.Name + " " + j.Software.Version, OS: j.OS, Arch: j.Arch, Location: j.Location,
		Labels: without(j.Labels, rejected), Granted: granted, Functions: functions(j.Functions), Revision: j.Revision,
		MaxConcurrent: j.MaxConcurrent, Session: sessionOf(node, j.Instance),
	}
	propose := func() (fleet.Record, bool, error) {
		if n, ok := g.table.Get(node); ok && n.Session != member.Session && j.Epoch != 0 && j.Epoch < n.Epoch {
			// It was disconnected before it received that. If admitted, the two would supersede each other.
			return fleet.Record{}, false, capability.Errorf(capability.CodeConflict, "node.join", "another process has joined as %s after this one",
				node).With("superseded", "")
		}
		r, err := g.table.Propose(member)
		return r, true, err
	}
	var epoch int64
	err = g.shared.write(ctx, node, propose, func(r fleet.Record) {
		epoch = r.Epoch
		data, err := wire.Encode(&wire.JoinReply{
			OK: true, Epoch: r.Epoch, HeartbeatMS: g.cfg.Heartbeat.Milliseconds(), TimeoutMS: g.cfg.Fleet.Lease.Milliseconds(),
			MaxInline: wire.MaxInline, Window: g.cfg.Window, ServerTime: cmp.Time(time.Now()), RejectedLabels: rejected, Gateway: g.instance,
		})
		g.answer(ctx, m, data, err)
	})
	if err == nil && !j.Accepting {
		g.change(ctx, func() []fleet.Event {
			_, events := g.table.Beat(node, epoch, j.Revision, fleet.Load{})
			return events
		})
	}
	return err
}

func without(list, drop []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(l string) bool { return slices.Contains(drop, l) })
}

func functions(list []cmp.Function) []fleet.Function {
	out := make([]fleet.Function, len(list))
	for i := range list {
		f := &list[i]
		out[i] = fleet.Function{
			Name: f.Name, Tags: f.Tags, Description: f.Description, Version: f.Version, Effect: f.Effect, Stream: f.Stream || f.IsGenerator,
			MaxConcurrent: f.MaxConcurrent, Input: f.InputSchema, Output: f.OutputSchema, Timeout: seconds(f.TimeoutSeconds), Owner: f.Owner,
		}
	}
	return out
}

func seconds(s *float64) time.Duration {
	if s == nil || !(*s > 0) {
		return 0
	}
	return time.Duration(min(*s, 86400) * float64(time.Second))
}

// update handles a node's message with its current functions and labels.
func (g *Gateway) update(_ context.Context, m messaging.Message) {
	g.handle(m, func(ctx context.Context) {
		node := nodeOf(m)
		u, err := wire.Decode[wire.Update](m.Data)
		if err == nil {
			err = g.knows(ctx, node, u.Epoch)
		}
		if err == nil {
			err = g.revise(ctx, node, u)
		}
		ack := wire.Ack{OK: err == nil}
		if err != nil {
			ack.Error = cmp.FromError(err, "", "", false)
		} else {
			ack.Revision = u.Revision
		}
		data, err := wire.Encode(&ack)
		g.answer(ctx, m, data, err)
	})
}

func (g *Gateway) revise(ctx context.Context, node string, u *wire.Update) error {
	granted, err := g.granted(node)
	if err != nil {
		return err
	}
	labels := without(u.Labels, fleet.RejectedLabels(u.Labels, granted))
	return g.shared.write(ctx, node, func() (fleet.Record, bool, error) {
		return g.table.Revise(node, u.Epoch, u.Revision, labels, granted, functions(u.Functions))
	}, nil)
}

// granted returns the labels of a node's credential. The code is denied only if the answer
// is known, because a node treats denied as final.
func (g *Gateway) granted(node string) ([]string, error) {
	labels, err := g.cfg.Granted(node)
	switch capability.CodeOf(err) {
	case "":
		return labels, nil
	case capability.CodeUnauthenticated, capability.CodeDenied:
		return nil, cmp.Errorf(cmp.ReasonDenied, "this session may not join as %s", node)
	}
	g.cfg.Logger.Warn("whether a node may join is unknown; it is asked to try again", "node", node, "err", err)
	out := cmp.Errorf(cmp.ReasonConnection, "whether %s may join cannot be told at the moment; it may try again", node)
	out.RetryAfter = time.Second
	return nil, out
}

// knows makes sure that the table has a node in an epoch. If needed it reads the bucket,
// because another gateway may have just admitted the node. Errors: unavailable, and those of
// fleet.Table.Holds.
func (g *Gateway) knows(ctx context.Context, node string, epoch int64) error {
	if n, ok := g.table.Get(node); ok && n.Epoch >= epoch {
		return g.table.Holds(node, epoch)
	}
	defer g.shared.busy(node)()
	if _, err := g.shared.learn(ctx, node); err != nil {
		return err
	}
	return g.table.Holds(node, epoch)
}

// decodeBeat decodes a heartbeat unless it is too large, so that one node cannot keep the reader from those of others.
func decodeBeat(m messaging.Message) (*wire.Beat, error) {
	if len(m.Data) > maxBeat {
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "a heartbeat has at most %d bytes", maxBeat)
	}
	return wire.Decode[wire.Beat](m.Data)
}

// beat handles a heartbeat; every gateway receives it.
func (g *Gateway) beat(ctx context.Context, m messaging.Message) {
	node := nodeOf(m)
	b, err := decodeBeat(m)
	if err != nil {
		g.cfg.Logger.Debug("a malformed heartbeat", "node", node, "err", err)
		return
	}
	load := fleet.Load{CPU: b.CPU, Memory: b.Memory, GPU: b.GPU, Active: b.Active, Queued: b.Queued, Accepting: b.Accepting}
	g.change(ctx, func() []fleet.Event {
		_, events := g.table.Beat(node, b.Epoch, b.Revision, load)
		return events
	})
}

// judge answers a heartbeat that needs an answer; one of the gateways receives it for that.
func (g *Gateway) judge(ctx context.Context, m messaging.Message) {
	node := nodeOf(m)
	b, err := decodeBeat(m)
	if err != nil {
		return
	}
	verdict := g.table.Judge(node, b.Epoch, b.Revision)
	if verdict != fleet.Rejoin {
		g.rule(ctx, node, b.Epoch, verdict)
		return
	}
	// Another gateway may have admitted it. Before the first snapshot, a missing node
	// means nothing.
	if g.shared.isSynced() {
		g.handle(m, func(ctx context.Context) {
			if err := g.knows(ctx, node, b.Epoch); err == nil || capability.CodeOf(err) != capability.CodeUnavailable {
				g.rule(ctx, node, b.Epoch, g.table.Judge(node, b.Epoch, b.Revision))
			}
		})
	}
}

func (g *Gateway) rule(ctx context.Context, node string, epoch int64, v fleet.Verdict) {
	if say := map[fleet.Verdict]string{
		fleet.Superseded: wire.ControlSuperseded, fleet.Rejoin: wire.ControlRejoin,
		fleet.Outdated: wire.ControlUpdate,
	}[v]; say != "" {
		g.control(ctx, node, wire.Control{Epoch: epoch, Type: say})
	}
}

// leave handles the announcement of a node that leaves or drains.
func (g *Gateway) leave(_ context.Context, m messaging.Message) {
	g.handle(m, func(ctx context.Context) {
		node := nodeOf(m)
		l, err := wire.Decode[wire.Leave](m.Data)
		if err == nil {
			err = g.knows(ctx, node, l.Epoch)
		}
		switch {
		case err != nil:
		case l.Drain:
			err = g.drain(ctx, node)
		case g.shared.claim(node):
			err = g.shared.remove(ctx, fleet.Due{Node: node, Epoch: l.Epoch, Reason: fleet.ReasonLeft})
		}
		if capability.CodeOf(err) == capability.CodeNotFound { // it was removed already, for example after a drain
			err = nil
		}
		ack := wire.Ack{OK: err == nil}
		if err != nil {
			ack.Error = cmp.FromError(err, "", "", false)
		}
		data, err := wire.Encode(&ack)
		g.answer(ctx, m, data, err)
	})
}

// drain marks a node as draining in the shared table.
func (g *Gateway) drain(ctx context.Context, node string) error {
	return g.shared.write(ctx, node, func() (fleet.Record, bool, error) {
		r, ok := g.table.Record(node)
		if !ok {
			return r, false, notFound(node)
		}
		changed := !r.Draining
		r.Draining = true
		return r, changed, nil
	}, nil)
}

func notFound(node string) error {
	return cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", node).With(cmp.ReasonNodeNotFound, "list them with: junctor nodes list")
}

// Drain makes a node finish its calls from all gateways and leave, within the fleet's Drain
// time. It does not wait for that. Errors: not_found, reason node_not_found; unavailable.
func (g *Gateway) Drain(ctx context.Context, node string) error {
	n, ok := g.table.Get(node)
	if !ok {
		return notFound(node)
	}
	g.control(ctx, node, wire.Control{Epoch: n.Epoch, Type: wire.ControlDrain})
	return g.drain(ctx, node)
}

// Remove ends the sessions of a node that this gateway has seen open, on all servers. The
// node may join again if its credential is valid. Errors are those of Drain.
func (g *Gateway) Remove(ctx context.Context, node string) error {
	n, ok := g.table.Get(node)
	if !ok {
		return notFound(node)
	}
	var err error
	if g.shared.claim(node) {
		err = g.shared.remove(ctx, fleet.Due{Node: node, Epoch: n.Epoch, Reason: fleet.ReasonRemoved})
	}
	g.disconnect(ctx, node, 0)
	return err
}
