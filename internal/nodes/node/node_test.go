package node_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

func TestJoinedIsListedCalledAndGoneWhenItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		d := r.device("laptop.1", func(c *node.Config) { c.Labels = []string{"gpu", "user:ann", "user:ben"} })
		d.let("echo", false, echo)
		d.start()
		synctest.Wait()
		list := r.Fleet().List(fleet.Filter{Labels: []string{"user:ann"}, Functions: []string{"echo"}})
		if len(list) != 1 || list[0].ID != "laptop.1" {
			t.Fatalf(`%+v; want len(list) = 1, list[0].ID = "laptop.1"`, list)
		}
		if s := d.Status(); s.State != node.Connected || s.Epoch == 0 || !slices.Equal(s.RejectedLabels, []string{"user:ben"}) || s.Joins != 1 ||
			!s.Accepting {
			t.Errorf(`%+v; want s.State = node.Connected, s.Epoch other than 0, s.RejectedLabels = []string{"user:ben"}, `+
				"s.Joins = 1, s.Accepting = true", s)
		}
		o := <-r.call(t.Context(), gateway.Request{
			Node: "laptop.1", Function: "echo",
			Arguments: cmp.Arguments{Args: []json.RawMessage{json.RawMessage(`7`)}}, Caller: wire.Caller{Kind: "agent", ID: "agent:x"},
		})
		if o.err != nil || string(o.Value) != `{"args":1,"caller":"agent:x"}` {
			t.Errorf(`%+v %v; want o.err = nil, string(o.Value) = "{\"args\":1,\"caller\":\"agent:x\"}"`, o, o.err)
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "laptop.1", Function: "other"}); reason(o.err) != cmp.ReasonFunctionNotFound {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonFunctionNotFound", reason(o.err))
		}
		synctest.Wait()
		d.mu.Lock()
		if len(d.records) != 2 || d.records[0].Effect != cmp.EffectWrite || d.records[0].Outcome != "" ||
			d.records[1].Outcome != cmp.ReasonFunctionNotFound {
			t.Errorf(`%+v; want len(d.records) = 2, d.records[0].Effect = cmp.EffectWrite, d.records[0].Outcome = "", `+
				"d.records[1].Outcome = cmp.ReasonFunctionNotFound", d.records)
		}
		d.mu.Unlock()
		d.stop()
		if err := d.ended(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := r.told(); !slices.Equal(got, []string{"node.joined laptop.1", "node.left laptop.1 left"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined laptop.1", "node.left laptop.1 left"}`, got)
		}
	})
}

func TestANodeMayStartBeforeItsGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		r.stop()
		d := r.device("a", nil).start()
		time.Sleep(time.Minute)
		if s := d.Status(); s.State != node.Registering || s.Error == "" {
			t.Errorf(`%+v; want s.State = node.Registering, s.Error other than ""`, s)
		}
		r.serve(gateway.Config{})
		<-d.Joined()
	})
}

func TestWhoMayNotJoinStopsAndSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // by the gateway
		r := newRig(t, gateway.Config{})
		r.revoked["a"] = true
		d := r.device("a", nil).start()
		if err := d.ended(); capability.CodeOf(err) != capability.CodeDenied || d.Status().State != node.Failed {
			t.Errorf("capability.CodeOf(err) = %q, want capability.CodeDenied; d.Status().State = %q, want node.Failed",
				capability.CodeOf(err), d.Status().State)
		}
	})
	synctest.Test(t, func(t *testing.T) { // by the bus
		r := newRig(t, gateway.Config{})
		d := r.device("unknown", nil).start()
		if err := d.ended(); !messaging.Is(err, messaging.ReasonRefused) {
			t.Errorf("%v; want messaging.Is(err, messaging.ReasonRefused)", err)
		}
	})
}

func TestABadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]node.Config{
		"id": {ID: "a b", Token: secret.New("x")}, "credential": {ID: "a"},
		"label": {ID: "a", Token: secret.New("x"), Labels: []string{strings.Repeat("x", 200)}},
	} {
		if _, err := node.New(cfg); err == nil {
			t.Errorf("node.New(cfg): err = nil, want an error; name = %q", name)
		}
	}
}

func TestItComesBackFromARestartOfTheBusAndOfTheGateway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		first := d.Epoch()
		handle, ended := blocked()
		d.let("wait", false, handle)
		call := r.call(t.Context(), gateway.Request{Node: "a", Function: "wait"})
		synctest.Wait()
		r.bus.Interrupt()
		if o := <-call; reason(o.err) != cmp.ReasonNodeLost {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonNodeLost", reason(o.err))
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error("the handler of a call that nobody waits for went on")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := d.Status(); s.State != node.Connected || s.Joins != 2 || s.Epoch <= first {
			t.Fatalf("%+v; want s.State = node.Connected, s.Joins = 2, s.Epoch more than %v", s, first)
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil {
			t.Errorf("o.err = %v, want nil", o.err)
		}
		// Another gateway has it from the table that they share.
		r.serve(gateway.Config{})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if r.Fleet().Len() != 1 || d.Status().Joins != 2 {
			t.Errorf("%+v; want r.Fleet().Len() = 1, d.Status().Joins = 2", d.Status())
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil {
			t.Errorf("o.err = %v, want nil", o.err)
		}
	})
}

// No time passes here: the next heartbeat would be seconds away.
func TestAGatewayThatStartsHearsAtOnceWhoIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		epoch := d.Epoch()
		r.serve(gateway.Config{})
		if n, _ := r.Fleet().Get("a"); n.Status != fleet.Connected || n.Epoch != epoch || d.Status().Joins != 1 {
			t.Errorf("%+v %+v; want n.Status = fleet.Connected, n.Epoch = %v, d.Status().Joins = 1", n, d.Status(), epoch)
		}
	})
}

func TestTheNewerOfTwoServesAndTheOlderStopsForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, old := joined(t)
		second := r.device("a", nil)
		second.let("echo", false, func(context.Context, functions.Call) (json.RawMessage, error) {
			return json.RawMessage(`"second"`), nil
		})
		second.start()
		if err := old.ended(); reason(err) != node.ReasonSuperseded || capability.CodeOf(err) != capability.CodeConflict {
			t.Errorf("%v; want reason(err) = node.ReasonSuperseded, capability.CodeOf(err) = capability.CodeConflict", err)
		}
		synctest.Wait()
		for range 20 {
			if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil || string(o.Value) != `"second"` {
				t.Fatalf(`%+v; want o.err = nil, string(o.Value) = "\"second\""`, o)
			}
			time.Sleep(5 * time.Second)
		}
		if s := second.Status(); s.State != node.Connected || s.Joins > 2 {
			t.Errorf("%+v; want s.State = node.Connected, s.Joins at most 2", s)
		}
	})
}

func TestItStaysListedWithItsHeartbeatAndAClockThatIsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		d := r.device("a", func(c *node.Config) { c.Now = func() time.Time { return time.Now().Add(-time.Hour) } })
		d.let("echo", false, echo)
		d.start()
		time.Sleep(10 * time.Minute)
		if got := r.told(); !slices.Equal(got, []string{"node.joined a"}) || d.Status().Beats < 100 {
			t.Errorf(`r.told() = %q, want []string{"node.joined a"}; d.Status().Beats = %v, want at least 100`, got, d.Status().Beats)
		}
		if off := time.Since(d.Time()); off < -time.Second || off > time.Second {
			t.Errorf("the gateway's time is %s off; want off at least -time.Second, off at most time.Second", off)
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil || o.Exec < 0 {
			t.Errorf("o.err = %v, want nil; o.Exec = %v, want at least 0", o.err, o.Exec)
		}
	})
}

func TestAnOverworkedMachineAsksToBeAvoided(t *testing.T) {
	t.Parallel()
	for name, figures := range map[string][2]float64{"its processors": {95, 10}, "its memory": {10, 90}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, gateway.Config{})
				d := r.device("a", func(c *node.Config) {
					c.Figures = func() (float64, float64, float64) { return figures[0], figures[1], 0 }
				})
				d.let("echo", false, echo)
				d.start()
				synctest.Wait()
				if _, err := r.Fleet().Pick(fleet.Request{Function: "echo"}); err != nil {
					t.Error("one beat is not several:", err)
				}
				time.Sleep(11 * time.Second)
				if _, err := r.Fleet().Pick(fleet.Request{Function: "echo"}); err == nil || d.Status().Accepting {
					t.Error("it is not avoided; want an error, d.Status().Accepting = false")
				}
			})
		})
	}
}

func TestWhatIsOfferedIsToldWithoutJoiningAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		d.let("one", false, echo)
		d.let("two", false, echo)
		if _, err := d.functions.Unregister("echo"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		if got := r.told(); !slices.Equal(got, []string{"node.joined a", "node.updated a"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined a", "node.updated a"}`, got)
		}
		d.let("three", false, echo)
		if err := d.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, _ := r.Fleet().Get("a"); len(n.Functions) != 3 || n.Revision != d.functions.Revision() || d.Status().Joins != 1 {
			t.Errorf("%+v; want len(n.Functions) = 3, n.Revision = d.functions.Revision(), d.Status().Joins = 1", n)
		}
		// An update that got lost is asked for after a heartbeat.
		r.bus.Interrupt()
		d.let("four", false, echo)
		if err := d.Refresh(t.Context()); reason(err) != cmp.ReasonConnection && reason(err) != messaging.ReasonDisconnected {
			t.Errorf("%v; want not (reason(err) != cmp.ReasonConnection && reason(err) != messaging.ReasonDisconnected)", err)
		}
		time.Sleep(20 * time.Second)
		if n, _ := r.Fleet().Get("a"); len(n.Functions) != 4 {
			t.Errorf("%+v; want len(n.Functions) = 4", n)
		}
	})
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(*rig, *device) error{
		"asked for here":           func(_ *rig, d *device) error { go func() { _ = d.Drain(context.Background()) }(); return nil },
		"asked for by the gateway": func(r *rig, _ *device) error { return r.Drain(context.Background(), "a") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, d := joined(t)
				release := make(chan struct{})
				d.let("slow", false, func(context.Context, functions.Call) (json.RawMessage, error) {
					<-release
					return json.RawMessage(`"done"`), nil
				})
				slow := r.call(t.Context(), gateway.Request{Node: "a", Function: "slow"})
				synctest.Wait()
				if err := drain(r, d); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if s := d.Status(); s.State != node.Draining {
					t.Fatalf("%+v; want s.State = node.Draining", s)
				}
				if _, err := r.Fleet().Pick(fleet.Request{Function: "echo"}); err == nil {
					t.Error("a draining node is routed to; want an error")
				}
				if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); reason(o.err) != cmp.ReasonOverloaded {
					t.Errorf("reason(o.err) = %q, want cmp.ReasonOverloaded", reason(o.err))
				}
				time.Sleep(10 * time.Second)
				close(release)
				if o := <-slow; o.err != nil || string(o.Value) != `"done"` {
					t.Errorf(`%+v %v; want o.err = nil, string(o.Value) = "\"done\""`, o, o.err)
				}
				if err := d.ended(); err != nil || d.Status().State != node.Disconnected {
					t.Errorf("%v; want no error, d.Status().State = node.Disconnected", err)
				}
				synctest.Wait()
				if r.Fleet().Len() != 0 {
					t.Errorf("r.Fleet().Len() = %v, want 0; r.told() = %q", r.Fleet().Len(), r.told())
				}
			})
		})
	}
}

func TestDrainEndsWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		handle, ended := blocked()
		d.let("wait", false, handle)
		r.call(t.Context(), gateway.Request{Node: "a", Function: "wait"})
		synctest.Wait()
		began := time.Now()
		if err := d.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < node.DrainTimeout || took > node.DrainTimeout+time.Second {
			t.Errorf("time.Since(began) = %v, want at least node.DrainTimeout and at most node.DrainTimeout+time.Second", took)
		}
		<-ended
		_ = d.ended()
	})
}

func TestARevokedNodeDoesNotComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, d := joined(t)
		r.mu.Lock()
		r.revoked["a"] = true
		r.mu.Unlock()
		if err := r.Remove(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if err := d.ended(); capability.CodeOf(err) != capability.CodeDenied {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeDenied", err)
		}
	})
}

// muffled is a session whose heartbeats are lost while it is told to lose them.
type muffled struct {
	messaging.Conn
	on *atomic.Bool
}

func (m muffled) Publish(ctx context.Context, msg messaging.Message) error {
	if m.on.Load() && strings.HasSuffix(msg.Subject, ".beat") {
		return nil
	}
	return m.Conn.Publish(ctx, msg)
}

func TestLostHeartbeatsEndInARejoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		var lost atomic.Bool
		d := r.device("a", func(c *node.Config) {
			dial := c.Dial
			c.Dial = func(ctx context.Context, o messaging.DialOptions) (messaging.Conn, error) {
				conn, err := dial(ctx, o)
				return muffled{conn, &lost}, err
			}
		})
		d.let("echo", false, echo)
		d.start()
		time.Sleep(12 * time.Second)
		lost.Store(true)
		time.Sleep(15 * time.Second) // some are lost, which is allowed
		lost.Store(false)
		time.Sleep(10 * time.Second)
		if got := r.told(); !slices.Equal(got, []string{"node.joined a"}) {
			t.Errorf(`r.told() = %q, want []string{"node.joined a"}`, got)
		}
		lost.Store(true)
		time.Sleep(40 * time.Second)
		if r.Fleet().Len() != 0 {
			t.Error("a silent node is still there; want r.Fleet().Len() = 0")
		}
		lost.Store(false)
		time.Sleep(6 * time.Second)
		if s := d.Status(); r.Fleet().Len() != 1 || s.Joins != 2 || s.State != node.Connected {
			t.Errorf("%+v %v; want r.Fleet().Len() = 1, s.Joins = 2, s.State = node.Connected", s, r.told())
		}
		if o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "echo"}); o.err != nil {
			t.Errorf("o.err = %v, want nil", o.err)
		}
	})
}
