package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

func TestWritesAreOnRecordBeforeTheyBeginAndOnDiskBeforeTheyEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	var before, durable int64
	r.offer("w", capability.Contribution{Effect: capability.EffectWrite},
		func(_ context.Context, c capability.Call) (capability.Result, error) {
			if got := r.events(c.Invocation); len(got) != 1 || got[0] != "capability_started" {
				t.Errorf(`the provider was called after %v; want len(got) = 1, got[0] = "capability_started"`, got)
			}
			before = r.segments.lines.Load()
			return capability.Result{}, nil
		})
	reply, err := r.engine.Invoke(t.Context(), on(admin(), "w", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if durable = r.segments.durable.Load(); durable != before+1 {
		t.Errorf("%d of %d lines are on the disk; want durable = before + 1", durable, before+1)
	}
	if got := r.records(reply.Invocation); got[1]["metadata"].(map[string]any)["state"] != "completed" {
		t.Errorf(`got[1] = %v, want got[1]["metadata"].(map[string]any)["state"] == "completed"`, got[1])
	}

	r.offer("r", capability.Contribution{Effect: capability.EffectRead}, nil)
	if _, err := r.engine.Invoke(t.Context(), on(admin(), "r", `{}`)); err != nil {
		t.Fatal(err)
	}
	if r.segments.lines.Load() != before+2 || r.segments.durable.Load() != durable {
		t.Errorf("a read has one record, which may wait for the disk; want r.segments.lines.Load() = before + 2, "+
			"r.segments.durable.Load() = %v", durable)
	}
	reply, err = r.engine.Invoke(t.Context(), on(capability.Principal{ID: "node:n", Role: capability.RoleNode}, "r", `{}`))
	fails(t, err, capability.CodeUnknownCapability, "")
	if r.segments.durable.Load() != r.segments.lines.Load() || r.events(reply.Invocation)[0] != "permission_denied" {
		t.Errorf("a denial is not on the disk: %v; want r.segments.durable.Load() = r.segments.lines.Load(), "+
			`r.events(reply.Invocation)[0] = "permission_denied"`, r.events(reply.Invocation))
	}
}

func TestABrokenLogStopsWhatItsModeSays(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode        audit.Mode
		read, write bool // still allowed
	}{{audit.Standard, true, false}, {audit.Strict, false, false}, {audit.BestEffort, true, true}}
	for _, tt := range tests {
		t.Run(string(tt.mode), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options{mode: tt.mode})
			reads := r.offer("r", capability.Contribution{Effect: capability.EffectRead}, nil)
			writes := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
			keyed := on(admin(), "r", `{}`)
			keyed.IdempotencyKey = "before"
			if _, err := r.engine.Invoke(t.Context(), keyed); err != nil {
				t.Fatal(err)
			}
			reads.calls.Store(0)
			r.segments.broken.Store(true)
			_, _ = r.log.Append(t.Context(), audit.Record{Event: audit.ConfigChanged}, audit.Synced) // finds out
			for name, c := range map[string]struct {
				allowed bool
				calls   int64
			}{"r": {tt.read, 0}, "w": {tt.write, 0}} {
				reply, err := r.engine.Invoke(t.Context(), on(admin(), name, `{}`))
				if c.allowed {
					if err != nil || !reply.AuditDegraded || reply.State != invoke.StateCompleted {
						t.Errorf("%s: %v, degraded %v; want no error, reply.AuditDegraded = true, reply.State = invoke.StateCompleted",
							name, err, reply.AuditDegraded)
					}
					continue
				}
				fails(t, err, capability.CodeUnavailable, "audit_unavailable")
				if reply.State != invoke.StateFailed {
					t.Errorf("reply.State = %v, want %v", reply.State, invoke.StateFailed)
				}
			}
			if (reads.calls.Load() > 0) != tt.read || (writes.calls.Load() > 0) != tt.write {
				t.Errorf("%d reads and %d writes reached their provider; want (reads.calls.Load() > 0) = %v, "+
					"(writes.calls.Load() > 0) = %v", reads.calls.Load(), writes.calls.Load(), tt.read, tt.write)
			}
			if _, err := r.engine.Invoke(t.Context(), keyed); (err == nil) != tt.read {
				t.Errorf("a remembered outcome: %v; want (err == nil) = %v", err, tt.read)
			}
		})
	}
}

func TestAWriteThatBreaksTheLogBeforeItStartsIsNotSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	f := r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, nil)
	r.segments.broken.Store(true) // not detected yet
	_, err := r.engine.Invoke(t.Context(), on(admin(), "w", `{}`))
	if fails(t, err, capability.CodeUnavailable, "audit_unavailable"); f.calls.Load() != 0 {
		t.Error("it was sent; want f.calls.Load() = 0")
	}
}

func TestAWriteDoneButNotRecordedIsAFailureWithTheDigestOfItsResult(t *testing.T) {
	t.Parallel()
	for name, broke := range map[string]func(*rig){
		"append": func(r *rig) { r.segments.broken.Store(true) },
		"sync":   func(r *rig) { r.segments.failNextSync.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, options{})
			r.offer("w", capability.Contribution{Effect: capability.EffectWrite}, func(context.Context, capability.Call) (capability.Result, error) {
				broke(r)
				return capability.Result{Value: json.RawMessage(`{"id":7}`)}, nil
			})
			inv := on(admin(), "w", `{}`)
			inv.IdempotencyKey = "k"
			reply, err := r.engine.Invoke(t.Context(), inv)
			e := fails(t, err, capability.CodeFailed, "audit_unavailable")
			if reply.State != invoke.StateFailed || reply.Result != nil || e.Details["result_digest"] != r.log.Digest([]byte(`{"id":7}`)) {
				t.Errorf(`%s %s %v; want reply.State = invoke.StateFailed, reply.Result = nil, e.Details["result_digest"] = `+
					"r.log.Digest([]byte(`{\"id\":7}`))", reply.State, reply.Result, e.Details)
			}
		})
	}
}

func TestInvisibleAndUnknownCannotBeToldApartByAgents(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("secret", capability.Contribution{Effect: capability.EffectAdmin}, nil)
	text := func(reply invoke.Reply, err error) string {
		doc, _ := json.Marshal(fails(t, err, capability.CodeUnknownCapability, ""))
		if reply.Provider != "" || reply.Capability != "" || reply.State != invoke.StateFailed {
			t.Errorf(`the reply tells: %+v; want reply.Provider = "", reply.Capability = "", reply.State = invoke.StateFailed`, reply)
		}
		var visited []string
		for _, s := range states(reply) {
			visited = append(visited, string(s))
		}
		return string(doc) + err.Error() + strings.Join(visited, ",")
	}
	hidden := text(r.engine.Invoke(t.Context(), on(agent(), "secret", `{}`)))
	absent := text(r.engine.Invoke(t.Context(), on(agent(), "public", `{}`)))
	if strings.ReplaceAll(absent, "public", "secret") != hidden {
		t.Errorf("told apart:\n%s\n%s\nwant strings.ReplaceAll(absent, \"public\", \"secret\") = %v", hidden, absent, hidden)
	}
	for _, target := range []capability.Target{
		{Capability: "test.secret/work#ext.test.secret.work@secret"},
		{Action: "ext.test.secret.work"},
		{Member: capability.Member{Module: "test.secret", Kind: "action", Name: "work"}},
	} {
		inv := on(agent(), "", `{}`)
		inv.Target = target
		text(r.engine.Invoke(t.Context(), inv))
		inv.Principal = operator()
		if _, err := r.engine.Invoke(t.Context(), inv); err != nil {
			t.Errorf("%s for an operator: %v", target, err)
		}
	}
}

func TestOperatorsLearnWhichPolicyForbids(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{rules: `@id("house-rule") forbid (principal, action, resource) when { resource.module == "test.x" }; permit (principal, action, resource);`})
	r.offer("x", capability.Contribution{Effect: capability.EffectRead}, nil)
	reply, err := r.engine.Invoke(t.Context(), on(operator(), "x", `{}`))
	if e := fails(t, err, capability.CodeDenied, "permission_denied"); !strings.Contains(e.Message, "house-rule") {
		t.Errorf(`e.Message = %v, want strings.Contains(e.Message, "house-rule")`, e.Message)
	}
	decision := r.records(reply.Invocation)[0]["metadata"].(map[string]any)["decision"].(map[string]any)
	if decision["effect"] != "forbid" || decision["policy_ids"].([]any)[0] != "house-rule" {
		t.Errorf(`decision = %v, want decision["effect"] == "forbid" && decision["policy_ids"].([]any)[0] == "house-rule"`, decision)
	}
	_, err = r.engine.Invoke(t.Context(), on(agent(), "x", `{}`))
	if e := fails(t, err, capability.CodeUnknownCapability, ""); strings.Contains(e.Message+e.Hint, "house-rule") {
		t.Error("an agent learned the policy")
	}
}

// web.fetch is ranked and soft, reads, and has no schema.
func (r *rig) fetchers(effects map[string]capability.Effect, rank map[string]int, do func(name string) error) map[string]*fake {
	out := make(map[string]*fake)
	for name := range rank {
		out[name] = r.offer(name, capability.Contribution{Action: "web.fetch", Rank: rank[name], Effect: effects[name]},
			func(context.Context, capability.Call) (capability.Result, error) {
				return capability.Result{Value: json.RawMessage(`"` + name + `"`)}, do(name)
			})
	}
	return out
}

func notStarted() error {
	return capability.Errorf(capability.CodeUnavailable, "test", "could not connect").With("connection_failed", "")
}

func TestFallbackGoesOnlyWhereItMay(t *testing.T) {
	t.Parallel()
	fetch := func(who capability.Principal) capability.Invocation {
		return capability.Invocation{Principal: who, Input: json.RawMessage(`{}`), Target: capability.Target{Action: "web.fetch"}}
	}
	rank := map[string]int{"a": 30, "b": 20, "c": 10}
	onlyA := func(err error) func(string) error {
		return func(name string) error {
			if name == "a" {
				return err
			}
			return nil
		}
	}
	t.Run("to the next rank when the first did not start", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		r.fetchers(nil, rank, onlyA(notStarted()))
		reply, err := r.engine.Invoke(t.Context(), fetch(agent()))
		if err != nil || string(reply.Result) != `"b"` || !reply.Selection.Fallback || reply.Provider != "ext:node:b" {
			t.Errorf(`%s %v %+v; want no error, string(reply.Result) = "\"b\"", reply.Selection.Fallback = true, reply.Provider `+
				`= "ext:node:b"`, reply.Result, err, reply)
		}
		sel := r.records(reply.Invocation)[0]["metadata"].(map[string]any)["selection"].(map[string]any)
		if sel["fallback"] != true || sel["decided_by"] != "ranked_default" {
			t.Errorf(`sel = %v, want sel["fallback"] == true && sel["decided_by"] == "ranked_default"`, sel)
		}
	})
	t.Run("never after the work was started", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		all := r.fetchers(nil, rank, onlyA(errors.New("broke halfway")))
		_, err := r.engine.Invoke(t.Context(), fetch(agent()))
		if fails(t, err, capability.CodeFailed, "execution_failed"); all["b"].calls.Load() != 0 {
			t.Error(`b was called; want all["b"].calls.Load() = 0`)
		}
	})
	t.Run("never past a selector, a capability id or a strict pin", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		all := r.fetchers(nil, rank, func(string) error { return notStarted() })
		selected := fetch(admin())
		selected.Target.Select = capability.Selector{"node": "a"}
		concrete := fetch(admin())
		concrete.Target = capability.Target{Capability: "test.a/work#web.fetch@a"}
		strict := fetch(admin())
		strict.Target.Action = "browser.run"
		one := r.offer("s1", capability.Contribution{Action: "browser.run", Rank: 2},
			func(context.Context, capability.Call) (capability.Result, error) {
				return capability.Result{}, notStarted()
			})
		two := r.offer("s2", capability.Contribution{Action: "browser.run", Rank: 1}, nil)
		for _, inv := range []capability.Invocation{selected, concrete, strict} {
			_, err := r.engine.Invoke(t.Context(), inv)
			fails(t, err, capability.CodeUnavailable, "connection_failed")
		}
		if all["b"].calls.Load()+all["c"].calls.Load()+two.calls.Load() != 0 || one.calls.Load() != 1 {
			t.Error(`somebody else was called; want all["b"].calls.Load() + all["c"].calls.Load() + two.calls.Load() = 0, ` +
				"one.calls.Load() = 1")
		}
	})
	t.Run("past one that needs consent, never to it nor to a denied one", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{rules: `
			permit (principal, action in Action::"read", resource);
			@consent("operator") permit (principal, action in Action::"write", resource);
			forbid (principal, action, resource in Module::"test.d");`})
		all := r.fetchers(map[string]capability.Effect{"b": capability.EffectWrite}, map[string]int{"a": 30, "d": 25, "b": 20, "c": 10},
			func(name string) error {
				if name == "c" {
					return nil
				}
				return notStarted()
			})
		reply, err := r.engine.Invoke(t.Context(), fetch(agent()))
		if err != nil || reply.Provider != "ext:node:c" {
			t.Errorf(`%v %s; want no error, reply.Provider = "ext:node:c"`, err, reply.Provider)
		}
		if all["b"].calls.Load()+all["d"].calls.Load() != 0 {
			t.Error(`a fallback reached a provider that may not be called; want all["b"].calls.Load() + all["d"].calls.Load() = 0`)
		}
	})
	t.Run("not to a stronger effect after the run has read text of others", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{rules: `permit (principal, action, resource);`})
		all := r.fetchers(map[string]capability.Effect{"b": capability.EffectExternal}, map[string]int{"a": 30, "b": 20}, onlyA(notStarted()))
		inv := fetch(agent())
		inv.Tainted = true
		_, err := r.engine.Invoke(t.Context(), inv)
		fails(t, err, capability.CodeUnavailable, "connection_failed")
		if n := all["b"].calls.Load(); n != 0 {
			t.Errorf("the provider that needs a fresh approval was called %d times, want 0", n)
		}
	})
	t.Run("the record names the one that was called when nobody is left", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, options{})
		r.fetchers(map[string]capability.Effect{"b": capability.EffectWrite}, map[string]int{"a": 30, "b": 20},
			func(string) error { return notStarted() })
		reply, err := r.engine.Invoke(t.Context(), fetch(agent()))
		fails(t, err, capability.CodeUnavailable, "connection_failed")
		if reply.Provider != "ext:node:a" || reply.Selection.Fallback {
			t.Errorf(`%+v; want reply.Provider = "ext:node:a", reply.Selection.Fallback = false`, reply)
		}
	})
}

func TestAProviderThatIsBackIsAskedBeforeTheCallIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	down := capability.Availability{State: capability.StateUnavailable, Reason: "connection refused"}
	back := &sleeper{fake: fake{key: "ext:node:back"}, probe: func(context.Context) error { return nil }}
	gone := &sleeper{fake: fake{key: "ext:node:gone"}, probe: func(context.Context) error { return errors.New("still refused") }}
	r.publish("back", capability.Contribution{Effect: capability.EffectRead, Availability: down}, back)
	r.publish("gone", capability.Contribution{Effect: capability.EffectRead, Availability: down}, gone)
	r.offer("mute", capability.Contribution{Effect: capability.EffectRead, Availability: down}, nil)
	if _, err := r.engine.Invoke(t.Context(), on(agent(), "back", `{}`)); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"gone", "mute"} {
		_, err := r.engine.Invoke(t.Context(), on(agent(), name, `{}`))
		if e := fails(t, err, capability.CodeUnavailable, "provider_unavailable"); !strings.Contains(e.Message, "connection refused") {
			t.Errorf(`e.Message = %v, want strings.Contains(e.Message, "connection refused")`, e.Message)
		}
	}
	if gone.calls.Load() != 0 {
		t.Error("the dead one was called; want gone.calls.Load() = 0")
	}
}

func TestPlanAndListShowWhatWouldHappenAndChangeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{rules: `permit (principal, action in Action::"read", resource); @id("no") forbid (principal, action, resource in Module::"test.d");`})
	all := r.fetchers(nil, map[string]int{"a": 2, "b": 1, "d": 3}, func(string) error { return nil })
	inv := capability.Invocation{Principal: operator(), Target: capability.Target{Action: "web.fetch"}}
	p := r.engine.Plan(t.Context(), inv)
	if p.Err != nil || p.Entry.Key() != "ext:node:a" || p.Selection.DecidedBy != "ranked_default" || len(p.Denied) != 1 ||
		len(p.Selection.Rejected) != 2 {
		t.Errorf(`%+v; want p.Err = nil, p.Entry.Key() = "ext:node:a", p.Selection.DecidedBy = "ranked_default", len(p.Denied) `+
			"= 1, len(p.Selection.Rejected) = 2", p)
	}
	inv.Principal = agent()
	if p := r.engine.Plan(t.Context(), inv); p.Denied != nil {
		t.Errorf("an agent sees what it may not call; got p.Denied = %v; want p.Denied = nil", p.Denied)
	}
	if list := r.engine.List(agent(), capability.AudienceAgent); len(list) != 2 {
		t.Errorf("%d entries; want len(list) = 2", len(list))
	}
	if all["a"].calls.Load() != 0 || r.segments.lines.Load() != 0 {
		t.Error(`something happened; want all["a"].calls.Load() = 0, r.segments.lines.Load() = 0`)
	}
}

func TestRacingCallsShareNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{})
	r.offer("echo", capability.Contribution{Effect: capability.EffectWrite}, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if reply, err := r.engine.Invoke(t.Context(), on(admin(), "echo", `{"n":1}`)); err != nil || string(reply.Result) != `{"n":1}` {
				t.Errorf(`%v; want no error, string(reply.Result) = "{\"n\":1}"`, err)
			}
		})
	}
	wg.Wait()
	if rep, err := r.log.Verify(t.Context()); err != nil || rep.FirstBad != nil {
		t.Errorf("%+v %v; want no error, rep.FirstBad = nil", rep, err)
	}
}
