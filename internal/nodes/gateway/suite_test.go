package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// The tests run with two gateways: each must know the nodes of the other.

func ask(w *world, g *instance, r gateway.Request) (gateway.Result, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.calling())
	defer cancel()
	return g.Do(ctx, fleet.Request{}, r)
}

func number(n string) cmp.Arguments {
	return cmp.Arguments{Args: []json.RawMessage{json.RawMessage(n)}}
}

// Scenarios 31 and 39.
func TestWhoJoinsOneGatewayIsListedByAll(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("ann.1", "i1", func(d *device) { d.labels = []string{"gpu", "user:ann.1", "user:bob"} })
		w.listed("ann.1", fleet.Connected)
		for _, g := range w.gateways {
			list := g.Fleet().List(fleet.Filter{Labels: []string{"user:ann.1", "gpu"}, Functions: []string{"f"}})
			if len(list) != 1 || slices.Contains(list[0].Labels, "user:bob") {
				w.t.Errorf(`%+v; want len(list) = 1, list[0].Labels without "user:bob"`, list)
			}
			if r, err := ask(w, g, gateway.Request{Function: "f"}); err != nil || string(r.Value) != `"ann.1/i1"` || r.Node != "ann.1" {
				w.t.Errorf("Call = %+v, %v; want the first invocation of ann.1", r, err)
			}
		}
		w.eventually("one gateway has written it down", w.patience(), func() bool {
			return w.gateways[0].said("ann.1", true)+w.gateways[1].said("ann.1", true) == "joined"
		})
		if d.set(func() {}); !slices.Equal(d.rejected, []string{"user:bob"}) {
			w.t.Errorf(`d.rejected = %q, want []string{"user:bob"}`, d.rejected)
		}
	})
}

// Scenario 32.
func TestADeadNodeIsNotRoutedToByAnybody(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		lost := make(chan error, 2)
		for _, g := range w.gateways {
			go func() { _, err := ask(w, g, gateway.Request{Function: "never"}); lost <- err }()
		}
		w.eventually("both calls run", w.patience(), func() bool { return d.count(d.ran, "never") == 2 })
		began := time.Now()
		d.kill()
		for range 2 {
			if err := <-lost; reason(err) != cmp.ReasonNodeLost {
				w.t.Errorf("%v; want reason(err) = cmp.ReasonNodeLost", err)
			}
		}
		w.took("the end of calls under way", began, time.Second)
		for _, g := range w.gateways {
			if _, err := ask(w, g, gateway.Request{Function: "f"}); err == nil {
				w.t.Error("a dead node was called; want an error")
			}
		}
		w.listed("a", "")
		w.eventually("one gateway has written it down", w.patience(), func() bool {
			return strings.Count(w.gateways[0].said("a", true)+" "+w.gateways[1].said("a", true), "left") == 1
		})
		for _, g := range w.gateways {
			w.eventually("every gateway tells it", w.patience(), func() bool {
				return strings.Replace(g.said("a", false), "joined resumed", "joined", 1) == "joined suspect left" // one may have been starting
			})
		}
	})
}

// Scenarios 33 and 37.
func TestAFrozenNodeIsUnlistedAndComesBackByItself(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		before, _ := w.gateways[0].Fleet().Get("a")
		d.freeze(true)
		began := time.Now()
		lost := make(chan error, 1)
		go func() { _, err := ask(w, w.gateways[1], gateway.Request{Function: "f"}); lost <- err }()
		w.listed("a", "")
		w.took("unlisting a frozen node", began, 6*w.heartbeat+6*w.heartbeat/10+2*time.Second)
		if err := <-lost; reason(err) != cmp.ReasonNodeLost && reason(err) != cmp.ReasonTimeout {
			w.t.Errorf("%v; want not (reason(err) != cmp.ReasonNodeLost && reason(err) != cmp.ReasonTimeout)", err)
		}
		d.freeze(false)
		w.listed("a", fleet.Connected)
		if after, _ := w.gateways[1].Fleet().Get("a"); after.Epoch <= before.Epoch || !after.Offers("stream") {
			w.t.Errorf(`%+v; want after.Epoch more than %v, after.Offers("stream")`, after, before.Epoch)
		}
		w.served("a") // the connection that did not answer may be cut first, with a call on it
	})
}

// Scenario 36.
func TestTheNewerOfTwoServesAndTheOlderIsTold(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		old := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		lost := make(chan error, 1)
		go func() {
			_, err := ask(w, w.gateways[1], gateway.Request{Function: "slow", Arguments: number("300")})
			lost <- err
		}()
		w.eventually("the call runs", w.patience(), func() bool { return old.count(old.ran, "slow") == 1 })
		w.device("a", "i2")
		if err := <-lost; reason(err) != cmp.ReasonNodeLost {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonNodeLost", err)
		}
		for _, g := range w.gateways {
			w.eventually("the newer serves", w.patience(), func() bool {
				r, err := ask(w, g, gateway.Request{Function: "f"})
				return err == nil && string(r.Value) == `"a/i2"`
			})
			if n := len(g.Fleet().List(fleet.Filter{Suspect: true})); n != 1 {
				w.t.Errorf("len = %v, want 1", n)
			}
		}
		w.eventually("the older has been told", w.patience(), func() (over bool) {
			old.set(func() { over = old.over })
			return over
		})
	})
}

func TestTwoGatewaysAgreeOnWhichOfTwoCameLast(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		for range 3 {
			both := []*device{w.device("a", "x"), w.device("a", "y")}
			w.eventually("they agree, and one of the two is told", w.patience(), func() bool {
				one, ok := w.gateways[0].Fleet().Get("a")
				other, _ := w.gateways[1].Fleet().Get("a")
				over := make(map[string]bool)
				for _, d := range both {
					d.set(func() { over[d.instance] = d.over })
				}
				return ok && one.Epoch == other.Epoch && one.Instance == other.Instance && over["x"] != over["y"] && !over[one.Instance]
			})
			for _, d := range both {
				d.kill()
			}
			w.listed("a", "")
		}
	})
}

// Scenario 38.
func TestDrainingFinishesWhatOtherGatewaysBegan(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		done := make(chan error, 1)
		go func() {
			_, err := ask(w, w.gateways[1], gateway.Request{Function: "slow", Arguments: number("400")})
			done <- err
		}()
		w.eventually("the call runs", w.patience(), func() bool { return d.count(d.ran, "slow") == 1 })
		if err := w.gateways[0].Drain(w.ctx, "a"); err != nil {
			w.t.Fatal(err)
		}
		for _, g := range w.gateways {
			w.eventually("nothing new is taken", w.patience(), func() bool {
				_, err := ask(w, g, gateway.Request{Function: "f"})
				return err != nil
			})
		}
		if err := <-done; err != nil {
			w.t.Error("a call that ran did not finish:", err)
		}
		w.listed("a", "")
		if err := w.gateways[1].Remove(w.ctx, "a"); reason(err) != cmp.ReasonNodeNotFound {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonNodeNotFound", err)
		}
	})
}

func TestARemovedNodeIsGoneEverywhere(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		w.device("first", "i1")
		w.listed("first", fleet.Connected) // the gateways see who comes now
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		events := d.conn.Events(ctx)
		// It is removed where no gateway has seen its session start.
		third := w.gateway()
		w.listed("a", fleet.Connected)
		d.set(func() { d.over = true }) // it does not come back: its credential is revoked, too
		if err := third.Remove(w.ctx, "a"); err != nil {
			w.t.Fatal(err)
		}
		if _, ok := third.Fleet().Get("a"); ok {
			w.t.Error("it is still there")
		}
		w.listed("a", "")
		for e, err := range events {
			if err != nil {
				w.t.Error("its session goes on:", err)
			}
			if err != nil || e.Kind == messaging.Disconnected {
				break
			}
		}
	})
}

// Scenarios 40 and 41, and 48.
func TestWhoCannotTakeACallSaysSoAndAnotherDoes(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		busy := w.device("busy", "i1")
		w.device("other", "i1")
		w.listed("busy", fleet.Connected)
		w.listed("other", fleet.Connected)
		if _, err := ask(w, w.gateways[0], gateway.Request{Node: "busy", Function: "nothing"}); reason(err) != cmp.ReasonFunctionNotFound {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonFunctionNotFound", err)
		}
		if _, err := ask(w, w.gateways[0], gateway.Request{Node: "nobody", Function: "f"}); reason(err) != cmp.ReasonNodeNotFound {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonNodeNotFound", err)
		}
		busy.set(func() { busy.full = true })
		for _, g := range w.gateways {
			for range 4 {
				ctx, cancel := context.WithTimeout(w.ctx, w.calling())
				r, err := g.Do(ctx, fleet.Request{Balance: true, Strategy: fleet.RoundRobin}, gateway.Request{Function: "f"})
				cancel()
				if err != nil || r.Node != "other" {
					w.t.Errorf(`err = %v, want nil; r.Node = %q, want "other"`, err, r.Node)
				}
			}
		}
		if _, err := ask(w, w.gateways[1], gateway.Request{Node: "busy", Function: "f"}); reason(err) != cmp.ReasonOverloaded {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonOverloaded", err)
		}
		if n := busy.count(busy.ran, "f"); n != 0 {
			w.t.Errorf("a refused call ran %v; want n = 0", n)
		}
	})
}

// Scenarios 42 and 43.
func TestTheEndOfTheCallerIsTheEndOnTheNode(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		ctx, cancel := context.WithTimeout(w.ctx, 300*time.Millisecond)
		defer cancel()
		if _, err := w.gateways[0].Do(ctx, fleet.Request{}, gateway.Request{Function: "never"}); reason(err) != cmp.ReasonTimeout {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonTimeout", err)
		}
		ctx, away := context.WithCancel(w.ctx)
		gone := make(chan error, 1)
		go func() {
			_, err := w.gateways[1].Do(ctx, fleet.Request{}, gateway.Request{Function: "never"})
			gone <- err
		}()
		w.eventually("it runs", w.patience(), func() bool { return d.count(d.ran, "never") == 2 })
		away()
		if err := <-gone; reason(err) != cmp.ReasonCancelled {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonCancelled", err)
		}
		w.eventually("both have ended on the node", w.patience(), func() bool { return d.count(d.ended, "never") == 2 })
	})
}

// Scenarios 44 to 46.
func TestASlowReaderHoldsUpItsOwnStreamAlone(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		w.device("a", "i1")
		w.listed("a", fleet.Connected)
		release := make(chan struct{})
		slow, first := make(chan error, 1), make(chan struct{})
		var chunks int
		go func() {
			r, err := ask(w, w.gateways[0], gateway.Request{
				Function: "stream", Arguments: number("40"), Stream: true,
				Chunk: func(json.RawMessage) error {
					if chunks++; chunks == 1 {
						close(first)
					}
					<-release
					return nil
				},
			})
			if err == nil && r.Chunks != 40 {
				err = errors.New("chunks are missing")
			}
			slow <- err
		}()
		<-first
		next := 0
		r, err := ask(w, w.gateways[1], gateway.Request{
			Function: "stream", Arguments: number("40"), Stream: true,
			Chunk: func(v json.RawMessage) error {
				var s string
				if err := json.Unmarshal(v, &s); err != nil || !strings.HasPrefix(s, strings.Repeat("0", 6)) || s[:8] != pad(next) {
					w.t.Errorf(`chunk %d is %.20s; want no error, s beginning with strings.Repeat("0", 6), s[:8] = pad(next)`, next, v)
				}
				next++
				return nil
			},
		})
		if err != nil || r.Chunks != 40 || r.Bytes != 40*(32<<10+10) {
			w.t.Errorf("err = %v, want nil; r.Chunks = %v, want 40; r.Bytes = %v, want 40*(32<<10+10)", err, r.Chunks, r.Bytes)
		}
		if r, err := ask(w, w.gateways[0], gateway.Request{Function: "f"}); err != nil {
			w.t.Error("beside a slow reader:", r, err)
		}
		w.pause(7 * w.heartbeat)
		if n, ok := w.gateways[0].Fleet().Get("a"); !ok || n.Status != fleet.Connected {
			w.t.Errorf("its heartbeats were held up; got n.Status = %v; want ok = true, n.Status = fleet.Connected", n.Status)
		}
		close(release)
		if err := <-slow; err != nil {
			w.t.Error(err)
		}
		if r, err := ask(w, w.gateways[0], gateway.Request{Function: "stream", Arguments: number("3")}); err != nil || len(r.Value) < 3*32<<10 ||
			r.Value[0] != '[' {
			w.t.Errorf("a plain call of a stream: %v %v; want no error, len(r.Value) at least 3 * 32 << 10, r.Value[0] = '['",
				len(r.Value), err)
		}
	})
}

func pad(n int) string {
	s := "0000000" + string(rune('0'+n%10))
	if n > 9 {
		s = "000000" + string(rune('0'+n/10)) + string(rune('0'+n%10))
	}
	return s
}

func TestANodeHasSoManyStreams(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		ctx, cancel := context.WithCancel(w.ctx)
		var open sync.WaitGroup
		for range 4 {
			open.Go(func() {
				_, _ = w.gateways[0].Do(ctx, fleet.Request{}, gateway.Request{
					Function: "endless", Stream: true,
					Chunk: func(json.RawMessage) error { <-ctx.Done(); return ctx.Err() },
				})
			})
		}
		w.eventually("four are open", w.patience(), func() bool { return d.count(d.ran, "endless") == 4 })
		if _, err := ask(w, w.gateways[0], gateway.Request{Function: "stream", Stream: true}); reason(err) != cmp.ReasonOverloaded {
			w.t.Errorf("%v; want reason(err) = cmp.ReasonOverloaded", err)
		}
		cancel()
		open.Wait()
		w.eventually("they have ended on the node", w.patience(), func() bool { return d.count(d.ended, "endless") == 4 })
	})
}

// Scenarios 49 and 50.
func TestRoundRobinAlternatesAndTheExcludedAreLeftOut(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		for _, id := range []string{"a", "b", "c"} {
			w.device(id, "i1")
		}
		for _, id := range []string{"a", "b", "c"} {
			w.listed(id, fleet.Connected)
		}
		for _, g := range w.gateways {
			var order []string
			for range 6 {
				r, err := g.Do(w.ctx, fleet.Request{Balance: true, Strategy: fleet.RoundRobin, Excluded: []string{"b"}}, gateway.Request{Function: "f"})
				if err != nil || string(r.Value) != `"`+r.Node+`/i1"` {
					w.t.Fatalf("err = %v, want nil; string(r.Value) = %q, want %q", err, string(r.Value), `"`+r.Node+`/i1"`)
				}
				order = append(order, r.Node)
			}
			if s := strings.Join(order, ""); s != "acacac" && s != "cacaca" {
				w.t.Errorf(`strings.Join(order, "") = %q, want "acacac" or "cacaca"`, s)
			}
		}
	})
}

// Scenario 51.
func TestNothingIsRepeatedWithoutAKey(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.device("b", "i1", func(d *device) { d.offers = []string{"f"} })
		w.listed("a", fleet.Connected)
		d.set(func() { d.thrown = 1 })
		if _, err := ask(w, w.gateways[0], gateway.Request{Function: "keyed"}); reason(err) != cmp.ReasonConnection ||
			d.count(d.ran, "keyed") != 1 {
			w.t.Errorf(`ask: reason(err) = %q, want cmp.ReasonConnection; d.count(d.ran, "keyed") = %v, want 1`,
				reason(err), d.count(d.ran, "keyed"))
		}
		d.set(func() { d.thrown = 2 })
		r, err := ask(w, w.gateways[0], gateway.Request{Function: "keyed", IdempotencyKey: "k"})
		if err != nil || string(r.Value) != "2" || d.count(d.ran, "keyed") != 4 {
			w.t.Errorf(`err = %v, want nil; string(r.Value) = %q, want "2"; d.count(d.ran, "keyed") = %v, want 4`,
				err, string(r.Value), d.count(d.ran, "keyed"))
		}
	})
}

// Scenario 52.
func TestFailingCallsOfOneFunctionBlockNoOther(t *testing.T) {
	t.Parallel()
	onEveryBus(t, func(w *world) {
		d := w.device("a", "i1")
		w.listed("a", fleet.Connected)
		for range 7 {
			if _, err := ask(w, w.gateways[0], gateway.Request{Function: "fails"}); reason(err) != cmp.ReasonExecution {
				w.t.Errorf("%v; want reason(err) = cmp.ReasonExecution", err)
			}
		}
		if n := d.count(d.ran, "fails"); n != 7 {
			w.t.Errorf("what a function answers opened its circuit after %v; want n = 7", n)
		}
		d.set(func() { d.full = true })
		for range 5 {
			if _, err := ask(w, w.gateways[0], gateway.Request{
				Node: "a", Function: "slow",
				Arguments: number("0"),
			}); reason(err) != cmp.ReasonOverloaded {
				w.t.Errorf("%v; want reason(err) = cmp.ReasonOverloaded", err)
			}
		}
		d.set(func() { d.full = false })
		w.eventually("it takes calls again", w.patience(), func() bool {
			_, err := ask(w, w.gateways[0], gateway.Request{Function: "f"})
			return err == nil
		})
		if _, err := ask(w, w.gateways[0], gateway.Request{Function: "slow", Arguments: number("0")}); reason(err) != cmp.ReasonNoNodes {
			w.t.Errorf("the circuit is not open: %v; want reason(err) = cmp.ReasonNoNodes", err)
		}
		if _, err := ask(w, w.gateways[1], gateway.Request{Function: "slow", Arguments: number("0")}); err != nil {
			w.t.Error("another gateway's circuit:", err)
		}
	})
}
