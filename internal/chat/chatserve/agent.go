package chatserve

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Agent has the runs of the agent; [agent.Engine] implements it.
type Agent interface {
	List(ctx context.Context, who capability.Principal, q agent.Query) ([]agent.Run, string, error)
	Get(ctx context.Context, who capability.Principal, id string) (agent.Run, error)
	Events(ctx context.Context, who capability.Principal, id, last string) (iter.Seq[agent.Event], error)
	Done(ctx context.Context, who capability.Principal, id string) ([]agent.Done, error)
	Page(ctx context.Context, who capability.Principal, id, invocation string) (agent.Page, error)
	Cancel(ctx context.Context, who capability.Principal, id string) error
	Record(ctx context.Context, who capability.Principal, id string) (agent.Recording, error)
	Usage(ctx context.Context, who capability.Principal, days int) ([]agent.Day, error)
}

// agentRun is a run of the agent in responses.
type agentRun struct {
	ID         string            `json:"id"`
	Person     string            `json:"person"`
	Session    string            `json:"session"`
	State      agent.State       `json:"state"`
	Approval   string            `json:"approval,omitempty"` // the first that a waiting run waits for
	Approvals  []string          `json:"approvals,omitempty"`
	Error      *capability.Error `json:"error,omitempty"`
	ModelCalls int               `json:"modelCalls"`
	ToolCalls  int               `json:"toolCalls"`
	Tokens     int               `json:"tokens"`
	Cost       float64           `json:"cost"`            // by the configured prices
	Calls      []agent.Done      `json:"calls,omitempty"` // of one run: what was done, and the invocations
	Created    time.Time         `json:"created"`
	Updated    time.Time         `json:"updated"`
}

func runOf(r agent.Run) agentRun {
	out := agentRun{
		ID: r.ID, Person: r.Person, Session: r.Session, State: r.State, Approvals: r.Approvals, Error: r.Error, ModelCalls: r.ModelCalls,
		ToolCalls: r.ToolCalls, Tokens: r.Tokens, Cost: cost(r.Cost), Created: r.Created, Updated: r.Updated,
	}
	if len(r.Approvals) > 0 {
		out.Approval = r.Approvals[0]
	}
	return out
}

// withAgent returns a handler that fails if the agent is off.
func (s *Surface) withAgent(h httpapi.Handler) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
		if s.Agent == nil {
			return capability.Errorf(capability.CodeUnavailable, "agent", "the agent is off here").
				With("agent_off", "it needs a model (model.url or model.routes) and agent.tools other than off")
		}
		return h(w, r, who)
	}
}

// agentRuns lists runs of the agent, the newest first.
func (s *Surface) agentRuns(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	limit, err := httpapi.Number(r, "limit", 0, 0, maxLimit)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	state := agent.State(q.Get("state"))
	if state != "" && !slices.Contains(agent.States(), state) {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "%q is not a state of a run; use one of %v", state, agent.States())
	}
	list, next, err := s.Agent.List(r.Context(), who, agent.Query{
		Session: q.Get("session"), State: state, Limit: limit, Cursor: q.Get("cursor"),
	})
	out := make([]agentRun, len(list))
	for i, one := range list {
		out[i] = runOf(one)
	}
	return answer(w, map[string]any{"runs": out, "next": next}, err)
}

func (s *Surface) agentRun(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	one, err := s.Agent.Get(r.Context(), who, r.PathValue("run"))
	if err != nil {
		return err
	}
	out := runOf(one)
	out.Calls, err = s.Agent.Done(r.Context(), who, one.ID)
	return answer(w, out, err)
}

// agentRecording returns what it takes to repeat a run offline.
func (s *Surface) agentRecording(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	out, err := s.Agent.Record(r.Context(), who, r.PathValue("run"))
	return answer(w, out, err)
}

// agentPage returns the input and the result of one call, for the page of its tool.
func (s *Surface) agentPage(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	out, err := s.Agent.Page(r.Context(), who, r.PathValue("run"), r.PathValue("call"))
	return answer(w, out, err)
}

// billion is the number of the smallest units of a cost in one of its currency.
const billion = 1e9

func cost(n int64) float64 { return float64(n) / billion }

// agentDay is what the agent used for a person on one day.
type agentDay struct {
	Person     string  `json:"person"`
	Day        string  `json:"day"`
	ModelCalls int     `json:"modelCalls"`
	ToolCalls  int     `json:"toolCalls"`
	Tokens     int     `json:"tokens"`
	Cost       float64 `json:"cost"`
}

// agentUsage lists what the agent used, by day and person.
func (s *Surface) agentUsage(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	days, err := httpapi.Number(r, "days", 7, 1, agent.MaxUsageDays)
	if err != nil {
		return err
	}
	list, err := s.Agent.Usage(r.Context(), who, days)
	out := make([]agentDay, len(list))
	for i, d := range list {
		out[i] = agentDay{d.Person, d.Day, d.ModelCalls, d.ToolCalls, d.Tokens, cost(d.Cost)}
	}
	return answer(w, map[string]any{"usage": out}, err)
}

func (s *Surface) agentCancel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	err := s.Agent.Cancel(r.Context(), who, r.PathValue("run"))
	return answer(w, map[string]any{"ok": true}, err)
}

// agentEvent is the data of an event.
type agentEvent struct {
	agent.Event
	Run       string            `json:"run,omitempty"`
	Approvals []string          `json:"approvals,omitempty"` // of park
	Error     *capability.Error `json:"error,omitempty"`     // of end
	Calls     []agent.Done      `json:"calls,omitempty"`     // of park and end
}

// agentEvents streams the events of a run after the one with the id Last-Event-ID, or after in the
// query, until the run ends.
func (s *Surface) agentEvents(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	id := r.PathValue("run")
	events, err := s.Agent.Events(r.Context(), who, id, cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after")))
	if err != nil {
		return err
	}
	out := httpapi.NewStream(w, r)
	for ev := range events {
		one := agentEvent{Event: ev, Run: id}
		if o := ev.Outcome; o != nil {
			one.State, one.Approvals, one.Error, one.Calls = string(o.State), o.Approvals, o.Error, o.Done
		}
		data, err := jsonx.Marshal(one)
		if err != nil {
			return nil // the response has begun
		}
		if out.Send(ev.ID, ev.Type, data) != nil {
			return nil // the reader has gone
		}
	}
	return nil
}
