package chat

import (
	"cmp"
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/engine"
)

// Functions returns the functions of the agent for the catalog: none if it is off.
func (s *Service) Functions() []host.Function {
	if s.agent == nil {
		return nil
	}
	return []host.Function{{ID: "chat.ask", Action: "chat.ask", Effect: capability.EffectRead, Handle: s.ask}}
}

// asked is the result of chat.ask.
type asked struct {
	State     agent.State       `json:"state"`
	Text      string            `json:"text,omitempty"`
	Run       string            `json:"run,omitempty"`
	Approvals []string          `json:"approvals,omitempty"` // that the run waits for
	Calls     []agent.Done      `json:"calls,omitempty"`     // that were made
	Error     *capability.Error `json:"error,omitempty"`
}

// ask answers a text with the agent, or returns the state of an earlier run. A run that waits for an
// approval is not waited for. An assistant or a task agent gives the agent no work: a text that it
// read could otherwise begin a run that does not count as tainted.
func (s *Service) ask(ctx context.Context, c capability.Call) (capability.Result, error) {
	var in struct {
		Text    string `json:"text"`
		Session string `json:"session"`
		Run     string `json:"run"`
	}
	if err := jsonx.Unmarshal(c.Input, &in); err != nil || (in.Text == "") == (in.Run == "") {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, "chat.ask",
			"chat.ask takes a text, or the run of an earlier answer")
	}
	if in.Text != "" && c.Principal.OnBehalfOf != "" {
		return capability.Result{}, capability.Errorf(capability.CodeDenied, "chat.ask",
			"%s acts on behalf of %s, so it begins no run of the agent", c.Principal.ID, c.Principal.OnBehalfOf)
	}
	if in.Text != "" {
		reply, err := s.chat.Say(ctx, engine.Message{
			Principal: c.Principal, Session: cmp.Or(in.Session, c.Session, "ask"), Text: in.Text, Client: "chat.ask",
		}, progress{c.Progress})
		if err != nil {
			return capability.Result{}, err
		}
		if in.Run = reply.Run; in.Run == "" {
			out := asked{State: agent.Completed, Text: reply.Message.Text, Error: reply.Error}
			if reply.Error != nil {
				out.State = agent.Failed
			}
			return result(out)
		}
	}
	events, err := s.agent.Events(ctx, c.Principal, in.Run, "")
	if err != nil {
		return capability.Result{}, err
	}
	for ev := range events {
		if o := ev.Outcome; o != nil {
			return result(asked{State: o.State, Text: o.Text, Run: in.Run, Approvals: o.Approvals, Calls: o.Done, Error: o.Error})
		}
	}
	return capability.Result{}, capability.AsError(context.Cause(ctx))
}

func result(v asked) (capability.Result, error) {
	data, err := jsonx.Marshal(v)
	return capability.Result{Value: data}, err
}

// progress passes what the agent does to the caller of chat.ask.
type progress struct{ tell func(capability.Chunk) }

// Text implements engine.Stream.
func (progress) Text(string) error { return nil }

// Progress implements engine.Stream.
func (p progress) Progress(c capability.Chunk) { p.tell(c) }
