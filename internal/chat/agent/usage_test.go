package agent_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// spending is a model that calls a tool until it must not, and reports what that costs.
type spending struct {
	caller
	usage modelwire.Usage
	final []string // the last texts of requests without tools
}

func (m *spending) Exchange(ctx context.Context, req modelwire.Request, emit func(modelwire.Delta) error) (modelwire.Reply, error) {
	if req.Choice == modelwire.MustNotCall {
		last := req.Messages[len(req.Messages)-1].Blocks
		m.final = append(m.final, last[len(last)-1].Text)
		m.steps = 0
	}
	reply, err := m.caller.Exchange(ctx, req, emit)
	reply.Usage = m.usage
	return reply, err
}

// lookCatalog is a catalog with one tool, look, which reads.
func lookCatalog(t *testing.T) *compile.Compiler {
	t.Helper()
	return toolCatalog(t, map[string]capability.Effect{"look": capability.EffectRead})
}

// toolCatalog is a catalog of tools with their effects.
func toolCatalog(t *testing.T, tools map[string]capability.Effect) *compile.Compiler {
	t.Helper()
	c := catalogtest.New(t)
	m := capability.Module{Extension: "mcp.s", ID: "s", Origin: "mcp"}
	for name, effect := range tools {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: name, Kind: "capability.agent-tool", Tool: name, Effect: effect, Description: name + "s",
			Provider: capability.NewProviderKey("ext", "mcp", "s"), Member: capability.Member{Module: "s", Kind: "tool", Name: name},
			InputSchema: []byte(`{"type":"object"}`),
		})
	}
	if _, _, err := c.ReplaceAll([]capability.Batch{{Source: "x", Modules: []capability.Module{m}}}); err != nil {
		t.Fatalf("fill the catalog: got %v, want no error", err)
	}
	return compile.New(c)
}

func TestEachLimitEndsARunWithOneLastAnswer(t *testing.T) {
	compiler := lookCatalog(t)
	usage := modelwire.Usage{In: 90, Out: 10, Cost: 1000}
	for name, c := range map[string]struct {
		limit func(b *agent.Budget)
		want  string
		steps int  // answers in all
		today bool // the next run is refused until tomorrow
	}{
		"tokens of a run": {func(b *agent.Budget) { b.Tokens = 250 }, "250 tokens", 4, false},
		"cost of a run":   {func(b *agent.Budget) { b.Cost = 2000 }, "the cost", 3, false},
		"requests a day":  {func(b *agent.Budget) { b.Day.ModelCalls = 2 }, "2 requests to the model a day", 3, true},
		"calls a day":     {func(b *agent.Budget) { b.Day.ToolCalls = 3 }, "3 calls a day", 4, true},
		"tokens a day":    {func(b *agent.Budget) { b.Day.Tokens = 100 }, "100 tokens a day", 2, true},
		"cost a day":      {func(b *agent.Budget) { b.Day.Cost = 1 }, "the cost of a day", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := agent.Budget{ModelCalls: 50, ToolCalls: 50, Work: time.Minute}
			c.limit(&limits)
			var later atomic.Bool // the clock is read by the run until it has left
			now := func() time.Time {
				if later.Load() {
					return time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)
				}
				return time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)
			}
			model := &spending{caller: caller{tool: "look", steps: 40}, usage: usage}
			calls := answering{instant{compiler}, func(inv capability.Invocation) (string, error) { return string(inv.Input), nil }}
			e := opened(t, agent.Config{Model: model, Policy: free{}, Path: calls, Budget: limits, Now: now})
			if o := ended(t, e, "go"); o.State != agent.Completed || o.Text != "done" {
				t.Errorf("the run: got %s with %q and %v, want it completed by the last answer", o.State, o.Text, o.Error)
			}
			if model.n != c.steps || len(model.final) != 1 || !strings.Contains(model.final[0], c.want) {
				t.Errorf("got %d answers and the last requests %q, want %d, and one with %q", model.n, model.final, c.steps, c.want)
			}
			person := capability.Principal{ID: "admin:a", Role: capability.RoleAdmin}
			_, err := e.Send(t.Context(), agent.Message{Person: person, Session: "t", Text: "go"})
			if refused := capability.CodeOf(err) == capability.CodeOverloaded; refused != c.today {
				t.Errorf("the next message: got %v, want refused: %v", err, c.today)
			}
			later.Store(true)
			f, err := e.Send(t.Context(), agent.Message{Person: person, Session: "u", Text: "go"})
			if err != nil {
				t.Errorf("a message of the next day: got %v, want no error", err)
				return
			}
			f.Close()
		})
	}
}
