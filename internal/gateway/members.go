package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/fleet"
	"github.com/junctor-run/junctor/internal/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// answer sends a reply, where one is wanted: to an inbox of who asked, and nowhere
// else, or one node could have us speak to another.
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

// join lets a node in. The subject says who asks: the permissions of its session
// make that true, so an id in the message that differs is refused.
func (g *Gateway) join(ctx context.Context, m messaging.Message) {
	reply, events := g.admit(m)
	data, err := wire.Encode(&reply)
	g.answer(ctx, m, data, err)
	g.tell(ctx, events)
	if reply.OK {
		g.disconnect(ctx, nodeOf(m), 1) // the older ones: this one is the newest
	}
}

func nodeOf(m messaging.Message) string {
	node, err := wire.NodeOf(m.Subject)
	if err != nil {
		return ""
	}
	return node
}

func refused(err error) wire.JoinReply {
	return wire.JoinReply{Error: cmp.FromError(err, "", "", false)}
}

func (g *Gateway) admit(m messaging.Message) (wire.JoinReply, []fleet.Event) {
	node := nodeOf(m)
	j, err := wire.Decode[wire.Join](m.Data)
	if err != nil {
		return refused(err), nil
	}
	granted, ok := g.cfg.Granted(node)
	switch {
	case !ok || node == "" || j.NodeID != node:
		return refused(cmp.Errorf(cmp.ReasonDenied, "this session may not join as %s", j.NodeID)), nil
	case j.Proto != wire.Proto:
		return refused(cmp.Errorf(cmp.ReasonVersion, "the protocol is %d, and %d is spoken here", j.Proto, wire.Proto)), nil
	}
	if n, ok := g.table.Get(node); ok && n.Session != sessionOf(node, j.Instance) && j.Epoch != 0 && j.Epoch < n.Epoch {
		// It was cut before it could hear that: let in again, the two would chase each other.
		return refused(capability.Errorf(capability.CodeConflict, "node.join", "another process has joined as %s after this one", node).With("superseded", "")), nil
	}
	rejected := fleet.RejectedLabels(j.Labels, granted)
	member := fleet.Member{
		ID: node, Instance: j.Instance, Software: j.Software.Name + " " + j.Software.Version, OS: j.OS, Arch: j.Arch, Location: j.Location,
		Labels: without(j.Labels, rejected), Granted: granted, Functions: functions(j.Functions), Revision: j.Revision,
		MaxConcurrent: j.MaxConcurrent, Session: sessionOf(node, j.Instance),
	}
	epoch, events, err := g.table.Join(member)
	if err != nil {
		return refused(err), nil
	}
	if !j.Accepting {
		_, more := g.table.Beat(node, epoch, j.Revision, fleet.Load{})
		events = append(events, more...)
	}
	return wire.JoinReply{
		OK: true, Epoch: epoch, HeartbeatMS: g.cfg.Heartbeat.Milliseconds(), TimeoutMS: g.cfg.Fleet.Lease.Milliseconds(),
		MaxInline: wire.MaxInline, Window: g.cfg.Window, ServerTime: cmp.Time(time.Now()), RejectedLabels: rejected, Gateway: g.instance,
	}, events
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

func (g *Gateway) update(ctx context.Context, m messaging.Message) {
	node := nodeOf(m)
	u, err := wire.Decode[wire.Update](m.Data)
	var events []fleet.Event
	if err == nil {
		granted, _ := g.cfg.Granted(node)
		labels := without(u.Labels, fleet.RejectedLabels(u.Labels, granted))
		events, err = g.table.Update(node, u.Epoch, u.Revision, labels, granted, functions(u.Functions))
	}
	ack := wire.Ack{OK: err == nil}
	if err != nil {
		ack.Error = cmp.FromError(err, "", "", false)
	} else {
		ack.Revision = u.Revision
	}
	g.tell(ctx, events) // before the answer: whoever hears it finds what it offers
	data, err := wire.Encode(&ack)
	g.answer(ctx, m, data, err)
}

// beat is answered only when something is wrong.
func (g *Gateway) beat(ctx context.Context, m messaging.Message) {
	node := nodeOf(m)
	b, err := wire.Decode[wire.Beat](m.Data)
	if err != nil {
		g.cfg.Logger.Debug("a heartbeat that is none", "node", node, "err", err)
		return
	}
	verdict, events := g.table.Beat(node, b.Epoch, b.Revision, fleet.Load{
		CPU: b.CPU, Memory: b.Memory, GPU: b.GPU, Active: b.Active, Queued: b.Queued, Accepting: b.Accepting,
	})
	g.tell(ctx, events)
	if say := map[fleet.Verdict]string{fleet.Superseded: wire.ControlSuperseded, fleet.Rejoin: wire.ControlRejoin, fleet.Outdated: wire.ControlUpdate}[verdict]; say != "" {
		g.control(ctx, node, wire.Control{Epoch: b.Epoch, Type: say})
	}
}

func (g *Gateway) leave(ctx context.Context, m messaging.Message) {
	node := nodeOf(m)
	l, err := wire.Decode[wire.Leave](m.Data)
	var events []fleet.Event
	if err == nil {
		if l.Drain {
			events, err = g.table.Drain(node)
		} else {
			events, err = g.table.Leave(node, l.Epoch)
		}
	}
	if capability.CodeOf(err) == capability.CodeNotFound { // it is gone already: drained, for one
		err = nil
	}
	ack := wire.Ack{OK: err == nil}
	if err != nil {
		ack.Error = cmp.FromError(err, "", "", false)
	}
	data, encodeErr := wire.Encode(&ack)
	g.answer(ctx, m, data, encodeErr)
	g.tell(ctx, events)
}

// Drain has a node finish what it has and go.
func (g *Gateway) Drain(ctx context.Context, node string) error {
	n, ok := g.table.Get(node)
	events, err := g.table.Drain(node)
	if err == nil && ok {
		g.control(ctx, node, wire.Control{Epoch: n.Epoch, Type: wire.ControlDrain})
	}
	g.tell(ctx, events)
	return err
}

// Remove ends a node's session; whether it may come back is its credential's to say.
func (g *Gateway) Remove(ctx context.Context, node string) error {
	events, err := g.table.Remove(node)
	if capability.CodeOf(err) == capability.CodeNotFound {
		return err
	}
	g.tell(ctx, events)
	return err
}
