package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// rig is a gateway on the bus in memory; tokens are the ids of nodes.
type rig struct {
	*gateway.Gateway
	t      *testing.T
	broker *inproc.Broker
	stop   context.CancelFunc
	mu     sync.Mutex
	events []string
}

func newRig(t *testing.T, cfg gateway.Config) *rig {
	t.Helper()
	r := &rig{t: t}
	r.broker = inproc.New(func(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
		id := c.Token.Reveal()
		subscribe, publish := wire.Permissions(id)
		return messaging.Identity{ID: id, Publish: publish, Subscribe: subscribe}, nil
	})
	cfg.Broker = r.broker
	if cfg.Granted == nil {
		cfg.Granted = func(node string) ([]string, error) {
			switch {
			case strings.HasPrefix(node, "revoked"):
				return nil, capability.Errorf(capability.CodeUnauthenticated, "test", "its token has ended")
			case strings.HasPrefix(node, "unknown"):
				return nil, context.DeadlineExceeded
			}
			return []string{"user:ann"}, nil
		}
	}
	cfg.Told = func(e fleet.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, strings.TrimSpace(e.Kind+" "+e.Node+" "+e.Reason))
	}
	r.Gateway = gateway.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.broker.Close()
	})
	return r
}

func (r *rig) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// node is a device that does what the test says.
type node struct {
	t     *testing.T
	id    string
	conn  messaging.Conn
	epoch int64
	calls messaging.Subscription
	ctl   messaging.Subscription
}

func (r *rig) dial(id string) *node {
	r.t.Helper()
	conn, err := r.broker.Dial(r.t.Context(), messaging.DialOptions{Name: id, Token: secret.New(id), Inbox: "_INBOX." + wire.Escape(id)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	n := &node{t: r.t, id: id, conn: conn}
	for pattern, sub := range map[string]*messaging.Subscription{wire.SubjectCall(id): &n.calls, wire.SubjectControl(id): &n.ctl} {
		if *sub, err = conn.Subscribe(r.t.Context(), messaging.SubscribeOptions{Pattern: pattern}); err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

func (n *node) ask(subject string, data []byte, err error) []byte {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
	m, err := n.conn.Request(n.t.Context(), messaging.Message{Subject: subject, Data: data})
	if err != nil {
		n.t.Fatal(err)
	}
	return m.Data
}

func (n *node) join(change func(*wire.Join)) *wire.JoinReply {
	n.t.Helper()
	j := wire.Join{
		Proto: 1, NodeID: n.id, Instance: "i1", Labels: []string{"gpu"}, Revision: 1, Accepting: true, MaxConcurrent: 10,
		Functions: []cmp.Function{{Name: "f", Version: "1.0.0", Priority: 5, ExecutionMode: "normal", Tags: []string{}}},
	}
	if change != nil {
		change(&j)
	}
	data, err := wire.Encode(&j)
	reply, err := wire.Decode[wire.JoinReply](n.ask(wire.SubjectJoin(n.id), data, err))
	if err != nil {
		n.t.Fatal(err)
	}
	n.epoch = reply.Epoch
	synctest.Wait() // the answer comes first, then the table has it
	return reply
}

// joined is a gateway and the one node that has joined it.
func joined(t *testing.T) (*rig, *node) {
	t.Helper()
	r := newRig(t, gateway.Config{})
	n := r.dial("a")
	n.join(nil)
	return r, n
}

func (n *node) beat(seq uint64) {
	n.t.Helper()
	data, err := wire.Encode(&wire.Beat{Epoch: n.epoch, Seq: seq, Revision: 1, Accepting: true})
	if err == nil {
		err = n.conn.Publish(n.t.Context(), messaging.Message{Subject: wire.SubjectBeat(n.id), Data: data})
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// lost is a frame that a node counts and that never comes.
const lost = "lost"

// called waits for a call and returns how to answer it.
func (n *node) called() (*wire.Call, func(wire.Frame)) {
	n.t.Helper()
	m, err := n.calls.Next(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := wire.Decode[wire.Call](m.Data)
	if err != nil {
		n.t.Fatal(err)
	}
	var seq uint64
	return c, func(f wire.Frame) {
		f.CallID, f.Epoch, f.Seq = c.CallID, c.Epoch, seq
		seq++
		if f.Type == lost {
			return
		}
		data, err := wire.Encode(&f)
		if err == nil {
			err = n.conn.Publish(n.t.Context(), messaging.Message{Subject: m.Reply, Data: data})
		}
		if err != nil {
			n.t.Error(err)
		}
	}
}

func (n *node) control() *wire.Control {
	n.t.Helper()
	m, err := n.ctl.Next(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	c, err := wire.Decode[wire.Control](m.Data)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

type outcome struct {
	result gateway.Result
	err    error
}

func (r *rig) call(ctx context.Context, q gateway.Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		result, err := r.Call(ctx, q)
		done <- outcome{result, err}
	}()
	return done
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestJoinedIsListedAndCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		n := r.dial("laptop.1")
		reply := n.join(func(j *wire.Join) { j.Labels = []string{"gpu", "user:ann", "user:ben"} })
		if !reply.OK || reply.HeartbeatMS != 5000 || reply.TimeoutMS != 30000 || !slices.Equal(reply.RejectedLabels, []string{"user:ben"}) {
			t.Fatalf("%+v; want reply.OK = true, reply.HeartbeatMS = 5000, reply.TimeoutMS = 30000, reply.RejectedLabels = "+
				`[]string{"user:ben"}`, reply)
		}
		list := r.Fleet().List(fleet.Filter{Labels: []string{"user:ann"}, Functions: []string{"f"}})
		if len(list) != 1 || list[0].ID != "laptop.1" || !slices.Equal(list[0].Labels, []string{"gpu", "user:ann"}) {
			t.Fatalf(`%+v; want len(list) = 1, list[0].ID = "laptop.1", list[0].Labels = []string{"gpu", "user:ann"}`, list)
		}
		done := r.call(t.Context(), gateway.Request{
			Node: "laptop.1", Function: "f",
			Arguments: cmp.Arguments{Args: []json.RawMessage{json.RawMessage(`7`)}}, Caller: wire.Caller{Kind: "agent", ID: "agent:x"},
		})
		c, answer := n.called()
		if c.Function != "f" || string(c.Args[0]) != "7" || c.Caller.ID != "agent:x" || c.DeadlineMS <= 299_000 {
			t.Errorf(`%+v; want c.Function = "f", string(c.Args[0]) = "7", c.Caller.ID = "agent:x", c.DeadlineMS more than 299_000`, c)
		}
		answer(wire.Frame{Type: wire.FrameAck})
		answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`{"a":1}`), ExecMS: 3})
		if o := <-done; o.err != nil || string(o.result.Value) != `{"a":1}` || o.result.Exec != 3*time.Millisecond ||
			o.result.Node != "laptop.1" {
			t.Errorf(`%+v; want o.err = nil, string(o.result.Value) = "{\"a\":1}", o.result.Exec = 3 * time.Millisecond, `+
				`o.result.Node = "laptop.1"`, o)
		}
		if d := r.told(); !slices.Equal(d, []string{"node.joined laptop.1"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined laptop.1"}`, d)
		}
	})
}

func TestWhoMayNotJoinIsToldWhy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		id     string
		change func(*wire.Join)
		reason string
	}{
		"a revoked one":             {"revoked-1", nil, "denied"},
		"one that nobody can judge": {"unknown-1", nil, "connection_failed"},
		"one that says it is other": {"a", func(j *wire.Join) { j.NodeID = "b" }, "denied"},
		"a function twice":          {"a", func(j *wire.Join) { j.Functions = append(j.Functions, j.Functions[0]) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, gateway.Config{})
				n := r.dial(tt.id)
				j := wire.Join{
					Proto: 1, NodeID: tt.id, Instance: "i", Revision: 1, Labels: []string{},
					Functions: []cmp.Function{{Name: "f", Priority: 5}},
				}
				if tt.change != nil {
					tt.change(&j)
				}
				data, _ := json.Marshal(j) // also what Encode would refuse
				reply, err := wire.Decode[wire.JoinReply](n.ask(wire.SubjectJoin(n.id), data, nil))
				if err != nil || reply.OK || reply.Error == nil || tt.reason != "" && reply.Error.Code != tt.reason || r.Fleet().Len() != 0 {
					t.Errorf(`%+v %v; want no error, reply.OK = false, reply.Error not nil, not (tt.reason != "" && `+
						"reply.Error.Code != tt.reason), r.Fleet().Len() = 0", reply, err)
				}
			})
		})
	}
}

func TestADeadNodeIsSuspectAtOnceAndGoneAfterTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		n.called()
		n.conn.Close()
		if o := <-done; reason(o.err) != cmp.ReasonNodeLost {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonNodeLost", reason(o.err))
		}
		if _, err := r.Fleet().Pick(fleet.Request{Function: "f"}); err == nil {
			t.Error("a suspect node is routed to; want an error")
		}
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if d := r.told(); !slices.Equal(d, []string{"node.joined a", "node.suspect a", "node.left a lost"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined a", "node.suspect a", "node.left a lost"}`, d)
		}
	})
}

func TestAFrozenNodeIsGoneWithItsLeaseAndToldToRejoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		for i := range 10 { // it beats, and stays
			time.Sleep(5 * time.Second)
			n.beat(uint64(i))
		}
		synctest.Wait()
		if r.Fleet().Len() != 1 {
			t.Fatalf("r.Fleet().Len() = %v, want 1; r.told() = %q", r.Fleet().Len(), r.told())
		}
		time.Sleep(30*time.Second + time.Millisecond)
		synctest.Wait()
		if d := r.told(); !slices.Equal(d, []string{"node.joined a", "node.suspect a", "node.left a silent"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined a", "node.suspect a", "node.left a silent"}`, d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		n := r.dial("a")
		n.epoch = 7
		n.beat(1) // the gateway has restarted meanwhile
		if c := n.control(); c.Type != wire.ControlRejoin || c.Epoch != 7 {
			t.Errorf("%+v; want c.Type = wire.ControlRejoin, c.Epoch = 7", c)
		}
	})
}

func TestTheOlderOfTwoIsToldAndItsLateAnswersAreIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		old := r.dial("a")
		old.join(nil)
		late := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		_, answerLate := old.called()
		second := r.dial("a")
		second.join(func(j *wire.Join) { j.Instance = "i2" })
		c := old.control()
		if c.Type == wire.ControlCancel { // its lost call may end, and be cancelled, before
			c = old.control()
		}
		if c.Type != wire.ControlSuperseded || c.Epoch != old.epoch {
			t.Errorf("%+v; want c.Type = wire.ControlSuperseded, c.Epoch = %v", c, old.epoch)
		}
		if o := <-late; reason(o.err) != cmp.ReasonNodeLost {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonNodeLost", reason(o.err))
		}
		synctest.Wait()
		old.conn = second.conn // its own is cut: what it had sent before is still on its way
		answerLate(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`"stale"`)})
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		_, answer := second.called()
		answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`"fresh"`)})
		if o := <-done; o.err != nil || string(o.result.Value) != `"fresh"` {
			t.Errorf(`%+v; want o.err = nil, string(o.result.Value) = "\"fresh\""`, o)
		}
		if r.Fleet().Len() != 1 || slices.Contains(r.told(), "node.suspect a") {
			t.Errorf(`r.Fleet().Len() = %v, want 1; r.told() = %q, want it not to contain "node.suspect a"`, r.Fleet().Len(), r.told())
		}
	})
}

func TestTheOlderOfTwoIsNotLetInAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		old := r.dial("a")
		first := old.join(nil).Epoch
		second := r.dial("a")
		newer := second.join(func(j *wire.Join) { j.Instance = "i2" })
		again := r.dial("a")
		reply := again.join(func(j *wire.Join) { j.Epoch = first })
		if reply.OK || reply.Error.Details["reason"] != "superseded" {
			t.Errorf(`%+v; want reply.OK = false, reply.Error.Details["reason"] = "superseded"`, reply)
		}
		if n, _ := r.Fleet().Get("a"); n.Epoch != newer.Epoch {
			t.Errorf("%+v; want n.Epoch = %v", n, newer.Epoch)
		}
		// The newer one comes back as often as it likes.
		if reply := again.join(func(j *wire.Join) { j.Instance, j.Epoch = "i2", newer.Epoch }); !reply.OK {
			t.Errorf("%+v; want reply.OK = true", reply)
		}
	})
}

func TestAStreamComesInOrderAsItsReaderTakesIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{Window: 64 << 10})
		n := r.dial("a")
		n.join(nil)
		var heard []string
		release := make(chan struct{})
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f", Stream: true, Chunk: func(v json.RawMessage) error {
			<-release
			heard = append(heard, string(v))
			return nil
		}})
		c, answer := n.called()
		if !c.Stream || c.Window != 64<<10 {
			t.Errorf("%+v; want c.Stream = true, c.Window = 64 << 10", c)
		}
		for i := range 3 {
			answer(wire.Frame{Type: wire.FrameChunk, Value: json.RawMessage(fmt.Sprint(i))})
		}
		answer(wire.Frame{Type: wire.FrameDone, Chunks: 3, Bytes: 3})
		synctest.Wait()
		for range 3 { // no credit before the reader has taken something
			release <- struct{}{}
			if ctl := n.control(); ctl.Type != wire.ControlCredit || ctl.Bytes != 1 || ctl.CallID != c.CallID {
				t.Errorf("%+v; want ctl.Type = wire.ControlCredit, ctl.Bytes = 1, ctl.CallID = %v", ctl, c.CallID)
			}
		}
		if o := <-done; o.err != nil || o.result.Chunks != 3 || !slices.Equal(heard, []string{"0", "1", "2"}) {
			t.Errorf(`%+v %v; want o.err = nil, o.result.Chunks = 3, heard = []string{"0", "1", "2"}`, o, heard)
		}
		// A plain call of it is a list.
		done = r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		_, answer = n.called()
		answer(wire.Frame{Type: wire.FrameChunk, Value: json.RawMessage(`1`)})
		answer(wire.Frame{Type: wire.FrameChunk, Value: json.RawMessage(`2`)})
		answer(wire.Frame{Type: wire.FrameDone, Chunks: 2, Bytes: 2})
		if o := <-done; o.err != nil || string(o.result.Value) != `[1,2]` {
			t.Errorf(`%+v; want o.err = nil, string(o.result.Value) = "[1,2]"`, o)
		}
	})
}

func TestTheEndOfACallReachesItsNode(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end    func(cancel context.CancelFunc, answer func(wire.Frame))
		reason string
	}{
		"the caller goes away": {func(cancel context.CancelFunc, _ func(wire.Frame)) { cancel() }, cmp.ReasonCancelled},
		"its time is over":     {func(context.CancelFunc, func(wire.Frame)) { time.Sleep(2 * time.Second) }, cmp.ReasonTimeout},
		"a frame is missing": {func(_ context.CancelFunc, answer func(wire.Frame)) {
			answer(wire.Frame{Type: wire.FrameAck})
			answer(wire.Frame{Type: lost})
			answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`1`)})
		}, cmp.ReasonConnection},
		"the reader has enough": {func(_ context.CancelFunc, answer func(wire.Frame)) {
			answer(wire.Frame{Type: wire.FrameChunk, Value: json.RawMessage(`1`)})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, n := joined(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				done := r.call(ctx, gateway.Request{
					Node: "a", Function: "f", Stream: true,
					Chunk: func(json.RawMessage) error { return errors.New("enough") },
				})
				c, answer := n.called()
				tt.end(cancel, answer)
				if o := <-done; o.err == nil || tt.reason != "" && reason(o.err) != tt.reason {
					t.Errorf(`%v; want o.err not nil, not (tt.reason != "" && reason(o.err) != tt.reason)`, o.err)
				}
				for {
					ctl := n.control()
					if ctl.Type == wire.ControlCredit {
						continue
					}
					if ctl.Type != wire.ControlCancel || ctl.CallID != c.CallID {
						t.Errorf("%+v; want ctl.Type = wire.ControlCancel, ctl.CallID = %v", ctl, c.CallID)
					}
					return
				}
			})
		})
	}
}

func TestStreamsHaveLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{NodeStreams: 2, TotalStreams: 3})
		for _, id := range []string{"a", "b"} {
			r.dial(id).join(nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		open := func(node string) <-chan outcome {
			done := r.call(ctx, gateway.Request{Node: node, Function: "f", Stream: true})
			synctest.Wait()
			return done
		}
		running := []<-chan outcome{open("a"), open("a")}
		if o := <-open("a"); reason(o.err) != cmp.ReasonOverloaded || !strings.Contains(o.err.Error(), "cannot accept new stream workload") {
			t.Errorf(`reason(o.err) = %q, want cmp.ReasonOverloaded; o.err = %v, want it to contain "cannot accept new stream workload"`,
				reason(o.err), o.err)
		}
		running = append(running, open("b"))
		if o := <-open("b"); reason(o.err) != cmp.ReasonOverloaded ||
			!strings.Contains(o.err.Error(), "stream capacity exceeded. active=3, limit=3") {
			t.Errorf(`reason(o.err) = %q, want cmp.ReasonOverloaded; o.err = %v, want it to contain "stream capacity exceeded. active=3, limit=3"`,
				reason(o.err), o.err)
		}
		cancel()
		for _, done := range running {
			<-done
		}
	})
}

func TestANodeCannotAnswerForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		a, b := r.dial("a"), r.dial("b")
		instance := a.join(nil).Gateway
		b.join(nil)
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		c, answer := a.called()
		// b guesses the call and answers on the subjects it may use.
		forged, err := wire.Encode(&wire.Frame{CallID: c.CallID, Epoch: c.Epoch, Type: wire.FrameResult, Value: json.RawMessage(`"forged"`)})
		if err == nil {
			err = b.conn.Publish(t.Context(), messaging.Message{Subject: wire.SubjectReply("b", instance, c.CallID), Data: forged})
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`"true"`)})
		if o := <-done; o.err != nil || string(o.result.Value) != `"true"` {
			t.Errorf(`%+v; want o.err = nil, string(o.result.Value) = "\"true\""`, o)
		}
	})
}

func TestGoodbyeAndDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		_, answer := n.called()
		if err := r.Drain(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if c := n.control(); c.Type != wire.ControlDrain {
			t.Errorf("%+v; want c.Type = wire.ControlDrain", c)
		}
		answer(wire.Frame{Type: wire.FrameResult, Value: json.RawMessage(`1`)})
		if o := <-done; o.err != nil {
			t.Errorf("o.err = %v, want nil", o.err)
		}
		data, err := wire.Encode(&wire.Leave{Epoch: n.epoch, Reason: "drained"})
		if ack, err := wire.Decode[wire.Ack](n.ask(wire.SubjectLeave("a"), data, err)); err != nil || !ack.OK || r.Fleet().Len() != 0 {
			t.Errorf("%+v %v %v; want no error, ack.OK = true, r.Fleet().Len() = 0", ack, err, r.told())
		}
		if err := r.Remove(t.Context(), "a"); reason(err) != cmp.ReasonNodeNotFound {
			t.Errorf("%v; want reason(err) = cmp.ReasonNodeNotFound", err)
		}
	})
}

func answerResult(answer func(wire.Frame), v json.RawMessage) {
	answer(wire.Frame{Type: wire.FrameResult, Value: v})
}

// TestAFloodOfJoinsDoesNotStopOtherNodes holds that the messages of one node wait for that node alone, and that
// the loss of many is logged once.
func TestAFloodOfJoinsDoesNotStopOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		hold := make(chan struct{})
		r := newRig(t, gateway.Config{
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
			Granted: func(node string) ([]string, error) {
				if node == "flood" {
					<-hold
				}
				return nil, nil
			},
		})
		join := func(node string) []byte {
			data, err := wire.Encode(&wire.Join{Proto: 1, NodeID: node, Instance: "i1", Revision: 1})
			if err != nil {
				t.Fatalf("encoding a join: got %v, want no error", err)
			}
			return data
		}
		flood, other := r.dial("flood"), r.dial("other")
		for range 3000 {
			if err := flood.conn.Publish(t.Context(), messaging.Message{Subject: wire.SubjectJoin("flood"), Data: join("flood")}); err != nil {
				t.Fatalf("publishing a join: got %v, want no error", err)
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := other.conn.Request(ctx, messaging.Message{Subject: wire.SubjectJoin("other"), Data: join("other")}); err != nil {
			t.Errorf("the join of another node: %v, want an answer", err)
		}
		close(hold)
		synctest.Wait()
		if n := strings.Count(logged.String(), "messages of nodes were lost"); n != 1 {
			t.Errorf("the loss was logged %d times, want once:\n%.1000s", n, logged.String())
		}
		if reply := flood.join(nil); !reply.OK {
			t.Errorf("join after the flood = %+v, want OK", reply)
		}
	})
}
