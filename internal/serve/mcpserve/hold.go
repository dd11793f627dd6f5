package mcpserve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// holds counts the calls that wait for an approval. The zero value is ready.
type holds struct {
	mu  sync.Mutex
	of  map[string]int // by principal
	all int
}

// enter reports whether one more call of a principal may wait. If so, the caller must call leave.
func (h *holds) enter(principal string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all >= maxHeld || h.of[principal] >= maxHeldOf {
		return false
	}
	if h.of == nil {
		h.of = make(map[string]int)
	}
	h.all++
	h.of[principal]++
	return true
}

func (h *holds) leave(principal string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all--
	if h.of[principal]--; h.of[principal] == 0 {
		delete(h.of, principal)
	}
}

// approvalWait returns how long calls of a principal are held.
func (s *Surface) approvalWait(principal string) time.Duration {
	if s.cfg.ApprovalWait == nil {
		return 0
	}
	return s.cfg.ApprovalWait(principal)
}

// hold waits at most approvalWait for the decision of an approval, and runs the call again if there
// is one. Otherwise it returns the error that names the approval. If ctx ends, nothing runs, and an
// approval that is given later covers the next call with the same arguments.
func (s *Surface) hold(ctx context.Context, who capability.Principal, v voice, inv capability.Invocation, approval string,
	reply invoke.Reply, refused error,
) (invoke.Reply, error) {
	if !s.holds.enter(who.ID) {
		return reply, refused
	}
	state, err := s.awaitDecision(ctx, v, approval, s.approvalWait(who.ID))
	s.holds.leave(who.ID)
	switch {
	case ctx.Err() != nil:
		return reply, capability.AsError(ctx.Err())
	case err != nil || state != policy.ApprovalApproved && state != policy.ApprovalDenied:
		return reply, refused
	}
	inv.ID = "" // it is another call
	return s.cfg.Engine.Invoke(ctx, inv)
}

// awaitDecision returns the state of an approval once it is decided, and sends progress until then.
func (s *Surface) awaitDecision(ctx context.Context, v voice, approval string, wait time.Duration) (policy.ApprovalState, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	type decided struct {
		policy.Approval
		err error
	}
	done := make(chan decided, 1)
	go func() {
		a, err := s.cfg.Policy.Decided(ctx, approval)
		done <- decided{a, err}
	}()
	tick := time.NewTicker(heldProgressInterval)
	defer tick.Stop()
	for waited := heldProgressInterval; ; waited += heldProgressInterval {
		select {
		case d := <-done:
			if errors.Is(d.err, context.DeadlineExceeded) {
				return policy.ApprovalPending, nil
			}
			return d.State, d.err
		case <-tick.C:
			if v.heard != nil {
				v.heard(capability.Chunk{
					Progress: waited.Seconds(), Total: wait.Seconds(), Message: "waiting for an approval: " + approval,
				})
			}
		}
	}
}
