package gateway

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// repeats is how often a call with an idempotency key is sent again to its node.
const repeats = 2

// Do selects a node for a call and sends the call to it. Function and node are those of r, or else
// of where. If the call provably did not start (the node has no session, is overloaded, or was not
// reached), Do tries the next of at most three nodes that Pick returns; a named node is the only
// one. A call that may have reached a node is not sent again, unless it has an idempotency key:
// then it may be sent again to the same process of the same node, which remembers the outcome.
// Nodes whose circuit is open for the function are excluded. Errors are those of fleet.Table.Pick
// and of Call; Result.Node is the last node that was tried.
func (g *Gateway) Do(ctx context.Context, where fleet.Request, r Request) (Result, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if r.Function != "" {
		where.Function = r.Function
	}
	if r.Node != "" {
		where.Node = r.Node
	}
	r.Function = where.Function
	unhealthy := where.Unhealthy
	where.Unhealthy = func(node string) bool {
		return unhealthy != nil && unhealthy(node) || g.breaker.open(node, r.Function)
	}
	nodes, err := g.table.Pick(where)
	if err != nil {
		return Result{}, err
	}
	var result Result
	for i := range nodes {
		if !g.breaker.enter(nodes[i].ID, r.Function) && where.Node == "" {
			err = cmp.Errorf(cmp.ReasonNoNodes, "the circuit of %s on %s is open", r.Function, nodes[i].ID)
			continue
		}
		var reached bool
		r.Node = nodes[i].ID
		tries := result.Tries
		result, reached, err = g.persist(ctx, &nodes[i], r)
		result.Tries = tries + 1
		if err == nil || reached || ctx.Err() != nil || !elsewhere(err) {
			return result, err
		}
	}
	return result, err
}

// elsewhere reports whether another node may take a call that did not start because of err.
func elsewhere(err error) bool {
	switch capability.AsError(err).Reason {
	case cmp.ReasonNodeNotFound, cmp.ReasonOverloaded, cmp.ReasonConnection, cmp.ReasonNoNodes:
		return true
	}
	return false
}

// persist makes a call to one node. If the node was lost and the call has an idempotency
// key, it is sent again, up to repeats times, unless a chunk was already forwarded.
func (g *Gateway) persist(ctx context.Context, n *fleet.Node, r Request) (Result, bool, error) {
	heard := false // a chunk was forwarded, so a repetition would duplicate it
	if chunk := r.Chunk; chunk != nil {
		r.Chunk = func(value json.RawMessage) error {
			heard = true
			return chunk(value)
		}
	}
	for i := 0; ; i++ {
		result, reached, err := g.attempt(ctx, n, r)
		reason := ""
		if e, ok := errors.AsType[*capability.Error](err); ok {
			reason = e.Reason
		}
		if err == nil || !reached || heard || r.IdempotencyKey == "" || i == repeats || reason != cmp.ReasonNodeLost &&
			reason != cmp.ReasonConnection {
			return result, reached, err
		}
		again, ok := g.back(ctx, n)
		if !ok {
			return result, true, err
		}
		n = again
	}
}

// back waits until a node is connected again, at most the grace period. It returns false
// unless it is the same process, whose memory makes a repetition safe.
func (g *Gateway) back(ctx context.Context, n *fleet.Node) (*fleet.Node, bool) {
	ctx, cancel := context.WithTimeout(ctx, g.table.Grace())
	defer cancel()
	for s, err := range g.Watch(ctx) {
		if err != nil {
			return nil, false
		}
		if s.Node.ID == n.ID && s.Node.Status != fleet.Disconnected {
			return &s.Node, s.Node.Instance == n.Instance
		}
		if s.Kind == fleet.NodeLeft && s.Event.Node == n.ID {
			return nil, false
		}
	}
	return nil, false
}
