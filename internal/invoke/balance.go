package invoke

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
	"github.com/junctor-run/junctor/internal/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/jsonx"
)

const (
	// actionInvokeFunction is the generic door to the functions of nodes.
	actionInvokeFunction = capability.Action("device.function.invoke")
	// selectAny is the value of the selector field node that asks for balancing.
	selectAny = "any"
	// moreTries is how many other nodes a balanced call may go to when the first
	// provably did not start (nodes spec, section 18.2).
	moreTries = 2
)

// balance narrows the nodes that offer a function to one, where the caller asked
// for that or could not mind: a read (decision R51). It counts as the caller's own
// selector; anything else is left to arbitration, which asks for one.
func (r *run) balance(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	asked := r.inv.Balance != nil || r.inv.Target.Select["node"] == selectAny
	if r.engine.cfg.Balance == nil || !asked && (len(candidates) < 2 || len(r.inv.Target.Select) > 0 || !harmless(candidates)) {
		return candidates, nil
	}
	selector := maps.Clone(r.inv.Target.Select)
	delete(selector, "node")
	among := slices.DeleteFunc(slices.Clone(candidates), func(e *catalog.Entry) bool {
		_, kind, _ := e.Key().Parts()
		reason, _ := r.agent.Frame.Candidate(e, audienceOf(r.inv.Audience))
		return kind != "node" || reason != "" || !e.Eligible() || e.Provider == nil || len(selector) > 0 && !arbitration.Matches(e, selector)
	})
	if len(among) == 0 && !asked {
		return candidates, nil // arbitration says why
	}
	var b capability.Balance
	if r.inv.Balance != nil {
		b = *r.inv.Balance
	}
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

// harmless reports whether all are the same reading function of nodes.
func harmless(candidates []*catalog.Entry) bool {
	return strings.HasPrefix(string(candidates[0].Action), "fn.") && !slices.ContainsFunc(candidates, func(e *catalog.Entry) bool {
		return e.Effect != capability.EffectRead || e.Action != candidates[0].Action
	})
}

// balancedMayFallBack reports whether a node has provably not started the call.
func balancedMayFallBack(err error) bool {
	code := capability.CodeOf(err)
	return code == capability.CodeUnavailable || code == capability.CodeOverloaded
}

// unwrapFunction takes the function that device.function.invoke names in its place
// (decision R17). Functions of one name on several nodes stay several candidates.
func (r *run) unwrapFunction(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	var in struct {
		Function  string    `json:"function"`
		Args      jsonx.Raw `json:"args"`
		TimeoutMS float64   `json:"timeoutMs"`
	}
	if err := jsonx.UnmarshalStrict(r.inv.Input, &in); err != nil || in.Function == "" || in.TimeoutMS < 0 {
		return nil, capability.Errorf(capability.CodeInvalidInput, "resolve", "%s takes function, args and timeoutMs", actionInvokeFunction).
			With("invalid_args", "list the functions of a node with device.function.list")
	}
	snap := r.agent.Snapshot()
	var found []*catalog.Entry
	for _, e := range candidates {
		if s := maps.Clone(r.inv.Target.Select); len(s) > 0 {
			if s["node"] == selectAny || s["node"] == selectAll {
				delete(s, "node")
			}
			if len(s) > 0 && !arbitration.Matches(e, s) {
				continue
			}
		}
		for _, inner := range functionsOf(snap, e.Module, in.Function) {
			if inner.VisibleTo(audienceOf(r.inv.Audience)) {
				found = append(found, inner)
			}
		}
	}
	if len(found) == 0 {
		return nil, capability.Errorf(capability.CodeUnknownCapability, "resolve", "no node that you can reach offers the function %q", in.Function).
			With("function_not_found", "list the functions of a node with device.function.list")
	}
	if i := slices.IndexFunc(found, func(e *catalog.Entry) bool { return e.Action != found[0].Action }); i >= 0 {
		return nil, capability.Errorf(capability.CodeSelectionRequired, "resolve", "the function %q is another one on %s than on %s", in.Function, found[0].Module.Label, found[i].Module.Label).
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

// functionsOf finds a function of a node: its own, or that of a skill installed
// there, which is a module of the same endpoint.
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
