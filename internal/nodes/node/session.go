package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// session is the state that only the goroutine of Run uses.
type session struct {
	*Node
	conn     messaging.Conn
	messages chan received
	joins    chan joinResult
	events   chan messaging.Event

	there      bool // the bus is connected
	subscribed bool
	joining    bool  // a join is pending; messages are not handled meanwhile, see run
	tries      int   // consecutive joins that were refused
	refusals   int   // consecutive refusals by the bus
	last       int64 // last epoch that a gateway assigned
	seq        uint64
	strained   int // consecutive heartbeats above the limits of CPU or memory
	retry      *time.Timer
	beat       *time.Timer
	drained    chan struct{} // closed when no call runs any more; nil unless draining
	drainEnd   *time.Timer
}

type received struct {
	m   messaging.Message
	err error
}

// Run joins and serves until ctx ends, Drain or Leave is called, or the gateway drains the
// node; then it leaves and returns nil. It returns an error if a retry cannot help: denied,
// superseded, a credential that the bus has never accepted, or a declaration that cannot be
// sent. It cancels running calls and waits for their end before it returns.
func (n *Node) Run(ctx context.Context) (err error) {
	defer close(n.ended)
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.set(func(s *Status) { s.State = Connecting })
	conn, err := n.cfg.Dial(own, messaging.DialOptions{
		Name: n.cfg.ID, Token: n.cfg.Token, Key: n.cfg.Key, Inbox: "_INBOX." + wire.Escape(n.cfg.ID),
		ReconnectWait: n.cfg.ReconnectWait, ReconnectMax: n.cfg.ReconnectMax,
	})
	if err != nil {
		cancel()
		n.set(func(s *Status) { s.State, s.Error = Failed, capability.AsError(err).Message })
		return err
	}
	s := &session{
		Node: n, conn: conn, messages: make(chan received), joins: make(chan joinResult, 1), events: make(chan messaging.Event),
		retry: stopped(), beat: stopped(), drainEnd: stopped(),
	}
	n.mu.Lock()
	n.conn = conn
	n.refresh = functions.NewRefresher(n.cfg.Functions, n.update)
	n.mu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { s.listen(own) })
	err = s.run(ctx, own, &parts)
	s.goodbye(own, err)
	n.refresh.Close()
	n.cancelCalls(func(*call) bool { return true }, "the node leaves")
	n.busy.Wait()
	cancel()
	conn.Close()
	parts.Wait()
	n.set(func(s *Status) {
		s.State, s.Epoch, s.Accepting = Disconnected, 0, false
		if err != nil {
			s.State, s.Error = Failed, capability.AsError(err).Message
		}
	})
	return err
}

func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// errDone ends run without an error.
var errDone = errors.New("done")

func (s *session) run(ctx, own context.Context, parts *sync.WaitGroup) error {
	for {
		messages := s.messages
		if s.joining {
			// The first call of the new epoch may arrive before the reply that names
			// the epoch, and has to wait.
			messages = nil
		}
		var err error
		select {
		case <-ctx.Done():
			return nil
		case o := <-s.orders:
			err = s.obey(own, o, parts)
		case e := <-s.events:
			err = s.handleEvent(own, e, parts)
		case r := <-messages:
			err = s.take(own, r, parts)
		case r := <-s.joins:
			err = s.admitted(own, r)
		case <-s.retry.C:
			s.join(own, parts)
		case <-s.beat.C:
			s.sendBeat(own)
		case <-s.drained:
			return nil
		case <-s.drainEnd.C:
			s.cfg.Logger.Warn("calls still ran when the time to finish was over", "node", s.cfg.ID)
			return nil
		}
		if errors.Is(err, errDone) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// listen forwards the events of the connection to run.
func (s *session) listen(ctx context.Context) {
	for e, err := range s.conn.Events(ctx) {
		if err != nil {
			return
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

func (s *session) handleEvent(ctx context.Context, e messaging.Event, parts *sync.WaitGroup) error {
	switch e.Kind {
	case messaging.Connected, messaging.Reconnected:
		s.there, s.refusals, s.tries = true, 0, 0
		s.set(func(st *Status) { st.State, st.Error = s.stateOf(Registering), "" })
		s.join(ctx, parts)
	case messaging.Disconnected:
		return s.lost(e.Err)
	case messaging.Refused:
		s.cfg.Logger.Warn("the bus refused something", "node", s.cfg.ID, "err", e.Err)
	case messaging.Lost: // it may have broken and reconnected
		s.there = true
		s.join(ctx, parts)
	case messaging.Closed:
		return capability.Errorf(capability.CodeUnavailable, "node.run", "the session with the gateway was closed")
	}
	return nil
}

// lost handles a lost connection. It returns cause once the bus has refused a node that
// never joined maxRefusals times in a row.
func (s *session) lost(cause error) error {
	s.there = false
	s.beat.Stop()
	s.retry.Stop()
	select {
	case <-s.joined:
	default:
		if messaging.Is(cause, messaging.ReasonRefused) {
			if s.refusals++; s.refusals >= maxRefusals {
				return cause
			}
		}
	}
	text := ""
	if cause != nil {
		text = fmt.Sprintf("the gateway is not reached: %.300s", cause)
		s.cfg.Logger.Info("the gateway is not reached", "node", s.cfg.ID, "err", cause)
	}
	s.set(func(st *Status) {
		was := st.Joins > 0
		st.State, st.Epoch, st.Error = s.stateOf(Connecting), 0, text
		if was {
			st.State = s.stateOf(Reconnecting)
		}
	})
	return nil
}

// stateOf returns state, or Draining if the node is draining.
func (s *session) stateOf(state string) string {
	if s.drains {
		return Draining
	}
	return state
}

// pause returns how long to wait before attempt n to join.
func pause(n int) time.Duration {
	o := messaging.DialOptions{ReconnectWait: time.Second, ReconnectMax: 30 * time.Second}
	return o.Pause(n, rand.Float64())
}

// obey executes an order of Drain or Leave.
func (s *session) obey(ctx context.Context, o order, parts *sync.WaitGroup) error {
	if o.leave {
		return errDone
	}
	if s.Epoch() != 0 {
		parts.Go(func() { s.leave(ctx, wire.Leave{Epoch: s.Epoch(), Reason: o.reason, Drain: true}) })
	}
	s.drain(parts)
	return nil
}

// drain stops accepting calls; drained is closed when the running ones have ended.
func (s *session) drain(parts *sync.WaitGroup) {
	if s.drained != nil {
		return
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.drains = true
	s.mu.Unlock()
	s.drained = done
	s.drainEnd.Reset(DrainTimeout)
	s.set(func(st *Status) { st.State, st.Accepting = Draining, false })
	// Ends at the latest when Run has cancelled the calls.
	parts.Go(func() {
		s.busy.Wait()
		<-time.After(goodbyeDelay)
		close(done)
	})
}

// goodbye sends the announcement to leave, if the bus is connected.
func (s *session) goodbye(ctx context.Context, err error) {
	epoch := s.Epoch()
	s.set(func(st *Status) { st.State = ShuttingDown })
	if epoch == 0 || err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s.leave(ctx, wire.Leave{Epoch: epoch, Reason: "leave"})
}

// subscribe subscribes to the gateway's messages, once; the subscription survives reconnects.
func (s *session) subscribe(ctx context.Context, parts *sync.WaitGroup) error {
	if s.subscribed {
		return nil
	}
	// One subscription, so that a cancellation never overtakes its call.
	sub, err := s.conn.Subscribe(ctx, messaging.SubscribeOptions{Pattern: strings.TrimSuffix(wire.SubjectCall(s.cfg.ID), "call") + ">"})
	if err != nil {
		return err
	}
	s.subscribed = true
	parts.Go(func() {
		defer sub.Close()
		for {
			m, err := sub.Next(ctx)
			if err != nil && !messaging.Is(err, messaging.ReasonLost) {
				return // the events report the reason
			}
			select {
			case s.messages <- received{m, err}:
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// take handles one message of the gateway. If messages were lost, it cancels the streams.
func (s *session) take(ctx context.Context, r received, parts *sync.WaitGroup) error {
	if r.err != nil {
		// A credit may be lost, and its stream would wait forever.
		s.cfg.Logger.Warn("messages of the gateway were lost", "node", s.cfg.ID, "err", r.err)
		s.cancelCalls(func(c *call) bool { return c.stream }, "messages of the gateway were lost")
		return nil
	}
	switch r.m.Subject {
	case wire.SubjectCall(s.cfg.ID):
		s.called(ctx, r.m)
	case wire.SubjectControl(s.cfg.ID):
		return s.control(ctx, r.m, parts)
	}
	return nil
}

// control handles a control message. One for another epoch than the last is ignored. The
// last epoch counts even while the bus is disconnected, because "superseded" is sent just
// before the session is closed and may be read after that.
func (s *session) control(ctx context.Context, m messaging.Message, parts *sync.WaitGroup) error {
	c, err := wire.Decode[wire.Control](m.Data)
	if err != nil {
		s.cfg.Logger.Debug("a malformed control message", "node", s.cfg.ID, "err", err)
		return nil
	}
	if c.Epoch != s.last {
		return nil
	}
	switch c.Type {
	case wire.ControlCancel:
		s.cancelCalls(func(k *call) bool { return k.id == c.CallID }, c.Reason)
	case wire.ControlCredit:
		s.grant(c.CallID, c.Bytes)
	case wire.ControlRejoin:
		s.join(ctx, parts)
	case wire.ControlUpdate:
		parts.Go(func() {
			if err := s.update(ctx, 0); err != nil {
				s.cfg.Logger.Warn("the gateway could not be told what is offered", "node", s.cfg.ID, "err", err)
			}
		})
	case wire.ControlBeat:
		s.beat.Reset(0)
	case wire.ControlDrain:
		s.drain(parts)
	case wire.ControlSuperseded:
		return s.superseded()
	case wire.ControlShutdown:
		s.cfg.Logger.Info("the gateway is going", "node", s.cfg.ID, "reason", c.Reason)
	}
	return nil
}

func (s *session) superseded() error {
	return capability.Errorf(capability.CodeConflict, "node.run", "another process has joined as %s: this one stops", s.cfg.ID).
		With(ReasonSuperseded, "one node id is one process: choose another one for this with --id")
}

// sendBeat sends a heartbeat, if the node has joined, and schedules the next one.
func (s *session) sendBeat(ctx context.Context) {
	s.beat.Reset(s.interval())
	if !s.there {
		return
	}
	epoch := s.Epoch()
	if epoch == 0 {
		return
	}
	cpu, mem, gpu := s.cfg.Figures()
	cpu, mem, gpu = percent(cpu), percent(mem), percent(gpu)
	active, queued := s.cfg.Executor.Load()
	accepting := s.accepts(cpu, mem, queued)
	s.seq++
	data, err := wire.Encode(&wire.Beat{
		Epoch: epoch, Seq: s.seq, Revision: s.cfg.Functions.Revision(), CPU: cpu, Memory: mem, GPU: gpu, Active: active, Queued: queued,
		Accepting: accepting,
	})
	if err == nil {
		err = s.conn.Publish(ctx, messaging.Message{Subject: wire.SubjectBeat(s.cfg.ID), Data: data})
	}
	if err != nil { // the next one may arrive
		s.cfg.Logger.Debug("heartbeat not sent", "node", s.cfg.ID, "err", err)
		return
	}
	s.set(func(st *Status) { st.Beats, st.Accepting, st.CPU, st.Memory = s.seq, accepting, cpu, mem })
}

func (s *session) interval() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := time.Duration(s.reply.HeartbeatMS) * time.Millisecond
	if own := s.cfg.Heartbeat; own > 0 && own < d {
		d = own
	}
	return max(d, 100*time.Millisecond)
}
