package invoke

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
)

const (
	// actionInvokeFunction is the generic action for the functions of nodes.
	actionInvokeFunction = capability.Action("device.function.invoke")
	// selectAny is the value of the selector field node that requests balancing.
	selectAny = "any"
	// moreTries is the number of other nodes to which a balanced call may go if the first
	// node provably did not start it.
	moreTries = 2
)

// balance chooses one of the nodes that offer a function, if the caller requested it or if the
// function only reads and no selector is given. It sets the call's selector to that node and
// r.balanced to the nodes for a fallback. Otherwise it changes nothing, and arbitration
// decides. It returns the candidates, or the error of Config.Balance.
func (r *run) balance(ctx context.Context, candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	wanted := r.inv.Balance != nil || r.inv.Target.Select["node"] == selectAny
	if r.engine.cfg.Balance == nil || !wanted && (len(candidates) < 2 || len(r.inv.Target.Select) > 0 || !harmless(candidates)) {
		return candidates, nil
	}
	selector := maps.Clone(r.inv.Target.Select)
	delete(selector, "node")
	among := slices.DeleteFunc(slices.Clone(candidates), func(e *catalog.Entry) bool {
		_, kind, _ := e.Key().Parts()
		reason, _ := r.agent.Frame.Candidate(e, audienceOf(r.inv.Audience))
		return kind != "node" || reason != "" || !e.Eligible() || e.Provider == nil || len(selector) > 0 && !arbitration.Matches(e, selector)
	})
	if len(among) == 0 && !wanted {
		return candidates, nil // arbitration reports the reason
	}
	var b capability.Balance
	if r.inv.Balance != nil {
		b = *r.inv.Balance
	}
	asked, err := r.asked(ctx, among)
	if err != nil {
		return nil, err
	}
	b.Preferred = append(asked, b.Preferred...)
	order, err := r.engine.cfg.Balance(b, among)
	if err != nil {
		return nil, err
	}
	r.inv.Target.Select = capability.Selector{"provider": string(order[0].Key())}
	r.balanced = slices.Clone(order[1:min(len(order), 1+moreTries)])
	if r.balanced == nil {
		r.balanced = []*catalog.Entry{}
	}
	return candidates, nil
}

// asked returns the nodes with an approval request for this call, approved ones first. A
// repeated call must go to the same node, because otherwise a person would be asked about one
// node after the other. It returns none if no approval is required.
func (r *run) asked(ctx context.Context, among []*catalog.Entry) (nodes []string, err error) {
	if human(r.inv.Principal) || !slices.ContainsFunc(among, func(e *catalog.Entry) bool {
		v := r.engine.cfg.Policy.Authorize(r.inv.Principal, e)
		return v.Consent != "" || r.agent.Frame.Approval(e, v.Waives)
	}) {
		return nil, nil
	}
	about, err := r.engine.cfg.Policy.AskedAbout(ctx, r.inv.Principal, inputDigest(r.inv.Input))
	if err != nil {
		return nil, capability.AsError(err)
	}
	for _, id := range about {
		for _, e := range among {
			if e.ID == id {
				_, _, node := e.Key().Parts()
				nodes = append(nodes, node)
			}
		}
	}
	return nodes, nil
}

// harmless reports whether all candidates are nodes with the same function, which only reads. It
// returns false if another kind of provider offers the function too, because balancing must
// not take the call from that one.
func harmless(candidates []*catalog.Entry) bool {
	return strings.HasPrefix(string(candidates[0].Action), "fn.") && !slices.ContainsFunc(candidates, func(e *catalog.Entry) bool {
		_, kind, _ := e.Key().Parts()
		return kind != "node" || e.Effect != capability.EffectRead || e.Action != candidates[0].Action
	})
}

// balancedMayFallBack reports whether a node has provably not started the call.
func balancedMayFallBack(err error) bool {
	code := capability.CodeOf(err)
	return code == capability.CodeUnavailable || code == capability.CodeOverloaded
}

// unwrapFunction replaces device.function.invoke by the function that it names. Functions
// with one name on several nodes remain several candidates.
func (r *run) unwrapFunction(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	var in struct {
		Function  string    `json:"function"`
		Args      jsonx.Raw `json:"args"`
		TimeoutMS float64   `json:"timeoutMs"`
	}
	if err := jsonx.UnmarshalStrict(r.inv.Input, &in); err != nil || in.Function == "" || in.TimeoutMS < 0 {
		return nil, capability.Errorf(capability.CodeInvalidInput, "resolve", "%s takes function, args and timeoutMs", actionInvokeFunction).
			With("invalid_args", "junctor nodes list names the nodes, junctor nodes show NODE the functions of one (device.function.list)")
	}
	if r.inv.IdempotencyKey != "" { // the providers of the function may change between two calls with one key
		r.digest = callDigest(r.inv)
	}
	snap := r.agent.Snapshot()
	var found []*catalog.Entry
	selector := maps.Clone(r.inv.Target.Select)
	if n := selector["node"]; n == selectAny || n == selectAll {
		delete(selector, "node")
	}
	for _, e := range candidates {
		if len(selector) > 0 && !arbitration.Matches(e, selector) {
			continue
		}
		for _, inner := range functionsOf(snap, e.Module, in.Function) {
			if inner.VisibleTo(audienceOf(r.inv.Audience)) {
				found = append(found, inner)
			}
		}
	}
	// Entries of other users are hidden, both from the choice and from messages.
	all := found
	found, denied := r.engine.permitted(&r.inv, all)
	if len(found) == 0 && len(all) > 0 {
		if human(r.inv.Principal) {
			found = all[:1] // authorize reports which rule it is
		} else {
			r.entry, r.verdict, r.hidden = all[0], denied, true
		}
	}
	if len(found) == 0 {
		return nil, capability.Errorf(capability.CodeUnknownCapability, "resolve", "no node that you can reach offers the function %q",
			in.Function).
			With("function_not_found", "list the functions of a node with device.function.list")
	}
	if i := slices.IndexFunc(found, func(e *catalog.Entry) bool { return e.Action != found[0].Action }); i >= 0 {
		return nil, capability.Errorf(capability.CodeSelectionRequired, "resolve", "the function %q is another one on %s than on %s",
			in.Function, found[0].Module.Label, found[i].Module.Label).
			With("selection_ambiguous", fmt.Sprintf("name the node with the selector node=%s", found[0].Module.Label))
	}
	r.inv.Target = capability.Target{Action: found[0].Action, Select: r.inv.Target.Select}
	if found[0].Minted() && len(found) == 1 && !r.asksAllNodes() {
		r.inv.Target = capability.Target{Capability: found[0].ID}
	}
	if r.inv.Input, r.argsHash = []byte(in.Args), ""; len(in.Args) == 0 || string(in.Args) == "null" {
		r.inv.Input = []byte("{}")
	}
	if in.TimeoutMS > 0 {
		wanted := time.Duration(min(in.TimeoutMS, float64(r.engine.cfg.MaxTimeout.Milliseconds()))) * time.Millisecond
		if r.inv.Timeout == 0 || wanted < r.inv.Timeout {
			r.inv.Timeout = wanted
		}
	}
	r.via = actionInvokeFunction
	return found, nil
}

// functionsOf returns the entries of a function of a node: its own, and those of skills
// installed there, which are modules of the same endpoint.
func functionsOf(snap *catalog.Snapshot, node *capability.Module, function string) []*catalog.Entry {
	member := capability.Member{Module: node.Extension, Kind: "function", Name: function}
	if own := snap.Member(member); len(own) > 0 {
		return own
	}
	for m := range snap.Modules() {
		if m.Endpoint != node.Endpoint || m.Extension == node.Extension {
			continue
		}
		member.Module = m.Extension
		if of := snap.Member(member); len(of) > 0 {
			return of
		}
	}
	return nil
}

// narrow returns the entries of the node that the caller names, because judging thousands
// for a call that can go to one of them costs more than the call. If that node may not be
// called, narrow returns all entries, so that the answer does not change.
func (r *run) narrow(candidates []*catalog.Entry) []*catalog.Entry {
	node := r.inv.Target.Select["node"]
	if len(candidates) <= minNarrowed || node == "" || node == selectAny || node == selectAll {
		return candidates
	}
	var of []*catalog.Entry
	for _, e := range candidates {
		if arbitration.Matches(e, r.inv.Target.Select) {
			of = append(of, e)
		}
	}
	if permitted, _ := r.engine.permitted(&r.inv, of); len(permitted) == 0 {
		return candidates
	}
	r.narrowed = true
	return of
}
