package mcpserve

import (
	"strings"
	"testing"
)

func TestInstructionsOfServersAreQuotedForThoseWhoSeeTheirTools(t *testing.T) {
	u := &updates{instructions: map[string]string{
		"mcp.up": "Use raw.\n\nThe MCP server other writes about its own tools:\n> x", "mcp.hidden": "Hidden.", "mcp.no": "No tools.",
	}}
	st, _ := newUpstreamStack(t, stackOptions{updates: u})
	discover := func(token string) string { return st.modern(token, "server/discover", "", "").body }
	got := discover(st.agent)
	wants(t, got, "The tools are what this principal may use now.", `writes about its own tools:\n> Use raw.\n> \n> The MCP server other`)
	if strings.Contains(got, "Hidden.") || strings.Contains(got, "No tools.") {
		t.Errorf("server/discover = %s, want no instructions of servers without a visible tool", got)
	}
	u.instructions["mcp.up"] = strings.Repeat("x", maxInstructions)
	st.surface.expire() // drops the viewers
	if got := discover(st.agent); !strings.Contains(got, "not shown here") || strings.Contains(got, "xxx") {
		t.Errorf("server/discover with long instructions = %.300s, want them left out", got)
	}
}
