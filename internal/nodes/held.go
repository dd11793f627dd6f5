package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/nodesource"
)

// openHeldCalls sets up the calls that are held for nodes without a session.
func (s *Service) openHeldCalls() {
	s.held = tasks.NewHeldKeeper(tasks.HeldConfig{
		Store: s.cfg.Store, Logger: s.cfg.Logger, Invoke: s.invokeHeld,
		Present: func(node string) bool {
			n, ok := s.gateway.Fleet().Get(node)
			return ok && n.Status == fleet.Connected
		},
	})
}

// invokeHeld delivers one held call as an ordinary invocation, which is authorized now. Its
// idempotency key makes it run only once, whichever gateway delivers it.
func (s *Service) invokeHeld(ctx context.Context, c tasks.HeldCall) (json.RawMessage, string, error) {
	who, err := s.cfg.Policy.Standing(c.Principal)
	if err != nil {
		return nil, "", err
	}
	s.source.Settled(ctx)
	in := map[string]any{"function": c.Function}
	if len(c.Arguments) > 0 {
		in["args"] = c.Arguments
	}
	input, err := json.Marshal(in)
	if err != nil {
		return nil, "", err
	}
	timeout := c.Timeout
	timeout = cmp.Or(timeout, s.cfg.Limits.CallTimeout)
	reply, err := s.cfg.Engine.Invoke(ctx, capability.Invocation{
		Surface: "held", Principal: who, IdempotencyKey: c.ID, Input: input, Timeout: timeout,
		Target: capability.Target{Action: "device.function.invoke", Select: capability.Selector{"node": c.Node}},
	})
	return reply.Result, reply.Invocation, err
}

// heldCalls implements [nodeserve.Held].
type heldCalls struct {
	*tasks.HeldKeeper
	tasks.HeldStore
}

func (d heldCalls) Call(ctx context.Context, id string) (tasks.HeldCall, bool, error) {
	return d.HeldCall(ctx, id)
}

func (d heldCalls) List(ctx context.Context, principal, node string, limit int) ([]tasks.HeldCall, error) {
	return d.HeldCalls(ctx, principal, node, limit)
}

// mayHold reports whether a principal may leave a call for a node: the node must be enrolled
// and not be restricted to other users.
func (s *Service) mayHold(ctx context.Context, who capability.Principal, node string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if s.admission.Gone(ctx, node) {
		return false
	}
	labels, err := s.admission.Granted(node)
	return err == nil && s.cfg.Policy.Serves(who, nodesource.UsersOf(labels), nodesource.ExtensionOf(node))
}
