package host

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/junctor-run/junctor/capability"
)

// ModuleOf returns a module with the functions that are registered in h as its actions.
// content is the function's input; its result is the action's data, wrapped as
// {"value": …} if it is not an object. Functions registered later are not included; calls
// of replaced or removed ones have the result of h.
func ModuleOf(id, name string, h *Host) Module {
	m := Module{ID: id, Name: name}
	for _, f := range h.Functions() {
		a := Action{Name: f.Name(), Description: f.Description, Parameters: f.InputSchema}
		a.Description = cmp.Or(a.Description, f.Title)
		if a.Description == "" {
			a.Description = f.Name() // a canonical action may have neither
		}
		a.Handle = func(ctx context.Context, content, _ json.RawMessage) (ActionResult, error) {
			result, err := h.Invoke(ctx, capability.Call{Member: capability.Member{Module: id, Kind: "action", Name: f.ID}, Input: content})
			if err != nil {
				return ActionResult{}, err
			}
			if isObject(result.Value) {
				return ActionResult{Data: result.Value}, nil
			}
			if len(result.Value) == 0 {
				return ActionResult{}, nil
			}
			return ActionResult{Data: map[string]any{"value": result.Value}}, nil
		}
		m.Actions = append(m.Actions, a)
	}
	return m
}
