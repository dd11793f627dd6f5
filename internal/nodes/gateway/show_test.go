package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

func TestAWatcherSeesWhatIsThereAndWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan error, 1)
		go func() {
			for s, err := range r.Watch(ctx) {
				if err != nil {
					done <- err
					return
				}
				seen = append(seen, s.Kind+" "+s.Node.ID+string(s.Node.Status)+s.Event.Reason)
			}
		}()
		synctest.Wait()
		n.conn.Close()
		synctest.Wait()
		time.Sleep(6 * time.Second)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want err is context.Canceled", err)
		}
		want := "[fleet.reset  fleet.node aconnected fleet.synced  node.suspect adisconnected node.left lost]"
		if got := fmt.Sprint(seen); got != want {
			t.Errorf("%s\n%s\nwant got = %v", got, want, want)
		}
	})
}

// TestAWatcherThatSleepsGetsANewSnapshot: the gateway does not wait for it, and what it has in the
// end is true.
func TestAWatcherThatSleepsGetsANewSnapshot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resets, there := 0, make(map[string]bool)
		for s, err := range r.Watch(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			switch s.Kind {
			case gateway.SightReset:
				resets++
				clear(there)
			case gateway.SightSynced:
				if resets == 1 { // while it sleeps, much happens
					for range 700 {
						n.conn.Close()
						n = r.dial("a")
						n.join(nil)
						synctest.Wait()
					}
					r.dial("last").join(nil)
				}
			case fleet.NodeLeft:
				delete(there, s.Event.Node)
			default:
				there[s.Node.ID] = true
			}
			if there["last"] {
				break
			}
		}
		if resets != 2 || !there["a"] {
			t.Errorf(`resets = %v, want 2; there["a"] = %v, want true`, resets, there["a"])
		}
	})
}

func TestAStreamThatSaysNothingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		done := r.call(ctx, gateway.Request{Node: "a", Function: "f", Stream: true})
		_, answer := n.called()
		var o outcome
		for i := uint64(0); o.err == nil; i++ {
			if i == 40 {
				answer(wire.Frame{Type: wire.FrameChunk, Value: json.RawMessage("1")})
			}
			select {
			case o = <-done:
			case <-time.After(5 * time.Second):
				n.beat(i)
			}
		}
		if reason(o.err) != cmp.ReasonTimeout {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonTimeout", reason(o.err))
		}
		if took := time.Since(began); took < 500*time.Second || took > 502*time.Second {
			t.Errorf("time.Since(began) = %v, want at least 500*time.Second and at most 502*time.Second", took)
		}
	})
}

// TestACallThatNobodyEverHeardOfIsLostWhenItsNodeIs: its request was dropped, and no
// word of the session's end came either; the bus is asked.
func TestACallThatNobodyEverHeardOfIsLostWhenItsNodeIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		n.calls.Close()
		again, err := n.conn.Subscribe(t.Context(), subscribe(wire.SubjectCall("a")))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done := r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		if _, err := again.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		n.beat(1)
		n.ctl.Close()
		if o := <-done; reason(o.err) != cmp.ReasonNodeLost {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonNodeLost", reason(o.err))
		}
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("time.Since(began) = %v, want at least 10*time.Second and at most 12*time.Second", took)
		}
	})
}

func TestANodeWithoutASessionIsToldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, n := joined(t)
		n.beat(1) // it has been there for a while
		time.Sleep(3 * time.Second)
		n.beat(2)
		synctest.Wait()
		n.calls.Close() // its subscriptions are gone, and no message has announced it
		began := time.Now()
		o := <-r.call(t.Context(), gateway.Request{Node: "a", Function: "f"})
		if reason(o.err) != cmp.ReasonNodeNotFound || time.Since(began) > 0 {
			t.Errorf("reason(o.err) = %q, want cmp.ReasonNodeNotFound; time.Since(began) = %v, want at most 0", reason(o.err), time.Since(began))
		}
		if n, _ := r.Fleet().Get("a"); n.Status != fleet.Disconnected {
			t.Errorf(`r.Fleet().Get("a"): n.Status = %q, want fleet.Disconnected`, n.Status)
		}
	})
}

func TestANamedNodeMustOfferTheFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, gateway.Config{})
		r.dial("n00").join(nil)
		if _, err := r.Do(t.Context(), fleet.Request{Node: "n00"},
			gateway.Request{Function: "other"}); reason(err) != cmp.ReasonFunctionNotFound {
			t.Errorf("%v; want reason(err) = cmp.ReasonFunctionNotFound", err)
		}
	})
}
