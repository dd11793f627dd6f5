package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/agent/agentsql"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/local"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// island is a provider whose tools have names that occur nowhere else. It keeps its calls.
type island struct {
	name string
	of   *world
}

func (i island) Key() capability.ProviderKey { return capability.ProviderKey("ext:mcp:" + i.name) }

func (i island) Invoke(_ context.Context, c capability.Call) (capability.Result, error) {
	i.of.mu.Lock()
	defer i.of.mu.Unlock()
	i.of.made = append(i.of.made, c)
	return capability.Result{Value: json.RawMessage(fmt.Sprintf(`{"result":"number %d"}`, len(i.of.made)))}, nil
}

func (i island) batch() capability.Batch {
	m := capability.Module{Extension: "mcp." + i.name, ID: "mcp." + i.name, Name: i.name, Label: i.name, Origin: "mcp"}
	effects := []capability.Effect{capability.EffectRead, capability.EffectRead, capability.EffectWrite, capability.EffectExternal}
	for k, effect := range effects {
		name := fmt.Sprintf("zq%s%dz", i.name, k)
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: name, Kind: "capability.agent-tool", Tool: name, Description: "shared word of " + name, Effect: effect, Provider: i.Key(),
			Member:      capability.Member{Module: m.Extension, Kind: "tool", Name: name},
			InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"number"}}}`),
		})
	}
	return capability.Batch{Source: "upstream/" + m.Extension, Modules: []capability.Module{m}, Providers: []capability.Provider{i}}
}

// world is an agent in front of three islands, whose model answers at random.
type world struct {
	t       *testing.T
	random  *rand.Rand
	policy  *policy.Policy
	log     *audit.Log
	engine  *agent.Engine
	person  capability.Principal
	entries []*catalog.Entry
	seq     uint64

	mu      sync.Mutex
	made    []capability.Call
	visible map[string]bool // by name of a tool, in this round
	said    map[string]bool // names that the model wrote itself
	faults  []string
	steps   int
}

// OpenTurn and Move are the tasks of runs, which are not kept.
func (*world) OpenTurn(context.Context, string, string) (tasks.Task, error) {
	return tasks.Task{ID: tasks.NewID()}, nil
}
func (*world) TakeTurns(context.Context, []string) error                  { return nil }
func (*world) ReleaseTurn(string)                                         {}
func (*world) Move(context.Context, string, tasks.Movement) (bool, error) { return true, nil }

// Exchange checks a prompt and answers at random.
func (w *world) Exchange(_ context.Context, req modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	prompt, err := json.Marshal(req)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		return modelwire.Reply{}, err
	}
	for _, e := range w.entries {
		name := e.Contribution.Tool
		if !w.visible[name] && !w.said[name] && strings.Contains(string(prompt), name) {
			w.faults = append(w.faults, fmt.Sprintf("a prompt has %s, which is not visible: %s", name, prompt))
		}
	}
	text := modelwire.Reply{
		Message: modelwire.Message{Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "done"}}},
		Stop:    modelwire.StopEnd,
	}
	if w.steps++; w.steps > 5 || req.Choice == modelwire.MustNotCall || w.random.IntN(6) == 0 {
		return text, nil
	}
	var blocks []modelwire.Block
	for i := range 1 + w.random.IntN(3) {
		name, input := w.call(req)
		blocks = append(blocks, modelwire.Block{Kind: modelwire.Call, ID: fmt.Sprintf("c%d_%d", w.steps, i), Name: name, Input: input})
	}
	return modelwire.Reply{Message: modelwire.Message{Role: modelwire.Assistant, Blocks: blocks}, Stop: modelwire.StopCalls}, nil
}

// call returns a random call: of an offered tool, of any tool by its name, or through the catalog.
func (w *world) call(req modelwire.Request) (name, input string) {
	any := w.entries[w.random.IntN(len(w.entries))].Contribution.Tool
	input = fmt.Sprintf(`{"n":%d}`, w.random.IntN(100))
	switch w.random.IntN(6) {
	case 0:
		w.said[any] = true
		return any, input
	case 1:
		w.said[any] = true
		return []string{"catalog_call", "catalog_callRead"}[w.random.IntN(2)], fmt.Sprintf(`{"name":%q,"arguments":%s}`, any, input)
	case 2:
		w.said[any] = true
		return "catalog_describe", fmt.Sprintf(`{"name":%q}`, any)
	case 3:
		return "catalog_search", `{"query":"shared word"}`
	}
	if len(req.Tools) == 0 {
		return "catalog_search", `{}`
	}
	return req.Tools[w.random.IntN(len(req.Tools))].Name, input
}

func newWorld(t *testing.T, random *rand.Rand) *world {
	t.Helper()
	dir := t.TempDir()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: got %v, want no error", what, err)
		}
	}
	db, err := store.Open(t.Context(), filepath.Join(dir, "junctor.db"))
	must("open the database", err)
	segments, err := segment.Open(filepath.Join(dir, "audit"), segment.Config{})
	must("open the segments", err)
	log, err := audit.Open(t.Context(), audit.Config{Segments: segments, Key: make([]byte, 32)})
	must("open the log", err)
	pol, err := policy.New(t.Context(), policy.Config{
		Documents: []policy.Document{{Name: "none.cedar", Text: []byte(policy.DefaultRules())}}, Store: db, Log: log,
	})
	must("open the policy", err)
	token, _, err := pol.CreateToken(t.Context(), capability.Principal{ID: "admin:root", Role: capability.RoleAdmin},
		policy.TokenRequest{Role: capability.RoleAgent, Name: "one"})
	must("make a token", err)
	w := &world{t: t, random: random, policy: pol, log: log, person: token.Principal(), seq: 1}
	cat := catalogtest.New(t)
	path := invoke.New(invoke.Config{Catalog: cat, Policy: pol, Log: log, Outcomes: db})
	offer := func(b capability.Batch) error {
		_, _, err := cat.Replace(b)
		return err
	}
	for _, name := range []string{"a", "b", "c"} {
		must("offer an island", offer(island{name, w}.batch()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // one batch
	if err := local.NewFunctionSource(local.CatalogFunctions(path, "test")...).Run(ctx, offer); !errors.Is(err, context.Canceled) {
		t.Fatalf("offer the functions of the catalog: got %v, want %v", err, context.Canceled)
	}
	for _, e := range catalogtest.Entries(cat) {
		if strings.HasPrefix(e.Module.Extension, "mcp.") {
			w.entries = append(w.entries, e)
		}
	}
	journal, err := agentsql.Open(t.Context(), db)
	must("open the journal", err)
	w.engine = agent.New(agent.Config{
		Model: w, Path: path, Policy: pol, Tasks: w, Journal: journal, Gateway: "g",
		Budget:  agent.Budget{ModelCalls: 8, ToolCalls: 16, Work: time.Minute},
		Deliver: func(context.Context, agent.Run, agent.Outcome) (int64, error) { return 1, nil },
	})
	t.Cleanup(func() {
		w.engine.Close()
		_ = log.Close()
		_ = db.Close()
	})
	return w
}

// ruling is what random rules mean for one tool: whether a call may be made, and whether an approval is
// needed for it.
type ruling struct{ permitted, asks bool }

// rule makes random rules for the person and their assistant, and returns what they mean.
func (w *world) rule(assistant string) (map[capability.ID]ruling, string) {
	out, text := make(map[capability.ID]ruling), `@id("core") permit (principal, action, resource in Module::"core");`+"\n"
	for _, e := range w.entries {
		out[e.ID] = ruling{permitted: true}
	}
	n := 0
	for _, who := range []string{w.person.ID, assistant} {
		type rule struct {
			matches      func(*catalog.Entry) bool
			forbid, asks bool
		}
		var rules []rule
		for range 1 + w.random.IntN(6) {
			e := w.entries[w.random.IntN(len(w.entries))]
			r := rule{forbid: w.random.IntN(5) == 0}
			action, resource, verb := "action", "resource", "permit"
			switch w.random.IntN(5) {
			case 0, 1:
				resource = "resource in Module::" + strconv.Quote(e.Module.Extension)
				r.matches = func(x *catalog.Entry) bool { return x.Module.Extension == e.Module.Extension }
			case 2:
				action = "action in Action::" + strconv.Quote(string(e.Effect))
				r.matches = func(x *catalog.Entry) bool { return x.Effect == e.Effect }
			case 3:
				resource, r.matches = "resource", func(*catalog.Entry) bool { return true }
			default:
				resource = "resource == Capability::" + strconv.Quote(string(e.ID))
				r.matches = func(x *catalog.Entry) bool { return x.ID == e.ID }
			}
			if r.forbid {
				verb = "forbid"
			} else if r.asks = w.random.IntN(3) == 0; r.asks {
				verb = `@approval("operator") permit`
			}
			text += fmt.Sprintf("@id(\"r%d\") %s (principal == Principal::%q, %s, %s);\n", n, verb, who, action, resource)
			rules, n = append(rules, r), n+1
		}
		for _, e := range w.entries {
			has := func(kind func(rule) bool) bool {
				return slices.ContainsFunc(rules, func(r rule) bool { return kind(r) && r.matches(e) })
			}
			o := out[e.ID]
			plain := has(func(r rule) bool { return !r.forbid && !r.asks })
			asks := has(func(r rule) bool { return r.asks })
			o.permitted = o.permitted && (plain || asks) && !has(func(r rule) bool { return r.forbid })
			o.asks = o.asks || !plain
			out[e.ID] = o
		}
	}
	if err := w.policy.SetRules([]policy.Document{{Name: "random.cedar", Text: []byte(text)}}); err != nil {
		w.t.Fatalf("the rules: got %v, want no error\n%s", err, text)
	}
	w.policy.CatalogChanged()
	return out, text
}

// play sends one message and follows its run to the end. Approvals are decided at random; those that
// were given are added to given.
func (w *world) play(round uint64, given map[string]capability.ID) {
	w.t.Helper()
	decided := make(map[string]bool)
	f, err := w.engine.Send(w.t.Context(), agent.Message{
		Person: w.person, Session: fmt.Sprint("s", round), Text: "go", Turns: []agent.Turn{{Text: "go"}},
	})
	if err != nil {
		w.t.Fatalf("send: got %v, want no error", err)
	}
	defer f.Close()
	operator := capability.Principal{ID: "admin:root", Role: capability.RoleAdmin}
	for {
		ev, err := f.Next(w.t.Context())
		if err != nil {
			w.t.Fatalf("next: got %v, want no error", err)
		}
		if ev.Type == "end" {
			return
		}
		if ev.Type != "park" {
			continue
		}
		for _, id := range ev.Outcome.Approvals {
			if decided[id] {
				continue
			}
			decided[id] = true
			w.mu.Lock()
			decision := []policy.Decision{policy.DecideOnce, policy.DecideOnce, policy.DecideDeny}[w.random.IntN(3)]
			w.mu.Unlock()
			a, _, err := w.policy.Decide(w.t.Context(), operator, id, decision)
			if err != nil {
				w.t.Fatalf("decide: got %v, want no error", err)
			}
			if decision == policy.DecideOnce {
				given[id] = a.Capability
			}
			w.engine.Decided(id)
		}
	}
}

// recorded is the part of an audit record that the test reads.
type recorded struct {
	Seq      uint64
	Metadata struct {
		RunID        string `json:"run_id"`
		CapabilityID string `json:"capability_id"`
		State        string
		Decision     struct{ Effect, Approval, Grant string }
	}
}

// records returns the final records of the calls.
func (w *world) records(calls []capability.Call) map[string]recorded {
	w.t.Helper()
	out := make(map[string]recorded)
	if len(calls) == 0 {
		return out
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	for line, err := range w.log.Tail(ctx, w.seq) {
		var r recorded
		if err == nil {
			err = json.Unmarshal(line, &r)
		}
		if err != nil {
			w.t.Fatalf("the audit: got %v and %d of %d calls, want a record of each", err, len(out), len(calls))
		}
		w.seq = r.Seq + 1
		if slices.ContainsFunc(calls, func(c capability.Call) bool { return c.Invocation == r.Metadata.RunID }) &&
			r.Metadata.State != "" && r.Metadata.State != string(invoke.StateExecuting) {
			if out[r.Metadata.RunID] = r; len(out) == len(calls) {
				break
			}
		}
	}
	return out
}

// TestTheAgentMakesNoCallWithoutAPermit requires, for random rules and a model that answers at random,
// that each call of a tool is permitted by the rules or approved for this very tool, each approval
// for one call, that the audit has the reason, and that a prompt names only tools that the person and
// the agent may see.
func TestTheAgentMakesNoCallWithoutAPermit(t *testing.T) { agentPolicies(t, 150, rand.Uint64()) }

func agentPolicies(t *testing.T, policies, seed uint64) {
	t.Helper()
	w := newWorld(t, rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // a test that can be repeated
	assistant, err := w.policy.Assistant(t.Context(), w.person)
	if err != nil {
		t.Fatalf("the assistant: got %v, want no error", err)
	}
	// An approval that a run left unused is for the same call of a later run, once.
	given := make(map[string]capability.ID)
	calls, approved, hidden := 0, 0, 0
	for round := range policies {
		w.mu.Lock()
		rulings, text := w.rule(assistant.ID)
		w.visible, w.said, w.made, w.faults, w.steps = make(map[string]bool), make(map[string]bool), nil, nil, 0
		for _, e := range w.entries {
			if w.visible[e.Contribution.Tool] = rulings[e.ID].permitted; !rulings[e.ID].permitted {
				hidden++
			}
		}
		w.mu.Unlock()
		w.play(round, given)
		w.mu.Lock()
		made, faults := slices.Clone(w.made), slices.Clone(w.faults)
		w.mu.Unlock()
		final := w.records(made)
		for i, c := range made {
			calls++
			is, r := rulings[c.Capability], final[c.Invocation]
			d := r.Metadata.Decision
			outside := i > 0 && slices.ContainsFunc(w.entries, func(e *catalog.Entry) bool {
				return e.ID == c.Capability && e.Effect == capability.EffectExternal // after foreign text
			})
			ok := given[d.Approval] == c.Capability
			delete(given, d.Approval)
			switch {
			case !is.permitted:
				faults = append(faults, fmt.Sprintf("%s was called without a permit: %+v", c.Capability, r))
			case (is.asks || outside) && !ok:
				faults = append(faults, fmt.Sprintf("%s was called without an unused approval of it: %+v", c.Capability, r))
			case d.Effect != "permit" || r.Metadata.CapabilityID != string(c.Capability):
				faults = append(faults, fmt.Sprintf("the record of %s: got %+v, want its permit", c.Capability, r))
			case ok && d.Approval != "":
				approved++
			}
		}
		if len(faults) > 0 {
			t.Fatalf("seed %d, round %d: got %s\nunder\n%s\nwant only what is permitted", seed, round, strings.Join(faults, "\n"), text)
		}
	}
	t.Logf("FIGURES seed %d: %d policies, %d calls, %d of them approved, %d times a tool was hidden", seed, policies, calls, approved, hidden)
	if calls == 0 || approved == 0 || hidden == 0 {
		t.Errorf("got %d calls, %d approved, %d hidden tools; want some of each", calls, approved, hidden)
	}
}
