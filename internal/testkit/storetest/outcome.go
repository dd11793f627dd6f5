package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

const outcomeTTL = 24 * time.Hour

func outcome(key string, at time.Time) invoke.Outcome {
	return invoke.Outcome{Principal: "agent:a", Key: key, Digest: "d", Invocation: "run_" + key, State: invoke.StateCreated, At: at}
}

func begin(t *testing.T, s Stores, o invoke.Outcome, limit int) (invoke.Outcome, bool) {
	t.Helper()
	got, claimed, err := s.Outcomes.BeginOutcome(t.Context(), o, outcomeTTL, limit)
	ok(t, err)
	return got, claimed
}

func outcomeClaimedOnce(t *testing.T, s Stores) {
	n := winners(t, 12, func(i int) (bool, error) {
		o := outcome("k", day(0))
		o.Invocation = fmt.Sprintf("run_%d", i)
		_, claimed, err := s.Outcomes.BeginOutcome(t.Context(), o, outcomeTTL, 100)
		return claimed, err
	})
	same(t, n, 1)
	other := outcome("k", day(0))
	other.Digest = "another"
	got, claimed := begin(t, s, other, 100)
	if claimed || got.Digest != "d" || got.State.Terminal() {
		t.Fatalf("%v %+v", claimed, got)
	}
	other.Principal = "agent:b"
	if _, claimed = begin(t, s, other, 100); !claimed {
		t.Fatal("keys of two principals collide")
	}
	ok(t, s.Outcomes.DropOutcome(t.Context(), "agent:a", "k"))
	ok(t, s.Outcomes.DropOutcome(t.Context(), "agent:a", "k"))
	if _, claimed = begin(t, s, outcome("k", day(0)), 100); !claimed {
		t.Fatal("a dropped key is taken")
	}
}

func outcomeRepeated(t *testing.T, s Stores) {
	good := outcome("good", day(0))
	begin(t, s, good, 100)
	good.State, good.Provider, good.Capability = invoke.StateCompleted, "fs:endpoint:x", "a/b#c@d"
	good.Result = json.RawMessage(`{"n": ` + string(slices.Repeat([]byte("7"), 100<<10)) + `}`)
	ok(t, s.Outcomes.FinishOutcome(t.Context(), good))
	got, claimed := begin(t, s, outcome("good", day(0)), 100)
	if claimed {
		t.Fatal("claimed a finished key")
	}
	same(t, got, good)
	code(t, s.Outcomes.FinishOutcome(t.Context(), good), capability.CodeNotFound)
	ok(t, s.Outcomes.DropOutcome(t.Context(), "agent:a", "good"))
	if _, claimed = begin(t, s, outcome("good", day(0)), 100); claimed {
		t.Fatal("a finished key was dropped")
	}

	bad := outcome("bad", day(0))
	begin(t, s, bad, 100)
	bad.State = invoke.StateFailed
	bad.Error = capability.Errorf(capability.CodeFailed, "", "no such file").With("exit_status", "look")
	ok(t, s.Outcomes.FinishOutcome(t.Context(), bad))
	got, _ = begin(t, s, outcome("bad", day(0)), 100)
	if got.Error == nil || got.Error.Code != capability.CodeFailed || got.Error.Reason != "exit_status" ||
		got.Error.Message != "no such file" || got.Result != nil {
		t.Fatalf("%+v", got)
	}
	code(t, s.Outcomes.FinishOutcome(t.Context(), outcome("never", day(0))), capability.CodeNotFound)
}

func outcomesForgotten(t *testing.T, s Stores) {
	taken := func(key string, at time.Time, limit int) bool {
		t.Helper()
		_, claimed := begin(t, s, outcome(key, at), limit)
		return !claimed
	}
	for i := range 5 {
		o := outcome(fmt.Sprint("k", i), day(0).Add(time.Duration(i)*time.Minute))
		begin(t, s, o, 100)
		if i > 0 { // k0 stays unfinished
			o.State = invoke.StateCompleted
			ok(t, s.Outcomes.FinishOutcome(t.Context(), o))
		}
	}
	at := day(0).Add(time.Hour)
	if taken("k5", at, 4) { // six with it: the oldest two finished ones go
		t.Fatal("k5 was never used")
	}
	for key, want := range map[string]bool{"k0": true, "k3": true, "k4": true, "k5": true} {
		if got := taken(key, at, 100); got != want {
			t.Fatalf("%s is taken: %v", key, got)
		}
	}
	if taken("k1", at, 100) || taken("k2", at, 100) {
		t.Fatal("more keys are kept than may be")
	}
	if taken("k0", day(0).Add(outcomeTTL+time.Second), 100) {
		t.Fatal("an old key is still taken")
	}
}

func indexFinds(t *testing.T, s Stores) {
	yes, no := true, false
	var all []audit.Entry
	for i := range 40 {
		e := audit.Entry{
			Seq: uint64(i + 1), Segment: 1, Offset: int64(100 * i), Length: 99, Time: day(i), Level: audit.Info, Event: audit.CapabilityExecuted,
			Extension: fmt.Sprint("ext", i%3), Action: "fs.list", Capability: "c", Session: fmt.Sprint("s", i%4), User: "agent:a",
			Run: fmt.Sprint("run", i), Success: &yes, Provider: fmt.Sprint("p", i%2), Parent: fmt.Sprint("tsk_", i%7),
			Approval: fmt.Sprint("apr_", i%9),
		}
		switch i % 5 {
		case 1:
			e.Event, e.Level, e.Success = audit.PermissionDenied, audit.Warning, &no
		case 2:
			e.Event, e.Level, e.Success = audit.CapabilityStarted, audit.Debug, nil
		}
		all = append(all, e)
	}
	ok(t, s.Index.Add(t.Context(), all[:25], audit.Position{Seq: 25}))
	ok(t, s.Index.Add(t.Context(), all[20:], audit.Position{Seq: 40})) // some twice
	for i, q := range []audit.Query{
		{},
		{Limit: 3},
		{Extension: "ext1"},
		{Event: audit.PermissionDenied},
		{Session: "s2", Before: 30},
		{User: "x"},
		{Run: "run7"},
		{Provider: "p1", Parent: "tsk_3"},
		{Approval: "apr_8"},
		{Capability: "fs.list", Limit: 2},
		{Capability: "c", Level: audit.Warning},
		{Level: audit.Info},
		{Since: day(10), Until: day(20)},
		{Success: &no},
		{Success: &yes, Extension: "ext0", Session: "s1"},
	} {
		if q.Limit == 0 {
			q.Limit = 1000
		}
		var want []audit.Entry
		for _, e := range slices.Backward(all) {
			if q.Match(e) && len(want) < q.Limit {
				want = append(want, e)
			}
		}
		got, err := s.Index.Find(t.Context(), q)
		if err != nil {
			t.Fatalf("query %d: %v", i, err)
		}
		same(t, got, want)
	}
	for i, q := range []audit.UsageQuery{
		{},
		{By: []audit.UsageKey{audit.ByProvider}},
		{By: []audit.UsageKey{audit.ByProvider, audit.ByDay}, Since: day(10), Until: day(20)},
		{By: []audit.UsageKey{audit.ByUser, audit.ByCapability}, User: "agent:a"},
		{By: []audit.UsageKey{audit.ByUser}, User: "x"},
	} {
		want := map[audit.Usage]bool{}
		for _, u := range counted(all, q) {
			want[u] = true
		}
		q.Limit = 1000
		got, err := s.Index.Usage(t.Context(), q)
		if err != nil || len(got) != len(want) {
			t.Fatalf("usage %d: got %+v, %v, want %v", i, got, err, want)
		}
		for _, u := range got {
			if u.Last = u.Last.UTC(); !want[u] {
				t.Errorf("usage %d: got %+v, want one of %v", i, u, want)
			}
		}
	}
}

// counted returns what a usage query has to return for entries, in any order.
func counted(all []audit.Entry, q audit.UsageQuery) (out []audit.Usage) {
	made, failed, refused := audit.Ends()
	sums := map[audit.Usage]audit.Usage{}
	for _, e := range all {
		if q.User != "" && q.User != e.User || !q.Since.IsZero() && e.Time.Before(q.Since) || !q.Until.IsZero() && !e.Time.Before(q.Until) ||
			!slices.Contains(slices.Concat(made, refused), e.Event) {
			continue
		}
		var key audit.Usage
		for _, by := range q.By {
			switch by {
			case audit.ByUser:
				key.User = e.User
			case audit.ByCapability:
				key.Capability = e.Capability
			case audit.ByProvider:
				key.Provider = e.Provider
			case audit.ByDay:
				key.Day = e.Time.UTC().Format(time.DateOnly)
			}
		}
		sum := sums[key]
		last := sum.Last
		if sum.User, sum.Capability, sum.Provider, sum.Day = key.User, key.Capability, key.Provider, key.Day; e.Time.After(last) {
			last = e.Time.UTC()
		}
		sum.Last = last
		for list, n := range map[*int64][]audit.Event{&sum.Calls: made, &sum.Failed: failed, &sum.Refused: refused} {
			if slices.Contains(n, e.Event) {
				*list++
			}
		}
		sums[key] = sum
	}
	for _, u := range sums {
		out = append(out, u)
	}
	return out
}

func indexKeeps(t *testing.T, s Stores) {
	pos, err := s.Index.Position(t.Context())
	ok(t, err)
	same(t, pos, audit.Position{})
	at := audit.Position{Seq: 7, Hash: "ab", Segment: 2, Offset: 99}
	ok(t, s.Index.Add(t.Context(), []audit.Entry{{Seq: 7, Time: day(0), Level: audit.Info}}, at))
	pos, err = s.Index.Position(t.Context())
	ok(t, err)
	same(t, pos, at)
	for i := range 5 {
		ok(t, s.Index.AddCheckpoint(t.Context(), audit.Checkpoint{
			Seq: uint64(10 * (i + 1)), Hash: fmt.Sprint("h", i), At: day(i), Coded: uint64(i), MAC: fmt.Sprint("m", i),
		}))
	}
	ok(t, s.Index.AddCheckpoint(t.Context(), audit.Checkpoint{Seq: 20, Hash: "forged", At: day(9)}))
	ok(t, s.Index.Reset(t.Context()))
	pos, err = s.Index.Position(t.Context())
	ok(t, err)
	same(t, pos, audit.Position{})
	found, err := s.Index.Find(t.Context(), audit.Query{Limit: 1})
	ok(t, err)
	same(t, len(found), 0)
	points, err := s.Index.Checkpoints(t.Context(), 10, 2)
	ok(t, err)
	same(t, points, []audit.Checkpoint{
		{Seq: 20, Hash: "h1", At: day(1), Coded: 1, MAC: "m1"},
		{Seq: 30, Hash: "h2", At: day(2), Coded: 2, MAC: "m2"},
	})
	ok(t, s.Index.Add(t.Context(), []audit.Entry{{Seq: 40, Time: day(0)}, {Seq: 41, Time: day(0)}}, at))
	ok(t, s.Index.Forget(t.Context(), 41))
	found, err = s.Index.Find(t.Context(), audit.Query{Limit: 9})
	ok(t, err)
	if len(found) != 1 || found[0].Seq != 41 {
		t.Fatalf("%+v", found)
	}
	points, err = s.Index.Checkpoints(t.Context(), 0, 9)
	ok(t, err)
	same(t, points, []audit.Checkpoint{
		{Seq: 40, Hash: "h3", At: day(3), Coded: 3, MAC: "m3"},
		{Seq: 50, Hash: "h4", At: day(4), Coded: 4, MAC: "m4"},
	})
}
