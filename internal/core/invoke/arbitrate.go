package invoke

import (
	"context"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// arbitrate chooses one of the permitted candidates, stores it in r, and checks the input against
// its schema. rest holds the candidates to which a fallback may go. If all are unavailable,
// it probes them first. Errors: those of the selection and of balancing; invalid_input for a
// composed action or a schema mismatch; unavailable without a provider; the context's end.
func (r *run) arbitrate(ctx context.Context, candidates []*catalog.Entry) (rest []*catalog.Entry, err error) {
	candidates, err = r.balance(ctx, candidates)
	if err != nil {
		return nil, err
	}
	req := request(&r.inv, candidates)
	if r.narrowed {
		req = arbitration.Request{Selector: r.inv.Target.Select, Audience: r.inv.Audience, Only: candidates}
	}
	sel, err := r.agent.Select(req)
	if capability.CodeOf(err) == capability.CodeUnavailable {
		if woken := wake(ctx, candidates); woken != nil {
			req.Awake = func(e *catalog.Entry) bool { return e == woken }
			sel, err = r.agent.Select(req)
		}
	}
	r.explain(sel)
	if err != nil {
		r.choose(candidates[0]) // for the record
		if ended := r.ended(ctx); ended != nil {
			return nil, ended // the result of the probe came too late
		}
		return nil, err
	}
	if sel.Entry == nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "arbitrate",
			"%s is a chain of %d members that runs as a whole; name one of them", r.inv.Target, len(sel.Composed)).
			With("composed", "call one by its capability id")
	}
	r.choose(sel.Entry)
	r.selection.Step, r.selection.DecidedBy, r.selection.Fallback = sel.Step, sel.DecidedBy, sel.Fallback
	if sel.Entry.Provider == nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "arbitrate", "%s is declared, but its source offers no provider for it",
			sel.Entry.Key()).
			With("provider_unavailable", "see junctor doctor")
	}
	if !r.verdict.Permitted { // the rules were replaced since authorize
		_, err := r.authorize([]*catalog.Entry{sel.Entry})
		return nil, err
	}
	if err := checkSchema(sel.Entry, r.inv.Input); err != nil {
		return nil, err
	}
	if r.balanced != nil {
		r.selection.DecidedBy = "balanced"
		return r.balanced, nil
	}
	return sel.Rest, nil
}

// request returns the arbitration request: an action whose other entries are denied, or the
// entries that a capability id or a member names.
func request(inv *capability.Invocation, permitted []*catalog.Entry) arbitration.Request {
	req := arbitration.Request{Selector: inv.Target.Select, Audience: inv.Audience}
	if inv.Target.Action == "" {
		req.Only = permitted
		return req
	}
	req.Action = permitted[0].Action
	req.Denied = deniedBut(permitted)
	return req
}

// deniedBut denies all entries except the given ones. Thousands of nodes may offer one
// function and each is looked up, so a long list becomes a set.
func deniedBut(permitted []*catalog.Entry) func(*catalog.Entry) bool {
	const long = 16
	if len(permitted) <= long {
		return func(e *catalog.Entry) bool { return !slices.Contains(permitted, e) }
	}
	set := make(map[*catalog.Entry]struct{}, len(permitted))
	for _, e := range permitted {
		set[e] = struct{}{}
	}
	return func(e *catalog.Entry) bool {
		_, ok := set[e]
		return !ok
	}
}

// wake probes the providers that are marked unavailable, one after the other, and returns
// the first that is available again.
func wake(ctx context.Context, candidates []*catalog.Entry) *catalog.Entry {
	for _, e := range candidates {
		prober, ok := e.Provider.(capability.Prober)
		if !ok || e.Eligible() || e.Contribution.Unsupported {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		err := prober.Probe(ctx)
		cancel()
		if err == nil {
			return e
		}
	}
	return nil
}

// choose makes e the entry of the call and sets its verdict. A rule of the catalog or the source
// may require an approval that the principal's rules do not; a principal that may approve
// does not need it.
func (r *run) choose(e *catalog.Entry) {
	r.entry = e
	r.verdict = r.engine.cfg.Policy.Authorize(r.inv.Principal, e)
	if r.verdict.Permitted && r.verdict.Consent == "" && !human(r.inv.Principal) &&
		r.agent.Frame.Approval(e, r.verdict.Waives) {
		r.verdict.Consent = policy.ChannelOperator
	}
}

func human(p capability.Principal) bool {
	return p.Role == capability.RoleAdmin || p.Role == capability.RoleOperator
}

// explain reports the choice to Config.Explain.
func (r *run) explain(sel *arbitration.Selection) {
	if r.engine.cfg.Explain != nil {
		r.selection.ExplanationID = r.engine.cfg.Explain(&r.inv, r.agent, sel)
	}
}

// checkSchema checks the input, or the arguments that the provider extracts from it, against
// the entry's input schema. An entry without schema accepts any input.
func checkSchema(e *catalog.Entry, input []byte) error {
	schema, err := e.Schema()
	if err != nil || schema == nil {
		return err
	}
	if p, ok := e.Provider.(capability.Arguer); ok {
		if input, err = p.Arguments(input); err != nil || input == nil {
			return err
		}
	}
	return schema.Check(input)
}

// mayFallBack reports whether a call that did not start may go to another provider. That
// requires ranked mode, no pin that is a promise, and no selector of the caller.
func (r *run) mayFallBack(err error) bool {
	if r.balanced != nil {
		return balancedMayFallBack(err)
	}
	row := r.entry.Row
	return row != nil && row.Mode == "ranked" && row.Pin == "soft" &&
		len(r.inv.Target.Select) == 0 && r.inv.Target.Action != "" &&
		capability.CodeOf(err) == capability.CodeUnavailable
}

// Plan is the predicted path of an invocation, without consent, execution and audit.
type Plan struct {
	Entry     *catalog.Entry         // nil when Err is set before the choice
	Denied    []*catalog.Entry       // empty for principals that must not see them
	Selection *arbitration.Selection // nil if there was no candidate
	Agent     *compile.Agent
	Verdict   policy.Verdict
	Err       error

	inv capability.Invocation // as unwrapped from a generic action
}

// Plan returns the plan of an invocation, for --dry-run and catalog explain. It changes
// nothing.
func (e *Engine) Plan(ctx context.Context, inv capability.Invocation) Plan {
	r := run{engine: e, inv: inv}
	all, err := r.resolve()
	if err == nil {
		if len(r.inv.Input) == 0 {
			r.inv.Input = []byte("{}")
		}
		// a request that names only the generic action gets the plan of that action
		if through, why := r.unwrap(all); len(inv.Input) > 0 || why == nil {
			all, err = through, why
		} else {
			r.inv = inv
		}
	}
	p := Plan{Agent: r.agent, Err: err, inv: r.inv}
	if err != nil {
		return p
	}
	permitted, _ := e.permitted(&inv, all)
	if human(inv.Principal) {
		for _, entry := range all {
			if !e.authorize(&inv, entry).Permitted {
				p.Denied = append(p.Denied, entry)
			}
		}
	}
	if len(permitted) == 0 {
		p.Err = capability.UnknownCapability(inv.Target)
		return p
	}
	if permitted, p.Err = r.balance(ctx, permitted); p.Err != nil {
		return p
	}
	if p.Selection, p.Err = r.agent.Select(request(&r.inv, permitted)); p.Err != nil || p.Selection.Entry == nil {
		return p
	}
	r.choose(p.Selection.Entry)
	p.Entry, p.Verdict = r.entry, r.verdict
	if len(inv.Input) > 0 {
		p.Err = checkSchema(p.Entry, r.inv.Input)
	}
	return p
}

// Preview returns the plan, and the provider's exact preview of the call if it supports
// previews. It changes nothing.
func (e *Engine) Preview(ctx context.Context, inv capability.Invocation) (Plan, capability.Preview, error) {
	p := e.Plan(ctx, inv)
	if p.Err != nil || p.Entry == nil {
		return p, capability.Preview{}, p.Err
	}
	r := run{engine: e, inv: p.inv, context: ContextOf(&inv), agent: p.Agent, entry: p.Entry}
	err := r.foresee(ctx)
	if asks := r.confirms(); r.preview.Confirm == "" {
		r.preview.Confirm = asks
	}
	return p, r.preview, err
}

// List returns every entry that the principal may reach in the audience, ready or not.
// Entries that the rules deny are omitted.
func (e *Engine) List(who capability.Principal, audience capability.Audience) []*catalog.Entry {
	var out []*catalog.Entry
	for entry := range e.cfg.Catalog.Snapshot().Entries() {
		if entry.VisibleTo(audience) && e.cfg.Policy.Authorize(who, entry).Permitted {
			out = append(out, entry)
		}
	}
	return out
}

// Agent returns the agent catalog for an invocation's context, and a function that reports
// whether its principal may call an entry.
func (e *Engine) Agent(inv capability.Invocation) (agent *compile.Agent, permitted func(*catalog.Entry) bool, err error) {
	if inv.Context != nil {
		if err := inv.Context.Check(); err != nil {
			return nil, nil, err
		}
	}
	agent = e.cfg.Compiler.Compile(ContextOf(&inv))
	if e.cfg.Compiled != nil {
		e.cfg.Compiled(agent)
	}
	return agent, func(entry *catalog.Entry) bool {
		return e.authorize(&inv, entry).Permitted
	}, nil
}
