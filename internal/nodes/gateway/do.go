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

// Do picks a node for a call and carries it there; where and r name the function and
// the node between them, and r.Node wins. A call that provably did not start there
// (the node has no session, takes nothing new, or could not be reached) goes to the
// next of the nodes that Pick offers, which are three at most; one that names its
// node goes there or nowhere. Nothing is sent again that may have reached a node,
// unless the call has an idempotency key: then it may be sent again to the same
// process of the same node, which remembers what came of it. Nodes whose
// circuit is open for the function are left out. Errors are those of
// fleet.Table.Pick and of Call; Result.Node is the last node that was asked.
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

// elsewhere reports whether an error of a call that did not start reports that another
// node may take it.
func elsewhere(err error) bool {
	switch capability.AsError(err).Reason {
	case cmp.ReasonNodeNotFound, cmp.ReasonOverloaded, cmp.ReasonConnection, cmp.ReasonNoNodes:
		return true
	}
	return false
}

// persist is one node's attempt, sent to it again where its memory makes that safe.
func (g *Gateway) persist(ctx context.Context, n *fleet.Node, r Request) (Result, bool, error) {
	heard := false // a chunk has been passed on, and cannot be taken back
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

// back waits until a node is there again with the process it had: its memory is what
// makes a repetition safe. It waits no longer than a node has to come back.
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
