package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// actionAsk is the action that begins a run.
const actionAsk capability.Action = "chat.ask"

// spelling is the form of tool names that every model service accepts.
var spelling = compile.Spelling{Dialect: naming.Strict64}

// invocation returns a call for a run, without a target.
func (e *Engine) invocation(row Run, who capability.Principal) capability.Invocation {
	var from *capability.Context
	if row.Route != nil {
		from = &capability.Context{Route: row.Route}
	}
	return capability.Invocation{
		Context: from, Parent: row.ID, Surface: "agent", Client: "chat", Principal: who, Session: row.Session, Audience: capability.AudienceAgent,
		Within: e.cfg.Within,
	}
}

// offer returns the tools that a run begins with: those that the person's assistant may call, and
// further ones by their names.
func (e *Engine) offer(row Run, who capability.Principal, further []string) ([]tool, error) {
	agent, permitted, err := e.cfg.Path.Agent(e.invocation(row, who))
	if err != nil {
		return nil, err
	}
	limits := compile.Limits{Exposure: agent.Snapshot().Settings().Exposure, ByName: true, Own: serversOwn}
	limits.Exposure.MaxDirect, limits.Exposure.MaxSchemaBytes = maxTools, maxSchemas
	shown, err := agent.Expose(limits)
	if err != nil {
		return nil, err
	}
	var out []tool
	add := func(x *compile.Action) {
		if x.Canonical == actionAsk { // a run begins no other
			return
		}
		if len(x.Entries) == 1 && !mcpwire.AppOf(x.Entries[0].Contribution.Definition).Model {
			return // a tool for the pages of its server
		}
		if slices.ContainsFunc(x.Entries, permitted) && (!e.cfg.ReadOnly || x.Effect() == capability.EffectRead) {
			if t, ok := definition(agent, x); ok && !slices.ContainsFunc(out, func(o tool) bool { return o.Name == t.Name }) {
				out = append(out, t)
			}
		}
	}
	for _, x := range shown.Direct {
		add(x)
	}
	for _, name := range further[:min(len(further), maxDescribed)] {
		x, ok := agent.Action(name)
		if !ok {
			x, ok = spelling.Read(agent, name)
		}
		if ok {
			add(x)
		}
	}
	return out, nil
}

// serversOwn reports whether an entry is a function of junctor itself.
func serversOwn(e *catalog.Entry) bool { return e.Module.Origin == "core" }

// definition returns a tool as the model sees it.
func definition(agent *compile.Agent, x *compile.Action) (tool, bool) {
	schema, err := x.InputSchema()
	if err != nil {
		return tool{}, false
	}
	about := strings.TrimSpace(cmp.Or(x.Description, x.Title))
	return tool{Name: spelling.Write(agent, x), Description: text.ClipBytes(about, maxDescription), Schema: jsonx.Raw(schema)}, true
}

// attempt is one call that is about to be made.
type attempt struct {
	index  int
	call   call
	action *compile.Action // nil: the model named none
	inv    capability.Invocation
	fault  string // why it is not made
}

// act makes the calls of the last answer that have no result, in their order; neighbouring reads
// are made at the same time. A call that needs an approval is parked.
func (e *Engine) act(ctx context.Context, r *run, who capability.Principal) error {
	r.mu.Lock()
	row, number := r.row, len(r.conv.steps)-1
	calls := slices.Clone(r.conv.steps[number].calls)
	r.mu.Unlock()
	agent, permitted, err := e.cfg.Path.Agent(e.invocation(row, who))
	if err != nil {
		return err
	}
	var attempts []attempt
	for i, c := range calls {
		if c.result == nil {
			attempts = append(attempts, e.prepare(agent, row, who, number, i, c))
		}
	}
	for len(attempts) > 0 {
		n := 1
		for n < len(attempts) && attempts[0].reads() && attempts[n].reads() {
			n++
		}
		group, inner := errgroup.WithContext(ctx)
		group.SetLimit(maxParallel)
		for _, a := range attempts[:n] {
			group.Go(func() error { return e.make(inner, r, agent, permitted, a) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		attempts = attempts[n:]
	}
	return nil
}

func (a *attempt) reads() bool { return a.action != nil && a.action.Effect() == capability.EffectRead }

// prepare resolves the name of a call and its arguments.
func (e *Engine) prepare(agent *compile.Agent, row Run, who capability.Principal, number, i int, c call) attempt {
	a := attempt{index: i, call: c, inv: e.invocation(row, who)}
	x, ok := spelling.Read(agent, c.Name)
	if !ok {
		a.fault = fmt.Sprintf("no tool has the name %q; catalog_search finds tools", text.CutBytes(c.Name, 100))
		return a
	}
	input, ok := object(c.Input)
	if !ok {
		a.fault = "the arguments are not a JSON object; call the tool again with arguments that match its schema"
		return a
	}
	arguments, selector, err := x.CutSelector(input)
	if err != nil {
		a.fault = capability.AsError(err).Message
		return a
	}
	a.action, a.inv.Input = x, arguments
	a.inv.Target = capability.Target{Action: x.Canonical, Select: selector}
	if !a.reads() {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", row.ID, number, i))
		a.inv.IdempotencyKey = "agent-" + hex.EncodeToString(sum[:16])
	}
	return a
}

// make carries out one call and stores its result. Its error ends the run.
func (e *Engine) make(ctx context.Context, r *run, agent *compile.Agent, permitted func(*catalog.Entry) bool, a attempt) error {
	if a.fault != "" {
		return e.store(ctx, r, result{Call: a.index, Text: a.fault, Failed: true}, nil)
	}
	if p := a.call.parked; p != nil {
		got, err := e.decided(ctx, p.Approval)
		switch {
		case err != nil:
			return err
		case got.State == policy.ApprovalPending:
			return nil
		case got.State == policy.ApprovalDenied:
			return e.store(ctx, r, result{
				Call: a.index, Failed: true, Text: "The call was not made: a person denied it.", Decision: got.State,
			}, nil)
		case got.State == policy.ApprovalExpired:
			return e.store(ctx, r, result{
				Call: a.index, Failed: true, Text: "The call was not made: its approval expired before a person answered it.", Decision: got.State,
			}, nil)
		}
		// The key of an idempotent call is bound to its target, which was one capability then.
		a.inv.Target, a.inv.Approval = capability.Target{Capability: p.Capability}, p.Approval
	} else if !e.count(r) {
		return e.store(ctx, r, result{Call: a.index, Failed: true, Text: "The call was not made: the limit of calls is reached."}, nil)
	}
	r.mu.Lock()
	a.inv.Tainted = r.conv.taint
	r.mu.Unlock()
	reply, err := e.cfg.Path.Invoke(ctx, a.inv)
	cause := context.Cause(ctx)
	if err != nil && cause != nil && !errors.Is(cause, errCancelled) {
		return cause // it is presented again when the run continues
	}
	failure := capability.AsError(err)
	if failure != nil && failure.Code == capability.CodeApprovalRequired {
		if approval, _ := failure.Details["approval"].(string); approval != "" && a.call.asks < maxAsks {
			r.mu.Lock()
			defer r.mu.Unlock()
			return e.save(context.WithoutCancel(ctx), r, r.conv, entry{kind: kindParked, doc: parked{a.index, approval, reply.Capability}})
		}
	}
	out := result{Call: a.index, Text: resultText(reply, failure), Failed: failure != nil, Error: failure, Tainted: true}
	out.Done = &Done{Name: a.action.Name, Invocation: reply.Invocation, Effect: a.action.Effect(), Failed: failure != nil}
	if entry, ok := agent.Snapshot().Capability(reply.Capability); ok {
		out.Done.Effect, out.Done.Name = entry.Effect, entry.Name()
		if mcpwire.AppOf(entry.Contribution.Definition).Resource != "" && failure == nil && len(a.inv.Input)+len(reply.Result) <= maxPage {
			out.Done.Page, out.Page = true, &Page{entry.Action, jsonx.Raw(a.inv.Input), jsonx.Raw(reply.Result)}
		}
	}
	if a.call.parked != nil {
		out.Done.Approval = a.call.parked.Approval
	}
	var described *compile.Action
	if failure == nil && a.action.Canonical == compile.ActionDescribe {
		var in struct{ Name string }
		if json.Unmarshal(a.inv.Input, &in) == nil {
			if x, ok := agent.Action(in.Name); ok && slices.ContainsFunc(x.Entries, permitted) {
				described = x
			}
		}
	}
	var more *tool
	if described != nil {
		if t, ok := definition(agent, described); ok {
			more = &t
		}
	}
	return e.store(ctx, r, out, more)
}

// count adds a call to the run's number; ok is false if the limit is reached.
func (e *Engine) count(r *run) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok = r.row.ToolCalls < e.cfg.Budget.ToolCalls; ok {
		r.row.ToolCalls++
		r.used.ToolCalls++
	}
	return ok
}

// store appends the result of a call, and a tool that it described.
func (e *Engine) store(ctx context.Context, r *run, out result, more *tool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := []entry{{kind: kindResult, doc: out}}
	if more != nil && len(r.conv.tools) < maxTools+maxDescribed &&
		!slices.ContainsFunc(r.conv.tools, func(t tool) bool { return t.Name == more.Name }) {
		entries = append(entries, entry{kind: kindTools, doc: []tool{*more}})
	}
	return e.save(context.WithoutCancel(ctx), r, r.conv, entries...)
}

// resultText returns what the model learns of a call.
func resultText(reply invoke.Reply, failure *capability.Error) string {
	if failure != nil {
		s := fmt.Sprintf("The call failed (%s): %s", failure.Code, failure.Message)
		if failure.Code == capability.CodeConflict && failure.Reason == invoke.ReasonInterrupted {
			s = "The call was interrupted, and its outcome is unknown. Do not repeat it; look at what it was to change."
		}
		if failure.Hint != "" {
			s += "\nHint: " + failure.Hint
		}
		if len(reply.Result) > 0 {
			s += "\n" + reply.Text()
		}
		return cut(s)
	}
	return cut(reply.Text())
}

func cut(s string) string {
	if len(s) <= maxResult {
		return s
	}
	kept := text.CutBytes(s, maxResult-maxCutNote)
	return kept + fmt.Sprintf("\n[cut: the first %d of %d bytes]", len(kept), len(s))
}
