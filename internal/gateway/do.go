package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/fleet"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// MaxBroadcast is how many nodes one Broadcast reaches at most (nodes-and-cmp,
// section 18.2).
const MaxBroadcast = 50

// repeats is how often a call with an idempotency key is sent again to its node.
const repeats = 2

// Do picks a node for a call and carries it there; where and r name the function and
// the node between them, and r.Node wins. A call that provably did not start there
// (the node has no session, takes nothing new, or could not be reached) goes to the
// next of the nodes that Pick offers, which are three at most; one that names its
// node goes there or nowhere. Nothing is sent again that may have reached a node,
// unless the call has an idempotency key: then it may be sent again to the same
// process of the same node, which remembers what came of it (N13). Nodes whose
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

// elsewhere reports whether an error of a call that did not start says that another
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
		if err == nil || !reached || heard || r.IdempotencyKey == "" || i == repeats || reason != cmp.ReasonNodeLost && reason != cmp.ReasonConnection {
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
	grace := g.cfg.Fleet.Grace
	if grace <= 0 {
		grace = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
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

// Outcome is what came of one node's part of a Broadcast.
type Outcome struct {
	Result Result
	Err    error
}

// Broadcast carries a call to every node that a filter admits and that offers its
// function, at once, and returns what came of each, by node. Errors:
// function_not_found when there is none; invalid_params when there are more than
// MaxBroadcast. That only functions which read are called so is for the caller to see
// to. r.Chunk and r.Progress are not used.
func (g *Gateway) Broadcast(ctx context.Context, to fleet.Filter, r Request) (map[string]Outcome, error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	to.Functions = append(to.Functions[:len(to.Functions):len(to.Functions)], r.Function)
	to.Suspect = false
	if to.Status == "" {
		to.Status = fleet.Connected
	}
	nodes := g.table.List(to)
	switch {
	case len(nodes) == 0:
		return nil, cmp.Errorf(cmp.ReasonFunctionNotFound, "no node that may be asked offers the function %s", r.Function)
	case len(nodes) > MaxBroadcast:
		return nil, cmp.Errorf(cmp.ReasonParams, "%d nodes would be asked; %d are the most: ask for fewer by their labels", len(nodes), MaxBroadcast)
	}
	r.Chunk, r.Progress = nil, nil
	outcomes := make([]Outcome, len(nodes))
	var all sync.WaitGroup
	for i := range nodes {
		all.Go(func() {
			r := r
			r.Node = nodes[i].ID
			outcomes[i].Result, _, outcomes[i].Err = g.attempt(ctx, &nodes[i], r)
			outcomes[i].Result.Tries = 1
		})
	}
	all.Wait()
	out := make(map[string]Outcome, len(nodes))
	for i := range nodes {
		out[nodes[i].ID] = outcomes[i]
	}
	return out, nil
}
