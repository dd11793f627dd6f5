package storetest

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

func heldCall(id, node string, n int) tasks.HeldCall {
	return tasks.HeldCall{
		ID: id, Node: node, Function: "f", Arguments: json.RawMessage(`{"a":1}`), Principal: "agent:x", Timeout: time.Second,
		State: tasks.HeldWaiting, Created: day(n), Expires: day(n + 10),
	}
}

func heldCallsDelivered(t *testing.T, s Stores) {
	hold := func(c tasks.HeldCall) {
		t.Helper()
		held, err := s.Held.HoldCall(t.Context(), c, 3, 2)
		ok(t, err)
		same(t, held, true)
	}
	hold(heldCall("2", "a", 2))
	hold(heldCall("1", "a", 1))
	for what, c := range map[string]tasks.HeldCall{"the node has two": heldCall("3", "a", 3)} {
		held, err := s.Held.HoldCall(t.Context(), c, 3, 2)
		ok(t, err)
		if held {
			t.Errorf("held = true, want false; what = %q", what)
		}
	}
	hold(heldCall("3", "b", 3))
	held, err := s.Held.HoldCall(t.Context(), heldCall("4", "c", 3), 3, 2)
	ok(t, err)
	same(t, held, false) // the principal has three
	waiting, err := s.Held.WaitingNodes(t.Context())
	ok(t, err)
	same(t, waiting, []string{"a", "b"})
	claim := func(at, giveUp int) (tasks.HeldCall, bool) {
		t.Helper()
		c, found, err := s.Held.ClaimCall(t.Context(), "a", day(at), day(giveUp))
		ok(t, err)
		return c, found
	}
	c, found := claim(4, 0)
	if !found || c.ID != "1" || string(c.Arguments) != `{"a":1}` || c.Timeout != time.Second || !c.Created.Equal(day(1)) {
		t.Errorf("%+v %v", c, found)
	}
	c.State, c.Ended, c.Invocation, c.Result = tasks.HeldDone, day(5), "run_1", json.RawMessage(`[1]`)
	ended, err := s.Held.EndCall(t.Context(), c, tasks.HeldRunning)
	ok(t, err)
	same(t, ended, true)
	ended, err = s.Held.EndCall(t.Context(), c, tasks.HeldRunning)
	ok(t, err)
	same(t, ended, false)
	got, found, err := s.Held.HeldCall(t.Context(), "1")
	ok(t, err)
	if !found || got.State != tasks.HeldDone || string(got.Result) != `[1]` || got.Invocation != "run_1" || !got.Ended.Equal(day(5)) {
		t.Errorf("%+v", got)
	}
	if c, found = claim(5, 0); !found || c.ID != "2" {
		t.Errorf("%+v %v", c, found)
	}
	if _, found = claim(6, 5); found {
		t.Error("a delivery that goes on was claimed again")
	}
	if c, found = claim(8, 6); !found || c.ID != "2" { // its owner is dead
		t.Errorf("%+v %v", c, found)
	}
	c.State, c.Ended, c.Error = tasks.HeldFailed, day(8), capability.Errorf(capability.CodeDenied, "x", "no").With("because", "")
	_, err = s.Held.EndCall(t.Context(), c, tasks.HeldRunning)
	ok(t, err)
	list, err := s.Held.HeldCalls(t.Context(), "agent:x", "a", 10)
	ok(t, err)
	if len(list) != 2 || list[0].ID != "2" || list[0].Error == nil || list[0].Error.Reason != "because" || list[1].Result != nil {
		t.Errorf("%+v", list)
	}
	ok(t, s.Held.SweepCalls(t.Context(), day(20), day(6)))
	all, err := s.Held.HeldCalls(t.Context(), "", "", 10)
	ok(t, err)
	if len(all) != 2 || all[0].ID != "3" || all[0].State != tasks.HeldExpired || all[1].ID != "2" {
		t.Errorf("%+v", all)
	}
}

func heldCallClaimedOnce(t *testing.T, s Stores) {
	_, err := s.Held.HoldCall(t.Context(), heldCall("1", "a", 1), 10, 10)
	ok(t, err)
	var mu sync.Mutex
	won := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, found, err := s.Held.ClaimCall(t.Context(), "a", day(2), day(0))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if found {
				won++
			}
		})
	}
	all.Wait()
	same(t, won, 1)
}
