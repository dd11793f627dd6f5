package policy_test

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
)

func TestLimitsOfATokenBoundAllThatActForIt(t *testing.T) {
	t.Parallel()
	r := open(t)
	admin := capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
	create := func(name string, role capability.Role, l policy.Limits, of *capability.Principal) capability.Principal {
		t.Helper()
		tok, _, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: role, Name: name, Limits: l, OnBehalfOf: of})
		if err != nil {
			t.Fatalf("token %s: got %v, want no error", name, err)
		}
		return tok.Principal()
	}
	agent := create("busy", capability.RoleAgent, policy.Limits{PerMinute: 6, PerDay: 10}, nil)
	helper := create("helper", capability.RoleTask, policy.Limits{}, &agent)
	free := create("free", capability.RoleAgent, policy.Limits{}, nil)
	admit := func(who capability.Principal) (wait time.Duration) {
		t.Helper()
		err := r.Admit(t.Context(), who)
		if err == nil {
			return 0
		}
		e := capability.AsError(err)
		if e.Code != capability.CodeOverloaded || e.Reason != capability.ReasonRateLimited || e.RetryAfter <= 0 {
			t.Fatalf("got %v, want overloaded, reason rate_limited, with a pause", err)
		}
		return e.RetryAfter
	}
	var permitted atomic.Int64
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if r.Admit(t.Context(), agent) == nil {
				permitted.Add(1)
			}
		})
	}
	if group.Wait(); permitted.Load() != 6 {
		t.Errorf("of 20 calls at once: got %d permitted, want 6", permitted.Load())
	}
	if wait := admit(helper); wait > 10*time.Second {
		t.Errorf("a helper after them: got a pause of %s, want at most 10s", wait)
	}
	for range 100 {
		if wait := admit(free); wait != 0 {
			t.Fatalf("a token without limits: got a pause of %s, want none", wait)
		}
	}
	r.at.Add(int64(time.Minute))
	for i := range 4 {
		if wait := admit(helper); wait != 0 {
			t.Fatalf("call %d a minute later: got a pause of %s, want none", i, wait)
		}
	}
	if wait := admit(agent); wait < 11*time.Hour || wait > 12*time.Hour {
		t.Errorf("the eleventh call of the day: got a pause of %s, want until midnight", wait)
	}
	r.at.Add(int64(12 * time.Hour))
	if wait := admit(agent); wait != 0 {
		t.Errorf("on the next day: got a pause of %s, want none", wait)
	}
	list, err := r.Tokens(t.Context())
	if err != nil || list[0].Limits != (policy.Limits{PerMinute: 6, PerDay: 10}) {
		t.Errorf("the stored token: got %+v, %v, want its limits", list, err)
	}
	for _, l := range []policy.Limits{{PerMinute: -1}, {PerDay: policy.MaxLimit + 1}} {
		_, _, err := r.CreateToken(t.Context(), admin, policy.TokenRequest{Role: capability.RoleAgent, Name: "wrong", Limits: l})
		if capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%+v: got %v, want invalid_input", l, err)
		}
	}
}

// TestTheCallsOfTheDayOutliveTheServer counts what the log has of a day when a server begins.
func TestTheCallsOfTheDayOutliveTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	if err != nil {
		t.Fatalf("store: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	if err != nil {
		t.Fatalf("segments: got %v, want no error", err)
	}
	log, err := audit.Open(t.Context(), audit.Config{Segments: segments, Index: db.Audit("g")})
	if err != nil {
		t.Fatalf("log: got %v, want no error", err)
	}
	t.Cleanup(func() { _ = log.Close() })
	begin := func() *policy.Policy {
		t.Helper()
		p, err := policy.New(t.Context(), policy.Config{
			Documents: []policy.Document{{Name: "default.cedar", Text: []byte(policy.DefaultRules())}}, Store: db, Log: log,
		})
		if err != nil {
			t.Fatalf("policy: got %v, want no error", err)
		}
		return p
	}
	p := begin()
	tok, _, err := p.CreateToken(t.Context(), capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
		policy.TokenRequest{Role: capability.RoleAgent, Name: "busy", Limits: policy.Limits{PerDay: 3}})
	if err != nil {
		t.Fatalf("token: got %v, want no error", err)
	}
	for _, run := range []string{"run_1", "run_2"} {
		rec := audit.Record{
			Logger: "invoke", Event: audit.CapabilityExecuted, User: "agent:busy", Success: audit.OutcomeSuccess,
			Metadata: audit.Metadata{RunID: run, Surface: "mcp", CapabilityID: "c"},
		}
		if _, err := log.Append(t.Context(), rec, audit.Synced); err != nil {
			t.Fatalf("record: got %v, want no error", err)
		}
	}
	p = begin()
	if err := p.Admit(t.Context(), tok.Principal()); err != nil {
		t.Errorf("the third call of the day: got %v, want no error", err)
	}
	if err := p.Admit(t.Context(), tok.Principal()); capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("the fourth call of the day: got %v, want overloaded", err)
	}
}
