package mcpserve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// server is a source of read-only tools that answer with who they are.
func (st *stack) server(ext string, tools ...string) {
	st.t.Helper()
	key := capability.NewProviderKey("ext", "mcp", ext)
	b := capability.Batch{Source: ext}
	if len(tools) > 0 {
		m := capability.Module{Extension: "mcp." + ext, ID: ext, Label: ext, Origin: "mcp"}
		for i, name := range tools {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: fmt.Sprintf("read%d", i), Kind: "capability.agent-tool", Tool: name, Provider: key, Effect: capability.EffectRead,
			})
		}
		b.Modules, b.Providers = []capability.Module{m}, []capability.Provider{named{key}}
	}
	st.offer(b)
}

func (st *stack) listed(id string) string {
	st.t.Helper()
	return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, mcpwire.HeaderSession, id).body
}

func (st *stack) calls(id, name, arguments string) string {
	st.t.Helper()
	return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+name+`","arguments":`+arguments+`}}`,
		mcpwire.HeaderSession, id).body
}

// TestANameMeansWhatItMeantWhenItWasShown requires that a listed name never redirects to
// another tool: after a rename or removal, a call fails with an error.
func TestANameMeansWhatItMeantWhenItWasShown(t *testing.T) {
	st := newStack(t, stackOptions{})
	st.server("github", "create_branch")
	before := st.open(st.agent, mcpwire.Version20250618)
	if list := st.listed(before); !strings.Contains(list, `"name":"create_branch"`) {
		t.Fatalf("tools/list = %s, want create_branch", list)
	}
	st.server("neon", "create_branch")
	if got := st.calls(before, "create_branch", `{}`); !strings.Contains(got, "ext:mcp:github") {
		t.Errorf(`the session that was shown the name: %s; want got with "ext:mcp:github"`, got)
	}
	after := st.open(st.agent, mcpwire.Version20250618)
	if list := st.listed(after); !strings.Contains(list, "github__create_branch") || !strings.Contains(list, "neon__create_branch") ||
		strings.Contains(list, `"name":"create_branch"`) {
		t.Errorf(`a new session: %s; want list with "github__create_branch", list with "neon__create_branch", list without `+
			`"\"name\":\"create_branch\""`, list)
	}
	if got := st.calls(after, "create_branch", `{}`); !strings.Contains(got, "unknown tool") {
		t.Errorf(`a bare name that nobody has: %s; want got with "unknown tool"`, got)
	}
	if got := st.calls(after, "neon__create_branch", `{}`); !strings.Contains(got, "ext:mcp:neon") {
		t.Errorf(`a labelled name: %s; want got with "ext:mcp:neon"`, got)
	}
	st.server("github")
	got := st.calls(before, "create_branch", `{}`)
	if !strings.Contains(got, "capability_retracted") || strings.Contains(got, "ext:mcp:neon") {
		t.Errorf(`a name whose tool is gone: %s; want got with "capability_retracted", got without "ext:mcp:neon"`, got)
	}
}

// TestAToolForbiddenLaterIsNotAWrongName requires that a session which was shown a tool learns that a rule
// forbids it now, and that another one learns nothing of it.
func TestAToolForbiddenLaterIsNotAWrongName(t *testing.T) {
	st := newStack(t, stackOptions{})
	st.server("files", "move_file", "read_file")
	shown, other := st.open(st.agent, mcpwire.Version20250618), st.open(st.agent, mcpwire.Version20250618)
	if list := st.listed(shown); !strings.Contains(list, `"name":"move_file"`) {
		t.Fatalf("tools/list = %s, want move_file", list)
	}
	ok(t, st.policy.SetRules([]policy.Document{{Name: "r.cedar", Text: []byte(policy.DefaultRules() +
		`@id("no-move") forbid (principal, action, resource == Capability::"mcp.files/read0#ext.mcp.files.read0@files");`)}}))
	st.surface.CatalogChanged()
	if list := st.listed(shown); strings.Contains(list, "move_file") {
		t.Errorf("tools/list under the rule: got move_file in it, want it hidden")
	}
	const want = `a rule of this server forbids \"move_file\", which was permitted before`
	if got := st.calls(shown, "move_file", `{}`); !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) {
		t.Errorf("a call of the session that was shown it: got %s, want a result with %q", got, want)
	}
	if got := st.calls(other, "move_file", `{}`); !strings.Contains(got, "unknown tool") {
		t.Errorf("a call of a session that was not: got %s, want unknown tool", got)
	}
}

// TestAModelCorrectsItselfInOneStep requires that a refusal lists the values of the selector,
// and that the call with one of them succeeds.
func TestAModelCorrectsItselfInOneStep(t *testing.T) {
	st := newStack(t, stackOptions{rules: `permit (principal, action, resource);`})
	for _, kind := range []string{"slack", "discord", "telegram"} {
		key := capability.NewProviderKey("messaging", kind, "me")
		st.offer(capability.Batch{Source: kind, Providers: []capability.Provider{named{key}}, Modules: []capability.Module{{
			Extension: kind, ID: kind, Origin: "extension", Contributions: []capability.Contribution{
				{ID: "adapter", Kind: "adapter.runtime", Action: "message.send", Provider: key, Effect: capability.EffectExternal},
			},
		}}})
	}
	id := st.open(st.agent, mcpwire.Version20250618)
	if list := st.listed(id); !strings.Contains(list, `"channel":{"enum":["discord","slack","telegram"],"type":"string"}`) &&
		!strings.Contains(list, `"enum":["discord","slack","telegram"]`) {
		t.Errorf("the selector is not shown: %s", list)
	}
	refused := st.calls(id, "message_send", `{"text":"hi"}`)
	for _, want := range []string{`"isError":true`, "selection_required", "selector.channel", "discord, slack, telegram"} {
		if !strings.Contains(refused, want) {
			t.Errorf("%q is not in %s; want refused with %v", want, refused, want)
		}
	}
	if got := st.calls(id, "message_send", `{"text":"hi","selector":{"channel":"telegram"}}`); !strings.Contains(got,
		"messaging:telegram:me") || strings.Contains(got, "selector") {
		t.Errorf(`the corrected call: %s; want got with "messaging:telegram:me", got without "selector"`, got)
	}
}

// named answers every call with its key and what it was told.
type named struct{ key capability.ProviderKey }

func (n named) Key() capability.ProviderKey { return n.key }

func (n named) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	return capability.Result{Value: json.RawMessage(`{"by":"` + string(n.key) + `","told":` + string(c.Input) + `}`)}, nil
}
