package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

var errWork = errors.New("the time of the answer is used up")

// drive works on a run until it ends or waits. Its error fails the run.
func (e *Engine) drive(ctx context.Context, r *run) error {
	if ctx.Err() != nil {
		return nil
	}
	r.mu.Lock()
	row, conv := r.row, r.conv
	r.mu.Unlock()
	if row.State.Ended() {
		return nil
	}
	if conv == nil {
		var err error
		if conv, err = e.fold(ctx, row.ID); err != nil {
			return err
		}
		r.mu.Lock()
		r.conv = conv
		r.mu.Unlock()
	}
	begun := e.cfg.Now()
	defer func() {
		r.mu.Lock()
		r.row.Worked += e.cfg.Now().Sub(begun)
		r.mu.Unlock()
	}()
	working, cancel := context.WithTimeoutCause(ctx, max(0, e.cfg.Budget.Work-row.Worked), errWork)
	defer cancel()
	err := e.steps(working, r, row.Person)
	if err != nil && errors.Is(context.Cause(working), errWork) {
		return capability.Errorf(capability.CodeTimeout, "agent", "the agent worked for %s and did not finish", e.cfg.Budget.Work).
			With(reasonBudget, "ask for less at once, or raise agent.budget.work")
	}
	return err
}

// steps asks the model and makes its calls by turns.
func (e *Engine) steps(ctx context.Context, r *run, person string) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		who, err := e.actor(ctx, person)
		if err != nil {
			return err
		}
		r.mu.Lock()
		over, open, fresh := r.conv.over(), r.conv.open(), r.conv.fresh()
		r.mu.Unlock()
		switch {
		case fresh:
			if err := e.compose(ctx, r, who); err != nil {
				return err
			}
		case over:
			e.finish(context.WithoutCancel(ctx), r, Completed, nil)
			r.mu.Lock()
			ended := r.row.State.Ended()
			r.mu.Unlock()
			if ended {
				return nil
			}
			return capability.Errorf(capability.CodeFailed, "agent", "the end of the run could not be stored")
		case open:
			if err := e.act(ctx, r, who); err != nil {
				return err
			}
			left, err := e.park(ctx, r)
			if err != nil || left {
				return err
			}
		default:
			if err := e.ask(ctx, r, who); err != nil {
				return err
			}
		}
	}
}

// actor returns the principal that acts for a person. It fails once the person's token has ended.
func (e *Engine) actor(ctx context.Context, person string) (capability.Principal, error) {
	p, err := e.cfg.Policy.Standing(person)
	if err != nil {
		return p, err
	}
	who, err := e.cfg.Policy.Assistant(ctx, p)
	if e.cfg.ReadOnly {
		who.Scoped, who.Most = true, capability.EffectRead
	}
	return who, err
}

// park makes the run wait if calls of it wait for an approval. left is false if none does, or if
// one was decided meanwhile.
func (e *Engine) park(ctx context.Context, r *run) (left bool, err error) {
	r.mu.Lock()
	waits := r.conv.waits()
	if len(waits) == 0 {
		defer r.mu.Unlock()
		if r.row.State == Waiting {
			r.row.State, r.row.Approvals = Working, nil
			err = e.save(ctx, r, r.conv)
		}
		return false, err
	}
	e.wait(r, waits)
	before := r.row
	r.row.State, r.row.Approvals = Waiting, waits
	if err := e.save(ctx, r, r.conv); err != nil {
		r.row = before
		r.mu.Unlock()
		return false, err
	}
	row, o := r.row, Outcome{State: Waiting, Approvals: waits, Text: r.conv.text, Done: r.conv.done, Tainted: r.conv.taint}
	r.notify(Event{ID: eventID(row.Seq, 2), Type: "park", Outcome: &o})
	r.mu.Unlock()
	e.move(ctx, row, o)
	for _, id := range waits {
		a, err := e.cfg.Policy.Approval(ctx, id)
		if err != nil || a.State != policy.ApprovalPending {
			return false, err
		}
	}
	return true, nil
}

// ask sends the conversation to the model and stores its answer.
func (e *Engine) ask(ctx context.Context, r *run, who capability.Principal) error {
	if err := e.compact(ctx, r); err != nil {
		return err
	}
	var first []entry
	r.mu.Lock()
	person := r.row.Person
	r.mu.Unlock()
	today, err := e.spent(ctx, person)
	if err != nil {
		return err
	}
	r.mu.Lock()
	if row := r.row; len(r.conv.steps) == 0 && len(r.conv.tools) == 0 {
		var further []string
		if p := r.conv.planned; p != nil {
			further = p.Tools
		}
		r.mu.Unlock()
		tools, err := e.offer(row, who, further)
		if err != nil {
			return err
		}
		r.mu.Lock()
		if len(tools) > 0 {
			first = append(first, entry{kind: kindTools, doc: tools})
		}
	}
	note := e.limit(r)
	if note == "" && today != "" {
		note = final(today)
	}
	r.asks()
	err = e.save(ctx, r, r.conv, append(first, entry{kind: kindAsked, doc: asked{Step: len(r.conv.steps), Final: note != "", Note: note}})...)
	req := r.conv.request(note != "", note)
	r.live = liveText{seq: r.row.Seq, before: r.conv.text}
	r.mu.Unlock()
	if err != nil {
		return err
	}
	reply, err := e.cfg.Model.Exchange(ctx, req, func(d modelwire.Delta) error {
		if d.Kind == modelwire.Text && d.Text != "" {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.notify(r.live.add(d.Text))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if reply.Stop == modelwire.StopRefused {
		return capability.Errorf(capability.CodeFailed, "agent", "the model refused to answer").
			With("model_refused", "put it in other words, or use another model")
	}
	if n := len(reply.Message.Calls()); n > maxCalls {
		return capability.Errorf(capability.CodeFailed, "agent", "the model asked for %d calls at once; the limit is %d", n, maxCalls).
			With("output_limit", "ask for less at once, or use another model")
	}
	doc := answer{Form: reply.Message.Form, Raw: reply.Message.Raw, Stop: reply.Stop, Usage: reply.Usage}
	for _, b := range reply.Message.Blocks {
		if note != "" && b.Kind == modelwire.Call {
			continue // it may not make any more
		}
		doc.Blocks = append(doc.Blocks, block{Kind: b.Kind, Text: b.Text, ID: b.ID, Name: b.Name, Input: b.Input})
	}
	if len(doc.Blocks) == 0 {
		doc.Blocks = []block{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consumes(reply.Usage)
	err = e.save(context.WithoutCancel(ctx), r, r.conv, entry{kind: kindAnswered, doc: doc})
	r.live = liveText{}
	return err
}

// limit returns why the next answer has to be the last one, as a text for the model, or "". The
// caller holds r.mu.
func (e *Engine) limit(r *run) string {
	why := e.exhausted(r, 1)
	switch {
	case why != "":
	case r.row.ToolCalls >= e.cfg.Budget.ToolCalls:
		why = fmt.Sprintf("the limit of %d calls is reached", e.cfg.Budget.ToolCalls)
	case r.conv.repeats():
		why = "the same call had the same result again"
	default:
		return ""
	}
	return final(why)
}

// exhausted returns which limit of requests to the model a run has reached, or "", if keep requests are to
// be left. The caller holds r.mu.
func (e *Engine) exhausted(r *run, keep int) string {
	switch b := e.cfg.Budget; {
	case r.row.ModelCalls >= b.ModelCalls-keep:
		return fmt.Sprintf("the limit of %d requests to the model is reached", b.ModelCalls)
	case b.Tokens > 0 && r.row.Tokens >= b.Tokens:
		return fmt.Sprintf("the limit of %d tokens is reached", b.Tokens)
	case b.Cost > 0 && r.row.Cost >= b.Cost:
		return "the limit of the cost is reached"
	}
	return ""
}

// final returns the text that requests the last answer.
func final(why string) string {
	return "[junctor: " + why + ", so no more calls are made. Answer now with what you have, and name what is left.]"
}

// repeats reports whether a call of the last step had the same result as maxRepeats calls before.
func (c *conversation) repeats() bool {
	seen := make(map[[3]string]int)
	for i, s := range c.steps {
		for _, call := range s.calls {
			if call.result == nil {
				continue
			}
			key := [3]string{call.Name, call.Input, call.result.Text}
			if seen[key]++; seen[key] > maxRepeats && i == len(c.steps)-1 {
				return true
			}
		}
	}
	return false
}

// decided returns the state of an approval. Of one that was decided, it waits for the grant.
func (e *Engine) decided(ctx context.Context, id string) (policy.Approval, error) {
	a, err := e.cfg.Policy.Approval(ctx, id)
	if err != nil || a.State == policy.ApprovalPending {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	return e.cfg.Policy.Decided(ctx, id)
}

// object reports whether the arguments of a call are a JSON object, and returns them.
func object(input string) (json.RawMessage, bool) {
	if input == "" {
		return json.RawMessage("{}"), true
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(input), &members) != nil || members == nil {
		return nil, false
	}
	return json.RawMessage(input), true
}
