package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// kit is an extension with two actions, one of which agents have a tool for, and
// an endpoint's module.
func kit(t *testing.T, digest string) *catalog.Snapshot {
	t.Helper()
	const key = "ext:extension:tools.kit"
	c := func(id, kind, name string) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: kind, Effect: capability.EffectExternal, Provider: key, Permissions: []string{"exec"}, Confirm: "always",
			Member: capability.Member{Module: "tools.kit", Kind: "command", Name: name},
		}
	}
	change, _, err := catalogtest.New(t).Replace(capability.Batch{Source: "s", Modules: []capability.Module{
		{Extension: "tools.kit", ID: "tools.kit", Origin: "extension", Digest: digest, Contributions: []capability.Contribution{
			c("command.kit.hi.run", "capability.rpc", "kit.hi"), c("command.kit.bye.run", "capability.rpc", "kit.bye"),
			c("tool.kit.hi", "capability.agent-tool", "kit_hi"),
		}},
		{Extension: "remote.far", ID: "far", Origin: "endpoint", Contributions: []capability.Contribution{
			{ID: "work", Kind: "capability.agent-tool", Effect: capability.EffectExternal, Provider: "ext:endpoint:far"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return change.After
}

func TestGrantsForAnExtensionAreBoundToItsContent(t *testing.T) {
	t.Parallel()
	snap := kit(t, "sha256:1")
	tool := ""
	for _, e := range snap.ModuleEntries("tools.kit") {
		if e.Contribution.ID == "tool.kit.hi" {
			tool = string(e.Action)
		}
	}
	for _, tt := range []struct {
		name   string
		grant  policy.Grant
		module string
		hash   string
		code   capability.Code
	}{
		{"an extension", policy.Grant{Module: "tools.kit"}, "tools.kit", "sha256:1", ""},
		{"its action, as typed", policy.Grant{Module: "tools.kit", Action: "kit.hi"}, "tools.kit", "sha256:1", ""},
		{"its action, as the catalog says", policy.Grant{Module: "tools.kit", Action: tool}, "tools.kit", "sha256:1", ""},
		{"its action alone", policy.Grant{Action: tool}, "tools.kit", "sha256:1", ""},
		{"its content by name", policy.Grant{Module: "tools.kit", ContentHash: "sha256:1"}, "tools.kit", "sha256:1", ""},
		{"another content", policy.Grant{Module: "tools.kit", ContentHash: "sha256:2"}, "", "", capability.CodeConflict},
		{"no such action", policy.Grant{Module: "tools.kit", Action: "kit.ho"}, "", "", capability.CodeNotFound},
		{"an action of a stranger", policy.Grant{Action: "ext.tools.none.tool"}, "", "", capability.CodeNotFound},
		{"not installed", policy.Grant{Module: "tools.none"}, "", "", capability.CodeNotFound},
		{"not installed, content known", policy.Grant{Module: "tools.none", ContentHash: "sha256:3"}, "tools.none", "sha256:3", ""},
		{"an endpoint's module", policy.Grant{Module: "remote.far"}, "remote.far", "", ""},
		{"an endpoint's module that is away", policy.Grant{Module: "remote.away"}, "remote.away", "", ""},
		{"a canonical action", policy.Grant{Action: "fs.writeText"}, "*", "", ""},
		{"somebody", policy.Grant{Principal: "agent:x"}, "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, err := policy.Bound(tt.grant, snap)
			if capability.CodeOf(err) != tt.code || g.Module != tt.module || g.ContentHash != tt.hash {
				t.Errorf("%+v %v; want capability.CodeOf(err) = %v, g.Module = %v, g.ContentHash = %v",
					g, err, tt.code, tt.module, tt.hash)
			}
		})
	}
}

func TestAGrantForAnActionOfAnExtensionIsForThatAction(t *testing.T) {
	t.Parallel()
	r := openIn(t, policy.LocalOpen)
	snap := kit(t, "sha256:1")
	g, err := policy.Bound(policy.Grant{Module: "tools.kit", Action: "kit.hi"}, snap)
	if err == nil {
		_, err = r.CreateGrant(t.Context(), who(capability.RoleAdmin), g)
	}
	if err != nil {
		t.Fatal(err)
	}
	changed := kit(t, "sha256:2")
	for _, tt := range []struct {
		snap *catalog.Snapshot
		id   string
		want bool
	}{
		{snap, "command.kit.hi.run", true},
		{snap, "tool.kit.hi", true},
		{snap, "command.kit.bye.run", false},
		{changed, "command.kit.hi.run", false},
	} {
		for _, e := range tt.snap.ModuleEntries("tools.kit") {
			if e.Contribution.ID != tt.id {
				continue
			}
			c, err := r.Consent(t.Context(), policy.Asked{Principal: who(capability.RoleAgent), Entry: e, Exact: true})
			if (c.Grant != "") != tt.want || (err == nil) != tt.want {
				t.Errorf(`%s: %+v %v; want (c.Grant != "") = %v, (err == nil) = %v`, tt.id, c, err, tt.want, tt.want)
			}
		}
	}
}

func TestAGrantForSomePermissionsCoversNoCallThatNeedsMore(t *testing.T) {
	t.Parallel()
	r := openIn(t, policy.LocalOpen)
	e := installed(t, "extension", "sha256:1", "exec", "filesystem.write")
	for _, tt := range []struct {
		give []string
		want bool
	}{{[]string{"exec"}, false}, {[]string{"exec", "filesystem.write"}, true}, {[]string{"*"}, true}} {
		g, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), policy.Grant{Module: "tools.postman", Permissions: tt.give})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Consent(t.Context(), policy.Asked{Principal: who(capability.RoleAgent), Entry: e})
		if (c.Grant != "") != tt.want || (err == nil) != tt.want {
			t.Errorf(`%v: %+v %v; want (c.Grant != "") = %v, (err == nil) = %v`, tt.give, c, err, tt.want, tt.want)
		}
		if _, err := r.RevokeGrant(t.Context(), who(capability.RoleAdmin), g.ID); err != nil {
			t.Fatal(err)
		}
	}
}
