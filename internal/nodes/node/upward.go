package node

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Call calls a capability of the gateway with the node as principal; the gateway's policy applies.
// It sets CallID and DeadlineMS. Errors: those of the gateway; connection_failed while the node is
// disconnected; node_overloaded beyond MaxUpward concurrent calls; timeout and cancelled with ctx.
func (n *Node) Call(ctx context.Context, u wire.Upward) (*wire.UpwardReply, error) {
	select {
	case n.upward <- struct{}{}:
		defer func() { <-n.upward }()
	default:
		return nil, cmp.Errorf(cmp.ReasonOverloaded, "this node has %d calls upward under way, which is the limit", MaxUpward)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultUpwardTimeout)
		defer cancel()
	}
	n.mu.Lock()
	conn, epoch := n.conn, n.status.Epoch
	n.mu.Unlock()
	if conn == nil || epoch == 0 {
		return nil, errNotJoined()
	}
	deadline, _ := ctx.Deadline()
	u.CallID, u.DeadlineMS = ids.Text(), min(max(time.Until(deadline).Milliseconds(), 1), time.Hour.Milliseconds())
	data, err := wire.Encode(&u)
	if err != nil {
		return nil, err
	}
	m, err := conn.Request(ctx, messaging.Message{Subject: wire.SubjectUpward(n.cfg.ID), Data: data})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, cmp.Errorf(cmp.ReasonTimeout, "the gateway did not answer in time")
	case errors.Is(err, context.Canceled):
		return nil, cmp.Errorf(cmp.ReasonCancelled, "the call was cancelled")
	case messaging.Is(err, messaging.ReasonNoResponders), messaging.Is(err, messaging.ReasonSubjectDenied):
		return nil, cmp.Errorf(cmp.ReasonDenied, "this gateway takes no calls of nodes").With(cmp.ReasonDenied,
			"its operator decides that with the node's token")
	case err != nil:
		return nil, err
	}
	reply, err := wire.Decode[wire.UpwardReply](m.Data)
	if err != nil {
		return nil, err
	}
	if !reply.OK {
		return reply, reply.Error.Capability()
	}
	if reply.Result == nil {
		reply.Result = json.RawMessage("null")
	}
	reply.Result, err = n.incoming(ctx, reply.Result)
	return reply, err
}
