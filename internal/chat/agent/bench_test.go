package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/agent/agentsql"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// free permits everything and has no approvals.
type free struct{ pending []policy.Approval }

func (free) Standing(id string) (capability.Principal, error) {
	return capability.Principal{ID: id, Role: capability.RoleAdmin}, nil
}

func (free) Assistant(_ context.Context, p capability.Principal) (capability.Principal, error) {
	return capability.Principal{ID: "task:chat-1", Role: capability.RoleTask, OnBehalfOf: p.ID}, nil
}

func (free) Decided(context.Context, string) (policy.Approval, error) { return policy.Approval{}, nil }

func (free) Approval(context.Context, string) (policy.Approval, error) { return policy.Approval{}, nil }
func (free) Withdraw(context.Context, string) error                    { return nil }

func (f free) Approvals(_ context.Context, _ policy.ApprovalState, after string, limit int) ([]policy.Approval, error) {
	i := 0
	if after != "" {
		i = 1 + slices.IndexFunc(f.pending, func(a policy.Approval) bool { return a.ID == after })
	}
	return f.pending[i:min(i+limit, len(f.pending))], nil
}

// instant answers each call at once.
type instant struct{ compiler *compile.Compiler }

func (p instant) Agent(inv capability.Invocation) (*compile.Agent, func(*catalog.Entry) bool, error) {
	return p.compiler.Compile(invoke.ContextOf(&inv)), func(*catalog.Entry) bool { return true }, nil
}

func (instant) Invoke(_ context.Context, inv capability.Invocation) (invoke.Reply, error) {
	return invoke.Reply{Invocation: "run_1", State: invoke.StateCompleted, Result: []byte(`{"ok":true}`)}, nil
}

// noTasks holds no tasks.
type noTasks struct{}

func (noTasks) OpenTurn(context.Context, string, string) (tasks.Task, error) {
	return tasks.Task{ID: tasks.NewID()}, nil
}
func (noTasks) TakeTurns(context.Context, []string) error                  { return nil }
func (noTasks) ReleaseTurn(string)                                         {}
func (noTasks) Move(context.Context, string, tasks.Movement) (bool, error) { return true, nil }

// caller calls one tool a number of times, each time with another argument.
type caller struct {
	tool  string
	steps int
	n     int
	asked func(modelwire.Request)
}

func (c *caller) Exchange(_ context.Context, req modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	if c.asked != nil {
		c.asked(req)
	}
	if c.n++; c.n > c.steps {
		return modelwire.Reply{Message: modelwire.Message{
			Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "done"}},
		}, Stop: modelwire.StopEnd}, nil
	}
	return modelwire.Reply{Message: modelwire.Message{Role: modelwire.Assistant, Blocks: []modelwire.Block{
		{Kind: modelwire.Call, ID: fmt.Sprint("c", c.n), Name: c.tool, Input: fmt.Sprintf(`{"n":%d}`, c.n)},
	}}, Stop: modelwire.StopCalls}, nil
}

// openJournal returns an empty journal.
func openJournal(tb testing.TB) *agentsql.Store {
	tb.Helper()
	db, err := store.Open(tb.Context(), filepath.Join(tb.TempDir(), "junctor.db"))
	if err != nil {
		tb.Fatalf("open: got %v, want no error", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	journal, err := agentsql.Open(tb.Context(), db)
	if err != nil {
		tb.Fatalf("open: got %v, want no error", err)
	}
	return journal
}

func opened(tb testing.TB, c agent.Config) *agent.Engine {
	tb.Helper()
	if c.Journal == nil {
		c.Journal = openJournal(tb)
	}
	c.Tasks, c.Gateway = noTasks{}, "g"
	c.Deliver = func(context.Context, agent.Run, agent.Outcome) (int64, error) { return 1, nil }
	e := agent.New(c)
	tb.Cleanup(e.Close)
	return e
}

// hundredThousand is a catalog of 100,000 tools.
func hundredThousand(tb testing.TB) *compile.Compiler {
	tb.Helper()
	c := catalogtest.New(tb)
	var batches []capability.Batch
	for n := range 2000 {
		m := capability.Module{Extension: fmt.Sprintf("mcp.s%04d", n), ID: fmt.Sprintf("s%04d", n), Origin: "mcp"}
		for i := range 50 {
			m.Contributions = append(m.Contributions, capability.Contribution{
				ID: fmt.Sprint("t", i), Kind: "capability.agent-tool", Tool: fmt.Sprintf("tool_%04d_%d", n, i), Effect: capability.EffectRead,
				Description: "reads one thing", Provider: capability.NewProviderKey("ext", "mcp", m.ID),
				Member:      capability.Member{Module: m.ID, Kind: "tool", Name: fmt.Sprint(i)},
				InputSchema: []byte(`{"type":"object","properties":{"n":{"type":"number"}}}`),
			})
		}
		batches = append(batches, capability.Batch{Source: "mcp/" + m.ID, Modules: []capability.Module{m}})
	}
	if _, _, err := c.ReplaceAll(batches); err != nil {
		tb.Fatalf("fill the catalog: got %v, want no error", err)
	}
	return compile.New(c)
}

// BenchmarkStep is one request to the model and one call, without the time of the model and of the
// provider, in a catalog of 100,000 tools.
func BenchmarkStep(b *testing.B) {
	const steps = 20
	compiler := hundredThousand(b)
	var times []time.Duration
	for b.Loop() {
		last := time.Time{}
		model := &caller{tool: "tool_0001_1", steps: steps, asked: func(modelwire.Request) {
			if now := time.Now(); !last.IsZero() {
				times = append(times, now.Sub(last))
			}
			last = time.Now()
		}}
		e := opened(b, agent.Config{
			Model: model, Path: instant{compiler}, Policy: free{},
			Budget: agent.Budget{ModelCalls: 2 * steps, ToolCalls: 2 * steps, Work: time.Minute},
		})
		run(b, e)
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs/step-p50")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "µs/step-p99")
}

// run sends a message and follows the run to its end.
func run(tb testing.TB, e *agent.Engine) {
	tb.Helper()
	f, err := e.Send(tb.Context(), agent.Message{
		Person: capability.Principal{ID: "admin:a", Role: capability.RoleAdmin}, Session: "s", Text: "go", Turns: []agent.Turn{{Text: "go"}},
	})
	if err != nil {
		tb.Fatalf("send: got %v, want no error", err)
	}
	defer f.Close()
	for {
		ev, err := f.Next(tb.Context())
		if err != nil {
			tb.Fatalf("next: got %v, want no error", err)
		}
		if ev.Type == "end" {
			if ev.Outcome.State != agent.Completed {
				tb.Fatalf("the run: got %s with %v, want completed", ev.Outcome.State, ev.Outcome.Error)
			}
			return
		}
	}
}

// BenchmarkParked is the memory of a run that waits, and the time in which a server with 10,000 of
// them starts and looks for decisions.
func BenchmarkParked(b *testing.B) {
	const runs = 10_000
	journal := openJournal(b)
	var pending []policy.Approval
	for i := range runs {
		id := fmt.Sprintf("apr_%024d", i)
		pending = append(pending, policy.Approval{ID: id, State: policy.ApprovalPending})
		err := journal.Save(b.Context(), agent.Run{
			ID: fmt.Sprintf("tsk_%032d", i), Person: fmt.Sprintf("operator:p%d", i%400), Session: fmt.Sprintf("s%d", i), Gateway: "g",
			State: agent.Waiting, Approvals: []string{id}, Created: time.Now(), Updated: time.Now(), Seq: 1,
		}, agent.Used{}, agent.Record{Seq: 1, Kind: "started", Doc: []byte(`{}`)})
		if err != nil {
			b.Fatalf("save: got %v, want no error", err)
		}
	}
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		e := opened(b, agent.Config{Journal: journal, Policy: free{pending}})
		if err := e.Open(b.Context()); err != nil {
			b.Fatalf("open: got %v, want no error", err)
		}
		e.Sweep(b.Context())
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/runs, "B/run")
		runtime.KeepAlive(e)
	}
}
