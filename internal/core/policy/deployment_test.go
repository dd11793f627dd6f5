package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestDeploymentModesAreRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in       string
		loopback bool
		want     policy.Deployment
		ok       bool
	}{
		{"", true, policy.LocalOpen, true},
		{"", false, policy.RemoteExposed, true},
		{" local_locked ", true, policy.LocalLocked, true},
		{"remote_exposed", true, policy.RemoteExposed, true},
		{"local_open", false, policy.LocalOpen, true},
		{"open", true, policy.LocalLocked, false},
	} {
		if got, ok := policy.ParseDeployment(tt.in, tt.loopback); got != tt.want || ok != tt.ok {
			t.Errorf("%q: %s %v; want got = %v, ok = %v", tt.in, got, ok, tt.want, tt.ok)
		}
	}
}

// installed is the entry of an installed package, or of another origin.
func installed(t *testing.T, origin, digest string, permissions ...string) *catalog.Entry {
	t.Helper()
	change, _, err := catalogtest.New(t).Replace(capability.Batch{Source: "s", Modules: []capability.Module{{
		Extension: "tools.postman", ID: "tools.postman", Origin: origin, Digest: digest, Contributions: []capability.Contribution{
			{
				ID: "run", Kind: "capability.agent-tool", Effect: capability.EffectExternal, Provider: "ext:extension:tools.postman",
				Permissions: permissions,
			},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(change.After.Entries())[0]
}

func TestTheDeploymentModeComesBeforeTheRules(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		mode        policy.Deployment
		origin      string
		permissions []string
		withheld    []string
	}{
		{"open", policy.LocalOpen, "extension", []string{"exec", "filesystem.write"}, nil},
		{"locked", policy.LocalLocked, "extension", []string{"exec", "network", "filesystem.write"}, []string{"exec", "filesystem.write"}},
		{
			"exposed", policy.RemoteExposed, "extension",
			[]string{"db.write", "exec.interpreter", "browser", "network.raw"},
			[]string{"exec.interpreter", "browser", "db.write", "network.raw"},
		},
		{"harmless permissions", policy.RemoteExposed, "extension", []string{"network", "filesystem.read", "llm"}, nil},
		{"what the operator configured", policy.RemoteExposed, "endpoint", []string{"exec"}, nil},
		{"a default", "", "extension", []string{"exec"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := openIn(t, tt.mode, `permit (principal, action, resource);`)
			v := r.Authorize(who(capability.RoleAdmin), installed(t, tt.origin, "sha256:1", tt.permissions...))
			if v.Permitted != (tt.withheld == nil) || !slices.Equal(v.Withheld, tt.withheld) {
				t.Errorf("%+v; want v.Permitted = (tt.withheld == nil), v.Withheld = %v", v, tt.withheld)
			}
		})
	}
}

func TestAnAdministratorMayGiveBackWhatTheModeWithholds(t *testing.T) {
	t.Parallel()
	r := openIn(t, policy.LocalLocked, `permit (principal, action, resource);`)
	e := installed(t, "extension", "sha256:1", "exec", "filesystem.write")
	agent := who(capability.RoleAgent)
	grant := func(g policy.Grant) policy.Grant {
		t.Helper()
		g, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), g)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	grant(policy.Grant{Module: "tools.other", Permissions: []string{"*"}})
	grant(policy.Grant{Module: "tools.postman"}) // for calls that ask, not for permissions
	if _, err := r.CreateGrant(t.Context(), who(capability.RoleOperator),
		policy.Grant{Module: "tools.postman", Permissions: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	if v := r.Authorize(agent, e); v.Permitted {
		t.Fatalf("%+v; want v.Permitted = false", v)
	}
	part := grant(policy.Grant{Module: "tools.postman", Permissions: []string{"exec"}})
	if v := r.Authorize(agent, e); !slices.Equal(v.Withheld, []string{"filesystem.write"}) {
		t.Errorf(`%+v; want v.Withheld = []string{"filesystem.write"}`, v)
	}
	whole := grant(policy.Grant{
		Module: "tools.postman", Permissions: []string{"filesystem.write"}, ContentHash: e.ContentHash(),
		Expires: r.now().Add(time.Hour),
	})
	if v := r.Authorize(agent, e); !v.Permitted {
		t.Errorf("%+v; want v.Permitted = true", v)
	}
	if v := r.Authorize(agent, installed(t, "extension", "sha256:2", "exec", "filesystem.write")); v.Permitted {
		t.Error("a grant outlives the package it was given for")
	}
	r.at.Add(int64(2 * time.Hour))
	if v := r.Authorize(agent, e); v.Permitted {
		t.Error("a grant outlives its time")
	}
	for _, g := range []policy.Grant{part, whole} {
		if _, err := r.RevokeGrant(t.Context(), who(capability.RoleAdmin), g.ID); err != nil {
			t.Fatal(err)
		}
	}
	if v := r.Authorize(agent, e); len(v.Withheld) != 2 {
		t.Errorf("%+v; want len(v.Withheld) = 2", v)
	}
}
