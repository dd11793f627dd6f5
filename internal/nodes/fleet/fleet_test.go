package fleet_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
)

type rig struct {
	*fleet.Table
	t   *testing.T
	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	r.Table = fleet.New(fleet.Config{Now: func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}})
	return r
}

func (r *rig) after(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func member(id string, functions ...string) fleet.Member {
	m := fleet.Member{ID: id, Session: "session-" + id, Revision: 1}
	for _, f := range functions {
		m.Functions = append(m.Functions, fleet.Function{Name: f})
	}
	return m
}

// The changes a gateway makes, without any other gateway.

func (r *rig) Join(m fleet.Member) (int64, []fleet.Event, error) {
	rec, err := r.Propose(m)
	if err != nil {
		return 0, nil, err
	}
	return rec.Epoch, r.Take(rec), nil
}

func (r *rig) Update(id string, epoch int64, revision uint64, labels, granted []string, functions []fleet.Function) ([]fleet.Event, error) {
	rec, changed, err := r.Revise(id, epoch, revision, labels, granted, functions)
	if err != nil || !changed {
		return nil, err
	}
	return r.Take(rec), nil
}

func (r *rig) Leave(id string, epoch int64) ([]fleet.Event, error) {
	if err := r.Holds(id, epoch); err != nil {
		return nil, err
	}
	return r.Drop(id, epoch, fleet.ReasonLeft, true), nil
}

func (r *rig) drain(id string) []fleet.Event {
	rec, ok := r.Record(id)
	if !ok {
		r.t.Fatalf("there is no %v; want ok = true", id)
	}
	rec.Draining = true
	return r.Take(rec)
}

func (r *rig) join(m fleet.Member) int64 {
	r.t.Helper()
	epoch, _, err := r.Join(m)
	if err != nil {
		r.t.Fatal(err)
	}
	return epoch
}

func (r *rig) beat(id string, epoch int64, cpu float64) {
	r.t.Helper()
	if v, _ := r.Beat(id, epoch, 1, fleet.Load{CPU: cpu, Accepting: true}); v != "" {
		r.t.Fatalf(`r.Beat: v = %q, want ""; id = %q`, v, id)
	}
}

func kinds(events []fleet.Event) (out []string) {
	for _, e := range events {
		out = append(out, strings.TrimSpace(e.Kind+" "+e.Node+" "+e.Reason))
	}
	return out
}

func (r *rig) expire() []string {
	r.t.Helper()
	due, events, _ := r.Expire()
	for _, d := range due {
		events = append(events, r.Drop(d.Node, d.Epoch, d.Reason, true)...)
	}
	return kinds(events)
}

func reason(err error) string { return capability.AsError(err).Reason }

func (r *rig) picked(q fleet.Request) string {
	r.t.Helper()
	list, err := r.Pick(q)
	if err != nil {
		r.t.Fatal(err)
	}
	var ids []string
	for _, n := range list {
		ids = append(ids, n.ID)
	}
	return strings.Join(ids, " ")
}

func TestMembershipIsASessionAGraceAndALease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := r.join(member("a", "f")), r.join(member("b", "f"))
	if b <= a {
		t.Errorf("epochs do not grow; got b = %v; want b more than %v", b, a)
	}
	if d := cmp.Diff([]string{"node.suspect a"}, kinds(r.Gone("session-a"))); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if got := r.picked(fleet.Request{Function: "f"}); got != "b" {
		t.Errorf(`a suspect node was routed to: %s; want got = "b"`, got)
	}
	if list := r.List(fleet.Filter{}); len(list) != 1 || len(r.List(fleet.Filter{Suspect: true})) != 2 {
		t.Errorf("%+v; want len(list) = 1, len(r.List(fleet.Filter{Suspect: true})) = 2", list)
	}
	r.after(4 * time.Second)
	if got := r.expire(); got != nil {
		t.Errorf("r.expire() = %q, want nil", got)
	}
	r.after(time.Second)
	if d := cmp.Diff([]string{"node.left a lost"}, r.expire()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	// b is frozen: its session looks alive, and nothing comes.
	r.after(24 * time.Second)
	if got := r.expire(); got != nil {
		t.Errorf("r.expire() = %q, want nil", got)
	}
	r.after(time.Second)
	if d := cmp.Diff([]string{"node.suspect b", "node.left b silent"}, r.expire()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if v, _ := r.Beat("b", b, 1, fleet.Load{}); v != fleet.Rejoin {
		t.Errorf("%q; want v = fleet.Rejoin", v)
	}
	if _, _, next := r.Expire(); !next.IsZero() || r.Len() != 0 {
		t.Errorf("r.Expire(): next.IsZero() = %v, want true; r.Len() = %v, want 0", next.IsZero(), r.Len())
	}
}

func TestANodeThatComesBackInTimeIsResumed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.join(member("a", "f"))
	r.Gone("session-a")
	r.after(3 * time.Second)
	again := member("a", "f")
	again.Session, again.Revision = "session-2", 2
	epoch, events, err := r.Join(again)
	if err != nil || epoch <= old {
		t.Fatalf("err = %v, want nil; epoch = %v, want more than %v", err, epoch, old)
	}
	if d := cmp.Diff([]string{"node.resumed a", "node.updated a"}, kinds(events)); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	r.after(10 * time.Second)
	if got := r.expire(); got != nil {
		t.Errorf("the old grace was kept: %v; want got = nil", got)
	}
	if events := r.Gone("session-a"); events != nil {
		t.Errorf("the end of an old session hurt the new one: %v; want events = nil", kinds(events))
	}
}

func TestTheNewerSessionServesAndTheOlderIsFenced(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.join(member("a", "f"))
	second := member("a", "f", "g")
	second.Session = "session-2"
	epoch, events, err := r.Join(second)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"node.superseded a", "node.resumed a"}, kinds(events)); d != "" || events[0].Session != "session-a" {
		t.Errorf(`d = %q, want ""; events = %+v, want events[0].Session = "session-a"`, d, events)
	}
	if v, _ := r.Beat("a", old, 1, fleet.Load{}); v != fleet.Superseded {
		t.Errorf("%q; want v = fleet.Superseded", v)
	}
	if _, err := r.Update("a", old, 9, nil, nil, nil); reason(err) != "superseded" {
		t.Errorf(`%v; want reason(err) = "superseded"`, err)
	}
	if _, err := r.Leave("a", old); reason(err) != "superseded" {
		t.Errorf(`%v; want reason(err) = "superseded"`, err)
	}
	if n, ok := r.Get("a"); !ok || n.Epoch != epoch || !n.Offers("g") {
		t.Errorf(`%+v; want ok = true, n.Epoch = %v, n.Offers("g")`, n, epoch)
	}
}

func TestWhatANodeOffersIsTheWholeTruthOfItsRevision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.join(member("a", "f", "g"))
	if v, _ := r.Beat("a", e, 3, fleet.Load{Accepting: true}); v != fleet.Outdated {
		t.Errorf("%q; want v = fleet.Outdated", v)
	}
	events, err := r.Update("a", e, 3, []string{" x ", "", "x"}, nil, []fleet.Function{{Name: "h"}})
	if err != nil || len(events) != 1 {
		t.Fatalf("err = %v, want nil; len(events) = %v, want 1; events = %+v", err, len(events), events)
	}
	if events, err := r.Update("a", e, 2, nil, nil, nil); err != nil || events != nil {
		t.Errorf("an older revision was taken: %v %v; want no error, events = nil", events, err)
	}
	n, _ := r.Get("a")
	if d := cmp.Diff([]string{"h"}, n.Names()); d != "" || !slices.Equal(n.Labels, []string{"x"}) {
		t.Errorf("diff (-want +got):\n%s; n.Labels = %q, want []string{\"x\"}", d, n.Labels)
	}
	if _, err := r.Pick(fleet.Request{Function: "f"}); reason(err) != "function_not_found" {
		t.Errorf(`%v; want reason(err) = "function_not_found"`, err)
	}
}

func TestLabelsOfUsersComeWithTheCredential(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	m := member("a", "f")
	m.Labels, m.Granted = []string{"gpu", "user:ann", "user:ben"}, []string{"user:ann"}
	if _, _, err := r.Join(m); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeDenied", err)
	}
	if d := cmp.Diff([]string{"user:ben"}, fleet.RejectedLabels(m.Labels, m.Granted)); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
	m.Labels = []string{"gpu", "user:ann"}
	e := r.join(m)
	if _, err := r.Update("a", e, 5, []string{"tenant:x"}, m.Granted, m.Functions); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeDenied", err)
	}
}

func TestNonsenseDoesNotJoin(t *testing.T) {
	t.Parallel()
	many := make([]string, fleet.MaxLabels+1)
	for i := range many {
		many[i] = fmt.Sprint("l", i)
	}
	for name, change := range map[string]func(*fleet.Member){
		"no session":         func(m *fleet.Member) { m.Session = "" },
		"many labels":        func(m *fleet.Member) { m.Labels = many },
		"a long label":       func(m *fleet.Member) { m.Labels = []string{strings.Repeat("x", fleet.MaxLabel+1)} },
		"many functions":     func(m *fleet.Member) { m.Functions = make([]fleet.Function, fleet.MaxFunctions+1) },
		"a function twice":   func(m *fleet.Member) { m.Functions = append(m.Functions, m.Functions[0]) },
		"one without a name": func(m *fleet.Member) { m.Functions[0].Name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			m := member("a", "f")
			change(&m)
			if _, _, err := r.Join(m); capability.CodeOf(err) != capability.CodeInvalidInput || r.Len() != 0 {
				t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput, r.Len() = 0", err)
			}
		})
	}
}

func TestADrainingNodeThatWasLostDrainsOnWhenItReturns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.join(member("a", "f"))
	r.drain("a")
	if d := cmp.Diff([]string{"node.suspect a"}, kinds(r.Absent("a", e, 0))); d != "" {
		t.Fatalf("Absent (-want +got):\n%s", d)
	}
	r.beat("a", e, 1)
	if n, _ := r.Get("a"); n.Status != fleet.Draining {
		t.Errorf("status after the heartbeat = %q, want %q", n.Status, fleet.Draining)
	}
	if _, err := r.Pick(fleet.Request{Function: "f"}); reason(err) != "no_available_nodes" {
		t.Errorf("Pick = %v, want no_available_nodes", err)
	}
}

func TestDrainingFinishesWhatThereIs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.join(member("a", "f"))
	end := r.Begin("a", e, "f")
	if d := cmp.Diff([]string{"node.updated a"}, kinds(r.drain("a"))); d != "" {
		t.Fatalf("diff (-want +got):\n%s", d)
	}
	if events := r.drain("a"); events != nil {
		t.Errorf("it was asked twice: %v; want events = nil", kinds(events))
	}
	if _, err := r.Pick(fleet.Request{Function: "f"}); reason(err) != "no_available_nodes" {
		t.Errorf(`%v; want reason(err) = "no_available_nodes"`, err)
	}
	if n, _ := r.Get("a"); n.Status != fleet.Draining {
		t.Errorf(`r.Get("a"): n.Status = %q, want fleet.Draining`, n.Status)
	}
	for range 2 {
		r.beat("a", e, 1)
	}
	if got := r.expire(); got != nil {
		t.Errorf("r.expire() = %q, want nil", got)
	}
	end(5)
	end(5) // counted once
	if d := cmp.Diff([]string{"node.left a drained"}, r.expire()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	e = r.join(member("b", "f"))
	r.beat("b", e, 1)
	r.drain("b")
	if v, _ := r.Beat("b", e, 1, fleet.Load{Active: 1}); v != "" { // for another gateway
		t.Errorf(`r.Beat("b", e, 1, fleet.Load{Active: 1}): v = %q, want ""`, v)
	}
	r.beat("b", e, 1)
	if got := r.expire(); got != nil {
		t.Errorf("r.expire() = %q, want nil", got)
	}
	r.beat("b", e, 1)
	if d := cmp.Diff([]string{"node.left b drained"}, r.expire()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestTheLeastLoadedTakesTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, id := range []string{"c", "a", "b"} {
		r.beat(id, r.join(member(id, "f")), float64(30-10*i)) // b has least to do
	}
	if got := r.picked(fleet.Request{Function: "f"}); got != "b a c" {
		t.Errorf(`r.picked(fleet.Request{Function: "f"}) = %q, want "b a c"`, got)
	}
	// What is under way counts at once.
	n, _ := r.Get("b")
	for range 9 {
		r.Begin("b", n.Epoch, "f")
	}
	if got := r.picked(fleet.Request{Function: "f"}); got != "a c b" {
		t.Errorf(`r.picked(fleet.Request{Function: "f"}) = %q, want "a c b"`, got)
	}
	for _, tt := range []struct {
		name string
		q    fleet.Request
		want string
	}{
		{"one that is named", fleet.Request{Node: "c"}, "c"},
		{"one that is preferred", fleet.Request{Preferred: []string{"c", "nobody"}}, "c a b"},
		{"none that is excluded", fleet.Request{Excluded: []string{"a"}}, "c b"},
		{"none whose circuit is open", fleet.Request{Unhealthy: func(id string) bool { return id == "a" }}, "c b"},
		{"none that the caller may not see", fleet.Request{Visible: func(n *fleet.Node) bool { return n.ID != "a" }}, "c b"},
	} {
		tt.q.Function = "f"
		if got := r.picked(tt.q); got != tt.want {
			t.Errorf("%s: picked %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestEveryNodeHasItsTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"a", "b", "c"} {
		r.join(member(id, "f", "g"))
	}
	first := func(q fleet.Request) string { return r.picked(q)[:1] }
	var got string
	for range 4 {
		got += first(fleet.Request{Function: "f", Balance: true, Strategy: fleet.RoundRobin})
		first(fleet.Request{Function: "g", Balance: true}) // without figures it is round robin too, with a turn of its own
	}
	if got != "abca" {
		t.Errorf(`got = %q, want "abca"`, got)
	}
	seen := make(map[string]bool)
	for range 200 {
		seen[first(fleet.Request{Function: "f", Balance: true, Strategy: fleet.Random})] = true
	}
	if len(seen) != 3 {
		t.Errorf("len(seen) = %v, want 3; seen = %v", len(seen), seen)
	}
}

func TestABurstIsSpreadOverTheBetterHalf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 20 {
		id := fmt.Sprintf("n%02d", i)
		r.beat(id, r.join(member(id, "f")), float64(5*i))
	}
	seen := make(map[string]int)
	for range 500 {
		list, err := r.Pick(fleet.Request{Function: "f", Balance: true})
		if err != nil {
			t.Fatal(err)
		}
		seen[list[0].ID]++
	}
	if len(seen) < 5 || seen["n00"] <= seen["n08"] || slices.ContainsFunc([]string{"n10", "n15", "n19"},
		func(id string) bool { return seen[id] > 0 }) {
		t.Errorf("calls by node = %v, want at least 5 nodes, n00 before n08, and none of n10, n15, n19", seen)
	}
}

func TestAmongVeryManyASampleIsAsGood(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const count = 500
	for i := range count {
		id := fmt.Sprintf("n%03d", i)
		e := r.join(member(id, "f"))
		if i%10 == 0 {
			r.Beat(id, e, 1, fleet.Load{CPU: 100}) // does not accept
			continue
		}
		r.beat(id, e, float64(i*100/count))
	}
	seen := make(map[string]int)
	var load int
	for range 2000 {
		list, err := r.Pick(fleet.Request{Function: "f", Balance: true, Excluded: []string{"n001"}})
		if err != nil || len(list) != 3 || list[0].ID == list[1].ID || list[1].ID == list[2].ID {
			t.Fatalf("Pick = %v, %v; want three different nodes", list, err)
		}
		seen[list[0].ID]++
		load += int(list[0].Load.CPU)
	}
	// Two of the better half: a sixth of the way up on the average.
	if len(seen) < 100 || seen["n001"]+seen["n010"] > 0 || load/2000 > 22 {
		t.Errorf(`len(seen) = %v, want at least 100; seen["n001"]+seen["n010"] = %v, want at most 0; load/2000 = %v, want at most 22`,
			len(seen), seen["n001"]+seen["n010"], load/2000)
	}
	if got := r.picked(fleet.Request{Function: "f"}); got != "n001 n002 n003" {
		t.Errorf(`without balancing the least loaded take it: %v; want got = "n001 n002 n003"`, got)
	}
	if got := r.picked(fleet.Request{Function: "f", Balance: true, Preferred: []string{"n499"}}); !strings.HasPrefix(got, "n499 ") {
		t.Errorf(`r.picked = %q, want it to begin with "n499 "`, got)
	}
	r.drain("n002")
	all := func(n *fleet.Node) bool { return n.ID == "n003" || n.ID == "n002" }
	if got := r.picked(fleet.Request{Function: "f", Balance: true, Visible: all}); got != "n003" {
		t.Errorf(`one of many was not found: %v; want got = "n003"`, got)
	}
}

func TestWhoCannotTakeACallSaysWhy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(r *rig, m *fleet.Member)
		q      fleet.Request
		reason string
	}{
		{"nobody offers it", nil, fleet.Request{Function: "other"}, "function_not_found"},
		{"the named one does not", nil, fleet.Request{Function: "other", Node: "a"}, "function_not_found"},
		{"there is no such node", nil, fleet.Request{Function: "f", Node: "b"}, "node_not_found"},
		{
			"it is not for the caller to see", nil,
			fleet.Request{Function: "f", Node: "a", Visible: func(*fleet.Node) bool { return false }},
			"node_not_found",
		},
		{"a label is missing", nil, fleet.Request{Function: "f", Labels: []string{"gpu"}}, "no_available_nodes"},
		{"a tag is missing", nil, fleet.Request{Function: "f", Tags: []string{"x"}}, "no_available_nodes"},
		{"it has no GPU", nil, fleet.Request{Function: "f", NeedsGPU: true}, "no_available_nodes"},
		{"it has too little memory", nil, fleet.Request{Function: "f", MinMemory: 1}, "no_available_nodes"},
		{"it must be named", func(_ *rig, m *fleet.Member) { m.Functions[0].Pinned = true }, fleet.Request{Function: "f"}, "no_available_nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			m := member("a", "f")
			if tt.change != nil {
				tt.change(r, &m)
			}
			r.join(m)
			if _, err := r.Pick(tt.q); reason(err) != tt.reason {
				t.Errorf("%v; want reason(err) = %v", err, tt.reason)
			}
		})
	}
}

func TestANodeAtItsLimitIsLeftOutWhileAnotherIsFree(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"a", "b"} {
		m := member(id, "f", "g")
		m.MaxConcurrent, m.Functions[0].MaxConcurrent = 2, 1
		r.join(m)
	}
	begin := func(id, function string) func(float64) bool {
		n, _ := r.Get(id)
		return r.Begin(id, n.Epoch, function)
	}
	end := begin("a", "f")
	for range 3 {
		if got := r.picked(fleet.Request{Function: "f", Balance: true, Strategy: fleet.RoundRobin}); got != "b" {
			t.Fatalf(`a runs one call of f, whose limit is 1: f is given to %q, want "b"`, got)
		}
	}
	begin("a", "g")
	for range 3 {
		if got := r.picked(fleet.Request{Function: "g", Balance: true, Strategy: fleet.RoundRobin}); got != "b" {
			t.Fatalf(`a runs two calls, and its limit is 2: g is given to %q, want "b"`, got)
		}
	}
	// It has a queue: who names it is not turned away, and where all are busy one of
	// them is better than none.
	if got := r.picked(fleet.Request{Function: "g", Node: "a"}); got != "a" {
		t.Errorf(`a is full and named by the caller: g is given to %q, want "a"`, got)
	}
	begin("b", "f")
	if got := r.picked(fleet.Request{Function: "f"}); got == "" {
		t.Error(`a and b are full: f is given to "", want one of them, in whose queue it waits`)
	}
	end(1)
	if got := r.picked(fleet.Request{Function: "f"}); got != "a" {
		t.Errorf(`b is full, and the call of f on a has ended: f is given to %q, want "a"`, got)
	}
	// One that reports that its queue is full takes nothing.
	for _, id := range []string{"a", "b"} {
		n, _ := r.Get(id)
		r.Beat(id, n.Epoch, n.Revision, fleet.Load{})
	}
	if _, err := r.Pick(fleet.Request{Function: "f"}); reason(err) != "node_overloaded" {
		t.Errorf(`%v; want reason(err) = "node_overloaded"`, err)
	}
	if n, _ := r.Get("a"); r.Begin("a", n.Epoch-1, "f") != nil || r.Begin("nobody", n.Epoch, "f") != nil {
		t.Error(`a call went to a session that is over; want r.Begin("a", n.Epoch-1, "f") = nil, r.Begin("nobody", n.Epoch, "f") = nil`)
	}
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			id := fmt.Sprint("n", i%8)
			for k := range 100 {
				m := member(id, "f")
				m.Session = fmt.Sprintf("s%d-%d", i, k)
				e, _, err := r.Join(m)
				if err != nil {
					t.Error(err)
					return
				}
				if end := r.Begin(id, e, "f"); end != nil {
					end(1)
				}
				_, _ = r.Pick(fleet.Request{Function: "f", Balance: true})
				r.Gone(m.Session)
				due, _, _ := r.Expire()
				for _, d := range due {
					r.Drop(d.Node, d.Epoch, d.Reason, true)
				}
			}
		})
	}
	wg.Wait()
	r.after(time.Minute)
	r.expire()
	if r.Len() != 0 {
		t.Errorf("r.Len() = %v, want 0", r.Len())
	}
	if _, err := r.Pick(fleet.Request{Function: "f"}); reason(err) != "function_not_found" {
		t.Errorf(`%v; want reason(err) = "function_not_found"`, err)
	}
}

func BenchmarkPickAmong1000(b *testing.B) {
	table := fleet.New(fleet.Config{})
	for i := range 1000 {
		m := member(fmt.Sprintf("n%04d", i), "f")
		rec, err := table.Propose(m)
		if err != nil {
			b.Fatal(err)
		}
		table.Take(rec)
		table.Beat(m.ID, rec.Epoch, 1, fleet.Load{CPU: float64(i % 100), Accepting: true})
	}
	for name, q := range map[string]fleet.Request{"balanced": {Balance: true}, "least loaded": {}} {
		q.Function = "f"
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := table.Pick(q); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
