package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// recordingFormat is the version of Recording's form.
const recordingFormat = 1

// Recording is a run that was completed, as far as it takes to repeat it without a model, without
// providers and without a server. It contains what the person wrote and what tools returned.
type Recording struct {
	Format    int              `json:"format"`
	Run       string           `json:"run"`
	Persona   string           `json:"persona,omitzero"`
	Turns     []Turn           `json:"turns"`
	Tainted   bool             `json:"tainted,omitzero"`
	Planned   *planned         `json:"planned,omitzero"`
	Context   *composed        `json:"context,omitzero"`
	Limits    recordedLimits   `json:"limits"`
	Tools     []recordedTool   `json:"tools"`
	Exchanges []exchange       `json:"exchanges"`
	Results   []recordedResult `json:"results"`
	Summaries []compacted      `json:"summaries,omitzero"`
	Reply     string           `json:"reply"`
}

// recordedTool is a tool with its entry of the catalog.
type recordedTool struct {
	Tool   tool              `json:"tool"`
	Action capability.Action `json:"action,omitzero"` // of the registry; else a tool of its own name
	Effect capability.Effect `json:"effect"`
	Later  bool              `json:"later,omitzero"` // the model had it described
	Absent bool              `json:"absent,omitzero"`
}

// recordedLimits are the limits of a run, which decide what is its last request.
type recordedLimits struct {
	ModelCalls int   `json:"model_calls"`
	ToolCalls  int   `json:"tool_calls"`
	Tokens     int   `json:"tokens,omitzero"`
	Cost       int64 `json:"cost,omitzero"`
}

// exchange is one request, by its segments, and the model's answer.
type exchange struct {
	Segments []Segment `json:"segments"`
	Answer   answer    `json:"answer"`
}

// recordedResult is the result of one call.
type recordedResult struct {
	Name     string               `json:"name"`
	Input    string               `json:"input"`
	Text     string               `json:"text"`
	Error    *capability.Error    `json:"error,omitempty"`
	Decision policy.ApprovalState `json:"decision,omitzero"`
}

// Record returns the recording of a run. Errors: as of Get; conflict for a run that is not completed, or
// that cannot be repeated, because the person wrote more while it worked, or Stage 1 answered it.
func (e *Engine) Record(ctx context.Context, who capability.Principal, id string) (Recording, error) {
	row, err := e.Get(ctx, who, id)
	if err != nil {
		return Recording{}, err
	}
	cannot := func(why string) (Recording, error) {
		return Recording{}, capability.Errorf(capability.CodeConflict, "agent", "the run %s cannot be recorded: %s", id, why).
			With("not_recordable", "record another run of the agent")
	}
	if row.State != Completed {
		return cannot("it is " + string(row.State))
	}
	records, err := e.cfg.Journal.Records(ctx, id)
	if err != nil {
		return Recording{}, capability.AsError(err)
	}
	b := e.cfg.Budget
	limits := recordedLimits{b.ModelCalls, b.ToolCalls, b.Tokens, b.Cost}
	out := Recording{Format: recordingFormat, Run: id, Limits: limits, Tools: []recordedTool{}, Results: []recordedResult{}}
	c := &conversation{}
	var segments []Segment
	for _, rec := range records {
		if err := c.apply(rec); err != nil {
			return Recording{}, capability.Wrap(capability.CodeFailed, "agent", fmt.Sprintf("record %d of the run is damaged", rec.Seq), err)
		}
		switch rec.Kind {
		case kindGuidance:
			return cannot("the person wrote more while it worked")
		case kindAsked:
			segments = segmentsOf(c.request(c.final, c.note))
		case kindAnswered:
			if segments == nil {
				return cannot("it was answered without the model")
			}
			var a answer
			if err := json.Unmarshal(rec.Doc, &a); err != nil {
				return Recording{}, err
			}
			out.Exchanges = append(out.Exchanges, exchange{segments, a})
		case kindTools:
			for _, t := range c.tools[len(out.Tools):] {
				out.Tools = append(out.Tools, recordedTool{Tool: t, Later: segments != nil})
			}
		case kindResult:
			var r result
			if err := json.Unmarshal(rec.Doc, &r); err != nil {
				return Recording{}, err
			}
			call := c.steps[len(c.steps)-1].calls[r.Call]
			out.Results = append(out.Results, recordedResult{call.Name, call.Input, r.Text, r.Error, r.Decision})
		case kindCompacted:
			out.Summaries = append(out.Summaries, *c.summary)
		}
	}
	out.Persona = strings.TrimSuffix(c.started.System, Duty)
	out.Turns, out.Tainted, out.Planned, out.Context, out.Reply = c.started.Turns, c.started.Tainted, c.planned, c.context, c.text
	person, err := e.cfg.Policy.Standing(row.Person)
	if err != nil {
		return Recording{}, err
	}
	agent, _, err := e.cfg.Path.Agent(e.invocation(row, person))
	if err != nil {
		return Recording{}, err
	}
	for _, r := range out.Results { // tools that the model called without being offered them
		listed := slices.ContainsFunc(out.Tools, func(t recordedTool) bool { return t.Tool.Name == r.Name })
		if _, ok := spelling.Read(agent, r.Name); ok && !listed {
			out.Tools = append(out.Tools, recordedTool{Tool: tool{Name: r.Name}, Later: true})
		}
	}
	for i := range out.Tools {
		out.Tools[i].describe(agent)
	}
	return out, nil
}

// describe adds the tool's entry of the catalog.
func (t *recordedTool) describe(agent *compile.Agent) {
	x, ok := spelling.Read(agent, t.Tool.Name)
	if !ok {
		t.Absent = true
		return
	}
	if t.Effect = x.Effect(); t.Tool.Schema == nil {
		if def, ok := definition(agent, x); ok {
			t.Tool = def
		}
	}
	if _, ok := actions.Lookup(x.Canonical); ok {
		t.Action = x.Canonical
	}
}

// current returns the tool as the registry of this version describes it.
func (t *recordedTool) current() tool {
	out := t.Tool
	if row, ok := actions.Lookup(t.Action); ok && t.Action != "" {
		out.Description = text.ClipBytes(strings.TrimSpace(row.Description), maxDescription)
	}
	return out
}
