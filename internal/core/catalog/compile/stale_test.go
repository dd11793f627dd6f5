package compile

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// TestAContextIsNotCompiledByWhatItWas: what a context shares with others is
// decided under a snapshot. When the catalog changes before the context is
// compiled, so that its agent or conversation begins to matter, the decision is
// taken again, or others would be shown what is its own.
func TestAContextIsNotCompiledByWhatItWas(t *testing.T) {
	t.Parallel()
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	comp := New(c)
	ctx := capability.Context{Agent: "main", Route: &capability.Route{Kind: "slack", Account: "work", Conversation: "7"}}
	stale := keyOf(c.Snapshot(), &ctx)
	if comp.compile(stale, &ctx) == nil {
		t.Fatal("nothing has changed yet; want comp.compile(stale, &ctx) not nil")
	}
	m := capability.Module{Extension: "tools", ID: "tools", Contributions: []capability.Contribution{
		{ID: "x", Kind: "capability.agent-tool", Tool: "only", Scope: &capability.Scope{Conversation: []string{"7"}}},
	}}
	if _, _, err := c.Replace(capability.Batch{Source: "s", Modules: []capability.Module{m}}); err != nil {
		t.Fatal(err)
	}
	if comp.compile(stale, &ctx) != nil {
		t.Error("compiled by a key of another snapshot; want comp.compile(stale, &ctx) = nil")
	}
	if comp.Compile(&ctx).Len() != 1 {
		t.Error("the conversation's own tool is missing; want comp.Compile(&ctx).Len() = 1")
	}
	ctx.Route = &capability.Route{Kind: "slack", Account: "work", Conversation: "8"}
	if comp.Compile(&ctx).Len() != 0 {
		t.Error("another conversation's tool is shown; want comp.Compile(&ctx).Len() = 0")
	}
}
