package agent

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/agent/eliza"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// publish sends an event to the modules that handle it. Failures are logged. An event is a call with
// an effect outside, which a run that has read foreign text does not make without a person.
func (t *turn) publish(ctx context.Context, event string, payload doc) {
	if t.tainted {
		return
	}
	for _, ev := range eliza.Limit(t.set.Events, func(ev eliza.Event) bool {
		return ev.Name == event && t.entry(ev.Item, "event", "") != nil
	}) {
		ctx, cancel := context.WithTimeout(ctx, contextTimeout)
		var done struct{ Handled bool }
		if err := t.ask(ctx, ev.Item, "event", "", payload, &done); err != nil {
			t.e.cfg.Logger.Info("a module did not receive an event", "run", t.row.ID, "module", ev.Module, "event", event, "err", err)
		}
		cancel()
	}
}

// reasonBudget is the reason of errors of a budget that is used up.
const reasonBudget = "budget"

// brief asks the small model for a text. The error is overloaded, reason budget, where the run or its
// person may use no more, but for the last answer.
func (e *Engine) brief(ctx context.Context, r *run, req modelwire.Request) (string, modelwire.Usage, error) {
	model := e.cfg.Small
	if model == nil {
		model = e.cfg.Model
	}
	r.mu.Lock()
	person, why := r.row.Person, e.exhausted(r, 2)
	r.mu.Unlock()
	if why == "" {
		var err error
		if why, err = e.spent(ctx, person); err != nil {
			return "", modelwire.Usage{}, err
		}
	}
	if why != "" {
		return "", modelwire.Usage{}, capability.Errorf(capability.CodeOverloaded, "agent", "%s", why).With(reasonBudget, "")
	}
	r.mu.Lock()
	r.asks()
	r.mu.Unlock()
	reply, err := model.Exchange(ctx, req, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consumes(reply.Usage)
	return reply.Message.Text(), reply.Usage, err
}

// shouldRun asks items whether they take part, at the same time. An item that fails does not.
func shouldRun[T any](ctx context.Context, t *turn, list []T, item func(T) eliza.Item, kind string, input doc) (active []bool) {
	active = make([]bool, len(list))
	var group errgroup.Group
	group.SetLimit(maxParallel)
	for i, one := range list {
		group.Go(func() error {
			var got struct{ ShouldRun bool }
			active[i] = t.ask(ctx, item(one), kind, "shouldRun", input, &got) == nil && got.ShouldRun
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	return active
}

const (
	kindOfField     = "responseHandlerFieldEvaluator"
	kindOfHandler   = "responseHandlerEvaluator"
	kindOfEvaluator = "evaluator"
)

// stage asks the small model for a first short answer if modules registered fields or response
// handlers, and lets them change the plan. It returns nil if no module takes part.
func (t *turn) stage(ctx context.Context, r *run, draft *conversation) (*eliza.Plan, error) {
	fields := eliza.Limit(t.set.Fields, func(f eliza.Field) bool { return t.entry(f.Item, kindOfField, "shouldRun") != nil })
	handlers := eliza.Limit(t.set.Handlers, func(h eliza.Handler) bool { return t.entry(h.Item, kindOfHandler, "shouldRun") != nil })
	if len(fields)+len(handlers) == 0 {
		return nil, nil
	}
	about := doc{"message": t.message(), "state": t.state(draft.context.Segments), "availableContexts": append([]string{}, t.set.Contexts...)}
	input := doc{"context": about}
	of := func(f eliza.Field) eliza.Item { return f.Item }
	active := make(map[string]bool)
	for i, runs := range shouldRun(ctx, t, fields, of, kindOfField, input) {
		active[fields[i].Name] = runs
	}
	instructions, err := eliza.Instructions(fields, active, t.set.Contexts)
	if err != nil {
		return nil, err
	}
	answer, usage, err := t.e.brief(ctx, r, modelwire.Request{
		System: []string{draft.started.System, instructions}, Messages: draft.messages(), Cache: true,
	})
	if e := capability.AsError(err); e != nil && e.Reason == reasonBudget {
		return nil, nil // the next answer is the last one
	}
	if err != nil {
		return nil, err
	}
	plan, ok := eliza.NewPlan(answer, fields, t.set.Contexts)
	if !ok {
		plan.Trace = append(plan.Trace, "the model's first answer is not a JSON object")
	}
	t.usage = usage
	// A module may have changed its mind, as elizaOS allows. It is asked after every first answer.
	for i, runs := range shouldRun(ctx, t, fields, of, kindOfField, input) {
		if runs && ok && plan.Preempt == nil {
			t.field(ctx, &plan, fields[i], fields, about)
		}
	}
	for _, h := range handlers {
		if plan.Preempt != nil {
			break
		}
		t.handler(ctx, &plan, h, about)
	}
	return &plan, context.Cause(ctx)
}

// field lets a field evaluator parse its value and act on it.
func (t *turn) field(ctx context.Context, plan *eliza.Plan, f eliza.Field, fields []eliza.Field, about doc) {
	var parsed any
	if f.Parses {
		var got struct {
			Value    json.RawMessage
			SoftFail bool
		}
		err := t.ask(ctx, f.Item, kindOfField, "parse", doc{"context": about, "value": decoded(plan.Values[f.Name])}, &got)
		switch {
		case err != nil:
			plan.Fail(f.Item, string(capability.CodeOf(err)))
			return
		case got.SoftFail || len(got.Value) == 0 || string(got.Value) == "null":
			plan.Fail(f.Item, "its value cannot be used")
			return
		}
		plan.Values[f.Name] = got.Value
		if jsonx.Raw(got.Value).Kind() == '{' {
			parsed = decoded(got.Value)
		}
	}
	if !f.Handles {
		return
	}
	input := doc{"context": about, "value": decoded(plan.Values[f.Name])}
	if parsed != nil {
		input["parsed"] = parsed
	}
	var got struct{ Effect eliza.Effect }
	if err := t.ask(ctx, f.Item, kindOfField, "handle", input, &got); err != nil {
		plan.Fail(f.Item, string(capability.CodeOf(err)))
		return
	}
	plan.ApplyEffect(f, got.Effect, fields, t.set.Contexts)
}

// handler lets a response-handler evaluator change the plan.
func (t *turn) handler(ctx context.Context, plan *eliza.Plan, h eliza.Handler, about doc) {
	with := maps.Clone(about)
	with["messageHandler"] = doc{"processMessage": plan.Decision, "plan": doc{
		"requiresTool": plan.NeedsTool, "contexts": append([]string{}, plan.Contexts...), "reply": plan.Reply,
		"candidateActions": append([]string{}, plan.Candidates...),
	}}
	input := doc{"context": with}
	var runs struct{ ShouldRun bool }
	if err := t.ask(ctx, h.Item, kindOfHandler, "shouldRun", input, &runs); err != nil {
		plan.Fail(h.Item, string(capability.CodeOf(err)))
		return
	}
	if !runs.ShouldRun || t.entry(h.Item, kindOfHandler, "evaluate") == nil {
		return
	}
	var got struct{ Patch json.RawMessage }
	if err := t.ask(ctx, h.Item, kindOfHandler, "evaluate", input, &got); err != nil {
		plan.Fail(h.Item, string(capability.CodeOf(err)))
		return
	}
	if len(got.Patch) > 0 {
		plan.Apply(h.Item, got.Patch, t.set.Contexts)
	}
}

// planEntries returns the records of a plan: itself, and its reply if the turn ends with it.
func planEntries(plan *eliza.Plan, usage modelwire.Usage) (out []entry) {
	route := plan.Route()
	out = append(out, entry{kind: kindPlanned, doc: planned{
		Route: route, Reply: plan.Reply, Tools: slices.Concat(plan.Candidates, plan.Hints), Trace: plan.Trace, Usage: usage,
		Foreign: plan.Foreign && plan.Reply != "",
	}})
	switch route {
	case eliza.RouteTools:
	case eliza.RouteReply:
		reply := answer{Stop: modelwire.StopEnd, Blocks: []block{{Kind: modelwire.Text, Text: plan.Reply}}}
		out = append(out, entry{kind: kindAnswered, doc: reply})
	default:
		out = append(out, entry{kind: kindAnswered, doc: answer{Stop: modelwire.StopEnd, Blocks: []block{}}})
	}
	return out
}

// evaluated is the record of the evaluators that looked at a run.
type evaluated struct {
	Ran    []string        `json:"ran,omitzero"`
	Failed []string        `json:"failed,omitzero"`
	Usage  modelwire.Usage `json:"usage,omitzero"`
}

// evaluate lets the evaluators of modules look at a run that has ended. The reply was delivered
// before, and a failure changes nothing of it.
func (e *Engine) evaluate(ctx context.Context, r *run, conv *conversation, o Outcome) {
	ctx, cancel := context.WithTimeout(ctx, evaluateTimeout)
	defer cancel()
	r.mu.Lock()
	row := r.row
	r.mu.Unlock()
	who, err := e.actor(ctx, row.Person)
	if err != nil {
		return // their token has ended
	}
	t, err := e.newTurn(row, who, conv)
	if err != nil {
		return
	}
	if !o.Ignored {
		t.publish(ctx, eliza.EventSent, doc{"message": doc{"id": row.ID, "text": o.Text, "content": doc{"text": o.Text}}})
	}
	list := eliza.Limit(t.set.Evaluators, func(x eliza.Evaluator) bool { return t.entry(x.Item, kindOfEvaluator, "shouldRun") != nil })
	if len(list) == 0 {
		return
	}
	var segments []segment
	if conv.context != nil {
		segments = conv.context.Segments
	}
	message, state := t.message(), t.state(segments)
	input := doc{"message": message, "state": state, "options": doc{"didRespond": !o.Ignored}}
	var sections []eliza.Section
	out := evaluated{}
	fail := func(x eliza.Item, err error) {
		out.Failed = append(out.Failed, text.Line(x.String()+": "+capability.AsError(err).Message, 300))
	}
	for i, runs := range shouldRun(ctx, t, list, func(x eliza.Evaluator) eliza.Item { return x.Item }, kindOfEvaluator, input) {
		if !runs {
			continue
		}
		s := eliza.Section{Evaluator: list[i]}
		if s.Prepares {
			var got struct{ Prepared json.RawMessage }
			if err := t.ask(ctx, s.Item, kindOfEvaluator, "prepare", input, &got); err != nil {
				fail(s.Item, err)
				continue
			}
			s.Prepared = got.Prepared
		}
		named := eliza.Limit(t.set.Providers, func(p eliza.Provider) bool { return slices.Contains(s.Providers, p.Name) })
		for _, one := range gather(ctx, t.providers(named), maxContext) {
			s.State += one.Text + "\n"
		}
		sections = append(sections, s)
	}
	if len(sections) > 0 {
		t.judge(ctx, r, conv, sections, o, input, &out, fail)
	}
	if len(out.Ran)+len(out.Failed) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := e.save(context.WithoutCancel(ctx), r, nil, entry{kind: kindEvaluated, doc: out}); err != nil {
		e.cfg.Logger.Warn("what evaluators did cannot be stored", "run", row.ID, "err", err)
	}
}

// judge asks the small model once for all sections, and passes each its part of the answer.
func (t *turn) judge(
	ctx context.Context, r *run, conv *conversation, sections []eliza.Section, o Outcome, input doc, out *evaluated,
	fail func(eliza.Item, error),
) {
	messages := conv.messages()
	if strings.TrimSpace(o.Text) != "" {
		messages = append(messages, modelwire.Message{
			Role: modelwire.Assistant, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: o.Text}},
		})
	}
	messages = append(messages, modelwire.Message{
		Role: modelwire.User, Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: "[junctor: evaluate the conversation now, as described.]"}},
	})
	answer, usage, err := t.e.brief(ctx, r, modelwire.Request{System: []string{eliza.Merge(sections)}, Messages: messages})
	out.Usage = usage
	if err != nil {
		for _, s := range sections {
			fail(s.Item, err)
		}
		return
	}
	for i, value := range eliza.Split(sections, answer) {
		s := sections[i]
		if s.Processes {
			call := maps.Clone(input)
			if v := decoded(s.Prepared); v != nil {
				call["prepared"] = v
			}
			if v := decoded(value); v != nil {
				call["output"] = v
			}
			var got struct{ Result json.RawMessage }
			if err := t.ask(ctx, s.Item, kindOfEvaluator, "process", call, &got); err != nil {
				fail(s.Item, err)
				continue
			}
		}
		out.Ran = append(out.Ran, s.String())
	}
}
