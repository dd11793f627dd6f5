package invoke

import (
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
)

// unwrap replaces catalog.call and catalog.callRead by the action that they name. A call
// through a generic action is judged, approved and recorded as a call of the inner action.
// If the caller may not see the inner action, the answer is the same as for one that does
// not exist.
func (r *run) unwrap(candidates []*catalog.Entry) ([]*catalog.Entry, error) {
	door := candidates[0].Action
	if door == actionInvokeFunction {
		return r.unwrapFunction(candidates)
	}
	if door != compile.ActionCall && door != compile.ActionCallRead {
		return candidates, nil
	}
	var in struct {
		Name      string    `json:"name"`
		Arguments jsonx.Raw `json:"arguments"`
	}
	if err := jsonx.UnmarshalStrict(r.inv.Input, &in); err != nil || in.Name == "" {
		return nil, capability.Errorf(capability.CodeInvalidInput, "resolve", "%s takes a name and an object of arguments",
			door).With("invalid_args", "find names with catalog.search")
	}
	if len(in.Arguments) == 0 {
		in.Arguments = jsonx.Raw("{}")
	}
	if in.Arguments[0] != '{' {
		return nil, capability.Errorf(capability.CodeInvalidInput, "resolve", "the arguments of %s are an object", door).With("invalid_args", "")
	}
	action, err := search.Tools{Spelling: compile.Spelling{}}.Inner(r.agent, in.Name, door == compile.ActionCallRead)
	if err != nil {
		return nil, err
	}
	arguments, selector, err := action.CutSelector(json.RawMessage(in.Arguments))
	if err != nil {
		return nil, err
	}
	r.inv.Target = capability.Target{Action: action.Canonical, Select: selector}
	r.inv.Input, r.argsHash = arguments, ""
	r.via = door
	inner, err := visible(r.agent.Snapshot(), r.inv.Target, r.inv.Audience)
	if err == nil && inner[0].Action == actionInvokeFunction { // a generic action inside a generic action
		return r.unwrapFunction(inner)
	}
	return inner, err
}
