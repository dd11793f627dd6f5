package nodeserve

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// upwards counts the calls of each node that are under way.
type upwards struct {
	mu sync.Mutex
	by map[string]int
}

func (u *upwards) enter(node string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[node] >= maxUpwardEach {
		err := cmp.Errorf(cmp.ReasonOverloaded, "%s has %d calls under way already", node, maxUpwardEach)
		err.RetryAfter = time.Second
		return err
	}
	u.by[node]++
	return nil
}

func (u *upwards) leave(node string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[node]--; u.by[node] == 0 {
		delete(u.by, node)
	}
}

// Run takes the calls of nodes until ctx ends. Each is one invocation like any
// other, whose principal is the node's credential.
func (s *Surface) Run(ctx context.Context) error {
	sub, err := s.Bus.Subscribe(ctx, messaging.SubscribeOptions{
		Pattern: strings.Replace(wire.SubjectUpward("x"), ".x.", ".*.", 1), Queue: "gateways",
	})
	if err != nil {
		return err
	}
	defer sub.Close()
	calls, callCtx := errgroup.WithContext(ctx)
	calls.SetLimit(maxUpward)
	for {
		m, err := sub.Next(ctx)
		switch {
		case messaging.Is(err, messaging.ReasonLost):
			s.Logger.Warn("calls of nodes were lost", "err", err)
			continue
		case err != nil:
			_ = calls.Wait()
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		calls.Go(func() error {
			s.upward(callCtx, m)
			return nil
		})
	}
}

func (s *Surface) upward(ctx context.Context, m messaging.Message) {
	reply := s.invoke(ctx, m)
	data, err := wire.Encode(&reply)
	if err != nil { // too large for one message
		reply = wire.UpwardReply{Error: cmp.FromError(err, "", "", false), Invocation: reply.Invocation}
		data, err = wire.Encode(&reply)
	}
	node, nodeErr := wire.NodeOf(m.Subject)
	if err == nil {
		err = nodeErr
	}
	if err == nil {
		err = messaging.CheckReply(m, "_INBOX."+messaging.Escape(node))
	}
	if err == nil {
		err = s.Bus.Publish(ctx, messaging.Message{Subject: m.Reply, Data: data})
	}
	if err != nil {
		s.Logger.Debug("a node's call was not answered", "node", node, "err", err)
	}
}

func (s *Surface) invoke(ctx context.Context, m messaging.Message) wire.UpwardReply {
	refuse := func(err error) wire.UpwardReply {
		return wire.UpwardReply{Error: cmp.FromError(err, "", "", false)}
	}
	node, err := wire.NodeOf(m.Subject)
	if err != nil {
		return refuse(err)
	}
	if err := s.upwards.enter(node); err != nil {
		return refuse(err)
	}
	defer s.upwards.leave(node)
	u, err := wire.Decode[wire.Upward](m.Data)
	if err != nil {
		return refuse(err)
	}
	who, err := s.Admission.Principal(ctx, node)
	if err != nil {
		return refuse(err)
	}
	target, err := capability.ParseTarget(u.Action)
	if err != nil {
		return refuse(err)
	}
	if key, value, ok := strings.Cut(u.Select, "="); ok {
		target.Select = capability.Selector{key: value}
	} else if u.Select != "" {
		target.Select = capability.Selector{"provider": u.Select}
	}
	answer, err := s.Engine.Invoke(ctx, capability.Invocation{
		Surface: "node", Client: node, Principal: who, Session: "node:" + node, Target: target, Input: u.Input,
		Timeout: time.Duration(u.DeadlineMS) * time.Millisecond, IdempotencyKey: u.IdempotencyKey,
	})
	if err != nil {
		reply := refuse(err)
		reply.Invocation = answer.Invocation
		return reply
	}
	return wire.UpwardReply{OK: true, Result: answer.Result, Invocation: answer.Invocation}
}
