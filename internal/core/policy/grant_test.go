package policy_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestGrantsCoverNoMoreThanTheySay(t *testing.T) {
	t.Parallel()
	const cap = "remote.tools/tool#ext.remote.tools.tool@cloud"
	base := policy.Grant{Principal: "agent:x"}
	with := func(change func(*policy.Grant)) policy.Grant {
		g := base
		change(&g)
		return g
	}
	tests := []struct {
		name   string
		grant  policy.Grant
		effect capability.Effect
		want   bool
	}{
		{"principal", base, capability.EffectWrite, true},
		{"another principal", with(func(g *policy.Grant) { g.Principal = "agent:y" }), capability.EffectWrite, false},
		{"role", with(func(g *policy.Grant) { g.Principal, g.Role = "", "agent" }), capability.EffectWrite, true},
		{"another role", with(func(g *policy.Grant) { g.Role = "task" }), capability.EffectWrite, false},
		{"module", with(func(g *policy.Grant) { g.Module = "remote.tools" }), capability.EffectWrite, true},
		{"another module", with(func(g *policy.Grant) { g.Module = "tools" }), capability.EffectWrite, false},
		{"another action", with(func(g *policy.Grant) { g.Action = "fs.list" }), capability.EffectWrite, false},
		{"capability", with(func(g *policy.Grant) { g.Capability = cap }), capability.EffectWrite, true},
		{"another capability", with(func(g *policy.Grant) { g.Capability = "x" }), capability.EffectWrite, false},
		{"another content", with(func(g *policy.Grant) { g.ContentHash = "sha256:0" }), capability.EffectWrite, false},
		{"session", with(func(g *policy.Grant) { g.Scope, g.ScopeID = "session", "s" }), capability.EffectWrite, true},
		{"another session", with(func(g *policy.Grant) { g.Scope, g.ScopeID = "session", "t" }), capability.EffectWrite, false},
		{"user", with(func(g *policy.Grant) { g.Scope, g.ScopeID = "user", "agent:x" }), capability.EffectWrite, true},
		{"another user", with(func(g *policy.Grant) { g.Scope, g.ScopeID = "user", "agent:y" }), capability.EffectWrite, false},
		{"never admin by accident", base, capability.EffectAdmin, false},
		{"admin by name", with(func(g *policy.Grant) { g.Effect = capability.EffectAdmin }), capability.EffectAdmin, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), tt.grant); err != nil {
				t.Fatal(err)
			}
			c, err := r.Consent(t.Context(), policy.Asked{
				Principal: who(capability.RoleAgent), Session: "s",
				Entry: entry(t, capability.Contribution{Effect: tt.effect}),
			})
			if (c.Grant != "") != tt.want || (err == nil) != tt.want {
				t.Errorf(`%+v %v; want (c.Grant != "") = %v, (err == nil) = %v`, c, err, tt.want, tt.want)
			}
		})
	}
	r := open(t)
	for name, g := range map[string]policy.Grant{
		"everything": {}, "scope": {Module: "m", Scope: "world"}, "no scope id": {Module: "m", Scope: "user"},
		"over": {Module: "m", Expires: r.now()}, "negative": {Module: "m", MaxUses: -1},
	} {
		if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), g); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, err)
		}
	}
}

func TestNarrowGrantsAreUsedFirstAndSpentOnesSkipped(t *testing.T) {
	t.Parallel()
	r := open(t)
	admin := who(capability.RoleAdmin)
	create := func(g policy.Grant) string {
		g, err := r.CreateGrant(t.Context(), admin, g)
		if err != nil {
			t.Fatal(err)
		}
		return g.ID
	}
	global := create(policy.Grant{Module: "remote.tools"})
	exact := create(policy.Grant{Action: "ext.remote.tools.tool", MaxUses: 1})
	session := create(policy.Grant{Principal: "agent:x", Scope: "session", ScopeID: "s", MaxUses: 2})
	var used []string
	for range 4 {
		c, err := r.Consent(t.Context(), policy.Asked{
			Principal: who(capability.RoleAgent), Session: "s",
			Entry: entry(t, capability.Contribution{Effect: capability.EffectWrite}),
		})
		if err != nil {
			t.Fatal(err)
		}
		used = append(used, c.Grant)
	}
	if d := cmp.Diff([]string{session, session, exact, global}, used); d != "" {
		t.Errorf("used differs from want (-want +got):\n%s", d)
	}
}

func TestUsesAreCountedExactlyWhateverRaces(t *testing.T) {
	t.Parallel()
	r := open(t)
	if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), policy.Grant{Module: "remote.tools", MaxUses: 5}); err != nil {
		t.Fatal(err)
	}
	e := entry(t, capability.Contribution{Effect: capability.EffectWrite})
	var wg sync.WaitGroup
	var passed atomic.Int64
	for range 25 {
		wg.Go(func() {
			if c, err := r.Consent(t.Context(), policy.Asked{Principal: who(capability.RoleAgent), Entry: e}); err == nil && c.Grant != "" {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	if passed.Load() != 5 {
		t.Errorf("%d uses of a grant for 5; want passed.Load() = 5", passed.Load())
	}
}
