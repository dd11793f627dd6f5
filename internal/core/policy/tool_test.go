package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// files is the catalog of one MCP server with a tool that reads, one that writes and one that
// destroys, and of an endpoint's module that calls itself like the server.
func files(t *testing.T) *catalog.Snapshot {
	t.Helper()
	tool := func(id string, effect capability.Effect, destructive bool) capability.Contribution {
		return capability.Contribution{
			ID: id, Kind: "capability.agent-tool", Tool: id, Effect: effect, Approval: destructive, Provider: "ext:mcp:files",
			Member: capability.Member{Module: "mcp.files", Kind: "tool", Name: id},
		}
	}
	c := catalogtest.New(t)
	for _, b := range []capability.Batch{
		{Source: "mcp/files", Modules: []capability.Module{{
			Extension: "mcp.files", ID: "mcp.files", Name: "files", Label: "files", Origin: "mcp",
			Contributions: []capability.Contribution{
				tool("read_file", capability.EffectRead, false), tool("write_file", capability.EffectExternal, false),
				tool("wipe", capability.EffectExternal, true),
			},
		}}},
		{Source: "endpoint/x", Modules: []capability.Module{{
			Extension: "remote.files", ID: "files", Name: "files", Label: "files", Origin: "endpoint",
			Contributions: []capability.Contribution{{
				ID: "write_file", Kind: "capability.agent-tool", Tool: "write_file", Effect: capability.EffectExternal, Provider: "ext:endpoint:x",
				Member: capability.Member{Module: "files", Kind: "action", Name: "write_file"},
			}},
		}}},
	} {
		if _, _, err := c.Replace(b); err != nil {
			t.Fatal(err)
		}
	}
	return c.Snapshot()
}

// decisions returns the decision about each tool for a principal, as "allow", "ask" or "deny".
func decisions(t *testing.T, p *policy.Policy, who capability.Principal) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for e := range files(t).Entries() {
		v, got := p.Authorize(who, e), "deny"
		switch {
		case v.Permitted && (v.Consent != "" || e.Approval() && !v.Waives):
			got = "ask"
		case v.Permitted:
			got = "allow"
		}
		name := policy.ToolOf(e)
		if name == "" {
			name = string(e.Action)
		}
		out[name] = got
	}
	return out
}

func TestRulesAboutToolsAndServers(t *testing.T) {
	t.Parallel()
	const elsewhere = "ext.remote.files.write_file"
	for name, c := range map[string]struct {
		rules string
		want  map[string]string // of agent:x; the rest is as by default
	}{
		"default":                 {"", nil},
		"allow lifts destructive": {`permit (principal, action, resource == Tool::"files/wipe");`, map[string]string{"files/wipe": "allow"}},
		"a wildcard does not":     {`permit (principal, action, resource in Server::"files");`, map[string]string{"files/write_file": "allow"}},
		"unless it says so": {
			`@destructive("allowed") permit (principal, action, resource in Server::"files");`,
			map[string]string{"files/write_file": "allow", "files/wipe": "allow"},
		},
		"deny one":       {`forbid (principal, action, resource == Tool::"files/read_file");`, map[string]string{"files/read_file": "deny"}},
		"deny in a when": {`forbid (principal, action, resource) when { resource == Tool::"files/read_file" };`, map[string]string{"files/read_file": "deny"}},
		"deny all but one": {
			`forbid (principal, action, resource in Server::"files") when { resource != Tool::"files/read_file" };`,
			map[string]string{"files/write_file": "deny", "files/wipe": "deny"},
		},
		"ask": {`@approval("operator") forbid (principal, action, resource == Tool::"files/read_file");`, map[string]string{"files/read_file": "ask"}},
		"ask for a server, allow one tool": {
			`@approval("operator") forbid (principal, action, resource in Server::"files");
			permit (principal, action, resource == Tool::"files/write_file");`,
			map[string]string{"files/read_file": "ask", "files/write_file": "allow"},
		},
		"ask for a tool beats allow": {
			`@approval("operator") forbid (principal, action, resource == Tool::"files/write_file");
			permit (principal, action, resource == Tool::"files/write_file");`,
			nil,
		},
		"ask does not permit what nothing permits": {
			`@approval("operator") forbid (principal, action, resource);
			forbid (principal, action, resource == Tool::"files/wipe");`,
			map[string]string{"files/read_file": "ask", "files/wipe": "deny"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, policy.DefaultRules(), c.rules).Policy
			want := map[string]string{"files/read_file": "allow", "files/write_file": "ask", "files/wipe": "ask", elsewhere: "ask"}
			for tool, decision := range c.want {
				want[tool] = decision
			}
			if d := cmp.Diff(want, decisions(t, p, who(capability.RoleAgent))); d != "" {
				t.Errorf("decisions (-want +got):\n%s", d)
			}
		})
	}
}

func TestAWrongTypeInAHeadIsRefusedWithTheRightSpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`permit (principal, action == Tool::"files/x", resource);`:                                      `action cannot be Tool::"files/x"; write resource == Tool::"files/x"`,
		`forbid (principal, action, resource == Action::"fs.list");`:                                    `resource cannot be Action::"fs.list"; write action == Action::"fs.list"`,
		`forbid (principal in Server::"files", action, resource);`:                                      `principal cannot be Server::"files"`,
		`forbid (principal, action, resource == Role::"agent");`:                                        `resource cannot be Role::"agent"; write principal in Role::"agent"`,
		`forbid (principal, action, resource is Tool);`:                                                 `no request has the type Tool`,
		`@approval("boss") forbid (principal, action, resource);`:                                       `@approval("boss") must be "client", "operator" or "device"`,
		`@id("a") permit (principal, action, resource); @id("a") permit (principal, action, resource);`: "the policy id a is used twice",
	} {
		err := policy.Check([]policy.Document{{Name: "a.cedar", Text: []byte(text)}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%s) = %v, want an error with %s", text, err, want)
		}
	}
}

func TestChangesWriteReadableRules(t *testing.T) {
	t.Parallel()
	snap := files(t)
	text := []byte("// mine\n@id(\"own\")\npermit (principal, action, resource) when { principal.labels.contains(\"a;b\") }; // keep\n")
	apply := func(c policy.Change) {
		t.Helper()
		if err := c.Check(snap); err != nil {
			t.Fatal(err)
		}
		var err error
		if text, err = c.Apply(text); err != nil {
			t.Fatal(err)
		}
	}
	apply(policy.Change{Setting: policy.SettingAllow, Target: "files/write_file"})
	apply(policy.Change{Setting: policy.SettingStrict, Target: "files"})
	apply(policy.Change{Setting: policy.SettingAsk, Target: "fs.list", For: "agent:x"})
	apply(policy.Change{Setting: policy.SettingDeny, Target: "files/write_file"})
	apply(policy.Change{Setting: policy.SettingGuarded, Target: "files"})
	want := `// mine
@id("own")
permit (principal, action, resource) when { principal.labels.contains("a;b") }; // keep

@id("tool files/write_file")
forbid (principal, action, resource == Tool::"files/write_file") when { ["agent", "task", "node"].contains(principal.role) };

@id("action fs.list for agent:x")
@approval("operator")
forbid (principal == Principal::"agent:x", action == Action::"fs.list", resource);
`
	if d := cmp.Diff(want, string(text)); d != "" {
		t.Errorf("the file (-want +got):\n%s", d)
	}
	if err := policy.Check([]policy.Document{{Name: policy.ManagedFile, Text: text}}); err != nil {
		t.Errorf("Check(the file) = %v, want nil", err)
	}
}

func TestAChangeOfSomethingUnknownNamesTheNearest(t *testing.T) {
	t.Parallel()
	snap := files(t)
	for _, c := range []struct {
		change policy.Change
		want   string
	}{
		{policy.Change{Setting: policy.SettingDeny, Target: "files/write_fil"}, "files/write_file"},
		{policy.Change{Setting: policy.SettingStrict, Target: "fles"}, "files"},
		{policy.Change{Setting: policy.SettingDeny, Target: "fs.writeTxt"}, "fs.writeText"},
		{policy.Change{Setting: policy.SettingStrict, Target: "files/write_file"}, "allow, ask or deny"},
		{policy.Change{Setting: "maybe", Target: "files"}, "guarded, open or strict"},
		{policy.Change{Setting: policy.SettingAllow, Target: "files/wipe", For: "claude"}, "agent:claude"},
		{policy.Change{Setting: policy.SettingStrict, Target: "files", IncludingDestructive: true}, "open"},
	} {
		err := capability.AsError(c.change.Check(snap))
		if err == nil || !strings.Contains(err.Message+err.Hint, c.want) {
			t.Errorf("%+v: Check = %v, want an error that mentions %q", c.change, err, c.want)
		}
	}
}

// TestNamesInRulesAreQuoted tries tool names that would end the string or the rule.
func TestNamesInRulesAreQuoted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{`files/a"b`, `files/a\`, "files/a\n); permit (principal, action, resource", "files/\u202ex", "files/{}"} {
		text, err := (policy.Change{Setting: policy.SettingDeny, Target: name}).Apply(nil)
		if err != nil {
			t.Errorf("Apply(%q) = %v, want nil", name, err)
			continue
		}
		r := open(t, string(text))
		rules := r.Rules()
		if len(rules) != 1 || rules[0].ID != "tool "+name || rules[0].Effect != "forbid" {
			t.Errorf("rules of %q = %+v, want one forbid with its name", name, rules)
		}
	}
}
