package invoke

import (
	"context"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/policy"
)

// probeWithin bounds the question whether a provider marked unavailable is back.
const probeWithin = time.Second

// arbitrate chooses one of the permitted candidates and checks the input against
// its schema. rest holds the ones a fallback may go to.
func (r *run) arbitrate(ctx context.Context, candidates []*catalog.Entry) (rest []*catalog.Entry, err error) {
	wake := func(e *catalog.Entry) bool {
		prober, ok := e.Provider.(capability.Prober)
		if !ok {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, probeWithin)
		defer cancel()
		return prober.Probe(ctx) == nil
	}
	sel, err := catalog.Select(r.inv.Target, candidates, wake)
	if err != nil {
		r.choose(candidates[0]) // for the record
		if ended := r.ended(ctx); ended != nil {
			return nil, ended // what the question found out is of no use
		}
		return nil, err
	}
	r.choose(sel.Entry)
	r.selection = Selection{Step: sel.Step, DecidedBy: sel.DecidedBy, Fallback: sel.Fallback}
	if !r.verdict.Permitted { // the rules were replaced since authorize
		_, err := r.authorize([]*catalog.Entry{sel.Entry})
		return nil, err
	}
	if err := checkSchema(sel.Entry, r.inv.Input); err != nil {
		return nil, err
	}
	return sel.Rest, nil
}

func (r *run) choose(e *catalog.Entry) {
	r.entry = e
	r.verdict = r.engine.cfg.Policy.Authorize(r.inv.Principal, e)
}

func checkSchema(e *catalog.Entry, input []byte) error {
	schema, err := e.Schema()
	if err != nil || schema == nil {
		return err
	}
	return schema.Check(input)
}

// mayFallBack says whether a call that did not start may go to another provider:
// only in ranked mode, only where no pin is a promise, and never past a selector
// of the caller.
func (r *run) mayFallBack(err error) bool {
	row := r.entry.Row
	return row != nil && row.Mode == "ranked" && row.Pin == "soft" &&
		len(r.inv.Target.Select) == 0 && r.inv.Target.Action != "" &&
		capability.CodeOf(err) == capability.CodeUnavailable
}

// Plan is what would happen to an invocation: the path without consent, execute
// and audit. It changes nothing.
type Plan struct {
	Entry      *catalog.Entry // nil when Err is set before the choice
	Candidates []*catalog.Entry
	Denied     []*catalog.Entry // empty for principals who must not know of them
	Selection  catalog.Selection
	Verdict    policy.Verdict
	Err        error
}

// Plan answers --dry-run and catalog explain.
func (e *Engine) Plan(inv capability.Invocation) Plan {
	var p Plan
	all, err := visible(e.cfg.Catalog.Snapshot(), inv.Target, inv.Audience)
	if err != nil {
		p.Err = err
		return p
	}
	p.Candidates, _ = e.permitted(inv.Principal, all)
	if inv.Principal.Role == capability.RoleAdmin || inv.Principal.Role == capability.RoleOperator {
		for _, entry := range all {
			if !e.cfg.Policy.Authorize(inv.Principal, entry).Permitted {
				p.Denied = append(p.Denied, entry)
			}
		}
	}
	if p.Selection, p.Err = catalog.Select(inv.Target, p.Candidates, nil); p.Err != nil {
		return p
	}
	p.Entry = p.Selection.Entry
	p.Verdict = e.cfg.Policy.Authorize(inv.Principal, p.Entry)
	if len(inv.Input) > 0 {
		p.Err = checkSchema(p.Entry, inv.Input)
	}
	return p
}

// List is the catalog as this principal may see it in the audience: what the
// rules deny is not there, what is not ready is.
func (e *Engine) List(who capability.Principal, audience capability.Audience) []*catalog.Entry {
	var out []*catalog.Entry
	for _, entry := range e.cfg.Catalog.Snapshot().Entries {
		if entry.VisibleTo(audience) && e.cfg.Policy.Authorize(who, entry).Permitted {
			out = append(out, entry)
		}
	}
	return out
}
