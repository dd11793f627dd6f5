package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// Verdict is the result of repeating a recording.
type Verdict struct {
	Run       string
	Exchanges int    // that were repeated
	Miss      string // where the run differs from the recording; "": nowhere
}

// Replay repeats a recording with this version's prompts and loop: the recorded model answers a request
// whose segments are those that were recorded, and calls have their recorded results. persona, if not
// nil, replaces that of the recording. Errors: invalid_input for a malformed recording.
func Replay(ctx context.Context, rec Recording, persona *string) (Verdict, error) {
	v := Verdict{Run: rec.Run}
	if rec.Format != recordingFormat || len(rec.Turns) == 0 || len(rec.Exchanges) == 0 {
		return v, capability.Errorf(capability.CodeInvalidInput, "agent", "this is not a recording of format %d", recordingFormat).
			With("invalid_recording", "make one with: junctor chat record RUN")
	}
	p := &player{rec: rec, used: make([]bool, len(rec.Results)), rows: make(map[string]Run)}
	if err := p.open(); err != nil {
		return v, err
	}
	l := rec.Limits
	e := New(Config{
		Model: p, Small: smallPlayer{p}, Path: p, Policy: p, Tasks: p, Journal: p, Gateway: "replay",
		Budget:  Budget{ModelCalls: l.ModelCalls, ToolCalls: l.ToolCalls, Tokens: l.Tokens, Cost: l.Cost, Work: replayTimeout},
		Deliver: func(context.Context, Run, Outcome) (int64, error) { return 1, nil },
	})
	defer e.Close()
	system := rec.Persona + Duty
	if persona != nil {
		system = *persona + Duty
	}
	r := e.register(Run{ID: rec.Run, Person: "replay", Session: "replay", Gateway: "replay", State: Working})
	seeds := []entry{{kind: kindStarted, doc: started{
		Person: "replay", Session: "replay", System: system, Turns: rec.Turns, Tainted: rec.Tainted,
	}}}
	if rec.Context != nil {
		seeds = append(seeds, entry{kind: kindContext, doc: rec.Context})
	} else {
		seeds = append(seeds, entry{kind: kindContext, doc: composed{}})
	}
	if rec.Planned != nil {
		seeds = append(seeds, entry{kind: kindPlanned, doc: rec.Planned})
		r.row.ModelCalls++
	}
	var first []tool
	for _, t := range rec.Tools {
		if !t.Later {
			first = append(first, t.current())
		}
	}
	if len(first) > 0 {
		seeds = append(seeds, entry{kind: kindTools, doc: first})
	}
	r.mu.Lock()
	err := e.save(ctx, r, nil, seeds...)
	f := e.follow(r)
	r.mu.Unlock()
	if err != nil {
		return v, err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	e.wake(r)
	for {
		ev, err := f.Next(ctx)
		if err != nil {
			return v, capability.AsError(err)
		}
		if ev.Type == "end" {
			p.mu.Lock()
			defer p.mu.Unlock()
			v.Exchanges, v.Miss = p.next, cmp.Or(p.miss, p.left(*ev.Outcome))
			return v, nil
		}
	}
}

// player plays the parts of the model, the catalog, the people and the store of a recording.
type player struct {
	rec   Recording
	agent *compile.Agent
	tools map[capability.Action]*compile.Action

	mu      sync.Mutex
	next    int // exchange
	summary int
	used    []bool // results
	parked  map[string]policy.ApprovalState
	miss    string
	rows    map[string]Run
	records []Record
}

// open makes a catalog of the recorded tools.
func (p *player) open() error {
	settings := catalog.Settings{Slots: make(map[string]catalog.SlotSetting)}
	for _, t := range p.rec.Tools {
		if row, ok := actions.Lookup(t.Action); ok && row.Slot != "" { // it had a holder
			settings.Slots[row.Slot] = catalog.SlotSetting{Mode: "parallel"}
		}
	}
	c, err := catalog.New(settings, 0)
	if err != nil {
		return err
	}
	m := capability.Module{Extension: "recorded", ID: "recorded", Origin: "recorded"}
	for i, t := range p.rec.Tools {
		if t.Absent {
			continue
		}
		one := capability.Contribution{
			ID: fmt.Sprint("t", i), Kind: "capability.agent-tool", Effect: t.Effect, Description: t.Tool.Description, InputSchema: []byte(t.Tool.Schema),
			Provider: capability.NewProviderKey("ext", "recorded", "default"),
			Member:   capability.Member{Module: "recorded", Kind: "tool", Name: t.Tool.Name},
		}
		if t.Action != "" {
			one.Action = t.Action
		} else {
			one.Tool = t.Tool.Name
		}
		m.Contributions = append(m.Contributions, one)
	}
	if _, _, err := c.ReplaceAll([]capability.Batch{{Source: "recorded", Modules: []capability.Module{m}}}); err != nil {
		return err
	}
	p.agent = compile.New(c).Compile(&capability.Context{Workspace: "default"})
	p.tools = make(map[capability.Action]*compile.Action)
	for _, t := range p.rec.Tools {
		if x, ok := spelling.Read(p.agent, t.Tool.Name); ok {
			p.tools[x.Canonical] = x
		}
	}
	return nil
}

// Exchange implements Model.
func (p *player) Exchange(_ context.Context, req modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := "it is not part of the recording"
	if p.next < len(p.rec.Exchanges) {
		why = difference(p.rec.Exchanges[p.next].Segments, segmentsOf(req))
	}
	if why != "" {
		p.miss = fmt.Sprintf("request %d: %s", p.next+1, why)
		return modelwire.Reply{}, capability.Errorf(capability.CodeFailed, "agent", "%s", p.miss)
	}
	a := p.rec.Exchanges[p.next].Answer
	p.next++
	out := modelwire.Reply{Stop: a.Stop, Usage: a.Usage, Message: modelwire.Message{Role: modelwire.Assistant, Form: a.Form, Raw: a.Raw}}
	for _, b := range a.Blocks {
		out.Message.Blocks = append(out.Message.Blocks, modelwire.Block{Kind: b.Kind, Text: b.Text, ID: b.ID, Name: b.Name, Input: b.Input})
	}
	return out, nil
}

// smallPlayer returns the recorded summaries.
type smallPlayer struct{ *player }

// Exchange implements Model.
func (p smallPlayer) Exchange(context.Context, modelwire.Request, func(modelwire.Delta) error) (modelwire.Reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary++
	if p.summary > len(p.rec.Summaries) || p.rec.Summaries[p.summary-1].Extract {
		return modelwire.Reply{}, capability.Errorf(capability.CodeUnavailable, "agent", "the recording has no such summary")
	}
	s := p.rec.Summaries[p.summary-1]
	return modelwire.Reply{Usage: s.Usage, Message: modelwire.Message{
		Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: s.Text}},
	}}, nil
}

// left returns what of the recording was not repeated.
func (p *player) left(o Outcome) string {
	switch {
	case p.next < len(p.rec.Exchanges):
		why := "the run ended after request " + fmt.Sprint(p.next)
		if o.Error != nil {
			why += ": " + o.Error.Message
		}
		return why
	case o.Text != p.rec.Reply:
		return "the reply changed"
	}
	return ""
}

// Agent implements Path.
func (p *player) Agent(capability.Invocation) (*compile.Agent, func(*catalog.Entry) bool, error) {
	return p.agent, func(*catalog.Entry) bool { return true }, nil
}

// Invoke implements Path: it returns the recorded result of a call.
func (p *player) Invoke(_ context.Context, inv capability.Invocation) (invoke.Reply, error) {
	out := invoke.Reply{Invocation: "run_replay", State: invoke.StateCompleted, Capability: inv.Target.Capability}
	x, ok := p.tools[inv.Target.Action]
	if !ok {
		return out, capability.UnknownCapability(inv.Target)
	}
	name := spelling.Write(p.agent, x)
	want, _ := jsonx.Sorted(inv.Input)
	p.mu.Lock()
	defer p.mu.Unlock()
	found := -1
	for i, r := range p.rec.Results {
		if p.used[i] || r.Name != name {
			continue
		}
		arguments, _ := object(r.Input)
		arguments, _, _ = x.CutSelector(arguments)
		if got, err := jsonx.Sorted(arguments); err == nil && bytes.Equal(got, want) {
			found = i
			break
		}
	}
	if found < 0 {
		return out, capability.Errorf(capability.CodeFailed, "agent", "the recording has no result of %s with this input", name)
	}
	p.used[found] = true
	r := p.rec.Results[found]
	if r.Decision != "" {
		id := fmt.Sprint("apr_", found)
		if p.parked == nil {
			p.parked = make(map[string]policy.ApprovalState)
		}
		p.parked[id] = r.Decision
		return out, capability.Errorf(capability.CodeApprovalRequired, "agent", "denied in the recording").Detail("approval", id)
	}
	if r.Error != nil {
		if rest, ok := strings.CutPrefix(r.Text, resultText(invoke.Reply{}, r.Error)+"\n"); ok {
			out.Result, _ = jsonx.Marshal(rest)
		}
		return out, r.Error
	}
	result, err := jsonx.Marshal(r.Text)
	out.Result = result
	return out, err
}

// Approval implements Policy.
func (p *player) Approval(_ context.Context, id string) (policy.Approval, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return policy.Approval{ID: id, State: p.parked[id]}, nil
}

// Decided implements Policy.
func (p *player) Decided(ctx context.Context, id string) (policy.Approval, error) {
	return p.Approval(ctx, id)
}

// Standing implements Policy.
func (p *player) Standing(id string) (capability.Principal, error) {
	return capability.Principal{ID: id, Role: capability.RoleAgent}, nil
}

// Assistant implements Policy.
func (p *player) Assistant(_ context.Context, person capability.Principal) (capability.Principal, error) {
	return capability.Principal{ID: capability.AssistantPrefix + "replay", Role: capability.RoleTask, OnBehalfOf: person.ID}, nil
}

// Approvals implements Policy.
func (p *player) Approvals(context.Context, policy.ApprovalState, string, int) ([]policy.Approval, error) {
	return nil, nil
}

// Withdraw implements Policy.
func (p *player) Withdraw(context.Context, string) error { return nil }

// OpenTurn implements Tasks.
func (p *player) OpenTurn(context.Context, string, string) (tasks.Task, error) {
	return tasks.Task{ID: p.rec.Run}, nil
}

// Move implements Tasks.
func (p *player) Move(context.Context, string, tasks.Movement) (bool, error) { return true, nil }

// TakeTurns implements Tasks.
func (p *player) TakeTurns(context.Context, []string) error { return nil }

// ReleaseTurn implements Tasks.
func (p *player) ReleaseTurn(string) {}

// Begin implements Journal, in memory.
func (p *player) Begin(ctx context.Context, r Run, records ...Record) (Run, bool, error) {
	return Run{}, true, p.Save(ctx, r, Used{}, records...)
}

// Save implements Journal, in memory.
func (p *player) Save(_ context.Context, r Run, _ Used, records ...Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows[r.ID] = r
	p.records = append(p.records, records...)
	return nil
}

// Run implements Journal.
func (p *player) Run(_ context.Context, id string) (Run, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rows[id], nil
}

// Records implements Journal.
func (p *player) Records(context.Context, string) ([]Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Record{}, p.records...), nil
}

// Runs implements Journal.
func (p *player) Runs(context.Context, Query) ([]Run, string, error) { return nil, "", nil }

// Open implements Journal.
func (p *player) Open(context.Context, string) ([]Run, error) { return nil, nil }

// Forget implements Journal.
func (p *player) Forget(context.Context, string, string) error { return nil }

// Sweep implements Journal.
func (p *player) Sweep(context.Context, time.Time) error { return nil }

// Usage implements Journal.
func (p *player) Usage(context.Context, string, string, string) ([]Day, error) { return nil, nil }

// ReadRecording decodes a recording.
func ReadRecording(data []byte) (rec Recording, err error) {
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, capability.Wrap(capability.CodeInvalidInput, "agent", "this is not a recording of a run", err).
			With("invalid_recording", "make one with: junctor chat record RUN")
	}
	return rec, nil
}
