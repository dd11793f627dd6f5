package restserve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// serve publishes the tools of one MCP server.
func (st *stack) serve(server string, tools ...string) {
	st.Helper()
	m := capability.Module{Extension: "mcp." + server, ID: "mcp." + server, Name: server, Label: server, Origin: "mcp"}
	key := capability.NewProviderKey("ext", "mcp", server)
	for _, name := range tools {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: name, Kind: "capability.agent-tool", Tool: name, Effect: capability.EffectExternal, Provider: key,
			Member: capability.Member{Module: m.ID, Kind: "tool", Name: name},
		})
	}
	_, _, err := st.catalog.Replace(capability.Batch{
		Source: "mcp/" + server, Modules: []capability.Module{m}, Providers: []capability.Provider{teller{st, key}},
	})
	ok(st, err)
	st.policy.CatalogChanged()
}

// TestGrantForAToolIsForItsServer grants tools of servers whose names and tools make the same action.
func TestGrantForAToolIsForItsServer(t *testing.T) {
	t.Parallel()
	for _, granted := range []string{"acme.prod/delete", "acme/prod.delete", "ext.mcp.acme.prod.delete"} {
		st := newStack(t, "")
		first, later := []string{"acme.prod", "delete"}, []string{"acme", "prod.delete"}
		if granted == "acme/prod.delete" {
			first, later = later, first
		}
		st.serve(first[0], first[1])
		create := func() policy.Grant {
			t.Helper()
			var g policy.Grant
			body, err := json.Marshal(map[string]string{"principal": "agent:agent", "action": granted})
			ok(t, err)
			if got := st.do(http.MethodPost, "/api/v1/grants", capability.RoleOperator, string(body), &g); got != http.StatusCreated {
				t.Fatalf("grant %s: got %d, want %d", granted, got, http.StatusCreated)
			}
			return g
		}
		if got, want := create().Module, "mcp."+first[0]; got != want {
			t.Errorf("module of the grant for %s: got %q, want %q", granted, got, want)
		}
		st.serve(later[0], later[1]) // as its own MCP server, which chooses the names of its tools, could
		for e := range st.catalog.Snapshot().Entries() {
			tool := policy.ToolOf(e)
			if tool == "" {
				continue
			}
			_, got := st.policy.StandingGrant(policy.Asked{
				Principal: capability.Principal{ID: "agent:agent", Role: capability.RoleAgent}, Entry: e, Channel: policy.ChannelOperator,
			})
			if want := tool == strings.Join(first, "/"); got != want {
				t.Errorf("a grant for %s covers %s: got %t, want %t", granted, tool, got, want)
			}
		}
		if server, _, is := strings.Cut(granted, "/"); is {
			if got, want := create().Module, "mcp."+server; got != want {
				t.Errorf("module of the grant for %s beside the other: got %q, want %q", granted, got, want)
			}
		}
	}
	st := newStack(t, "")
	st.serve("acme", "delete")
	var g policy.Grant
	st.do(http.MethodPost, "/api/v1/grants", capability.RoleOperator, `{"principal":"agent:agent","action":"fs.writeText"}`, &g)
	if g.Module != "*" || g.Action != "fs.writeText" {
		t.Errorf("a grant for an action of the registry: got %+v, want any module", g)
	}
}
